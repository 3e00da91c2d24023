"""Pages of the site that are made from the code when it is built, and links to what is outside this folder."""

import re
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from inspect import getsource
from pathlib import Path
from typing import Any, Final

import typer

ROOT: Final = Path(__file__).parents[1]
OF_ROOT: Final = {  # files beside the folder docs -> pages
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "reporting.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
    "RELEASING.md": "releasing.md",
}
LINK: Final = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\])\((?!https?:)([^)#\s]+)(#[^)\s]*)?\)")


def on_config(config: Any) -> Any:
    """Folders in the navigation, written as `folder/*.md`, become their pages."""

    def expanded(entry: Any) -> list[Any]:
        if isinstance(entry, dict):
            return [
                {title: [e for own in of_it for e in expanded(own)] if isinstance(of_it, list) else of_it}
                for title, of_it in entry.items()
            ]
        if "*" not in entry:
            return [entry]
        found = (path.relative_to(ROOT / "docs").as_posix() for path in sorted((ROOT / "docs").glob(entry)))
        return [name for name in found if not name.endswith("README.md")]

    config.nav = [new for entry in config.nav for new in expanded(entry)]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are made here."""
    from mkdocs.structure.files import File

    made = {
        "reference/cli.md": cli_page(),
        "reference/settings.md": settings_page(),
        "reference/python.md": python_page(),
        **{page: moved((ROOT / name).read_text(encoding="utf-8")) for name, page in OF_ROOT.items()},
    }
    for name, content in made.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links to files that are no pages become their names; there is no page to show."""

    def link(found: re.Match[str]) -> str:
        words, path, heading = found[1], found[2], found[3] or ""
        target = Path(page.file.src_uri).parent / path
        place = (ROOT / "docs" / target).resolve()
        if place.parent == ROOT and place.name in OF_ROOT:
            up = "../" * (len(Path(page.file.src_uri).parts) - 1)
            return f"{words}({up}{OF_ROOT[place.name]}{heading})"
        if place.exists() and not place.is_relative_to(ROOT / "docs"):
            return f"{words[1:-1]} (`{place.relative_to(ROOT)}`)"
        return found[0]

    return LINK.sub(link, markdown)


def moved(text: str) -> str:
    """A page of the root, as it is in docs: its links lose `docs/`, or get `../`."""

    def link(found: re.Match[str]) -> str:
        words, path, heading = found[1], found[2], found[3] or ""
        if (ROOT / path).is_relative_to(ROOT / "docs"):
            own = path.removeprefix("docs/")
            return f"{words}({own + '/README.md' if (ROOT / path).is_dir() else own}{heading})"
        return f"{words}({OF_ROOT[path] if path in OF_ROOT else '../' + path}{heading})"

    return LINK.sub(link, text)


def cli_page() -> str:
    """Every command with its usage, arguments and options."""
    from pacfl.cli import app

    parts = ["# Every option of every command", "Made from the code. [commands.md](../commands.md) explains them.", ""]
    for path, command in _commands(typer.main.get_command(app), "pacfl"):
        usage = " ".join(command.collect_usage_pieces(command.context_class(command)))
        parts += [f"## `{path}`", "", command.help or "", "", f"    {path} {usage}", ""]
        rows = [_option(option) for option in command.params if option.name != "help"]
        if rows:
            parts += ["| option | default | meaning |", "|---|---|---|", *rows, ""]
    return "\n".join(parts)


def _commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, own in sorted(getattr(command, "commands", {}).items()):
        if not own.hidden:
            yield from _commands(own, f"{path} {name}")


def _option(option: Any) -> str:
    names = ", ".join(
        f"`{name}`" for name in (option.opts if option.opts[0].startswith("-") else [option.name.upper()])
    )
    default = "" if option.default in (None, False, ()) or callable(option.default) else f"`{option.default}`"
    return f"| {names} | {_cell(default)} | {_cell(getattr(option, 'help', None) or '')} |"


def settings_page() -> str:
    """Every section of an experiment file, and every algorithm, with the keys, their defaults and their meaning."""
    from pacfl.algorithms import NAMES, find
    from pacfl.experiment.config import KINDS, Evaluation, Net

    kinds = {**KINDS, "model": Net, "evaluation": Evaluation}
    about = "Made from the code. [experiments.md](../experiments.md) explains them, with an example."
    parts = ["# Every key of an experiment", about, ""]
    for name, kind in kinds.items():
        parts += [f"## `[{name}]`", "", *_keys(kind)]
    parts += ["## `[[algorithm]]`", "", "Beside `name`. Each links to its card, which explains them.", ""]
    for name in NAMES:
        own = _keys(find(name), leave_out=("aggregation",))
        parts += [f"### {name}", "", f"[The card of {name}](../algorithms/{name}.md)", "", *own]
    return "\n".join(parts)


def _keys(kind: type, leave_out: tuple[str, ...] = ()) -> list[str]:
    said = dict(re.findall(r"^    (\w+): .*?  # (.*)$", getsource(kind), flags=re.MULTILINE))
    own = [field for field in fields(kind) if field.name not in leave_out]  # type: ignore[arg-type]  # dataclasses all
    rows = [f"| `{f.name.replace('_', '-')}` | {_cell(_default(f))} | {_cell(said.get(f.name, ''))} |" for f in own]
    return ["| key | default | meaning |", "|---|---|---|", *rows, ""] if rows else ["No keys.", ""]


def _default(field: "Field[Any]") -> str:
    value = field.default_factory() if field.default_factory is not MISSING else field.default
    return "" if value is MISSING else f"`{value!r}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("[", "\\[")


def python_page() -> str:
    """What `import pacfl` offers, by the part that has it."""
    import pacfl

    parts = ["# Python", "What `import pacfl` offers. [python.md](../python.md) explains it, with examples.", ""]
    for part, names in pacfl._PARTS.items():
        parts += [f"## {part}", ""]
        for name in names:
            found = getattr(pacfl, name)
            module = getattr(found, "__module__", None)
            place = f"{module}.{found.__qualname__}" if module and hasattr(found, "__qualname__") else f"{part}.{name}"
            parts += [f"::: {place}", ""]
    return "\n".join(parts)
