from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Literal, final

import numpy as np
from numpy.typing import NDArray

from pacfl.errors import ConfigError, DataError
from pacfl.features import encoders
from pacfl.federation import trials
from pacfl.federation.aggregation import Randomness
from pacfl.federation.algorithm import Algorithm, Upload, cluster_mean
from pacfl.federation.checks import ArraySpec, ArraySpecs, check_arrays
from pacfl.federation.membership import (
    COLUMN_ANGLES,
    MOST_CLASSES,
    MOST_COLUMNS,
    PACFLState,
    admitted,
    check_classes,
    check_columns,
    check_signature,
    column_messages,
    column_specs,
    incomparable,
    without,
)
from pacfl.federation.message import ClientId, Message
from pacfl.federation.private import KEY_ID, Promise, keyed_profile, private_profile
from pacfl.learning.client_context import ClientContext
from pacfl.learning.model import Model
from pacfl.privacy import gaussian_sigma
from pacfl.settings import NonNegative, PositiveInt, Share, later
from pacfl.signatures.keys import key_id, read_key
from pacfl.subspace import (
    ClassSignatures,
    ClientSignature,
    Clustering,
    Compare,
    Linkage,
    Measure,
    class_signatures,
    cluster_clients,
    signature,
    split_half_angles,
)
from pacfl.subspace.classes import as_messages
from pacfl.subspace.columns import RANK as RANK_OF_TABLES
from pacfl.subspace.columns import column_angles
from pacfl.subspace.signature import RANK
from pacfl.subspace.split_half import SPLITS


