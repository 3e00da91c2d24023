"""Trials of divisions, as a part of the server's state; `levels` explains them."""

from collections.abc import Mapping, Sequence, Set
from copy import copy
from dataclasses import asdict, replace
from typing import Final
from zlib import crc32

import numpy as np

from pacfl.federation.aggregation import Aggregation
from pacfl.federation.algorithm import Algorithm, State, Upload, cluster_mean
from pacfl.federation.checks import CLASS_COUNTS, CLASS_SHARES
from pacfl.federation.levels import (
    HELD_OUT,
    LEAST_CLIENTS,
    PARTS,
    Array,
    Decision,
    Levels,
    Trial,
    decide,
    divide,
    stages,
)
from pacfl.federation.membership import Floats, PACFLState
from pacfl.federation.message import ClientId, Message
from pacfl.learning.client_context import ClientContext, Samples
from pacfl.learning.evaluation import Metrics
from pacfl.learning.metrics import METRICS
from pacfl.learning.model import Vector
from pacfl.learning.randomness import stream
from pacfl.subspace import Linkage
from pacfl.subspace.shares import count_table, share_spread

# In a scored download: a model with its class shares, and the names of the same arrays of its rival
RIVAL: Final = {"w": "rival", CLASS_SHARES: "rival_class_shares"}
NO_SCORES: Final = np.zeros((2, 0), dtype=np.float32)  # of a client that has held out nothing


def planned(state: PACFLState, n_rounds: int) -> PACFLState:
    """With the number of rounds, on which it depends when divisions are tried."""
    levels = state.levels or Levels(address=crc32(state.initial.tobytes()))
    trials = levels.trials if stages(n_rounds) else ()
    return replace(state, levels=replace(levels, planned=n_rounds, trials=trials))


def levels_of(state: PACFLState) -> Levels:
    """What was tried so far."""
    assert state.levels is not None  # callers try divisions
    return state.levels


# What is sent


def download(state: PACFLState, client: ClientId) -> Message:
    """The model to train; while the client's group is undecided, that of either arm, and samples are held out."""
    levels = levels_of(state)
    own = state.models[state.cluster_of[client]]
    if not _undecided(state, group_of(levels, state.cluster_of[client])):
        return {"w": own}
    holding_out = np.array([HELD_OUT])
    trial = _trial_of(levels, client)
    if trial is None:
        return {"w": own, "held_out": holding_out}
    models = [_with_shares(own, _shares(state.class_shares, state.cluster_of[client]))]
    models += [_with_shares(trial.models[trial.part_of[client]], _shares(trial.class_shares, trial.part_of[client]))]
    trained, rival = models[::-1] if in_part(levels, client) else models
    scored = levels.rounds >= stages(levels.planned)[levels.stage - 1].scored
    rivals = {RIVAL[name]: array for name, array in rival.items()} if scored else {}
    return {**trained, "held_out": holding_out, **rivals}


def _with_shares(w: Vector, shares: Array | None) -> Message:
    """A model and, once it is trained, the class shares of the samples that it was trained on."""
    return {"w": w} if shares is None else {"w": w, CLASS_SHARES: shares.astype(np.float32)}


def _shares(of_models: Array | None, row: int) -> Array | None:
    return None if of_models is None or row >= len(of_models) or not of_models[row].any() else of_models[row]


def aggregate(state: PACFLState, uploads: Sequence[Upload], aggregation: Aggregation, linkage: Linkage) -> PACFLState:
    """The uploads of a round: those of parts that are tried are averaged apart; then trials end and begin."""
    levels = levels_of(state)
    trying = {u.client for u in uploads if in_part(levels, u.client)}
    after = cluster_mean(state, [u for u in uploads if u.client not in trying], aggregation, aggregation.optimiser)
    trials = tuple(_trained(trial, levels.rounds, uploads, trying, aggregation) for trial in levels.trials)
    after = replace(after, levels=replace(levels, trials=trials, rounds=levels.rounds + 1))
    return _begun(_ended(after), linkage)


