"""Private signatures at a site: asked again, it says the same, and spends no more than its operator allows."""

from pathlib import Path

import numpy as np
import pytest
from flwr.app import Context, RecordDict

from pacfl.algorithms import build
from pacfl.errors import BudgetError
from pacfl.federation.algorithm import Algorithm
from pacfl.federation.message import Message
from pacfl.federation.private import promised
from pacfl.flower import wire
from pacfl.flower.answering import TOLD, answer
from pacfl.flower.message_types import SIGNATURE
from pacfl.flower.signature_ledger import Told
from tests.flower.fake_grid import home_of
from tests.small_federation import lively, same

PRIVATE = {"name": "pacfl", "signature_epsilon": 2.0}


def asked(
    algorithm: Algorithm, memory: Path, t: int = 0, federation: str = "f", client: int = 2, **config: float
) -> Message:
    """What a client of the small federation tells of its data."""
    content = wire.pack({}, {"round": t, "client": client, "federation": federation})
    context = Context(1, 1, {key.replace("_", "-"): value for key, value in config.items()}, RecordDict(), {})
    return wire.unpack(answer(SIGNATURE, content, context, home_of(algorithm, memory)), 10**6)


def test_whoever_asks_again_is_told_the_same(tmp_path: Path) -> None:
    """In a later round, after a restart, or in another federation."""
    first = asked(build(**PRIVATE), tmp_path)
    assert same(asked(build(**PRIVATE), tmp_path, t=5, federation="g"), first)
    assert Told(tmp_path / TOLD).spent() == 2.0


def test_without_what_was_told_the_noise_is_another(tmp_path: Path) -> None:
    """Or the test above would hold by itself."""
    first = asked(build(**PRIVATE), tmp_path / "a")
    assert not np.array_equal(asked(build(**PRIVATE), tmp_path / "b")["basis"], first["basis"])


@pytest.mark.parametrize("other", [{"rank": 2}, {"signature_epsilon": 3.0}, {"measure": "sum"}])
def test_another_question_costs_anew(tmp_path: Path, other: dict[str, object]) -> None:
    asked(build(**PRIVATE), tmp_path)
    second = build(**{**PRIVATE, **other})
    asked(second, tmp_path)
    assert Told(tmp_path / TOLD).spent() == 2.0 + second.signature_epsilon  # type: ignore[attr-defined]


def test_other_data_cost_anew(tmp_path: Path) -> None:
    first, second = (asked(build(**PRIVATE), tmp_path, client=c) for c in (2, 5))
    assert not np.array_equal(first["basis"], second["basis"])
    assert Told(tmp_path / TOLD).spent() == 4.0


def test_a_site_spends_no_more_than_its_operator_allows(tmp_path: Path) -> None:
    first = asked(build(**PRIVATE), tmp_path, most_epsilon=3.0)
    with pytest.raises(BudgetError, match="at most epsilon 3; 2 are spent, 2 are asked for"):
        asked(build(**{**PRIVATE, "rank": 2}), tmp_path, most_epsilon=3.0)
    assert same(asked(build(**PRIVATE), tmp_path, most_epsilon=3.0), first)


@pytest.mark.parametrize("open_handed", [{"name": "pacfl"}, {**PRIVATE, "private_noise": "seeded"}])
def test_a_site_with_a_budget_tells_nothing_that_is_not_private(tmp_path: Path, open_handed: dict[str, object]) -> None:
    """Noise that whoever knows the seed can take off again is none."""
    with pytest.raises(BudgetError, match="asked to tell without any"):
        asked(build(**open_handed), tmp_path, most_epsilon=3.0)


def test_who_is_asked_for_nothing_spends_nothing(tmp_path: Path) -> None:
    assert asked(lively("fedavg"), tmp_path, most_epsilon=0.0) == {}


def test_what_was_told_is_the_sites_own(tmp_path: Path) -> None:
    asked(build(**PRIVATE), tmp_path)
    assert (tmp_path / TOLD).stat().st_mode & 0o077 == 0


def test_only_secret_noise_is_a_promise() -> None:
    assert promised(build(**PRIVATE)) is not None
    for algorithm in (build("pacfl"), build("fedavg"), build(**PRIVATE, private_noise="seeded")):
        assert promised(algorithm) is None


def test_a_signature_does_not_tell_the_number_of_samples(tmp_path: Path) -> None:
    content = wire.pack({}, {"round": 0, "client": 2, "federation": "f"})
    reply = answer(SIGNATURE, content, Context(1, 1, {}, RecordDict(), {}), home_of(build(**PRIVATE), tmp_path))
    assert wire.about(reply) == {"round": 0}
