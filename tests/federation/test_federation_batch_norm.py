"""Models with batch normalisation in federations: statistics that are averaged, and layers that stay at clients."""

from pathlib import Path

import numpy as np
import pytest
from flwr.app import Context, RecordDict
from torch import nn

from pacfl.algorithms import build
from pacfl.errors import ConfigError
from pacfl.federation.aggregation import Aggregation
from pacfl.federation.algorithm import Algorithm, Upload
from pacfl.federation.client_side import ClientIndices, ClientSide, Pool, Setup
from pacfl.federation.local import LocalBackend, LocalClients
from pacfl.federation.local_layers import OWN
from pacfl.federation.message import ClientId
from pacfl.federation.rounds import Round, rounds
from pacfl.federation.schedule import Schedule, round_plans
from pacfl.flower import wire
from pacfl.flower.client_handlers import handle
from pacfl.flower.client_memory import ClientMemory
from pacfl.flower.message_types import EVALUATE, TRAIN
from pacfl.learning.client_context import LocalTraining, Samples
from pacfl.learning.model import BatchNorm, Model, Vector, as_model
from tests.small_federation import NAMES, lively, same

RNG = np.random.default_rng(0)
SIZES = (11, 30, 60)
X = RNG.normal(size=(sum(SIZES), 6)).astype(np.float32)
X[:41] = 5 * X[:41] + 3  # two clients have another scale
DATA = Samples(X, (X @ RNG.normal(size=6) > X.mean()).astype(np.int64))
ENDS = np.cumsum(SIZES)
POOL = Pool(
    DATA,
    DATA,
    X,
    tuple(ClientIndices(np.arange(e - n, e), np.arange(e - n, e)) for n, e in zip(SIZES, ENDS, strict=True)),
)
LEARNING = LocalTraining(2, 10, 0.05)


def model(batch_norm: BatchNorm = "averaged") -> Model:
    def net() -> nn.Module:
        return nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 2))

    return as_model(net, 0, batch_norm)


def side(algorithm: Algorithm, batch_norm: BatchNorm = "averaged") -> ClientSide:
    return ClientSide(Setup(algorithm, model(batch_norm), POOL, LEARNING, 0))


def run(
    algorithm: Algorithm, batch_norm: BatchNorm = "averaged", n_rounds: int = 2, workers: int = 1
) -> tuple[list[Round], LocalClients]:
    own = model(batch_norm)
    schedule = Schedule(rounds=n_rounds, participation=1.0, evaluate_every=1, personal_every=1)
    with LocalBackend(workers).connect(Setup(algorithm, own, POOL, LEARNING, 0)) as clients:
        plans = round_plans(schedule, 3, 0)
        return list(rounds(algorithm, clients, algorithm.init_server(own), plans)), clients


def trained(t: int, w: Vector, client: ClientId, batch_norm: BatchNorm = "averaged") -> Vector:
    """What a client trains from w, as the round's engine does."""
    _, _, last = side(build("fedavg"), batch_norm).train(t, client, {"w": w}, {})
    assert last is not None
    return last


@pytest.mark.parametrize("batch_norm", ["averaged", "local"])
@pytest.mark.parametrize("name", [*NAMES, "fedbn"])
def test_every_algorithm_trains_such_a_model(name: str, batch_norm: BatchNorm) -> None:
    """Variances stay positive, and losses fall; server optimisers refuse to step by variances."""
    if lively(name).server_optimiser is not None and batch_norm == "averaged":
        with pytest.raises(ConfigError, match="running variances"):
            run(lively(name), batch_norm)
        return
    history, clients = run(lively(name), batch_norm, n_rounds=3)
    own = model(batch_norm)
    for w in clients.last_trained.values():
        assert np.isfinite(w).all()
    variances = own.statistics & (own.initial == 1)
    models = history[-1].state.models
    if models.ndim == 2 and models.shape[1] == len(own.initial):
        assert (models[:, variances] > 0).all()
    first, last = (np.mean([s.loss for s in r.scores["received"].values()]) for r in (history[0], history[2]))
    assert last < first


def test_the_number_of_workers_changes_no_bit() -> None:
    results = [run(build("scaffold"), "local", workers=workers) for workers in (1, 2)]
    assert same(results[0][0][-1].state, results[1][0][-1].state)
    assert same(results[0][1].memory, results[1][1].memory)
    assert results[0][0][-1].scores == results[1][0][-1].scores


