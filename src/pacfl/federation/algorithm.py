"""The interface of algorithms. Every default is FedAvg within clusters; an algorithm says only what differs."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from pacfl.errors import ConfigError
from pacfl.federation.aggregation import Aggregation, Start, centre
from pacfl.federation.checks import (
    CLASS_COUNTS,
    ArraySpec,
    ArraySpecs,
    check_arrays,
    check_class_counts,
    check_norms,
    class_count_specs,
    dummy_context,
)
from pacfl.federation.message import ClientId, Message, nbytes
from pacfl.federation.private import Promise
from pacfl.federation.server_optimiser import Moments, ServerOptimiser, step
from pacfl.learning.client_context import ClientContext
from pacfl.learning.mixture import Weights, each
from pacfl.learning.model import Model
from pacfl.learning.settings import LocalTraining
from pacfl.settings import LATER, check


@dataclass(frozen=True, eq=False)
class State:
    """What the server knows. Global learning is clustered learning with one cluster."""

    models: NDArray[np.float32]  # (k, d)
    cluster_of: Mapping[ClientId, int] = field(default_factory=dict)
    # (rows, classes) of the samples that models were trained on, with label_prior. Rows of 0, and of models beyond the
    # last row: not trained yet. Whoever copies a model copies its row.
    class_shares: NDArray[np.float64] | None = field(default=None, kw_only=True)
    moments: Moments | None = field(default=None, kw_only=True)  # with a server optimiser; copied with models, too


S = TypeVar("S", bound=State)


@dataclass(frozen=True, eq=False)
class Upload:
    """A client's reply."""

    client: ClientId
    size: int  # training samples behind it
    content: Message
    n_clients: int = 1  # of whose uploads it is the sum, with secure aggregation
    received: int | None = None  # bytes that came instead of the content

    @property
    def nbytes(self) -> int:
        """The bytes of it as billed."""
        return nbytes(self.content) if self.received is None else self.received


