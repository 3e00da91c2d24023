"""The models of a finished run, ready to leave: which there are, what they take, and what is known about them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

from pacfl.errors import DataError, StoreError
from pacfl.experiment.config import Run, from_content
from pacfl.experiment.interface import ModelInterface
from pacfl.experiment.models import LoadedModels, StoredModels, stored_models
from pacfl.experiment.records import Client
from pacfl.experiment.result import Result
from pacfl.experiment.run import load_models
from pacfl.experiment.store import PYTHON, RunFolder, RunMemory
from pacfl.experiment.summary import label
from pacfl.exporting.architecture import build_architecture
from pacfl.exporting.card import CardFacts, privacy_spent, scores_of
from pacfl.exporting.folder import Manifest, ModelOf
from pacfl.exporting.formats import FormatName
from pacfl.federation.label_prior import CLASS_SHARES
from pacfl.federation.message import ClientId
from pacfl.federation.schedule import Schedule
from pacfl.learning.mixture import Mixture, Weights, module
from pacfl.learning.model import Model, Vector, as_model


@dataclass(frozen=True, eq=False)
class RunModels:
    """The models that a run ended with."""

    settings: Mapping[str, Any]  # as plain values
    store: RunFolder | RunMemory
    names: Sequence[Client]  # of all clients
    described: Mapping[str, Any] | None  # how pacfl builds the model, if it can
    model: Model
    stored: StoredModels
    interface: ModelInterface
    load: Callable[[], LoadedModels]  # with the data; for personal models

    def models(self, client: str | None, personal: bool) -> Iterator[ModelOf]:
        """What an export asks for: the clusters, one client, or all clients if personal or if they share no model."""
        if client is not None:
            known = {self._name(c): c for c in self.stored.cluster_of}
            if client not in known:
                raise DataError(f"the run ended without client {client!r}; there are {', '.join(list(known)[:20])}")
            yield from self._of_client(known[client], personal)
        elif personal or self.cluster_of is None:
            for c in self.stored.cluster_of:
                yield from self._of_client(c, personal)
        else:
            for k, members in self.members.items():
                yield from self._of(f"cluster-{k}", self.stored.models[k], members, cluster=k)

    def manifest(self, name: FormatName) -> Manifest:
        """What export.json says, without files."""
        about = (self._hash, self._label, self.settings["data"]["name"])
        return Manifest(name, *about, self.interface.targets, self.interface.outputs, self.described, self._clients())

    def facts(self) -> CardFacts:
        """What the card says."""
        content, first = self.settings, next(iter(self.interface.by_source.values()))
        about = self.store.description("clients") or {}
        sizes = [client["train"] for client in about.get("clients", [])]
        sampled = [record["sampled"] for record in self.store.records()]
        privacy = {**content["algorithm"], **content.get("aggregation", {})}
        return CardFacts(
            title=f"Models of {self._label} on {content['data']['name']}",
            method=f"Federated learning with {self._label} by pacfl, seed {content['seed']}. Run `{self._hash}`.",
            data={
                "data set": content["data"]["name"],
                "samples": f"{sum(sizes)} for training, at {len(sizes)} clients",
                "partition": words(content["data"]["scheme"]),
                "digest": f"`{about.get('digest')}`",
            },
            training={
                "model": words(content["model"]),
                "local training": words(content["learning"]),
                "schedule": words(_changed(content["schedule"])),
                "algorithm": words(content["algorithm"]),
                **({"aggregation": words(content["aggregation"])} if content.get("aggregation") else {}),
            },
            clusters={k: list(map(self._name, members)) for k, members in self.members.items()},
            scores=scores_of(self.store.result() or {}),
            privacy=privacy_spent(privacy, sampled),
            input=f"Samples of shape {first.described()}, as the data set has them.",
            outputs=OUTPUTS[self.interface.targets],
            versions=self.store.description("environment") or {},
        )

    @cached_property
    def cluster_of(self) -> dict[ClientId, int] | None:
        """The cluster whose model each client receives; None if some client receives no model of a cluster.

        Clients of some algorithms share a part of the weights, or none, choose among the clusters, or mix their models.
        Where the label prior is corrected, a client's model is that of its cluster but for the output bias.
        """
        found = {}
        bias = self.model.output_bias or slice(0, 0)
        for client, w in self.stored.received.items():
            if isinstance(w, Mixture):
                return None
            own, models = self.stored.cluster_of[client], self.stored.models
            rows = [own, *range(len(models))] if own < len(models) else range(len(models))
            but = bias if CLASS_SHARES in self.stored.downloads[client] else slice(0, 0)
            k = next((k for k in rows if models[k] is w or _same_but(models[k], w, but)), None)
            if k is None:
                return None
            found[client] = k
        return found

    @property
    def members(self) -> dict[int, list[ClientId]]:
        """The clients of every cluster that has any; none if clusters have no models."""
        cluster_of = self.cluster_of or {}
        return {k: [c for c in cluster_of if cluster_of[c] == k] for k in sorted(set(cluster_of.values()))}

    def _clients(self) -> dict[str, dict[str, Any]]:
        """Every client's cluster, and the sources of its samples if the data have several."""
        several = len(self.interface.by_source) > 1
        clusters = self.cluster_of or {}
        return {
            self._name(c): {
                "cluster": clusters.get(c),
                **({"label_prior": True} if self._corrected(c) else {}),
                **({"sources": self.interface.sources([c])} if several else {}),
            }
            for c in self.stored.cluster_of
        }

    def _corrected(self, client: ClientId) -> bool:
        """Whether the client's model is that of its cluster with the label prior corrected."""
        k, w = (self.cluster_of or {}).get(client), self.stored.received[client]
        return k is not None and not isinstance(w, Mixture) and not np.array_equal(self.stored.models[k], w)

    @property
    def _hash(self) -> str:
        return str((self.store.result() or {}).get("hash"))

    @property
    def _label(self) -> str:
        return label(self.settings["algorithm"], self.settings.get("aggregation", {}))

    def _name(self, client: ClientId) -> str:
        return str(self.names[client])

    @cached_property
    def _loaded(self) -> LoadedModels:
        return self.load()

    def _of_client(self, client: ClientId, personal: bool) -> Iterator[ModelOf]:
        w = self._loaded.personal(client) if personal else self.stored.received[client]
        cluster = (self.cluster_of or {}).get(client)
        name = self._name(client)
        stem = f"client-{name}{'-personal' if personal else ''}"
        yield from self._of(stem, w, [client], cluster=cluster, client=name, personal=personal)

    def _of(self, stem: str, w: Weights, members: Sequence[ClientId], **whose: Any) -> Iterator[ModelOf]:
        """A model for each source of the members' samples, unless all are preprocessed in the same way."""
        own = module(self.model, w, self.interface.targets)
        by_source = self.interface.by_source
        sources = self.interface.sources(members)
        if all(by_source[source].content() == by_source[sources[0]].content() for source in sources[1:]):
            of = sources[0] if len(sources) == 1 and len(by_source) > 1 else None
            yield ModelOf(stem, own, by_source[sources[0]], source=of, **whose)
            return
        for source in sources:
            yield ModelOf(f"{stem}-{source}", own, by_source[source], source=source, **whose)