def _trained(trial: Trial, t: int, uploads: Sequence[Upload], trying: Set[ClientId], aggregation: Aggregation) -> Trial:
    """A trial with the models of its parts after a round, and the gains that its clients report."""
    own = [u for u in uploads if u.client in trial.part_of]
    of_parts = [u for u in own if u.client in trying]
    parts = State(trial.models, trial.part_of, moments=trial.moments)
    parts = cluster_mean(parts, of_parts, aggregation, aggregation.optimiser)
    if any(CLASS_COUNTS in u.content for u in of_parts):
        trial = replace(trial, class_shares=_trained_shares(trial, of_parts, aggregation))
    gains = []
    for u in own:
        if u.content.get("scores", NO_SCORES).shape == (2, 2):  # others have held out nothing
            received, personal = (u.content["scores"][:, 0] - u.content["scores"][:, 1]).astype(np.float64)
            sign = 1.0 if u.client in trying else -1.0
            gains.append((t, u.client, sign * float(received), sign * float(personal)))
    return replace(trial, models=parts.models, moments=parts.moments, gains=(*trial.gains, *gains))


def _trained_shares(trial: Trial, uploads: Sequence[Upload], aggregation: Aggregation) -> Array:
    """Class shares of the samples that the models of parts were trained on."""
    from pacfl.federation.label_prior import shares_after  # needs torch, which a reader of results may lack

    n_classes = len(uploads[0].content[CLASS_COUNTS])
    shares = np.zeros((len(trial.models), n_classes)) if trial.class_shares is None else trial.class_shares
    trained: dict[int, list[Upload]] = {}
    for upload in uploads:
        trained.setdefault(trial.part_of[upload.client], []).append(upload)
    return shares_after(shares, trained, aggregation.rule)


def in_part(levels: Levels, client: ClientId) -> bool:
    """Whether a client trains the model of a part that is tried in this round: every second one in a trial does."""
    return _trial_of(levels, client) is not None and bool(
        stream(levels.address, "part", levels.rounds, client).integers(2)
    )


def _trial_of(levels: Levels, client: ClientId) -> Trial | None:
    return next((trial for trial in levels.trials if client in trial.part_of), None)


# At a client


