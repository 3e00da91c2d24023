"""Which apps run here: those whose SHA-256 the operator of this site, or of this server, has approved.

`approved-apps` in a site's or the server's folder is the list, one SHA-256 a line. An app includes its settings, so
these are approved with it; a run may override the number of rounds and nothing else.
"""

import difflib
import hashlib
import io
import tomllib
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pacfl.errors import DeployError
from pacfl.files import write_atomically

LIST: Final = "approved-apps"
LAST: Final = "approved.fab"  # the app that was approved last: the next is compared with it
PROPOSED: Final = "proposed.fab"  # came with the folder
REFUSED: Final = "refused.fab"  # the last that the server sent and that was not approved
MAY_CHANGE: Final = frozenset({"schedule.rounds"})
LARGEST_APP: Final = 2**26  # bytes, unpacked


def build(app: Path) -> bytes:
    """The app as Flower sends it; the same files give the same bytes."""
    import click
    from flwr.cli.build import build_fab_from_disk

    try:
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # of how Flower matches names
            content: bytes = build_fab_from_disk(app)
    except (OSError, ValueError, click.ClickException) as error:
        raise DeployError(f"{app} cannot be built as an app: {error}") from None
    return content


def digest(content: bytes) -> str:
    """The name by which an app is approved."""
    return hashlib.sha256(content).hexdigest()


def approved(folder: Path) -> set[str]:
    """The SHA-256 of all apps that may run here; none without a list."""
    try:
        return {line.strip() for line in (folder / LIST).read_text().splitlines()}
    except FileNotFoundError:
        return set()


def refusal(folder: Path, content: bytes, overridden: Iterable[str] = ()) -> str | None:
    """Why a run of an app is refused here; None if it is not."""
    name = digest(content)
    if name not in approved(folder):
        return f"the app with SHA-256 {name} is not approved; look at it with: pacfl deploy approve {folder}"
    if others := sorted(set(overridden) - MAY_CHANGE):
        return (
            f"the run overrides {', '.join(others)}, expected {', '.join(MAY_CHANGE)} at most; change the others in "
            "the app's pyproject.toml, which is approved with the app"
        )
    return None


def approve(folder: Path, content: bytes) -> None:
    """Let an app run here."""
    _write(folder / LIST, "".join(f"{name}\n" for name in sorted({*approved(folder), digest(content)})).encode())
    _write(folder / LAST, content)
    (folder / REFUSED).unlink(missing_ok=True)


def propose(folder: Path, content: bytes, name: str = PROPOSED) -> None:
    """Leave an app for the operator to look at."""
    _write(folder / name, content)


def candidate(folder: Path) -> tuple[bytes, str]:
    """The app that waits for approval at a site or a server, and where it comes from."""
    if (folder / "run.sh").exists():
        return build(folder.absolute().parent / "app"), "that of app/, beside this folder"
    for name, origin in ((REFUSED, "sent by the server, and refused"), (PROPOSED, "came with this folder")):
        if (folder / name).exists():
            return (folder / name).read_bytes(), origin
    raise DeployError(f"{folder}: no app waits for approval here; expected the folder of a site, or of a deployment")


def review(folder: Path, content: bytes) -> Iterator[str]:
    """What an operator has to see before approval: hash, files, and changes since the app that was approved last."""
    last = folder / LAST
    before, after = _files(last.read_bytes()) if last.exists() else {}, _files(content)
    yield f"SHA-256 {digest(content)}"
    if (folder / PROPOSED).exists():
        same = digest((folder / PROPOSED).read_bytes()) == digest(content)
        yield f"it is {'' if same else 'NOT '}the app that came with this folder"
    yield from (f"{_visible(name)}: {len(text):,} bytes" for name, text in after.items())
    for name in sorted({*before, *after}):
        old, new = (_lines(files.get(name, b"")) for files in (before, after))
        yield from map(_visible, difflib.unified_diff(old, new, f"approved/{name}", f"new/{name}", lineterm=""))


def settings(content: bytes) -> Mapping[str, Any]:
    """What the pyproject.toml of an app says under [tool.flwr.app.config]."""
    try:
        found = tomllib.loads(_files(content)["pyproject.toml"].decode())["tool"]["flwr"]["app"]["config"]
    except (KeyError, TypeError, ValueError) as error:
        raise DeployError(f"the app has no pyproject.toml with [tool.flwr.app.config]: {error}") from None
    return dict(found)


def _files(content: bytes) -> dict[str, bytes]:
    """The files of an app, without Flower's list of them."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = archive.infolist()
            if sum(entry.file_size for entry in entries) > LARGEST_APP or len({e.filename for e in entries}) < len(
                entries
            ):
                raise DeployError(f"the app has more than {LARGEST_APP:,} bytes, or two files of one name: refuse it")
            return {entry.filename: archive.read(entry) for entry in entries if entry.filename != ".info/CONTENT"}
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise DeployError(f"the app is not an archive of files ({error}): refuse it") from None


def _lines(content: bytes) -> list[str]:
    try:
        return content.decode().split("\n")
    except UnicodeDecodeError:
        return [f"(no text: {len(content):,} bytes with SHA-256 {digest(content)})"]


def _visible(text: str) -> str:
    """Text without characters that move the cursor or change the direction of writing: they could hide code."""
    return "".join(c if c.isprintable() or c == "\t" else ascii(c)[1:-1] for c in text)


def _write(path: Path, content: bytes) -> None:
    write_atomically(path, content)
    path.chmod(0o600)
