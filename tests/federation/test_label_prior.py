"""The label prior: what is added to logits is Bayes' rule, and nothing else of a run changes."""

from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import pacfl
from pacfl.algorithms import CFL, IFCA, PACFL, FedAvg, LGFedAvg, LocalOnly, PerFedAvg, build
from pacfl.errors import ConfigError, DataError, InvalidReplyError
from pacfl.experiment.codec import decode, encode
from pacfl.federation.aggregation import Aggregation
from pacfl.federation.algorithm import Algorithm, State, Upload
from pacfl.federation.client_side import ClientIndices, ClientSide, Pool, Setup
from pacfl.federation.label_prior import (
    CLASS_SHARES,
    class_counts,
    inapplicable,
    noted,
    prior_shift,
    sent,
    settled,
    trained_shares,
)
from pacfl.federation.message import Message
from pacfl.federation.rounds import Round
from pacfl.federation.schedule import Schedule
from pacfl.learning.client_context import LocalTraining, Samples
from pacfl.learning.model import Model, as_model, ends_in_linear
from pacfl.learning.nets import lenet5, mlp
from pacfl.settings import LATER
from tests.small_federation import CORRECTED, LEARNING, LIVELY, SEED, model, pool, run_rounds, same, side

SEVERAL = ("ifca", "clove")  # all models go down
# send models that are not trained yet
UNTRAINED = ("cfl", "fesem", "flexcfl", "flis", "fedclust", "stocfl", "feddag-clusters", "pacfl")
SCHEDULE = Schedule(rounds=3, participation=0.7, evaluate_every=1, personal_every=3)
CLASSES = 10
BIAS = slice(600, 610)  # of the net of the small federation: 64 × 8 + 8 + 8 × 10 weights before it

every = pytest.mark.parametrize("name", CORRECTED)


@cache
def run(name: str, label_prior: bool) -> list[Round]:
    return run_rounds(build(name, **LIVELY.get(name, {}), label_prior=label_prior), SCHEDULE)


def counts_of(client: int, clients: Pool | None = None) -> np.ndarray:
    own = clients or pool()
    return class_counts(own.train.y[own.client_indices[client].train], CLASSES)


# The shift


@pytest.mark.parametrize("n", [5, 40, 100_000])
def test_shares_that_agree_shift_nothing(n: int) -> None:
    """Whatever the sizes of client and cluster, and also of shares that float32 cannot hold exactly."""
    counts = n * np.array([3, 1, 0, 6])
    assert not prior_shift(counts, counts / counts.sum()).any()
    assert not prior_shift(counts, (counts / counts.sum()).astype(np.float32)).any()


def test_the_shift_follows_a_permutation_of_classes() -> None:
    rng = np.random.default_rng(0)
    counts, shares, order = rng.integers(0, 30, 12), rng.dirichlet(np.ones(12)), rng.permutation(12)
    np.testing.assert_array_equal(prior_shift(counts[order], shares[order]), prior_shift(counts, shares)[order])


def test_few_samples_shift_little() -> None:
    """Five samples of one class, ten equal classes: log (5.5 / 1) = 1.70 and log (0.5 / 1) = -0.69."""
    shift = prior_shift(np.array([5] + 9 * [0]), np.full(10, 0.1))
    np.testing.assert_allclose(shift, [np.log(5.5)] + 9 * [np.log(0.5)])


def test_with_equal_shares_of_the_cluster_it_is_the_posterior_mean_under_jeffreys_prior() -> None:
    """(n_c + 1/2) / (n + C/2) over 1/C."""
    counts = np.array([7, 0, 2, 11])
    np.testing.assert_allclose(np.exp(prior_shift(counts, np.full(4, 0.25))) / 4, (counts + 0.5) / (20 + 2))


