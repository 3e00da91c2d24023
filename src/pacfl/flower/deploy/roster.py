"""Who may take part, at the server: keys at its SuperLink, and what its operator has decided about them.

Decisions are stored before keys are unregistered, so that a command that was interrupted can be given again.
"""

from pathlib import Path

from pacfl.errors import DeployError
from pacfl.flower import site_changes
from pacfl.flower.client_registry import fingerprint
from pacfl.flower.deploy import registration
from pacfl.flower.deploy.registration import SiteKey


def admit(server: Path, public: bytes, name: str) -> None:
    """Let a key take part under a name. One that was removed is the same client again."""
    refuse_retired(server, public)
    registration.register(server, public, name)
    welcome(server, public)


def welcome(server: Path, public: bytes) -> None:
    """Wait for a site again, if it had been removed; its key may be registered later."""
    changes = site_changes.read(server)
    if fingerprint(public) in changes.removed:
        site_changes.write(server, changes.admit(fingerprint(public)))


def expel(server: Path, name: str) -> tuple[str, ...]:
    """Unregister all keys of a name, and wait for them no more; their fingerprints."""
    former = _keys_of(server, name)
    for one in former:
        site_changes.write(server, site_changes.read(server).remove(one.fingerprint))
        registration.unregister(server, one.node)
    return tuple(one.fingerprint for one in former)


def exchange(server: Path, name: str, public: bytes) -> tuple[str, ...]:
    """Register a key in the place of those that a name has, as the same client; the fingerprints of the others."""
    new = fingerprint(public)
    others = [one for one in _keys_of(server, name) if one.fingerprint != new]
    if not others:
        raise DeployError(f"{name} has this key already: {new}")
    refuse_retired(server, public)
    registration.register(server, public, name)
    for one in others:
        site_changes.write(server, site_changes.read(server).replace(one.fingerprint, new))
    for one in others:
        registration.unregister(server, one.node)
    return tuple(one.fingerprint for one in others)


def check_registered(server: Path, name: str) -> None:
    """Refuse a name under which no key is registered."""
    _keys_of(server, name)


def refuse_retired(server: Path, public: bytes) -> None:
    """Refuse a key in whose place there is another: it may be in wrong hands."""
    if fingerprint(public) in site_changes.read(server).retired():
        raise DeployError(
            f"the key {fingerprint(public)} was replaced by another one; make a new key: {registration.CREATE}"
        )


def unknown(name: str, others: list[str]) -> DeployError:
    """The error for a name that no site has."""
    return DeployError(f"no site is called {name!r}; there {'are ' + ', '.join(others) if others else 'is none'}")


def _keys_of(server: Path, name: str) -> list[SiteKey]:
    known = registration.registered(server)
    found = [one for one in known if one.name == name]
    if not found:
        raise unknown(name, sorted(one.name for one in known))
    return found
