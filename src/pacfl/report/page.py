"""Runs -> one page of HTML that needs nothing else."""

import json
from functools import cache
from pathlib import Path
from typing import Any, Final

from pacfl import __version__
from pacfl.errors import MissingLibraryError
from pacfl.files import write_atomically
from pacfl.report.experiments import experiments
from pacfl.report.facts import NEWCOMERS, Gathered
from pacfl.report.noise import TEST
from pacfl.report.payload import payload

ASSETS: Final = Path(__file__).parent / "assets"
MAIN: Final = ("received", "personal")
PROTOCOLS: Final = {
    "received": "the model as sent down",
    "personal": "after the method's own personalisation from there",
    "last_trained": "the weights that the client last trained itself: how published code scores clustered methods",
    f"{NEWCOMERS}received": "clients who came after the last round, with the model that they were given",
    f"{NEWCOMERS}personal": "the same clients, after the method's own personalisation",
    f"{NEWCOMERS}fine_tuned": "the same clients, after some epochs of plain training from there",
}


def write(gathered: Gathered, path: Path) -> int:
    """Write the page in one step; its size in bytes."""
    return write_atomically(path, page(gathered).encode())


def page(gathered: Gathered) -> str:
    """The page."""
    try:
        from jinja2 import Environment, FileSystemLoader
        from markupsafe import Markup
    except ImportError:
        raise MissingLibraryError("reports need jinja2: pip install 'pacfl[report]'") from None
    found = experiments(gathered.runs)
    known = {protocol for experiment in found for protocol in experiment.protocols}
    environment = Environment(loader=FileSystemLoader(ASSETS), autoescape=True)
    return environment.get_template("page.html").render(
        version=__version__,
        n_runs=len(gathered.runs),
        federations=gathered.federations,
        experiments=found,
        unfinished=gathered.unfinished,
        test=TEST,
        main=MAIN,
        protocols={p: meaning for p, meaning in PROTOCOLS.items() if p in known},
        css=Markup(_text("page.css")),
        data=Markup(embedded(payload(found, gathered.federations))),
        library=Markup(_closed(library())),
        script=Markup(_closed("\n".join(_text(path.name) for path in sorted(ASSETS.glob("*.js"))))),
    )


def embedded(value: Any) -> str:
    """JSON that no browser takes for the end of a script, whatever names are in it."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def library() -> str:
    """Vega-Lite, which draws figures of many runs: about 900 kB."""
    try:
        import vl_convert
    except ImportError:
        raise MissingLibraryError("reports need vl-convert-python: pip install 'pacfl[report]'") from None
    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return bundle


def _closed(script: str) -> str:
    """A script that does not end before its end."""
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _text(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")
