"""An experiment from its first round to its result, stored on the way: interrupted anywhere, it resumes."""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from pacfl.data import Dataset, Normalisation, Normalise, Partition, normalisation
from pacfl.experiment import description, summary
from pacfl.experiment.interface import ModelInterface, model_interface
from pacfl.experiment.models import final_models
from pacfl.experiment.store import RunStore
from pacfl.federation.client_side import ClientSide, Setup
from pacfl.federation.local import LocalClients
from pacfl.federation.rounds import Backend, Round, SimulatedClients, rounds
from pacfl.federation.schedule import RoundPlan, Schedule, round_plans
from pacfl.learning.losses import find_loss

Record = dict[str, Any]
Watch = Callable[[Record], bool]  # looks at the record of a round, and says whether training ends with it


@dataclass(frozen=True, eq=False)
class Experiment:
    """A data set divided among clients, what they need to train, and the planned rounds."""

    dataset: Dataset
    partition: Partition
    setup: Setup
    schedule: Schedule
    normalise: Normalise = "auto"
    notes: tuple[str, ...] = ()  # settings that were left out because they cannot apply, in sentences

    @property
    def normalisation(self) -> tuple[Normalisation, ...]:
        """How the samples of each source of the data set were normalised for the model."""
        return normalisation(self.dataset, self.normalise)

    @cached_property
    def plans(self) -> tuple[RoundPlan, ...]:
        """The scheduled rounds, and the evaluations after the last of them."""
        schedule, swap = self.schedule, self.partition.swap
        if swap is not None and swap.reprofile:
            named = dict.fromkeys((*schedule.reprofile.get(swap.round, ()), *swap.clients))
            schedule = replace(schedule, reprofile={**schedule.reprofile, swap.round: tuple(named)})
        return tuple(round_plans(schedule, self.partition.n_clients, self.setup.seed))

    @property
    def interface(self) -> ModelInterface:
        """What the models take and what they give."""
        return model_interface(self.dataset, self.partition, self.normalisation, find_loss(self.setup.learning.loss))

    def shortened(self, n_rounds: int) -> "Experiment":
        """The same with fewer rounds."""
        return (
            self
            if n_rounds == self.schedule.rounds
            else replace(self, schedule=replace(self.schedule, rounds=n_rounds))
        )

    def rounds(
        self, clients: SimulatedClients, checkpoint: Mapping[str, Any], ending: "Ending | None" = None
    ) -> Iterator[Round]:
        """The rounds that are left after a checkpoint, or all of them if it is empty."""
        algorithm, ending = self.setup.algorithm, ending or Ending(self.schedule)
        if checkpoint:
            clients.memory, clients.last_trained = checkpoint["memory"], checkpoint["last_trained"]
        state = checkpoint["state"] if checkpoint else algorithm.init_server(self.setup.model)
        state = algorithm.planned(state, self.schedule.rounds)
        for finished in rounds(algorithm, clients, state, self._plans_until(ending), checkpoint.get("round", 0)):
            clients.forget(finished.plan.gone)
            yield finished

    def _plans_until(self, ending: "Ending") -> Iterator[RoundPlan]:
        """Each plan when it is due: whether training has ended is known only then."""
        for t, plan in enumerate(self.plans[: self.schedule.rounds]):
            if t == ending.after:
                break
            yield plan
        yield from self.shortened(ending.n_rounds).plans[ending.n_rounds :]

    def record(self, finished: Round) -> Record:
        """What is stored of a round."""
        return summary.record(
            finished, self.partition.true_cluster_in(finished.t + 1), self.setup.scored_by, self.partition.tests
        )


class Ending:
    """When training ends: after the scheduled rounds, or earlier if the watch says so."""

    def __init__(self, schedule: Schedule, watch: Watch | None = None) -> None:
        """Nothing seen yet."""
        self._scheduled, self._watch = schedule.rounds, watch
        self.after: int | None = None  # the round after which the watch ended training

    @property
    def n_rounds(self) -> int:
        """Rounds of training."""
        return self._scheduled if self.after is None else self.after

    def see(self, record: Record) -> None:
        """Show a record to the watch, in the order of rounds."""
        ends = self._watch is not None and self._watch(record)
        if ends and self.after is None and record["round"] <= self._scheduled:
            self.after = record["round"]


def execute(
    experiment: Experiment,
    folder: RunStore,
    identity: Mapping[str, Any],
    backend: Backend,
    *,
    models: bool = True,
    watch: Watch | None = None,
    clock: Callable[[], float] = time.monotonic,
    started: float | None = None,
) -> Iterator[Record]:
    """Run what is missing of an experiment, yielding the record of every round; the last one is its result.

    identity: what the result begins with; watch: sees every record, those of a former process first; started: what
    the clock said when the run began, if that was earlier.
    """
    started = clock() if started is None else started
    checkpoint = folder.load_checkpoint() or {}
    spent = checkpoint.get("seconds", 0.0)
    folder.truncate_records(checkpoint.get("round", 0))
    ending = Ending(experiment.schedule, watch)
    for record in folder.records():
        ending.see(record)
    state = checkpoint.get("state")
    described = getattr(state, "clustering", None)
    before, began = checkpoint.get("processor", {"all": 0.0, "native": 0.0}), _processor_seconds()
    with backend.connect(experiment.setup) as clients:
        for finished in experiment.rounds(clients, checkpoint, ending):
            state = finished.state
            clustering = getattr(state, "clustering", None)
            if clustering is not None and clustering is not described:
                description.save_clustering(folder, list(state.bases), clustering)
                described = clustering
            record = experiment.record(finished)
            folder.append(record)
            memory = {"memory": clients.memory, "last_trained": clients.last_trained}
            seconds = spent + clock() - started
            used = {"all": before["all"] + _processor_seconds() - began, "native": before["native"] + _native(clients)}
            folder.save_checkpoint(
                {"round": finished.t + 1, "seconds": seconds, "processor": used, "state": state, **memory}
            )
            ending.see(record)
            yield record
        if models:
            folder.describe("interface", experiment.interface.content())
            side = clients.side if isinstance(clients, LocalClients) else ClientSide(experiment.setup)
            final_models(side, state, clients.memory, experiment.shortened(ending.n_rounds).plans).save(folder)
        else:
            folder.drop_models()  # of a process that was killed after it had stored them
        native = before["native"] + _native(clients)
    folder.describe("processor", {"all": before["all"] + _processor_seconds() - began, "native": native})
    outcome = summary.result(folder.records(), ending.n_rounds)
    if ending.after is not None:
        outcome["ended_after"] = ending.after
    if experiment.notes:
        outcome["notes"] = list(experiment.notes)
    result = {**identity, **outcome, "seconds": round(spent + clock() - started, 3)}
    folder.finish(result)
    yield result


def _native(clients: SimulatedClients) -> float:
    """Processor seconds inside the native engine."""
    return clients.side.native_seconds if isinstance(clients, LocalClients) else 0.0


def _processor_seconds() -> float:
    """Of this process, and of its workers that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