def test_a_class_that_the_client_lacks_is_lowered_by_as_much_as_was_expected_of_it() -> None:
    shift = prior_shift(np.array([50, 50, 0, 0, 0]), np.array([0.3, 0.3, 0.39, 0.01, 0.0]))
    np.testing.assert_allclose(shift[2:], [-np.log(1 + 78), -np.log(1 + 2), 0.0])


def test_a_class_that_only_the_client_has_is_raised_by_a_finite_amount() -> None:
    assert prior_shift(np.array([10, 10]), np.array([1.0, 0.0]))[1] == pytest.approx(np.log(21))


def test_many_samples_shift_by_the_logarithm_of_the_ratio() -> None:
    p, q = np.array([0.7, 0.2, 0.1]), np.array([0.2, 0.3, 0.5])
    np.testing.assert_allclose(prior_shift(1e9 * p, q), np.log(p / q), atol=1e-7)


# Bayes' rule


def test_an_exact_posterior_becomes_that_of_the_clients_own_prior() -> None:
    """Three Gaussian classes with equal covariance: the posterior is softmax(mu_c x - |mu_c|² / 2 + log prior_c).

    A logistic model with these weights and the prior of the cluster is corrected at a client with another prior, of
    ten million samples, so that smoothing is below 1e-6. Classes are permuted too: the correction goes along.
    """
    rng = np.random.default_rng(1)
    means, p, q = rng.normal(size=(3, 4)), np.array([0.6, 0.3, 0.1]), np.array([0.1, 0.4, 0.5])
    x = rng.normal(size=(50, 4))
    for order in (np.arange(3), np.array([2, 0, 1])):
        m, own, cluster = means[order], p[order], q[order]
        likelihood = x @ m.T - (m**2).sum(axis=1) / 2
        net = as_model(lambda: nn.Linear(4, 3), 0)
        exact = np.concatenate([m.ravel(), np.log(cluster) - (m**2).sum(axis=1) / 2]).astype(np.float32)
        y = np.repeat(np.arange(3), (1e7 * own).round().astype(int)).astype(np.int64)
        data = Pool(
            Samples(np.zeros((len(y), 1), np.float32), y),
            Samples(x.astype(np.float32), np.zeros(50, np.int64)),
            np.zeros((1, 1)),
            (ClientIndices(np.arange(len(y)), np.arange(50)),),
        )
        client = ClientSide(Setup(FedAvg(label_prior=True), net, data, LEARNING, 0))
        w = client.received(0, 0, {"w": exact, CLASS_SHARES: cluster.astype(np.float32)}, {})
        with torch.no_grad():
            posterior = torch.softmax(net.module(w)(torch.from_numpy(data.test.x)), dim=1).numpy()
        expected = np.exp(likelihood) * own
        np.testing.assert_allclose(posterior, expected / expected.sum(axis=1, keepdims=True), atol=1e-6)


# Runs


@every
def test_the_models_of_the_server_are_those_without_it(name: str) -> None:
    for corrected, plain in zip(run(name, True), run(name, False), strict=True):
        assert same(corrected.state.models, plain.state.models)
        assert same(corrected.state.cluster_of, plain.state.cluster_of)
    assert not same(corrected.scores["received"], plain.scores["received"])
    assert not same(corrected.scores["personal"], plain.scores["personal"])


@every
def test_class_counts_and_shares_are_billed(name: str) -> None:
    """Up: a count of 8 bytes for each class. Down: a share of 4 for each class and model, once it was trained."""
    models = 2 if name in SEVERAL else 1
    for t, (corrected, plain) in enumerate(zip(run(name, True), run(name, False), strict=True)):
        n = len(corrected.plan.sampled)
        assert corrected.bytes_up - plain.bytes_up == 8 * CLASSES * n
        if name not in UNTRAINED:
            assert corrected.bytes_down - plain.bytes_down == (4 * CLASSES * models * n if t else 0)


