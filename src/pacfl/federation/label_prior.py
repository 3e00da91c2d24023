"""The label prior: a shared model, corrected at each client for the class shares of its own training samples.

Where clients have the same p(x | y) and other p(y), Bayes' rule turns the posterior of one into that of another: add
log p_client(y) - log p_cluster(y) to the logits. Of a net that ends in an nn.Linear this is a shift of its bias, so
nothing is trained, and beside the model only class shares are sent. It assumes that a client will meet classes in the
proportions in which it trained on them.

Local training starts from the model as sent: the server's models have the same bits with and without it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pacfl.errors import ConfigError
from pacfl.federation.aggregation import Rule
from pacfl.federation.algorithm import Algorithm, Upload
from pacfl.federation.checks import CLASS_COUNTS
from pacfl.federation.checks import CLASS_SHARES as CLASS_SHARES
from pacfl.federation.message import ClientId, Message
from pacfl.learning.client_context import ClientContext
from pacfl.learning.losses import find_loss
from pacfl.learning.model import Model, Vector, ends_in_linear

HALF: Final = 0.5  # of a sample for each class: Jeffreys' prior
SAME: Final = 1e-6  # relative difference of shares that float32 cannot show

Floats = NDArray[np.float64]


def class_counts(y: NDArray[Any], n_classes: int) -> NDArray[np.int64]:
    """How many samples there are of each class: (n,) -> (C,)."""
    return np.bincount(y, minlength=n_classes).astype(np.int64)


def prior_shift(counts: NDArray[Any], shares: NDArray[Any]) -> Floats:
    """What the label prior adds to the logits: log p_client(y) - log p_cluster(y), from (C,) counts and (C,) shares.

    The client's shares are estimated from n samples, by their posterior mean under Jeffreys' Dirichlet prior, half a
    sample for each of C classes: p_c = (n_c + 1/2) / (n + C/2). The cluster's shares q_c are no estimate. They are
    passed through the same formula, as n samples would show them on average: (n q_c + 1/2) / (n + C/2). So

        shift_c = log (n_c + 1/2) / (n q_c + 1/2).

    It is 0 where shares agree, whatever n, and for a class that neither has. A class that only the client lacks is
    shifted by -log(1 + 2 n q_c): finite, and small if few samples were to be expected. Few samples shift little,
    and with many the shift is log p_c / q_c. Smoothing each side with its own number of samples would instead raise
    classes that neither has by the logarithm of the ratio of these numbers.

    >>> prior_shift(np.array([5, 0]), np.array([0.5, 0.5])).round(2).tolist()
    [0.61, -1.79]
    """
    own = counts.astype(np.float64)
    expected = own.sum() * shares.astype(np.float64)
    expected = np.where(np.isclose(expected, own, rtol=SAME, atol=0), own, expected)
    shift: Floats = np.log((own + HALF) / (expected + HALF))
    return shift


def trained_shares(uploads: Sequence[Upload], rule: Rule) -> Floats:
    """Class shares of the samples that the mean of some uploads was trained on: (C,).

    By the rule `mean` a client has as many votes as samples, so counts are summed. By all others it has one vote, so
    its shares are averaged: a claim of many samples gains nothing.
    """
    counts = np.stack([u.content[CLASS_COUNTS] for u in uploads]).astype(np.float64)
    if rule != "mean":
        counts = counts / counts.sum(axis=1, keepdims=True)
    total = counts.sum(axis=0)
    shares: Floats = total / total.sum()
    return shares


def remembered(before: Floats, of_round: Floats, n_uploads: int) -> Floats:
    """Class shares of a model after a round: those before, those of the round's samples (C,), and how many uploads.

    Local epochs fit the prior of a model to the samples of the round, but classes that no client of the round has are
    not forgotten at once. So the model as it was sent counts as one more client of average size: it has one part in
    m + 1, and the m uploads have the others. `studies.label_prior` compares: the sum over all rounds remembers
    too much, the last round alone too little.
    """
    shares: Floats = (before + n_uploads * of_round) / (n_uploads + 1) if before.any() else of_round
    return shares


def shares_after(shares: Floats, trained: Mapping[int, Sequence[Upload]], rule: Rule) -> Floats:
    """Class shares of models after a round, (k, C), given the uploads that some of them were trained by."""
    after = shares.copy()
    for row, members in trained.items():
        after[row] = remembered(shares[row], trained_shares(members, rule), sum(u.n_clients for u in members))
    return after


# The server


def noted(algorithm: Algorithm, state: Any, uploads: Sequence[Upload]) -> Any:
    """The state with the class shares of the models that these uploads are about to change."""
    if not algorithm.label_prior or not uploads:
        return state
    trained: dict[int, list[Upload]] = {}
    for upload in uploads:
        if (row := algorithm.trained_row(state, upload)) is not None:
            trained.setdefault(row, []).append(upload)
    shares = np.zeros((len(state.models), len(uploads[0].content[CLASS_COUNTS])))
    if state.class_shares is not None:
        shares[: len(state.class_shares)] = state.class_shares
    return replace(state, class_shares=shares_after(shares, trained, algorithm.aggregation.rule))


def sent(algorithm: Algorithm, state: Any, client: ClientId) -> Message:
    """What is sent to a client: the download, with the class shares of its models once they are trained."""
    down = algorithm.download(state, client)
    if not algorithm.label_prior or state.class_shares is None or CLASS_SHARES in down:
        return down  # an algorithm that sends another model than that of a cluster adds its shares
    shares = np.zeros((len(state.models), state.class_shares.shape[1]), dtype=np.float32)
    shares[: len(state.class_shares)] = state.class_shares  # clusters that were opened since are not trained yet
    own = shares if _models(algorithm, down).ndim == 2 else shares[state.cluster_of[client]]
    return {**down, CLASS_SHARES: own} if own.any() else down


# The client


def counted(context: ClientContext) -> Message:
    """What an upload also has: how many training samples of each class the client has."""
    place = _bias(context.model)
    return {CLASS_COUNTS: class_counts(context.train.y, place.stop - place.start)}


def corrected(algorithm: Algorithm, context: ClientContext, down: Message) -> Message:
    """A download whose models are corrected for the class shares of the client."""
    shares = down.get(CLASS_SHARES)
    if shares is None:
        return down
    place, models = _bias(context.model), _models(algorithm, down)
    cut = _not_shared(context.model, models.shape[-1])
    place = slice(place.start - cut, place.stop - cut)
    counts = class_counts(context.train.y, shares.shape[-1])
    rows, priors = np.atleast_2d(models), np.atleast_2d(shares)
    shifted = np.stack([_shifted(w, counts, own, place) for w, own in zip(rows, priors, strict=True)])
    return {**down, algorithm.shared: shifted.reshape(models.shape)}


def _shifted(w: Vector, counts: NDArray[np.int64], shares: NDArray[Any], place: slice) -> Vector:
    """The model with its bias shifted; as it is where no class is, or where it has not been trained."""
    shift = prior_shift(counts, shares) if shares.any() else np.zeros(1)
    if not shift.any():
        return w
    after = w.copy()
    after[place] += shift.astype(np.float32)
    return after


# Before anything is run


def settled(
    algorithm: Algorithm, model: Model, loss: str, x: NDArray[Any] | None = None, *, required: bool = False
) -> tuple[Algorithm, str | None]:
    """The algorithm as it is run, and a sentence where its default of label-prior was left out because it cannot apply.

    x: samples as the model takes them; without, how the module ends is taken from its layers alone.
    required: it was asked for. So it was, too, if it is not the algorithm's default. Then it is refused.
    """
    why = algorithm.no_label_prior() or inapplicable(model, loss, x) if algorithm.label_prior else None
    if why is None:
        if algorithm.label_prior:
            _not_shared(model, algorithm.init_server(model).models.shape[-1])
        return algorithm, None
    if required or not default_of(type(algorithm)):
        raise ConfigError(f"label-prior = true: {why}; leave out label-prior")
    return replace(algorithm, label_prior=False), f"label-prior was left out: {why}"


def inapplicable(model: Model, loss: str, x: NDArray[Any] | None = None) -> str | None:
    """Why the outputs of a model have no label prior that could be corrected; None if they have one."""
    targets = find_loss(loss).targets
    if targets != "classes":
        return f"class shares are of samples with one class each, and the loss {loss!r} is for {targets}"
    if model.output_bias is None:
        return "it shifts the bias of the last nn.Linear of the model, which has none of its own"
    if x is not None and not ends_in_linear(model.build(), x):
        return "the model must return what its last nn.Linear returns, and this one does something else with it"
    return None


def default_of(kind: type[Algorithm]) -> bool:
    """Whether an algorithm has the label prior unless it is switched off."""
    (own,) = (f for f in fields(kind) if f.name == "label_prior")
    return bool(own.default)


def _bias(model: Model) -> slice:
    if model.output_bias is None:
        raise ConfigError("label-prior shifts the bias of the last nn.Linear of the model, which has none of its own")
    return model.output_bias


def _not_shared(model: Model, n_shared: int) -> int:
    """How many of the first weights clients do not share: some algorithms send the last layers only."""
    cut = len(model.initial) - n_shared
    if _bias(model).start < cut:
        raise ConfigError(
            f"label-prior corrects the bias of the last nn.Linear, and it is not among the {n_shared:,} last weights, "
            "which are shared; leave out label-prior, or share more layers"
        )
    return cut


def _models(algorithm: Algorithm, down: Message) -> NDArray[np.float32]:
    """The array of a download that holds the shared model, or models."""
    if algorithm.shared not in down:
        raise ConfigError(
            f"{type(algorithm).__name__} sends {sorted(down)}; label-prior needs to know which of them is the shared "
            f"model: name it in {type(algorithm).__name__}.shared, or leave out label-prior"
        )
    return down[algorithm.shared]
