"""Runs -> one page of HTML that needs nothing else."""

import json
from dataclasses import dataclass
from functools import cache
from math import floor, log10
from pathlib import Path
from typing import Any, Final

from pacfl import __version__
from pacfl.errors import library
from pacfl.experiment.seeds import TEST, SeedMean
from pacfl.experiment.summary import in_percent
from pacfl.files import write_atomically
from pacfl.report.experiments import experiments, protocol_place
from pacfl.report.payload import payload
from pacfl.report.summary import NEWCOMERS, ON_TEST, ReportData

ASSETS: Final = Path(__file__).parent / "assets"
POLICY: Final = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:"
)
LIVE_POLICY: Final = f"{POLICY}; connect-src 'self'"
FAIRNESS_PROTOCOLS: Final = ("received", "personal")
PROTOCOLS: Final = {
    "received": "the model as sent by the server",
    "personal": "after the method's own personalisation of it",
    "last_trained": "the weights that the client last trained itself: how published code scores clustered methods",
    f"{NEWCOMERS}received": "clients that joined after the last round, with the model as sent by the server",
    f"{NEWCOMERS}personal": "the same clients, after the method's own personalisation",
    f"{NEWCOMERS}fine_tuned": "the same clients, after some epochs of plain training of that model",
}


def write(report: ReportData, path: Path) -> int:
    """Write the page in one step; its size in bytes."""
    return write_atomically(path, page(report).encode())


@dataclass(frozen=True)
class Live:
    """What a page follows: it asks its server how far it is."""

    name: str
    version: str  # of what the page reports


def page(report: ReportData, live: Live | None = None) -> str:
    """The page."""
    jinja2, markup = library("jinja2", "a report", "report"), library("markupsafe", "a report", "report").Markup
    found = experiments(report.runs)
    known = {protocol for experiment in found for protocol in experiment.protocols}
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(ASSETS), autoescape=True)
    environment.filters |= {"capitalised": lambda text: text[:1].upper() + text[1:], "decimals": decimals}
    metrics = {name for experiment in found for name in (experiment.metric, *experiment.metrics)}
    scripts = sorted(path.name for path in ASSETS.glob("[0-9]*.js"))
    html: str = environment.get_template("page.html").render(
        version=__version__,
        live=live,
        policy=LIVE_POLICY if live is not None else POLICY,
        n_runs=len(report.runs),
        federations=report.federations,
        experiments=found,
        shares={name for name in metrics if in_percent(name)},
        unfinished=report.unfinished,
        test=TEST,
        fairness_protocols=FAIRNESS_PROTOCOLS,
        protocols={p: meaning for p in sorted(known, key=protocol_place) if (meaning := _meaning(p))},
        css=markup(text_of("page.css")),
        data=markup(embedded(payload(found, report.federations))),
        library=markup(closed(vega())),
        script=markup(closed("\n".join(map(text_of, (*scripts, *(["live.js"] if live is not None else [])))))),
    )
    return html


def _meaning(protocol: str) -> str | None:
    kind, _, plain = protocol.rpartition(ON_TEST)
    return f"{PROTOCOLS[plain]}; on {kind} test samples" if kind and plain in PROTOCOLS else PROTOCOLS.get(plain)


def decimals(value: SeedMean | None) -> int:
    """How many decimals show three digits of a mean.

    >>> [decimals(SeedMean(mean, None, ())) for mean in (0.0123, -0.5, 2.0, 1234.5)]
    [4, 3, 2, 0]
    """
    largest = abs(value.mean) if value else 0.0
    return min(max(2 - floor(log10(largest)), 0), 6) if largest else 2


def embedded(value: Any) -> str:
    """JSON that no browser takes for the end of a script, whatever names are in it."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def vega() -> str:
    """Vega-Lite, which draws the figures of many runs: about 900 kB."""
    bundle: str = library("vl_convert", "a report", "report").javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return bundle


def closed(script: str) -> str:
    """A script that does not end before its end."""
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def text_of(name: str) -> str:
    """An asset of pages."""
    return (ASSETS / name).read_text(encoding="utf-8")