@dataclass(frozen=True)
class Algorithm:
    """FedAvg inside each cluster. Fields of subclasses are their hyper-parameters, and annotated with their bounds.

    aggregation: how uploads are averaged. Whoever averages otherwise than by `cluster_mean` or `mean` refuses others.
    label_prior: whether clients correct the received model for their own class shares (`federation/label_prior.py`).
    """

    aggregation: Aggregation = field(default=Aggregation(), kw_only=True)
    label_prior: bool = field(default=False, kw_only=True, metadata=LATER)

    shared: ClassVar[str] = "w"  # in a download: the model (d,), its last layers, or several models (k, d)
    # Whether a client's model is a mixture. If `train` trains several models, it trains all in their order, and the
    # client's memory has their `weights` afterwards.
    mixes: ClassVar[bool] = False
    server_steps: ClassVar[bool] = False  # whether an own `aggregate` gives `server_optimiser` to `cluster_mean`
    local_normalisation: ClassVar[bool] = False  # whether layers with running statistics stay at the clients
    public_uploads: ClassVar[tuple[str, ...]] = ()  # uploaded arrays that reveal at most the number of samples
    # What `aggregate` needs of each uploaded array, with secure aggregation; declared by whoever averages otherwise
    sums: ClassVar[Mapping[str, Literal["mean", "sum"]]] = MappingProxyType({"w": "mean"})

    def __init_subclass__(cls) -> None:
        cls.__repr__ = _given  # type: ignore[assignment]  # a dataclass writes its own only where there is none

    def __post_init__(self) -> None:
        check(self)
        own = next(f for f in fields(self) if f.name == "label_prior")
        # A default that does not apply is left out with a sentence in the result, where the run is assembled
        if self.label_prior and not own.default and (why := self.no_label_prior()):
            raise ConfigError(f"label-prior = true: {why}; leave out label-prior")
        if self.aggregation.secure and (why := self.no_secure()):
            raise ConfigError(f"secure = true: {why}; leave out secure")
        if self.aggregation.optimiser is not None and (why := self.no_server_optimiser()):
            kind = self.aggregation.server_optimiser
            raise ConfigError(f"server-optimiser = {kind!r}: {why}; leave out server-optimiser")

    def no_label_prior(self) -> str | None:
        """Why these settings exclude the label prior, whatever the model and the data; None if they do not."""
        if self.aggregation.clip_norm is not None:
            return "clip-norm hides updates, and class counts would be uploaded beside them as they are"
        return None

    def no_secure(self) -> str | None:
        """Why the server needs more than sums of uploads; None if it does not."""
        own = type(self)
        if own.aggregate is not Algorithm.aggregate and own.sums is Algorithm.sums:
            return f"{own.__name__} averages in a way of its own, and does not declare by `sums` that sums are enough"
        return None

    def no_server_optimiser(self) -> str | None:
        """Why models cannot step by the server optimiser of the aggregation; None if they can."""
        own = type(self)
        if own.aggregate is not Algorithm.aggregate and not own.server_steps:
            return f"{own.__name__} moves its models in a way of its own"
        return None

    @property
    def server_optimiser(self) -> ServerOptimiser | None:
        """What the server's models step by; None: they go to the mean."""
        return self.aggregation.optimiser

    def code(self) -> dict[str, str]:
        """The digests of code and files that settings name, by these names: part of what decides a result."""
        return {}

    def check_training(self, learning: LocalTraining) -> None:
        """Refuse a way of training that the method's formulas do not cover."""

    # The server

    def init_server(self, model: Model) -> Any:
        """The state before any client has joined."""
        return State(model.initial[None])

    def planned(self, state: Any, n_rounds: int) -> Any:  # noqa: ARG002 - for algorithms that need it
        """The rounds of training that are planned in all, before the first one; another number when a run resumes."""
        return state

    def admit(self, state: Any, profiles: Mapping[ClientId, Message]) -> Any:
        """Clients join, with what `profile` reported. Known clients are profiled again, or return."""
        joined = {c: state.cluster_of.get(c, 0) for c in profiles}
        return replace(state, cluster_of={**state.cluster_of, **joined})

    def forget(self, state: Any, clients: Set[ClientId]) -> Any:
        """Clients leave for good: drop what is known only of them."""
        staying = {c: k for c, k in state.cluster_of.items() if c not in clients}
        return replace(state, cluster_of=staying)

    def download(self, state: Any, client: ClientId) -> Message:
        """What is sent to a client."""
        return {"w": state.models[state.cluster_of[client]]}

    def aggregate(self, state: Any, uploads: Sequence[Upload]) -> Any:
        """Take the uploads of a round into account; there may be none."""
        return cluster_mean(state, uploads, self.aggregation, self.server_optimiser)

    def trained_row(self, state: Any, upload: Upload) -> int | None:
        """The row of models that an upload is averaged into; None if it is averaged into another model."""
        return int(state.cluster_of[upload.client])

    # The server's checks, which raise InvalidReplyError

    def profile_specs(self, model: Model) -> ArraySpecs:
        """The arrays of a valid profile: by default those for a few dummy samples, of any lengths."""
        profile = self.profile(dummy_context(model))
        return {name: ArraySpec((-1,) * array.ndim, array.dtype.kind) for name, array in profile.items()}

    def upload_specs(self, model: Model, down: Message) -> ArraySpecs:
        """The arrays of a valid upload: by default those for a few dummy samples, without training."""
        up, _ = self.train(dummy_context(model), down, self.init_client(model))
        return {name: ArraySpec(array.shape, array.dtype.kind) for name, array in up.items()}

    def check_profile(self, model: Model, profile: Message) -> None:
        """Refuse a profile that does not fit, or is not finite."""
        check_arrays(profile, self.profile_specs(model))

    def check_upload(self, model: Model, down: Message, up: Message) -> None:
        """Refuse an upload that does not fit, is not finite, or is implausibly large."""
        if self.label_prior:
            check_class_counts(up, class_count_specs(model))
            up = {name: array for name, array in up.items() if name != CLASS_COUNTS}
        check_arrays(up, self.upload_specs(model, down))
        check_norms(up, model)

    def incompatible(self, state: Any, profiles: Mapping[ClientId, Message]) -> Mapping[ClientId, str]:  # noqa: ARG002
        """Clients whose profiles do not fit those of others, and why; these cannot join."""
        return {}

    # The client: pure functions, memory included

    def init_client(self, model: Model) -> Message:  # noqa: ARG002 - for algorithms with memory
        """A client's memory before its first round."""
        return {}

    def profile(self, context: ClientContext) -> Message:  # noqa: ARG002 - for algorithms that need it
        """What a client reports about its data when it joins."""
        return {}

    def keyed(self, profile: Message, key: bytes) -> Message:  # noqa: ARG002 - for algorithms with signatures
        """A profile whose directions only the clients' key shows; refused where the key would hide nothing."""
        if profile:
            raise ConfigError(
                f"signature-key: {type(self).__name__} sends {', '.join(sorted(profile))} about the data, which a key "
                "does not hide; leave out signature-key to send them as they are"
            )
        return profile

    def promise(self) -> Promise | None:
        """The privacy guarantee of every sample in a profile; None if there is none."""
        return None

    def train(self, context: ClientContext, down: Message, memory: Message) -> tuple[Message, Message]:
        """One round at the client: the upload, and the memory after it."""
        w, _ = context.sgd(down["w"])
        return {"w": w}, memory

    def upload_start(self, down: Message) -> Message:
        """What uploaded arrays started from, where updates are clipped; those that are left out started from 0."""
        return {"w": down["w"]}

    def receive(self, context: ClientContext, down: Message, memory: Message) -> Weights:  # noqa: ARG002 - one form for all
        """The model as sent down; a `Mixture` of several, from algorithms whose class variable `mixes` says so."""
        return down["w"]

    def personalise(self, context: ClientContext, down: Message, memory: Message) -> Weights:
        """The model after the method's own personalisation; by default a local training from the model as sent down.

        Of a mixture every model is trained, and the weights stay.
        """
        return each(lambda w: context.sgd(w, purpose="personal")[0], self.receive(context, down, memory))