@final
@dataclass(frozen=True)
class PACFL(Algorithm):
    """The paper's Algorithm 1: signatures once, clusters of them, federated averaging in each.

    Newcomers (Algorithm 2) join in the same way; no other client changes its cluster because of them.
    """

    rank: Literal["auto"] | PositiveInt = "auto"  # directions: 3, of tables 1
    threshold: Literal["auto"] | NonNegative = "auto"  # degrees
    clusters: PositiveInt | None = None
    measure: Measure = "smallest"
    linkage: Linkage = "average"
    per_class: bool = False
    signature_epsilon: NonNegative | None = None  # differential privacy of each sample in the signature
    signature_delta: Share = 1e-5
    signature_noise: Randomness = "secret"
    compare: Compare = "auto"  # all data of clients, the same classes, or classes where they share some
    levels: Literal["none", "validated"] = "validated"  # whether finer divisions of clusters are tried
    encoder: str | None = None  # of samples before their signature: a built-in one, or package.module:function
    signature_key: str | None = later(None)  # file with the clients' key: the server then sees angles, not directions
    label_prior: bool = field(default=True, kw_only=True)

    sums = MappingProxyType({"w": "mean"})  # without levels, whose scores are of single clients
    server_steps = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.encoder is not None:
            encoders.digest(self.encoder)  # refuses what cannot be found
        if self.signature_key is not None:
            read_key(Path(self.signature_key))  # refuses what is no key
        if self.threshold != "auto" and self.clusters is not None:
            raise ConfigError(f"PACFL takes threshold or clusters, not both; got {self.threshold} and {self.clusters}")
        if self.signature_epsilon is not None:
            gaussian_sigma(self.signature_epsilon, self.signature_delta)  # refuses what is no guarantee
            if self.per_class:
                raise ConfigError(
                    "PACFL cannot hide samples in signatures per class; leave out signature-epsilon or per-class"
                )
        elif self.signature_noise != "secret":
            raise ConfigError("PACFL.signature_noise without signature_epsilon: signatures have no noise; give both")
        if self.compare == "classes" and self._only_inputs is not None:
            raise ConfigError(f"PACFL cannot compare classes {self._only_inputs}; leave it out, or compare inputs")
        if self.signature_epsilon is not None or self.aggregation.clip_norm is not None:
            # Held-out scores and class counts would show what is hidden; `build` refuses them where they were asked for
            object.__setattr__(self, "levels", "none")
            object.__setattr__(self, "label_prior", False)
        if self.aggregation.secure:
            object.__setattr__(self, "levels", "none")  # it is decided by scores of single clients

    @property
    def _only_inputs(self) -> str | None:
        """Why only inputs can be compared, if that is so."""
        if self.threshold != "auto":
            return f"at a threshold of {self.threshold} degrees"
        if self.linkage != "average":
            return f"with {self.linkage} linkage"
        if self.per_class:
            return "with per-class, which mixes the directions of all classes"
        return None

    @property
    def _compares_classes(self) -> bool:
        return self.compare != "inputs" and self._only_inputs is None

    @property
    def _compares_columns(self) -> bool:
        """Whether columns of tables are compared, beside all of them together."""
        return self._compares_classes and self.clusters is None and self.signature_epsilon is None

    def _rank(self, is_table: bool = False) -> int:
        return (RANK_OF_TABLES if is_table else RANK) if self.rank == "auto" else self.rank

    def no_label_prior(self) -> str | None:
        if self.signature_epsilon is not None:
            return (
                "signature-epsilon promises privacy to every sample, and class counts would be uploaded without noise"
            )
        return super().no_label_prior()

    def code(self) -> dict[str, str]:
        own = self.encoder is not None and self.encoder not in encoders.BUILT_IN
        of_encoder = {str(self.encoder): encoders.digest(str(self.encoder))} if own else {}
        of_key = {} if self.signature_key is None else {"signature-key": key_id(read_key(Path(self.signature_key)))}
        return of_encoder | of_key

    def init_server(self, model: Model) -> PACFLState:
        return PACFLState(np.empty((0, len(model.initial)), dtype=np.float32), initial=model.initial)

    def profile(self, context: ClientContext) -> Message:
        made = self._profile(context)
        return made if self.signature_key is None else self.keyed(made, read_key(Path(self.signature_key)))

    def keyed(self, profile: Message, key: bytes) -> Message:
        if COLUMN_ANGLES in profile:
            raise ConfigError(
                "signature-key: columns of tables are compared one by one, by their means and their spread, which no "
                'transform of directions hides; set compare = "inputs" or signature-epsilon, which send none'
            )
        return keyed_profile(profile, key)

    def _profile(self, context: ClientContext) -> Message:
        if self.encoder is not None:
            if context.is_table:
                raise ConfigError("PACFL.encoder: a schema says how columns of tables are scaled; leave it out")
            context = replace(context, pool_raw=self._encoded(context), rows=None, pool_groups=context.groups)
        classes: ClassSignatures | None = None
        rank = self._rank(context.is_table)
        if self.signature_epsilon is not None:
            private = private_profile(
                *(context, rank, self.signature_epsilon, self.signature_delta, self.signature_noise),
                with_classes=self._compares_classes and self._labelled(context),
            )
            basis, angles, classes = private.basis, private.split_half_angles[self.measure], private.classes
        else:
            labels = context.train.y if self.per_class else None
            if labels is not None and (labels.ndim > 1 or labels.dtype.kind == "f"):
                raise ConfigError("PACFL.per_class needs one class for each sample; leave it out for labels and values")
            basis = signature(context.raw, rank, labels)
            angles = split_half_angles(context.raw, rank, labels, [self.measure], context.groups)[self.measure]
        profile = {"basis": basis.astype(np.float32), "split_half_angles": angles.astype(np.float32)}
        if not self._compares_classes:
            return profile
        if self.signature_epsilon is None and self._labelled(context):
            classes = class_signatures(context.raw, context.train.y, groups=context.groups)
        profile |= as_messages(classes, len(basis))
        if context.table is None or not self._compares_columns:
            return profile
        labels = None if classes is None else context.train.y
        return {**profile, **column_messages(column_angles(context.table, labels, context.groups))}

    def _encoded(self, context: ClientContext) -> NDArray[np.generic]:
        """The client's samples as `pacfl sign --encoder` encodes them."""
        assert self.encoder is not None
        try:
            return encoders.encode(self.encoder, context.raw)  # type: ignore[no-any-return]  # or a sparse matrix
        except (ValueError, TypeError) as error:
            raise DataError(f"PACFL with encoder = {self.encoder!r}: {error}") from None

    def _labelled(self, context: ClientContext) -> bool:
        """Whether targets are classes."""
        y = context.train.y
        labelled = y.ndim == 1 and y.dtype.kind != "f"
        if not labelled and self.compare == "classes":
            raise ConfigError('PACFL with compare = "classes" needs one class for each sample; compare inputs')
        return labelled

    def promise(self) -> Promise | None:
        if self.signature_epsilon is None or self.signature_noise != "secret":
            return None
        encoded = () if self.encoder is None else (encoders.digest(self.encoder),)
        settings = (self.rank, self.measure, *(("classes",) if self._compares_classes else ()), *encoded)
        cost = float(self.signature_epsilon), float(self.signature_delta)
        return Promise(*cost, settings, of_labels=self._compares_classes)

    def profile_specs(self, model: Model) -> ArraySpecs:  # noqa: ARG002 - signatures are of data
        # A basis of more columns than the rank would be near everybody's
        columns = MOST_COLUMNS if self.per_class else self._rank()
        specs = {"basis": ArraySpec((-1, -1), "f", columns), "split_half_angles": ArraySpec((-1,), "f", SPLITS)}
        if not self._compares_classes:
            return specs
        integers = {name: ArraySpec((-1,), "i", MOST_CLASSES) for name in ("labelled", "classes", "class_counts")}
        directions, angles = ArraySpec((-1, -1, -1), "f", MOST_CLASSES), ArraySpec((-1, -1, -1), "f", SPLITS)
        return {**specs, **integers, "class_directions": directions, "class_angles": angles}

    def check_profile(self, model: Model, profile: Message) -> None:
        specs = self.profile_specs(model)
        has_columns = self._compares_columns and not column_specs().keys().isdisjoint(profile)
        if has_columns:
            specs = {**specs, "basis": ArraySpec((-1, -1), "f", self._rank(is_table=True)), **column_specs()}
        if KEY_ID in profile:
            specs = {**specs, KEY_ID: ArraySpec((1,), "i")}
        check_arrays(profile, specs)
        check_signature(profile["basis"], profile["split_half_angles"])
        if self._compares_classes:
            check_classes(profile, private=self.signature_epsilon is not None)
        if has_columns:
            check_columns(profile)

    def incompatible(self, state: PACFLState, profiles: Mapping[ClientId, Message]) -> Mapping[ClientId, str]:
        return incomparable(state, profiles)

    def planned(self, state: PACFLState, n_rounds: int) -> PACFLState:
        return state if self.levels == "none" else trials.planned(state, n_rounds)

    def admit(self, state: PACFLState, profiles: Mapping[ClientId, Message]) -> PACFLState:
        return trials.placed(state, admitted(trials.by_group(state), profiles, self._cluster))

    def forget(self, state: PACFLState, clients: Set[ClientId]) -> PACFLState:
        return trials.left(without(state, clients))

    def download(self, state: PACFLState, client: ClientId) -> Message:
        return super().download(state, client) if state.levels is None else trials.download(state, client)

    def train(self, context: ClientContext, down: Message, memory: Message) -> tuple[Message, Message]:
        if "held_out" not in down:
            return super().train(context, down, memory)
        own, held_out = trials.held_out(context, int(down["held_out"][0]))
        # Scores first: the training that is uploaded must be the client's last
        scores = {"scores": trials.paired_scores(self, own, held_out, down, memory)} if "rival" in down else {}
        up, memory = super().train(own, down, memory)
        return {**up, **scores}, memory

    def upload_specs(self, model: Model, down: Message) -> ArraySpecs:
        specs = super().upload_specs(model, {"w": down["w"]})
        return {**specs, "scores": ArraySpec((2, -1), "f", 2)} if "rival" in down else specs

    def trained_row(self, state: PACFLState, upload: Upload) -> int | None:
        if state.levels is not None and trials.in_part(state.levels, upload.client):
            return None
        return state.cluster_of[upload.client]

    def aggregate(self, state: PACFLState, uploads: Sequence[Upload]) -> PACFLState:
        if state.levels is None or not uploads:
            return cluster_mean(state, uploads, self.aggregation, self.server_optimiser)
        return trials.aggregate(state, uploads, self.aggregation, self.linkage)

    def _cluster(self, clients: Sequence[ClientSignature]) -> Clustering:
        """The first clients: angles between all of them, the dendrogram cut at beta."""
        compare = self.compare if self._compares_classes else "inputs"
        beta = None if self.threshold == "auto" else float(self.threshold)
        k = None if self.clusters is None else min(self.clusters, len(clients))
        return cluster_clients(clients, compare, self.measure, self.linkage, beta, k)