def test_statistics_are_averaged_by_size_as_all_weights() -> None:
    own = model()
    history, _ = run(build("fedavg"), n_rounds=1)
    expected = np.average([trained(0, own.initial, c) for c in range(3)], axis=0, weights=SIZES)
    np.testing.assert_allclose(history[0].state.models[0], expected, atol=1e-6)
    assert np.abs(expected - own.initial)[own.statistics].max() > 0.1


def test_fednova_averages_statistics_as_fedavg_does() -> None:
    """Clients take 2, 6 and 12 steps: as directions the statistics would be extrapolated."""
    own = model()
    nova, avg = (run(build(name), n_rounds=1)[0][0].state.models[0] for name in ("fednova", "fedavg"))
    np.testing.assert_allclose(nova[own.statistics], avg[own.statistics], atol=1e-5)
    assert np.abs(nova - avg)[~own.statistics].max() > 1e-3


def test_scaffold_has_no_control_variate_for_statistics() -> None:
    own = model()
    history, clients = run(build("scaffold"), n_rounds=2)
    assert not history[-1].state.control[own.statistics].any()
    assert all(not memory["c"][own.statistics].any() for memory in clients.memory.values())
    assert np.abs(history[-1].state.control[~own.statistics]).max() > 0


def test_cfl_compares_updates_of_weights_alone() -> None:
    own, algorithm = model(), build("cfl")
    state = algorithm.admit(algorithm.init_server(own), {0: {}, 1: {}})
    still = own.initial + 100 * own.statistics.astype(np.float32)
    after = algorithm.aggregate(state, [Upload(0, 1, {"w": still}), Upload(1, 1, {"w": own.initial})])
    assert after.update_norms == ((0, 0.0, 0.0),)
    moved = algorithm.aggregate(state, [Upload(0, 1, {"w": own.initial + np.float32(1)})])
    assert moved.update_norms[0][1] == pytest.approx(np.sqrt((~own.statistics).sum()))


def test_lg_fedavg_shares_the_statistics_of_its_last_layers_only() -> None:
    own, algorithm = model(), build("lg-fedavg", shared_layers=2)
    assert len(algorithm.init_server(own).models[0]) == 5 * 6 + 5 + 4 * 5 + 2 * 5 + 2
    assert len(algorithm.init_client(own)["body"]) == 4 * 6


# Layers that stay


def test_local_layers_are_fedbn() -> None:
    """The oracle keeps all weights of every client, and averages the others by hand."""
    own = model("local")
    weights = dict.fromkeys(range(3), own.initial)
    for t in range(2):
        weights = {c: trained(t, w, c) for c, w in weights.items()}
        shared = np.average(list(weights.values()), axis=0, weights=SIZES).astype(np.float32)
        weights = {c: np.where(own.local, w, shared) for c, w in weights.items()}
    history, clients = run(build("fedavg"), "local")
    for c, expected in weights.items():
        np.testing.assert_allclose(clients.memory[c][OWN], expected[own.local], atol=1e-5)
    server = history[1].state.models[0]
    np.testing.assert_allclose(server[~own.local], weights[0][~own.local], atol=1e-5)
    assert server[own.local].tobytes() == own.initial[own.local].tobytes(), "they are never sent"
    assert np.abs(weights[0] - weights[2])[own.local].max() > 0.1


def test_fedbn_is_fedavg_with_local_layers_to_the_bit() -> None:
    """Only what is sent differs: without these layers, or with their initial values in their place."""
    one, other = run(build("fedbn"), n_rounds=3), run(build("fedavg"), "local", n_rounds=3)
    own = model().normalisation
    assert 0 < own.sum() < len(own)
    for a, b in zip(one[0], other[0], strict=True):
        assert same(a.state.models, b.state.models[:, ~own])
        assert a.scores == b.scores
        assert a.bytes_down * len(own) == b.bytes_down * (~own).sum()
    for c in range(3):
        assert same(one[1].memory[c]["norm"], other[1].memory[c][OWN])
    twice = run(build("fedbn"), "local", n_rounds=3)
    assert [r.scores for r in twice[0]] == [r.scores for r in one[0]]


