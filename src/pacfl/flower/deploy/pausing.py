"""The operator of a site pauses it: no request is answered, and nothing leaves it, until it resumes."""

from pathlib import Path
from typing import Final

from pacfl.errors import DeployError

FILE: Final = "paused"  # in the folder of a site


def is_paused(site: Path) -> bool:
    """Whether a site is paused."""
    return (site / FILE).exists()


def pause(site: Path) -> bool:
    """Pause a site, from the next request on; whether it was not paused before."""
    _check(site)
    before = is_paused(site)
    (site / FILE).touch(mode=0o600)
    return not before


def resume(site: Path) -> bool:
    """Let a site answer again; whether it was paused before."""
    _check(site)
    before = is_paused(site)
    (site / FILE).unlink(missing_ok=True)
    return before


def _check(site: Path) -> None:
    if not (site / "start.sh").exists() or not (site / "site.config").exists():
        raise DeployError(f"{site} is not the folder of a site; expected the one with its start.sh and site.config")