def run_models(folder: RunFolder, data: Path | None = None) -> RunModels:
    """The models of a finished run in its folder; data are read for personal models only."""
    content = folder.content() or {}
    if content.get("origin") == PYTHON:
        raise StoreError(
            f"{folder.path}: was run from Python, where its module is; export it there: "
            f"pacfl.export(pacfl.load({str(folder.path)!r}, module=...), ...)"
        )
    run, stored, interface = from_content(content), stored_models(folder), _interface(folder, str(folder.path))
    described = model_description(run, interface)
    model = as_model(lambda: build_architecture(described), run.seed)
    listed = (folder.description("clients") or {}).get("clients") or [{}] * run.data.clients
    names = [client.get("name", c) for c, client in enumerate(listed)]
    return RunModels(content, folder, names, described, model, stored, interface, lambda: load_models(folder, data)[1])


def result_models(result: Result) -> RunModels:
    """The models of a result in Python."""
    store, loaded = result._store, result._loaded
    interface = _interface(store, "the result")
    return RunModels(
        result.settings, store, result.clients, None, loaded.model, loaded.stored, interface, lambda: loaded
    )


def _interface(store: RunFolder | RunMemory, where: str) -> ModelInterface:
    content = store.description("interface")
    if content is None:
        raise StoreError(f"{where}: its models are of another release of pacfl; run it again (--rerun)")
    return ModelInterface.from_content(content)


def model_description(run: Run, interface: ModelInterface) -> dict[str, Any]:
    """How the model of a run is built: its name and options, the shape of an input, and the number of outputs."""
    shape = next(iter(interface.by_source.values())).input_shape
    image = shape if len(shape) == 3 else (1, 1, shape[0])
    options = {key: value for key, value in run.content()["model"].items() if key != "name"}
    return {"name": run.model.name, "options": options, "shape": list(image), "outputs": len(interface.outputs)}


def _same_but(one: Vector, other: Vector, but: slice) -> bool:
    """Whether two models have the same weights, a slice of them aside."""
    if one.shape != other.shape:
        return False
    return np.array_equal(one[: but.start], other[: but.start]) and np.array_equal(one[but.stop :], other[but.stop :])


OUTPUTS: Final[Mapping[str, str]] = {
    "classes": "One logit for each class: the largest is of the predicted class, and their softmax are probabilities.",
    "labels": "One logit for each label: its sigmoid is the probability of the label.",
    "values": "The predicted values.",
}


def _changed(schedule: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a schedule that differ from their defaults, and the number of rounds."""
    defaults = vars(Schedule())
    return {key: value for key, value in schedule.items() if key == "rounds" or value != defaults.get(key)}


def words(settings: Mapping[str, Any]) -> str:
    """Settings in a line, with the names that files of settings have."""
    return ", ".join(f"{key.replace('_', '-')} {value}" for key, value in settings.items())