@every
def test_the_server_has_the_shares_of_the_round_with_the_model_as_one_more_client(name: str) -> None:
    before, last = run(name, True)[1:3]
    for k, shares in enumerate(last.state.class_shares):
        if name in ("ifca", "fesem"):
            members = [c for c in last.plan.sampled if last.state.cluster_of[c] == k]
        else:
            members = [c for c in last.plan.sampled if before.state.cluster_of[c] == k]
        if members:
            total = sum(counts_of(c) for c in members)
            old = before.state.class_shares
            known = k < len(old) and old[k].any()
            expected = (
                (old[k] + len(members) * total / total.sum()) / (len(members) + 1) if known else total / total.sum()
            )
            np.testing.assert_allclose(shares, expected, rtol=1e-12)


def test_a_federation_of_one_is_not_corrected() -> None:
    """Its shares are those of the model, so that every bit is as without."""
    clients = replace(pool(), client_indices=pool().client_indices[:1])
    one, other = (run_rounds(FedAvg(label_prior=prior), SCHEDULE, clients) for prior in (True, False))
    assert same([r.scores for r in one], [r.scores for r in other])


def test_one_cluster_per_client_is_local_training_with_it_too() -> None:
    everybody = Schedule(rounds=2, participation=1.0, evaluate_every=1, personal_every=1)
    clustered = run_rounds(PACFL(threshold=0.0, label_prior=True), everybody)
    assert same([r.scores for r in clustered], [r.scores for r in run_rounds(LocalOnly(), everybody)])


