"""The models of a deployed federation, from the folder of its server."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from pacfl import plugins
from pacfl.algorithms import find
from pacfl.data.preprocessing import Preprocessing
from pacfl.errors import ConfigError, DataError, StoreError
from pacfl.experiment.checkpoint import peek
from pacfl.experiment.store import RunFolder
from pacfl.experiment.summary import label, trained
from pacfl.exporting.card import CardFacts, privacy_spent, scores_of
from pacfl.exporting.folder import Manifest, ModelOf
from pacfl.exporting.formats import FormatName
from pacfl.exporting.portable import examples, portable
from pacfl.exporting.runs import OUTPUTS, words
from pacfl.exporting.site_key import FINGERPRINT, HASH
from pacfl.folders import Folder
from pacfl.learning.losses import find_loss
from pacfl.learning.model import Model, as_model


@dataclass(frozen=True, eq=False)
class FederationModels:
    """The models that a server has: those of its clusters. What samples are before a model takes them, sites know."""

    folder: Folder
    content: Mapping[str, Any]  # the settings
    state: Any
    model: Model
    preprocessing: Preprocessing
    names: Mapping[int, str]  # of clients
    keys: Mapping[int, str]  # their fingerprints

    def models(self, client: str | None, personal: bool) -> Iterator[ModelOf]:
        """The model of every cluster, or of one client."""
        cluster_of, models = self.state.cluster_of, self.state.models
        if personal:
            raise DataError("the personal models of a federation are computed at its sites; leave out --personal")
        if not len(models) or models.shape[1] != len(self.model.initial):
            name = self.content["algorithm"]["name"]
            raise DataError(f"{self.folder.path}: {name} shares no whole model; the sites have them")
        if len(models) > 1 and find(self.content["algorithm"]["name"]).mixes:
            raise DataError(
                f"{self.folder.path}: a client's model is a mixture whose weights its site alone knows; its models are "
                "delivered there"
            )
        if client is None:
            for k in sorted(set(cluster_of.values())):
                yield ModelOf(f"cluster-{k}", self.model.module(models[k]), self.preprocessing, k)
            return
        known = {self._name(c): k for c, k in cluster_of.items()}
        if client not in known:
            raise DataError(f"{self.folder.path}: has no client {client!r}; there are {', '.join(list(known)[:20])}")
        if self.state.class_shares is not None:
            raise DataError(
                f"{self.folder.path}: the model of a client is corrected for its class shares (label-prior) at its "
                "site, where it is delivered; leave out --client for the models of the clusters"
            )
        k = known[client]
        yield ModelOf(f"client-{client}", self.model.module(models[k]), self.preprocessing, k, client)

    def manifest(self, name: FormatName) -> Manifest:
        """What export.json says, without files."""
        import torch

        with torch.no_grad():
            sample = torch.from_numpy(examples(self.preprocessing, 1))
            outputs = portable(self.model.build(), self.preprocessing)(sample).numel()
        clients = {
            self._name(c): {"cluster": int(k), **({FINGERPRINT: self.keys[c]} if c in self.keys else {})}
            for c, k in self.state.cluster_of.items()
        }
        about = (None, self._label, self.folder.name, self._targets())
        return Manifest(name, *about, tuple(map(str, range(outputs))), None, clients)

    def facts(self) -> CardFacts:
        """What the card says."""
        records = RunFolder(self.folder.federation).records()
        evaluated: Mapping[str, Any] = next((record for record in reversed(records) if "loss" in record), {})
        privacy = {**self.content["algorithm"], **self.content.get("aggregation", {})}
        clusters: dict[int, list[str]] = {}
        for client, k in self.state.cluster_of.items():
            clusters.setdefault(int(k), []).append(self._name(client))
        return CardFacts(
            title=f"Models of {self._label} in the federation {self.folder.name}",
            method=f"Federated learning of sites, with {self._label}, by pacfl.",
            data={"clients": len(self.state.cluster_of), "samples": "at the sites; the server has none"},
            training={
                "rounds": sum(map(trained, records)),
                "local training": words(self.content["learning"]),
            },
            clusters=dict(sorted(clusters.items())),
            scores=scores_of(evaluated),
            privacy=privacy_spent(privacy, [record["sampled"] for record in records]),
            input=f"Inputs of shape {self.preprocessing.described()}, as the sites prepare them for the model.",
            outputs=OUTPUTS[self._targets()],
        )

    def _name(self, client: int) -> str:
        return self.names.get(client, str(client))

    @property
    def _label(self) -> str:
        return label(self.content["algorithm"], self.content.get("aggregation", {}))

    def _targets(self) -> str:
        return find_loss(self.content["learning"].get("loss", "cross-entropy")).targets


def federation_models(folder: Folder, task: str | None, input_shape: tuple[int, ...] | None) -> FederationModels:
    """The models of a server's folder, or of a deployment's; `task` is the module with build_model, if none is stored.

    input_shape: of one input of the model. The server has no data that could say.
    """
    path, checkpoint = folder.path, peek(folder.federation)
    if checkpoint is None or "state" not in checkpoint:
        raise StoreError(f"{path}: has no finished round, so there are no models yet")
    if folder.kind == "deployment":
        plugins.search_in(path / "app")  # where its own modules are
    task = task or checkpoint.get("task")
    if task is None:
        raise StoreError(f"{path}: does not say which module has build_model; give it with --task")
    if input_shape is None:
        raise DataError(f"{path}: give the shape of one input of the model, such as --input-shape 1x28x28")
    try:
        build = import_module(task).build_model
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"the model of the federation cannot be built: {error}; {task} must be importable here and have a "
            "function build_model, or give another module with --task"
        ) from None
    content = checkpoint["run"]
    model = as_model(build, content["seed"])
    clients = {int(c): about for c, about in checkpoint.get("clients", {}).items() if isinstance(about, Mapping)}
    names = {c: about["name"] for c, about in clients.items()}
    keys = {c: about["fingerprint"] for c, about in clients.items() if about["fingerprint"].startswith(HASH)}
    inputs = Preprocessing(input_shape, "float32", "input")
    return FederationModels(folder, content, checkpoint["state"], model, inputs, names, keys)
