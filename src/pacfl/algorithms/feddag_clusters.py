from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, final

import numpy as np
from numpy.typing import NDArray

from pacfl.errors import InvalidReplyError
from pacfl.federation.algorithm import Algorithm, State
from pacfl.federation.checks import ArraySpec, ArraySpecs, check_arrays, check_norms
from pacfl.federation.founding import Array, cut_into, local_model
from pacfl.federation.joint_angles import class_angles, combined, learned, scaled, update_angles
from pacfl.federation.message import ClientId, Message
from pacfl.federation.requirements import refuse_clipping, require_classes
from pacfl.learning.client_context import ClientContext, LocalTraining
from pacfl.learning.model import Model
from pacfl.learning.randomness import stream
from pacfl.settings import NonNegative, PositiveInt, PositiveShare, Share, ShareBelowOne
from pacfl.subspace.signature import blank, leading, rows_of

MOST_CLASSES: Final = 100_000


@dataclass(frozen=True, eq=False)
class FedDAGState(State):
    """With the cluster and the report of everybody who was there when the clusters were found."""

    founders: tuple[tuple[int, Message], ...] = field(default=(), kw_only=True)


@final
@dataclass(frozen=True)
class FedDAGClusters(Algorithm):
    """Pramanik and others (2026), section 3: clusters by class-wise angles between data, and by angles of updates.

    V_ij = mean over classes c of W_ijc times the smallest principal angle of U_ic and U_jc, 90 degrees if only one of
    both has c. W_ijc = max / min of ln(n_ic + 1) and ln(n_jc + 1), scaled to 1 - delta .. 1 + delta.
    G_ij = the angle between some coordinates of the updates of the first local training. Both are scaled to 0 .. 1,
    A_ij = w_ij G_ij + (1 - w_ij) V_ij with w_ij = (w_i + w_j) / 2, and w has the least entropy of softmax(A) in rows.
    The dendrogram of A is cut; FedAvg follows in each cluster.
    """

    clusters: PositiveInt = 2
    threshold: NonNegative | None = None  # cut there instead
    rank: PositiveInt = 3  # directions of each class
    delta: ShareBelowOne = 0.5
    coordinates: PositiveShare = 0.02  # of the update
    gradient_weight: Literal["learned"] | Share = "learned"  # w

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_clipping(self, "directions of its classes and parts of its first update")

    def no_secure(self) -> str:
        return "FedDAGClusters compares the classes and the first updates of single clients, which are sent as they are"

    def check_training(self, learning: LocalTraining) -> None:
        require_classes(self, "compares classes", learning)

    def init_server(self, model: Model) -> FedDAGState:
        return FedDAGState(model.initial[None])

    def profile(self, context: ClientContext) -> Message:
        rows, y = rows_of(context.raw), context.train.y
        names = np.array([name for name in np.unique(y) if not blank(rows[y == name])], dtype=np.int64)
        counts = np.array([(y == name).sum() for name in names], dtype=np.int64)
        directions = np.zeros((len(names), rows.shape[1], self.rank), dtype=np.float16)
        for k, name in enumerate(names):
            basis = leading(rows[y == name], self.rank)
            directions[k, :, : basis.shape[1]] = basis
        update = (local_model(context) - context.model.initial)[self._chosen(context.model)]
        return {"class_names": names, "class_sizes": counts, "class_directions": directions, "update": update}

    def _chosen(self, model: Model) -> NDArray[np.int64]:
        """The coordinates of the update that all send."""
        trained = np.flatnonzero(~model.statistics)
        n = max(1, round(self.coordinates * len(trained)))
        return np.sort(stream(0, "coordinates").permutation(trained)[:n])

    def profile_specs(self, model: Model) -> ArraySpecs:
        names = ArraySpec((-1,), "i", MOST_CLASSES)
        directions = ArraySpec((-1, -1, self.rank), "f")
        update = ArraySpec((len(self._chosen(model)),), "f")
        return {"class_names": names, "class_sizes": names, "class_directions": directions, "update": update}

    def check_profile(self, model: Model, profile: Message) -> None:
        check_arrays(profile, self.profile_specs(model))
        check_norms({"update": profile["update"]}, model)
        names, counts, directions = (
            profile["class_names"],
            profile["class_sizes"],
            profile["class_directions"].astype(np.float64),
        )
        if not len(names) == len(set(names.tolist())) == len(counts) == len(directions) or (counts < 1).any():
            raise InvalidReplyError(
                f"has {len(names)} classes, {len(counts)} counts of {counts.min(initial=0)} or more"
            )
        lengths = np.linalg.norm(directions, axis=1)
        if not (np.isclose(lengths, 1, atol=1e-2) | (lengths == 0)).all():
            raise InvalidReplyError(
                f"'class_directions' have lengths up to {lengths.max():.3g}, expected 1, or 0 for none"
            )

    def incompatible(self, state: FedDAGState, profiles: Mapping[ClientId, Message]) -> Mapping[ClientId, str]:
        known = [own for _, own in state.founders] or [profiles[c] for c in sorted(profiles)]
        sizes = [own["class_directions"].shape[1] for own in known]
        usual = max(sizes, key=sizes.count, default=0)
        return {
            c: f"has {own['class_directions'].shape[1]:,} features, and others have {usual:,}"
            for c, own in profiles.items()
            if own["class_directions"].shape[1] != usual
        }

    def admit(self, state: FedDAGState, profiles: Mapping[ClientId, Message]) -> FedDAGState:
        clients = sorted(profiles)
        new, old = [profiles[c] for c in clients], [report for _, report in state.founders]
        distances = self._distances([*old, *new])
        if old:
            founders = np.array([row for row, _ in state.founders])
            near = distances[len(old) :, : len(old)]
            rows = np.stack([near[:, founders == k].mean(axis=1) for k in range(founders.max() + 1)]).argmin(axis=0)
        else:
            rows = cut_into(distances, self.clusters, self.threshold)
            models = np.repeat(state.models[:1], rows.max() + 1, axis=0)
            state = replace(state, models=models, founders=tuple(zip(rows.tolist(), new, strict=True)))
        return replace(state, cluster_of={**state.cluster_of, **dict(zip(clients, rows.tolist(), strict=True))})

    def _distances(self, reports: Sequence[Message]) -> Array:
        data = scaled(class_angles(reports, self.delta))
        updates = scaled(update_angles(np.stack([own["update"] for own in reports])))
        w = learned(updates, data) if self.gradient_weight == "learned" else np.full(len(reports), self.gradient_weight)
        return combined(updates, data, w)