def received(algorithm: Algorithm, learning: LocalTraining = LEARNING) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of one client after a round of three others: the model sent, the received one, the personal one."""
    clients, state = side(algorithm, learning=learning), algorithm.init_server(model())
    state = algorithm.admit(state, {c: clients.profile(0, c) for c in range(4)})
    uploads = []
    for c in range(3):
        up, _, _ = clients.train(0, c, sent(algorithm, state, c), algorithm.init_client(model()))
        uploads.append(Upload(c, len(pool().client_indices[c].train), up))
    state = algorithm.aggregate(noted(algorithm, state, uploads), uploads)
    down, memory = sent(algorithm, state, 3), algorithm.init_client(model())
    return state.models[0], clients.received(1, 3, down, memory), clients.personal(1, 3, down, memory)


def test_only_the_output_bias_of_the_received_model_is_shifted() -> None:
    w, own, _ = received(FedAvg(label_prior=True))
    assert model().output_bias == BIAS
    np.testing.assert_array_equal(np.delete(own, np.r_[BIAS]), np.delete(w, np.r_[BIAS]))
    total = counts_of(0) + counts_of(1) + counts_of(2)
    shift = prior_shift(counts_of(3), (total / total.sum()).astype(np.float32))
    np.testing.assert_array_equal(own[BIAS], w[BIAS] + shift.astype(np.float32))


@pytest.mark.parametrize("algorithm", [FedAvg(label_prior=True), PerFedAvg(alpha=0.0, label_prior=True)], ids=repr)
def test_personalisation_starts_from_the_corrected_model(algorithm: Algorithm) -> None:
    """Without local steps it is the personal model."""
    w, own, personal = received(algorithm, LocalTraining(epochs=0))
    assert same(own, personal)
    assert not same(own, w)


def test_the_last_layers_alone_are_corrected_as_the_model_is() -> None:
    head, own, _ = received(LGFedAvg(shared_layers=1, label_prior=True))
    w = received(FedAvg(label_prior=True))[1]
    np.testing.assert_array_equal(own[:520], model().initial[:520])
    # A head of other uploads, and the same shift
    shift = w[BIAS] - received(FedAvg(label_prior=True))[0][BIAS]
    np.testing.assert_allclose(own[BIAS] - head[-10:], shift, atol=1e-6)


def test_every_model_of_ifca_is_corrected_by_its_own_shares() -> None:
    algorithm = IFCA(clusters=2, label_prior=True)
    state = replace(algorithm.init_server(model()), cluster_of={0: 0}, class_shares=np.eye(2, CLASSES))
    down = sent(algorithm, state, 0)
    assert down[CLASS_SHARES].shape == (2, CLASSES)
    up: Message = {"choice": np.array([1]), "w": model().initial, "class_counts": counts_of(0)}
    after = noted(algorithm, state, [Upload(0, 21, up)])
    np.testing.assert_allclose(
        after.class_shares, [np.eye(2, CLASSES)[0], (np.eye(2, CLASSES)[1] + counts_of(0) / 21) / 2]
    )


def test_halves_of_a_split_cluster_have_the_shares_of_the_whole() -> None:
    rounds = run_rounds(CFL(eps1=1e9, eps2=0.0, first_split=1, label_prior=True), replace(SCHEDULE, participation=1.0))
    split = next(r for r in rounds if len(r.state.models) == 2)
    assert same(*split.state.class_shares)


def test_a_cluster_that_was_just_opened_is_sent_as_it_is() -> None:
    algorithm = PACFL(threshold=0.0, label_prior=True)
    clients = side(algorithm)
    state = algorithm.admit(algorithm.init_server(model()), {0: clients.profile(0, 0)})
    up, _, _ = clients.train(0, 0, sent(algorithm, state, 0), {})
    state = algorithm.aggregate(noted(algorithm, state, [Upload(0, 21, up)]), [Upload(0, 21, up)])
    state = algorithm.admit(state, {1: clients.profile(0, 1)})
    assert len(state.models) == 2
    assert CLASS_SHARES in sent(algorithm, state, 0)
    assert same(clients.received(1, 1, sent(algorithm, state, 1), {}), model().initial)


def test_counts_are_summed_by_the_mean_and_clients_vote_once_by_all_other_rules() -> None:
    counts = ([90, 10], [0, 10])
    uploads = [Upload(i, sum(c), {"class_counts": np.array(c)}) for i, c in enumerate(counts)]
    np.testing.assert_allclose(trained_shares(uploads, "mean"), [90 / 110, 20 / 110])
    np.testing.assert_allclose(trained_shares(uploads, "median"), [0.45, 0.55])


def test_shares_survive_a_checkpoint() -> None:
    state = run("cfl", True)[-1].state
    arrays: dict[str, np.ndarray] = {}
    assert same(decode(encode(state, arrays), arrays), state)


def test_a_state_that_was_stored_without_shares_can_be_read() -> None:
    tree = encode(State(model().initial[None]), arrays := {})
    del tree["fields"]["class_shares"]
    assert decode(tree, arrays).class_shares is None


# Where it does not apply


class Ending(nn.Module):
    """Two classes, with something else at the end."""

    def __init__(self, end: str) -> None:
        super().__init__()
        self.body, self.last, self.end = nn.Linear(4, 4), nn.Linear(4, 2, bias=end != "no bias"), end
        if end == "shared":
            self.last = nn.Linear(4, 4)
            self.last.bias = self.body.bias

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.last(self.body(x))
        return {"softmax": lambda: logits.softmax(dim=1), "twice": lambda: self.last(self.body(x))}.get(
            self.end, lambda: logits
        )()


@pytest.mark.parametrize(
    ("end", "why"),
    [("no bias", "none of its own"), ("shared", "none of its own"), ("softmax", "else"), ("twice", "else")],
)
def test_a_model_without_an_output_bias_of_its_own_is_refused(end: str, why: str) -> None:
    reason = inapplicable(as_model(lambda: Ending(end), 0), "cross-entropy", np.zeros((3, 4), np.float32))
    assert reason is not None
    assert why in reason


def test_models_that_end_in_a_linear_layer_are_known() -> None:
    for net, shape in ((lambda: lenet5((1, 28, 28), 10), (1, 28, 28)), (lambda: mlp((1, 8, 8), 10), (1, 8, 8))):
        known: Model = as_model(net, 0)
        assert known.output_bias == slice(len(known.initial) - 10, len(known.initial))
        assert ends_in_linear(known.build(), np.zeros((1, *shape), np.float32))


@pytest.mark.parametrize("loss", ["squared-error", "binary-cross-entropy"])
def test_targets_that_are_no_classes_are_refused(loss: str) -> None:
    x = np.eye(4)
    training = LocalTraining(loss=loss)
    y = x[:, :1] if loss == "squared-error" else x[:, :2].astype(int)
    with pytest.raises(ConfigError, match=r"label-prior = true: .*one class each"):
        pacfl.federate([(x, y, x, y)], lambda: nn.Linear(4, y.shape[1]), FedAvg(label_prior=True), training, rounds=1)


def test_settings_that_exclude_it_are_refused() -> None:
    with pytest.raises(ConfigError, match="solo sends no model"):
        LocalOnly(label_prior=True)
    for name in ("fedper", "fedrep", "fedbabu"):
        with pytest.raises(ConfigError, match=r"the last layers of Fed.* label prior"):
            build(name, label_prior=True)
        assert build(name, head_layers=0, label_prior=True).label_prior
    with pytest.raises(ConfigError, match="clip-norm hides updates"):
        FedAvg(label_prior=True, aggregation=Aggregation(clip_norm=1.0))
    with pytest.raises(ConfigError, match="label-prior = True does not apply"):
        build("pacfl", signature_epsilon=2.0, label_prior=True)
    with pytest.raises(ConfigError, match="must be true or false"):
        build("fedavg", label_prior="yes")


def test_an_algorithm_that_sends_no_named_model_is_refused() -> None:
    @dataclass(frozen=True)
    class Other(Algorithm):
        def download(self, state: Any, client: int) -> Message:  # noqa: ARG002 - one model for all
            return {"weights": state.models[0]}

        def train(self, context: Any, down: Message, memory: Message) -> tuple[Message, Message]:
            return {"w": context.sgd(down["weights"])[0]}, memory

        def receive(self, context: Any, down: Message, memory: Message) -> Any:  # noqa: ARG002
            return down["weights"]

    with pytest.raises(ConfigError, match=r"Other sends \['weights'\].*Other.shared"):
        run_rounds(Other(label_prior=True), SCHEDULE)


@dataclass(frozen=True)
class Default(Algorithm):
    """It has the label prior unless it is switched off."""

    label_prior: bool = field(default=True, kw_only=True, metadata=LATER)


def test_a_default_that_cannot_apply_is_left_out_and_the_result_says_so() -> None:
    x = np.eye(4)
    assert Default().label_prior
    training = LocalTraining(loss="squared-error")
    result = pacfl.federate([(x, x[:, 0], x, x[:, 0])], lambda: nn.Linear(4, 1), Default(), training, rounds=1)
    (note,) = result.notes
    assert note.startswith("label-prior was left out: class shares are of samples with one class each")
    private = Default(aggregation=Aggregation(clip_norm=1.0))
    assert settled(private, model(), "cross-entropy")[0] == replace(private, label_prior=False)
    with pytest.raises(ConfigError, match="clip-norm"):
        settled(private, model(), "cross-entropy", required=True)


def test_a_default_that_applies_stays() -> None:
    assert settled(Default(), model(), "cross-entropy", pool().train.x) == (Default(), None)


def test_an_output_bias_that_is_not_shared_is_refused() -> None:
    class Reversed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last, self.first = nn.Linear(4, 2), nn.Conv1d(1, 1, 1)

        def forward(self, x: Tensor) -> Tensor:
            outputs: Tensor = self.last(self.first(x[:, None])[:, 0])
            return outputs

    net, x = as_model(Reversed, 0), np.zeros((1, 4), np.float32)
    assert settled(LGFedAvg(shared_layers=2, label_prior=True), net, "cross-entropy", x)[1] is None
    with pytest.raises(ConfigError, match="not among the 2 last weights"):
        settled(LGFedAvg(shared_layers=1, label_prior=True), net, "cross-entropy", x)


# Hostile clients


@pytest.mark.parametrize(
    ("counts", "why"),
    [
        (np.full(CLASSES, -1), "-1 samples of a class"),
        (np.zeros(CLASSES, np.int64), "0 samples"),
        (np.ones(CLASSES), "kind 'i'"),
        (np.ones(3, np.int64), "shape"),
        (np.full((2, CLASSES), 1), "shape"),
        (None, "has arrays"),
    ],
)
def test_class_counts_that_are_none_are_refused(counts: np.ndarray | None, why: str) -> None:
    algorithm = FedAvg(label_prior=True)
    up: dict[str, np.ndarray] = {"w": model().initial}
    algorithm.check_upload(model(), {"w": model().initial}, {**up, "class_counts": counts_of(0)})
    with pytest.raises(InvalidReplyError, match=why):
        algorithm.check_upload(
            model(), {"w": model().initial}, up if counts is None else {**up, "class_counts": counts}
        )


def test_class_counts_that_nobody_asked_for_are_refused() -> None:
    up = {"w": model().initial, "class_counts": counts_of(0)}
    with pytest.raises(InvalidReplyError, match="has arrays"):
        FedAvg().check_upload(model(), {"w": model().initial}, up)


# Models that leave


def skewed() -> dict[str, Any]:
    """Three clients of two Gaussian classes each in other proportions, and a test set in the same."""
    rng = np.random.default_rng(SEED)
    clients = {}
    for name, share in {"a": 0.9, "b": 0.5, "c": 0.1}.items():
        y = (np.arange(80) % 10 >= 10 * share).astype(int)
        x = rng.normal(size=(80, 4)) + y[:, None]
        clients[name] = (x[:60], y[:60], x[60:], y[60:])
    return clients


def net() -> nn.Module:
    return nn.Linear(4, 2)


def test_clusters_are_exported_without_the_correction_and_clients_with_it(tmp_path: Path) -> None:
    clients = skewed()
    result = pacfl.federate(clients, net, FedAvg(label_prior=True), rounds=4, participation=1.0)
    plain = pacfl.federate(clients, net, FedAvg(), rounds=4, participation=1.0)
    x = clients["a"][2]
    assert result.accuracy["received"].mean > plain.accuracy["received"].mean
    manifest = pacfl.export(result, tmp_path / "clusters")
    assert [file.file for file in manifest.files] == ["cluster-0.pt2"]
    exported = pacfl.predict(tmp_path / "clusters", x, cluster=0).outputs
    inside = torch.from_numpy(result.preprocess(x, "a"))
    np.testing.assert_allclose(exported, plain.module("a")(inside).detach().numpy(), atol=1e-6)
    with pytest.raises(DataError, match=r"corrected for its class shares.*--client a"):
        pacfl.predict(tmp_path / "clusters", x, client="a")
    for personal in (False, True):
        folder = tmp_path / f"a-{personal}"
        pacfl.export(result, folder, client="a", personal=personal)
        outputs = result.module("a", personal=personal)(inside).detach().numpy()
        np.testing.assert_allclose(pacfl.predict(folder, x, client="a").outputs, outputs, atol=1e-6)
        assert np.abs(outputs - exported).max() > 0.1


def test_a_stored_run_has_the_models_that_were_evaluated(tmp_path: Path) -> None:
    clients = skewed()
    federated = pacfl.federate(clients, net, FedAvg(label_prior=True), rounds=2, participation=1.0, runs=tmp_path)
    again = pacfl.federate(clients, net, FedAvg(label_prior=True), rounds=2, participation=1.0, runs=tmp_path)
    assert again.hash == federated.hash
    for name, (_, _, x, y) in clients.items():
        for protocol in ("received", "personal"):
            module = again.module(name, personal=protocol == "personal")
            predicted = module(torch.from_numpy(again.preprocess(x, name))).argmax(dim=1).numpy()
            assert (predicted == y).mean() == pytest.approx(again.by_client[protocol]["accuracy"][name])