def _given(algorithm: Algorithm) -> str:
    """The algorithm with the settings that are not at their defaults, as FedProx(mu=0.1)."""
    own = {f.name: getattr(algorithm, f.name) for f in fields(algorithm) if getattr(algorithm, f.name) != f.default}
    return f"{type(algorithm).__name__}({', '.join(f'{name}={value!r}' for name, value in own.items())})"


def cluster_mean(
    state: S, uploads: Sequence[Upload], aggregation: Aggregation, optimiser: ServerOptimiser | None = None
) -> S:
    """Each cluster's model becomes the mean of its members' uploads, by the rule; without uploads it stays.

    With an optimiser it steps by it instead, for the mean update.
    """
    if not uploads:
        return state
    models = state.models.copy()
    moments = None if optimiser is None else state.moments or optimiser.before(models.shape[1])
    moments = moments and moments.rows(range(len(models)))
    for k in range(len(models)):
        members = [u for u in uploads if state.cluster_of[u.client] == k]
        if not members:
            continue
        centre = mean(members, "w", aggregation, state.models[k])
        if optimiser is not None and moments is not None:
            update = centre - state.models[k]
            moved, moments.first[k], moments.second[k] = step(optimiser, update, moments.first[k], moments.second[k])
            centre += moved - update  # to the bit the mean, where the step is the update
        models[k] = centre
    return replace(state, models=models, moments=moments)


def shares(uploads: Sequence[Upload]) -> NDArray[np.float64]:
    """Each upload's share of all samples: (m,)."""
    sizes = np.array([u.size for u in uploads], dtype=np.float64)
    weights: NDArray[np.float64] = sizes / sizes.sum()
    return weights


def mean(uploads: Sequence[Upload], key: str, aggregation: Aggregation, start: Start = 0.0) -> NDArray[np.float64]:
    """Mean of an uploaded array by size, in float64, or what another rule makes of it; start: before the training."""
    arrays = np.stack([u.content[key] for u in uploads]).astype(np.float64)
    return centre(arrays, shares(uploads), start, aggregation.rule)


def effective_steps(steps: int, momentum: float) -> float:
    """Steps of plain SGD that go as far as `steps` with momentum rho (FedNova, section 4).

    a = (steps - rho (1 - rho^steps) / (1 - rho)) / (1 - rho).
    """
    rho = momentum
    return (steps - rho * (1 - rho**steps) / (1 - rho)) / (1 - rho)
