"""One page of Markdown with the outcomes that were exported: made again by one command, never edited by hand.

What people have to say of an item stands in NAME.md beside its outcome, and of all of them in summary.md; both are
taken over.
"""

from collections.abc import Iterator
from pathlib import Path

from pacfl.files import write_atomically
from pacfl.reproduce.items import Item, items
from pacfl.reproduce.kinds import kind_of, stored
from pacfl.reproduce.tables import markdown

HEAD = """# The paper's tables and figures, made again

Made by `pacfl reproduce --page {page} --from {source}` from the files in `{source}/`; do not edit.
[reproduction.md](reproduction.md) says how to make each item. Accuracies name their protocol:

- `received`: the model as sent down.
- `personal`: after the method's own personalisation, or local epochs, from the model as sent down.
- `last-trained`: the weights that a client last trained itself.
- `fine-tuned`: of newcomers, the model as sent down after their epochs.

Clusters are the groups that the server has a model for, the one group of everybody included; clients of SOLO and
LG-FedAvg keep models of their own besides.
Every run is named by the first characters of the hash of all its settings.
"""


def write_page(path: Path, source: Path) -> None:
    """Write the page, and its pictures into a folder beside it."""
    head = [HEAD.format(page=path, source=source), *_prose(source, "summary")]
    parts = [*head, *(part for item in items() for part in _parts(item, source, path))]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, "\n".join(parts).encode())


def _parts(item: Item, source: Path, page: Path) -> Iterator[str]:
    outcome = stored(item, source, "paper")
    yield f"## {item.number}. {item.title} ({item.paper})\n"
    yield f"`pacfl reproduce {item.name} --scale paper`\n"
    yield from _prose(source, item.name)
    if outcome is None:
        yield "Not run yet.\n"
        return
    kind = kind_of(item)
    for table in kind.tables(item, outcome):
        yield markdown(table)
    pictures = page.parent / page.stem
    for picture in kind.figures(item, outcome, pictures):
        yield f"![{item.title}]({picture.relative_to(page.parent)})\n"


def _prose(source: Path, name: str) -> Iterator[str]:
    path = source / f"{name}.md"
    if path.exists():
        yield path.read_text(encoding="utf-8")