def test_the_label_prior_of_fedbn_is_that_of_fedavg_with_local_layers() -> None:
    """The output bias is among the weights that are sent, behind others that are not."""
    one, other = run(build("fedbn", label_prior=True)), run(build("fedavg", label_prior=True), "local")
    assert [r.scores for r in one[0]] == [r.scores for r in other[0]]
    assert one[0][-1].scores["received"] != run(build("fedbn"))[0][-1].scores["received"]


def test_fedbn_refuses_models_without_normalisation() -> None:
    plain = as_model(lambda: nn.Linear(6, 2), 0)
    with pytest.raises(ConfigError, match=r"no layer with running statistics: use fedavg, or a net with nn.BatchNorm"):
        build("fedbn").init_server(plain)


def test_a_client_is_evaluated_with_its_own_layers() -> None:
    own = model("local")
    history, clients = run(build("fedavg"), "local")
    given, down = side(build("fedavg"), "local"), {"w": history[1].state.models[0]}
    for c in range(3):
        received = given.received(1, c, down, clients.memory[c])
        assert received[own.local].tobytes() == clients.memory[c][OWN].tobytes()
        assert clients.last_trained[c][own.local].tobytes() == clients.memory[c][OWN].tobytes()
        outputs, losses = given.engine.evaluate(
            received, Samples(X[POOL.client_indices[c].test], DATA.y[POOL.client_indices[c].test])
        )
        assert outputs.shape == (SIZES[c], 2)
        assert history[1].scores["received"][c].loss == pytest.approx(float(losses.mean()), abs=1e-6)
        personal = given.personal(1, c, down, clients.memory[c])
        assert np.abs(personal - received)[own.local].max() > 0, "it trained them too"
        assert given.received(1, c, down, clients.memory[c]).tobytes() == received.tobytes()


def test_fedprox_pulls_own_layers_to_where_they_began() -> None:
    """With a strong pull they hardly move from there, and not back to the initial ones."""
    own = model("local")
    far = {OWN: own.initial[own.local] + np.float32(0.5)}
    learning = LocalTraining(5, 10, 0.001, 0.0)
    weak, strong = (
        ClientSide(Setup(build("fedprox", mu=mu), own, POOL, learning, 0)).train(0, 2, {"w": own.initial}, far)[1][OWN]
        for mu in (0.0, 500.0)
    )
    weights = ~own.statistics[own.local]
    assert np.abs(strong - far[OWN])[weights].max() < 0.5 * np.abs(weak - far[OWN])[weights].max()


def test_local_layers_are_in_the_memory_of_a_flower_client(tmp_path: Path) -> None:
    """Two rounds by messages are two rounds here."""
    own, algorithm = model("local"), build("fedavg")
    down = {"w": own.initial}
    expected: dict[str, np.ndarray] = {}
    for t in range(2):
        about = {"round": t, "client": 1, "federation": "f", "safe": 0}
        context = Context(1, 1, {}, RecordDict(), {})
        reply = handle(TRAIN, wire.pack(down, about), context, lambda *_: (side(algorithm, "local"), tmp_path))
        up, expected, _ = side(algorithm, "local").train(t, 1, down, expected)
        assert same(wire.unpack(reply, 10**6), up)
        memory, last = ClientMemory(tmp_path / "f" / "1").before(t + 1)
        assert memory is not None
        assert last is not None
        assert same(dict(memory), dict(expected))
        assert last[own.local].tobytes() == memory[OWN].tobytes()
    about = {"round": 1, "client": 1, "federation": "f", "personal": True, "fine-tune": 1}
    handle(EVALUATE, wire.pack(down, about), context, lambda *_: (side(algorithm, "local"), tmp_path))


def test_noise_is_not_added_to_variances() -> None:
    """A negative one has no root; at the client there is no noise on them."""
    noisy = build("fedavg", aggregation=Aggregation(clip_norm=1.0, noise_multiplier=1.0, noise="seeded"))
    with pytest.raises(ConfigError, match=r"may then be negative; leave .* batch-norm = \"local\""):
        side(noisy)
    kept = build("fedbn", aggregation=noisy.aggregation)
    assert np.isfinite(run(kept)[0][-1].state.models).all()
    history, clients = run(noisy, "local")
    variances = (model("local").initial == 1)[model("local").local] & model("local").statistics[model("local").local]
    assert all((memory[OWN][variances] > 0).all() for memory in clients.memory.values())
    assert np.isfinite(history[-1].state.models).all()