def held_out(context: ClientContext, one_in: int) -> tuple[ClientContext, Samples]:
    """The client with the samples that it trains on, and those that are held out: the same ones in every round.

    Samples that depend on each other are held out together: the number of groups that is nearest to the share.
    """
    seed, _, client = context.key
    rng, n = stream(seed, "held-out", client), context.n_samples
    if context.groups is None:
        order, ends = rng.permutation(n), np.arange(n + 1)
    else:
        names, group = np.unique(context.groups, return_inverse=True)
        place = rng.permutation(len(names))[group]
        order, ends = np.argsort(place, kind="stable"), np.append(0, np.bincount(place).cumsum())
    cut = int(ends[np.abs(ends[:-1] - n // one_in).argmin()])
    return context.subset(np.sort(order[cut:])), context.subset(np.sort(order[:cut])).train


def paired_scores(
    algorithm: Algorithm, context: ClientContext, samples: Samples, down: Message, memory: Message
) -> Floats:
    """The primary metric of the model to train and of its rival (columns), as received and as personal (rows): (2, 2).

    Higher is better. (2, 0) without samples.
    """
    from pacfl.federation.label_prior import corrected
    from pacfl.learning.losses import find_loss  # needs torch, which a server may lack
    from pacfl.learning.mixture import evaluate

    if not len(samples.y):
        return NO_SCORES
    loss = find_loss(context.learning.loss)
    metrics = Metrics(loss.targets)
    sign = 1 if METRICS[metrics.primary].higher_is_better else -1
    candidates = [{name: down[name] for name in RIVAL if name in down}]
    candidates += [{name: down[rival] for name, rival in RIVAL.items() if rival in down}]
    scores = np.zeros((2, 2), dtype=np.float32)
    for row, adapt in enumerate((algorithm.receive, algorithm.personalise)):
        for column, candidate in enumerate(candidates):
            apart = replace(context, engine=copy(context.engine))  # layers of the client's own stay as they are
            w = adapt(apart, corrected(algorithm, apart, candidate), memory)
            outputs, _ = evaluate(apart.engine, w, samples, loss)
            scores[row, column] = sign * metrics.evaluate(outputs, samples.y)[0]
    return scores


# Decisions


def _begun(state: PACFLState, linkage: Linkage) -> PACFLState:
    """With the trials that start now, in groups where none goes on."""
    levels = levels_of(state)
    plan = stages(levels.planned)
    if levels.stage >= len(plan) or levels.rounds < plan[levels.stage].start:
        return state
    busy = {*levels.closed, *levels.equal, *(trial.group for trial in levels.trials)}
    groups = sorted({group_of(levels, row) for row in state.cluster_of.values()} - busy)
    begun = [trial for group in groups if (trial := _proposed(state, group, linkage)) is not None]
    return replace(state, levels=replace(levels, stage=levels.stage + 1, trials=(*levels.trials, *begun)))


def _proposed(state: PACFLState, group: int, linkage: Linkage) -> Trial | None:
    """The division of a group that is tried next; None if there is none with enough clients."""
    assert state.clustering is not None  # there are groups
    levels = levels_of(state)
    clients = list(state.bases)
    rows = levels.rows.get(group, (group,))
    parts = [tuple(i for i, c in enumerate(clients) if state.cluster_of[c] == row) for row in rows]
    parts = [part for part in parts if part]
    divided = divide(state.clustering.input_distances(), parts, PARTS[len(parts) > 1], linkage)
    if len(divided) <= len(parts):
        return None
    parents = tuple(state.cluster_of[clients[part[0]]] for part in divided)
    part_of = {clients[i]: p for p, part in enumerate(divided) for i in part}
    trained = [_shares(state.class_shares, parent) for parent in parents]
    shares = None if any(own is None for own in trained) else np.array(trained)
    moments = state.moments and state.moments.rows(parents)
    return Trial(group, part_of, state.models[list(parents)], parents, class_shares=shares, moments=moments)


def _ended(state: PACFLState) -> PACFLState:
    """Without the trials that end now: a division that gains is used, others are dropped; one that loses at once."""
    levels = levels_of(state)
    plan = stages(levels.planned)
    due = bool(levels.trials) and levels.rounds >= plan[levels.stage - 1].end
    for trial in levels.trials:
        decision = decide(trial)
        longer = decision.open and levels.stage < len(plan)
        if decision.lost or (due and not longer):
            state = _documented(_used(state, trial) if decision.used else state, decision)
            now = levels_of(state)
            trials = tuple(other for other in now.trials if other is not trial)
            closed = now.closed if decision.used else (*now.closed, trial.group)
            state = replace(state, levels=replace(now, trials=trials, closed=closed))
    return state


def _used(state: PACFLState, trial: Trial) -> PACFLState:
    """With parts as clusters: the first part of each former cluster has its row of models, others have new rows."""
    models, rows = [*state.models], dict[int, int]()
    for part in sorted(set(trial.part_of.values())):
        parent = trial.parents[part]
        if parent in rows.values():
            rows[part] = len(models)
            models.append(trial.models[part])
        else:
            rows[part], models[parent] = parent, trial.models[part]
    cluster_of = {**state.cluster_of, **{c: rows[part] for c, part in trial.part_of.items()}}
    shares = state.class_shares
    if shares is not None and trial.class_shares is not None:
        shares = np.vstack([shares, np.zeros((len(models) - len(shares), shares.shape[1]))])
        for part, row in rows.items():
            shares[row] = trial.class_shares[part]
    moments = state.moments and state.moments.rows(range(len(models)))
    if moments is not None and trial.moments is not None:
        for part, row in rows.items():
            moments.first[row], moments.second[row] = trial.moments.first[part], trial.moments.second[part]
    levels = levels_of(state)
    divided = replace(levels, rows={**levels.rows, trial.group: tuple(rows.values())})
    state = replace(state, models=np.stack(models), class_shares=shares, moments=moments)
    return replace(state, cluster_of=cluster_of, levels=divided)


def _documented(state: PACFLState, decision: Decision) -> PACFLState:
    """With a decision in the evidence of the clustering."""
    assert state.clustering is not None  # there are groups
    evidence = dict(state.clustering.evidence)
    evidence["levels"] = [*evidence.get("levels", []), asdict(decision)]
    evidence["reasons"] = f"{evidence['reasons']} {decision.reasons}"
    return replace(state, clustering=replace(state.clustering, evidence=evidence))


def _undecided(state: PACFLState, group: int) -> bool:
    """Whether a division of a group is being tried, or may still be."""
    levels = levels_of(state)
    plan = stages(levels.planned)
    if any(trial.group == group for trial in levels.trials):
        return True
    if group in levels.closed or group in levels.equal:
        return False
    rows = levels.rows.get(group, (group,))
    largest = max(sum(own == row for own in state.cluster_of.values()) for row in rows)
    return levels.stage < len(plan) and largest >= 2 * LEAST_CLIENTS


# Who comes and goes


def group_of(levels: Levels, row: int) -> int:
    """The group of a row of models."""
    return next((group for group, rows in levels.rows.items() if row in rows), row)


def by_group(state: PACFLState) -> PACFLState:
    """The state with groups as clusters."""
    levels = state.levels
    if levels is None or not levels.rows:
        return state
    return replace(state, cluster_of={c: group_of(levels, row) for c, row in state.cluster_of.items()})


def placed(before: PACFLState, after: PACFLState) -> PACFLState:
    """After clients were admitted to groups: newcomers are in the part that they are nearest to; nobody else moves."""
    if before.levels is None:
        return after
    staying = {c for c, basis in after.bases.items() if basis is before.bases.get(c)}
    if len(staying) == len(after.bases):
        return before
    alive = {after.cluster_of[c] for c in staying}  # other groups were left by all their clients
    levels = replace(
        before.levels,
        rows={group: rows for group, rows in before.levels.rows.items() if group in alive},
        trials=tuple(_among(trial, staying) for trial in before.levels.trials if trial.group in alive),
        closed=tuple(group for group in before.levels.closed if group in alive),
    )
    cluster_of = {**after.cluster_of, **{c: before.cluster_of[c] for c in staying}}
    settled = replace(after, cluster_of=cluster_of, levels=replace(levels, equal=_equal(after)))
    newcomers = [c for c in after.bases if c not in staying]
    return _with_parts(settled, newcomers) if levels.rows or levels.trials else settled


def _equal(state: PACFLState) -> tuple[int, ...]:
    """Groups whose clients have the same classes by the comparison that found them, and the same class shares."""
    assert state.clustering is not None  # there are groups
    if state.clustering.classes is None or state.clustering.evidence["finding"] == "given":
        return ()
    clients_of = {
        group: [c for c, own in state.cluster_of.items() if own == group] for group in {*state.cluster_of.values()}
    }
    sent = {g: [state.classes[c] for c in own if c in state.classes] for g, own in clients_of.items()}
    known = [g for g, own in sent.items() if len(own) == len(clients_of[g]) and not any(one.private for one in own)]
    return tuple(sorted(g for g in known if not share_spread([count_table(sent[g])]).beyond_chance))


def _with_parts(state: PACFLState, newcomers: Sequence[ClientId]) -> PACFLState:
    """With newcomers, who are in groups so far, in parts of these."""
    assert state.clustering is not None  # there are groups
    levels, distances = levels_of(state), state.clustering.input_distances()
    position = {c: i for i, c in enumerate(state.bases)}
    old = [c for c in state.bases if c not in set(newcomers)]

    def nearest(client: ClientId, choices: Mapping[int, Sequence[ClientId]]) -> int:
        """The choice whose clients are nearest on average."""
        near = distances[position[client]]
        return min(choices, key=lambda k: (near[[position[c] for c in choices[k]]].mean(), k))

    cluster_of, trials = dict(state.cluster_of), {trial.group: trial for trial in levels.trials}
    for c in newcomers:
        group = state.cluster_of[c]
        by_row = {row: [o for o in old if state.cluster_of[o] == row] for row in levels.rows.get(group, (group,))}
        cluster_of[c] = nearest(c, {row: members for row, members in by_row.items() if members})
        if group in trials:
            trial = trials[group]
            fitting = [p for p, parent in enumerate(trial.parents) if parent == cluster_of[c]]
            by_part = {p: [o for o in old if trial.part_of.get(o) == p] for p in fitting}
            part = nearest(c, {p: members for p, members in by_part.items() if members})
            trials[group] = replace(trial, part_of={**trial.part_of, c: part})
    return replace(state, cluster_of=cluster_of, levels=replace(levels, trials=tuple(trials.values())))


def left(state: PACFLState) -> PACFLState:
    """After clients were forgotten: trials are without them."""
    if state.levels is None or not state.levels.trials:
        return state
    trials = tuple(_among(trial, state.cluster_of.keys()) for trial in state.levels.trials)
    return replace(state, levels=replace(state.levels, trials=trials))


def _among(trial: Trial, clients: Set[ClientId]) -> Trial:
    """A trial of those of its clients who are still there."""
    part_of = {c: part for c, part in trial.part_of.items() if c in clients}
    return replace(trial, part_of=part_of, gains=tuple(gain for gain in trial.gains if gain[1] in clients))
