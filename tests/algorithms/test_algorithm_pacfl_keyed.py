"""PACFL with signatures whose directions the server cannot see."""

from pathlib import Path

import numpy as np
import pytest

from pacfl.algorithms import PACFL, build
from pacfl.errors import ConfigError, DataError
from pacfl.experiment.config import expand
from pacfl.federation.message import Message
from pacfl.federation.private import KEY_ID, keyed_profile, used_key
from pacfl.signatures.keys import key_id
from tests.small_federation import model, pool, same, side

CLIENTS = pool(("upright", "negative"), (60, 80, 100))
KEY, OTHER = b"a key of the federation", b"another key of all sites"


@pytest.fixture
def key(tmp_path: Path) -> str:
    (tmp_path / "key").write_bytes(KEY)
    return str(tmp_path / "key")


def profiles(algorithm: PACFL) -> dict[int, Message]:
    made = {c: side(algorithm, CLIENTS).profile(0, c) for c in range(6)}
    for profile in made.values():
        algorithm.check_profile(model(), profile)
    return made


@pytest.mark.parametrize("settings", [{}, {"compare": "inputs"}, {"clusters": 2}], ids=str)
def test_clusters_are_those_of_plain_signatures(key: str, settings: dict[str, object]) -> None:
    plain, keyed = build("pacfl", **settings), build("pacfl", signature_key=key, **settings)
    states = [one.admit(one.init_server(model()), profiles(one)) for one in (plain, keyed)]  # type: ignore[arg-type]
    assert states[0].cluster_of == states[1].cluster_of
    assert np.allclose(states[0].clustering.proximity, states[1].clustering.proximity, atol=1e-4)
    assert [state.key for state in states] == [None, key_id(KEY)]


def test_the_noise_of_private_signatures_comes_before_the_key(key: str) -> None:
    settings = {"signature_epsilon": 2.0, "signature_noise": "seeded"}
    plain, keyed = (profiles(PACFL(**settings, **given))[0] for given in ({}, {"signature_key": key}))  # type: ignore[arg-type]
    assert same(keyed_profile(plain, KEY), keyed)
    assert not np.allclose(plain["basis"], keyed["basis"], atol=0.1)


def test_who_has_another_key_or_none_cannot_join(key: str) -> None:
    """Of those who come first, most are right; of later ones, those who were there."""
    plain, right = profiles(PACFL()), profiles(PACFL(signature_key=key))
    wrong = {c: keyed_profile(profile, OTHER) for c, profile in plain.items()}
    algorithm = PACFL()
    start = algorithm.init_server(model())
    mixed = {**{c: right[c] for c in (0, 1, 2)}, 3: wrong[3], 4: plain[4]}
    why = algorithm.incompatible(start, mixed)
    assert set(why) == {3, 4}
    assert why[3].startswith(f"directions of its signature have key {key_id(OTHER)}, those of others key {key_id(KEY)}")
    assert "have no key, those of others" in why[4]
    state = algorithm.admit(start, {c: right[c] for c in (0, 1)})
    assert set(algorithm.incompatible(state, {c: wrong[c] for c in (2, 3, 4)})) == {2, 3, 4}
    assert algorithm.incompatible(state, {5: right[5]}) == {}
    unkeyed = algorithm.admit(start, {c: plain[c] for c in (0, 1)})
    assert set(algorithm.incompatible(unkeyed, {2: right[2]})) == {2}


def test_the_id_travels_and_is_the_key_s(key: str) -> None:
    profile = profiles(PACFL(signature_key=key))[0]
    assert used_key(profile) == key_id(KEY)
    assert profile[KEY_ID].dtype.kind == "i"
    with pytest.raises(ConfigError, match="keyed already"):
        keyed_profile(profile, KEY)


def test_the_hash_of_a_run_has_the_digest_of_the_key_and_never_the_key(key: str) -> None:
    table = {"data": {"name": "digits", "clients": 4}, "schedule": {"rounds": 1}}
    contents, hashes = [], set()
    for written in (KEY, OTHER):
        Path(key).write_bytes(written)
        (run,) = expand({**table, "algorithm": {"name": "pacfl", "signature-key": key}})
        contents.append(str(run.content()))
        hashes.add(run.hash)
        assert written.decode() not in contents[-1]
        assert key_id(written) in contents[-1]
    assert len(hashes) == 2


def test_a_key_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the key cannot be read"):
        PACFL(signature_key=str(tmp_path / "none"))
    (tmp_path / "short").write_text("short")
    with pytest.raises(DataError, match="a key has 16 to 65536 bytes, got 5; make one with 'pacfl key FILE'"):
        PACFL(signature_key=str(tmp_path / "short"))


def test_algorithms_without_signatures_have_nothing_to_hide() -> None:
    assert build("fedavg").keyed({}, KEY) == {}
    with pytest.raises(ConfigError, match="FedAvg sends counts about the data, which a key does not hide"):
        build("fedavg").keyed({"counts": np.ones(3)}, KEY)
