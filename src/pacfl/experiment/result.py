"""The result of a run from Python: its rounds, its clusters, its models."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacfl.errors import ConfigError, DataError, ModelError, StoreError, library
from pacfl.experiment.records import Client, RoundRecord, Scores, Spread, by_protocol, counted, read_record
from pacfl.experiment.store import PYTHON, RunFolder, RunMemory, begin
from pacfl.experiment.summary import label
from pacfl.experiment.tested_on import choose, kinds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame
    from torch import nn

    from pacfl.experiment.models import LoadedModels

HISTORY: Final = ("round", "protocol", "metric", "mean", "std", "worst_tenth", "clusters", "final")


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """What a run ended with.

    settings : every setting of the run, as plain values.
    records : one for each round, for the final evaluation, and for that of newcomers, if there are any.
    clients : the names of all clients, in their order.

    >>> import numpy as np, torch, pacfl
    >>> x, y = np.eye(4), np.arange(4) % 2
    >>> sites = {"a": (x, y, x, y), "b": (x, y, x, y)}
    >>> result = pacfl.federate(sites, lambda: torch.nn.Linear(4, 2), pacfl.FedAvg(), rounds=2, evaluate_every=1)
    >>> result.n_clusters, dict(result.clusters), result.n_rounds
    (1, {'a': 0, 'b': 0}, 2)
    >>> list(result.history.columns[:4])
    ['round', 'protocol', 'metric', 'mean']
    >>> result.module("a", personal=True)(torch.from_numpy(result.preprocess(x, "a"))).shape
    torch.Size([4, 2])
    >>> result.plot().get_xlabel()
    'round'
    """

    settings: Mapping[str, Any]
    records: tuple[RoundRecord, ...]
    clients: tuple[Client, ...]
    _store: RunFolder | RunMemory
    _models: "Callable[[], LoadedModels]"  # called when a model is first asked for
    _test: str | None = None  # the kind of test samples that is shown; None: the primary one

    @property
    def hash(self) -> str:
        """The name of the settings: the folder of a stored run."""
        return str(self._outcome["hash"])

    @property
    def clusters(self) -> Mapping[Client, int]:
        """The cluster of each client at the end; empty where clients share no model."""
        return self.records[-1].clusters

    @property
    def n_clusters(self) -> int:
        """Clusters that have members."""
        return self.records[-1].n_clusters

    @property
    def ari(self) -> float | None:
        """The adjusted Rand index of the clusters with the true ones, if these are known."""
        return self.records[-1].ari

    @property
    def tests(self) -> tuple[str, ...]:
        """The kinds of test samples that clients were evaluated on, the one that is shown first."""
        own = kinds(self.settings)
        shown = self._test or own[0]
        return shown, *(kind for kind in own if kind != shown)

    def on(self, test: str) -> "Result":
        """The same result with all scores on another kind of test samples, one of `tests`."""
        chosen = choose(self.settings, test)
        original = read_result(self._store, self.settings, self._models, self.clients)
        return replace(original, records=tuple(r.on(chosen) for r in original.records), _test=chosen)

    @property
    def scores(self) -> Scores:
        """The final evaluation: by protocol and metric, over clients."""
        return self._final.scores

    @property
    def by_client(self) -> Mapping[str, Mapping[str, Mapping[Client, float]]]:
        """The final evaluation: by protocol, metric and client."""
        return self._final.by_client

    @property
    def accuracy(self) -> Mapping[str, Spread]:
        """The final accuracy by protocol."""
        return by_protocol(self.scores, "accuracy")

    @property
    def loss(self) -> Mapping[str, Spread]:
        """The final loss by protocol."""
        return by_protocol(self.scores, "loss")

    @property
    def newcomers(self) -> Scores:
        """The evaluation of newcomers: by protocol and metric; empty if there were none."""
        return {} if self.records[-1] is self._final else self.records[-1].scores

    @property
    def n_rounds(self) -> int:
        """Rounds of training."""
        return sum(not record.final for record in self.records)

    @property
    def bytes_down(self) -> int:
        """Bytes of all messages to clients."""
        return int(self._outcome["bytes_down"])

    @property
    def bytes_up(self) -> int:
        """Bytes of all messages from clients."""
        return int(self._outcome["bytes_up"])

    @property
    def notes(self) -> tuple[str, ...]:
        """Settings that were left out because they cannot apply, in sentences."""
        return tuple(self._outcome.get("notes", ()))

    @property
    def seconds(self) -> float:
        """How long the run took."""
        return float(self._outcome["seconds"])

    @cached_property
    def history(self) -> "DataFrame":
        """A row for each evaluated round, protocol and metric (extra: pandas).

        Columns: round, protocol, metric, mean, std, worst_tenth (over clients), clusters, final.
        """
        rows = [
            (
                record.round,
                protocol,
                metric,
                spread.mean,
                spread.std,
                spread.worst_tenth,
                record.n_clusters,
                record.final,
            )
            for record in self.records
            for protocol, metrics in record.scores.items()
            for metric, spread in metrics.items()
        ]
        frame: DataFrame = library("pandas", "Result.history", "pandas").DataFrame(rows, columns=list(HISTORY))
        return frame

    def module(self, client: Client, *, personal: bool = False) -> "nn.Module":
        """The model of a client, in evaluation mode.

        client : its name. personal : the model after the algorithm's own personalisation, which is run again.
        It takes what `preprocess` returns, as a tensor: samples normalised as in training, channels first.
        """
        from pacfl.experiment.interface import ModelInterface
        from pacfl.learning.mixture import module

        models, number = self._loaded, self._number(client)
        w = models.personal(number) if personal else models.received(number)
        content = self._store.description("interface")
        targets = "classes" if content is None else ModelInterface.from_content(content).targets
        return module(models.model, w, targets).eval()

    def preprocess(self, x: ArrayLike, client: Client, source: str | None = None) -> NDArray[Any]:
        """Samples as the data have them (n, ...) -> what the model of a client takes: normalised, channels first.

        source : of a client that has samples of several sets of a mixture, each of which is normalised on its own.
        """
        from pacfl.experiment.interface import ModelInterface

        content = self._store.description("interface")
        if content is None:
            raise StoreError("the run stored no models, and not what they take; run it again")
        interface = ModelInterface.from_content(content)
        sources = interface.sources([self._number(client)])
        source = sources[0] if source is None and len(sources) == 1 else source
        if source not in sources:
            raise DataError(
                f"client {client!r} has samples of {', '.join(sources)}; give one as source, got {source!r}"
            )
        return interface.by_source[source].apply(np.asarray(x))

    def save(self, folder: str | Path, *, personal: bool = False) -> None:
        """Store the result in a new or empty folder, which `pacfl.load` reads; in the form of a stored run.

        personal : also store the personal models, which are computed now.
        """
        path = Path(folder)
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise StoreError(f"{path}: is there already; choose a new or empty folder")
        if personal and not self._store.has_models:
            raise StoreError("the run stored no models")
        target = begin(path, self.settings)
        self._store.copy_to(target)
        if self._store.has_models:
            stored = self._loaded.stored
            if personal:
                stored = replace(stored, personal={c: self._loaded.personal(c) for c in self._loaded.clients})
            stored.save(target)
        target.finish(self._outcome)

    def plot(self, metric: str | None = None, axes: "Axes | None" = None, *, test: str | None = None) -> "Axes":
        """Draw the mean of a metric over clients against rounds, a line for each protocol (extra: figures).

        metric : by default the primary one, accuracy for classes. axes : of matplotlib; by default new ones.
        test : the kind of test samples, one of `tests`.
        """
        if test is not None:
            return self.on(test).plot(metric, axes)
        library("matplotlib.pyplot", "Result.plot", "figures")
        from matplotlib.figure import Figure

        metric = metric or self._primary
        axes = Figure(layout="constrained").subplots() if axes is None else axes
        curves: dict[str, dict[int, float]] = {}
        for record in self.records[: self.n_rounds + 1]:
            for protocol, spread in by_protocol(record.scores, metric).items():
                curves.setdefault(protocol, {})[min(record.round, self.n_rounds)] = spread.mean
        if not curves:
            raise ConfigError(f"no round was evaluated by {metric!r}; it has {', '.join(self._metrics) or 'no metric'}")
        for protocol, means in curves.items():
            axes.plot(list(means), list(means.values()), marker="o", markersize=3, label=protocol.replace("_", "-"))
        axes.set(xlabel="round", ylabel=f"mean {metric} over clients", title=self._label)
        axes.legend()
        return axes

    def __repr__(self) -> str:
        scores = [f"{protocol} {self._primary} {s.mean:.4g}" for protocol, s in self._primary_scores.items()]
        return f"Result({', '.join([self._title, *scores])})"

    def _repr_html_(self) -> str:
        metrics = self._metrics
        rows = "".join(
            f"<tr><th>{escape(protocol)}</th>"
            + "".join(f"<td>{own[m].mean:.4g} ± {own[m].std:.2g}</td>" if m in own else "<td></td>" for m in metrics)
            + "</tr>"
            for protocol, own in self.scores.items()
        )
        head = "".join(f"<th>{escape(metric)}</th>" for metric in metrics)
        return f"<table><caption>{escape(self._title)}</caption><tr><th>protocol</th>{head}</tr>{rows}</table>"

    # Parts

    @cached_property
    def _outcome(self) -> Mapping[str, Any]:
        return self._store.result() or {}

    @cached_property
    def _loaded(self) -> "LoadedModels":
        return self._models()

    @property
    def _final(self) -> RoundRecord:
        return next(record for record in self.records if record.final)

    @property
    def _label(self) -> str:
        return label(self.settings["algorithm"], self.settings.get("aggregation", {}))

    @property
    def _title(self) -> str:
        clusters = [counted(self.n_clusters, "cluster")] if self.clusters else []
        counts = [counted(len(self.clients), "client"), counted(self.n_rounds, "round"), *clusters]
        shown = [f"{self.tests[0]} test samples"] if len(self.tests) > 1 else []
        return f"{self._label}: {', '.join([*counts, *shown])}"

    @property
    def _metrics(self) -> list[str]:
        return list(dict.fromkeys(m for record in self.records for own in record.scores.values() for m in own))

    @property
    def _primary(self) -> str:
        return next(iter(self._metrics), "accuracy")

    @property
    def _primary_scores(self) -> Mapping[str, Spread]:
        return by_protocol(self.scores, self._primary)

    def _number(self, client: Client) -> int:
        if client not in self.clients:
            raise ModelError(f"no client {client!r}; clients are {', '.join(map(repr, self.clients[:20]))}")
        return self.clients.index(client)


def read_result(
    store: RunFolder | RunMemory,
    settings: Mapping[str, Any],
    models: "Callable[[], LoadedModels]",
    names: tuple[Client, ...] | None = None,
) -> Result:
    """The result of a finished run; names: of its clients, if not those that are stored."""
    outcome = store.result() or {}
    if names is None:
        described = (store.description("clients") or {}).get("clients", [])
        names = tuple(client.get("name", c) for c, client in enumerate(described))
    n_rounds = outcome.get("ended_after", settings["schedule"]["rounds"])
    records = tuple(read_record(record, names, n_rounds) for record in store.records())
    return Result(settings, records, names, store, models)


def load(
    folder: str | Path, *, module: "Callable[[], nn.Module] | None" = None, data: str | Path | None = None
) -> Result:
    """A result from the folder that `Result.save` wrote, or from that of a stored run. Nothing in it is executed.

    module : the class or function that builds the module of a run from Python; needed for models only.
    data : the folder with the data set of an experiment file; needed for models only.

    >>> import numpy as np, tempfile, torch, pacfl
    >>> def net(): return torch.nn.Linear(4, 2)
    >>> x, y = np.eye(4), np.arange(4) % 2
    >>> result = pacfl.federate({"a": (x, y, x, y)}, net, pacfl.FedAvg(), rounds=1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result.save(f"{folder}/study")
    ...     loaded = pacfl.load(f"{folder}/study", module=net)
    ...     torch.equal(loaded.module("a").weight, result.module("a").weight)
    True
    """
    stored = RunFolder(Path(folder))
    settings = stored.content()
    if settings is None or stored.result() is None:
        raise StoreError(f"{folder}: has no finished run in it")

    def models() -> "LoadedModels":
        from pacfl.experiment.models import LoadedModels, stored_models
        from pacfl.experiment.run import load_models
        from pacfl.learning.mixture import models_of
        from pacfl.learning.model import as_model

        if settings.get("origin") != PYTHON:
            if module is not None:
                raise ConfigError("module is for runs from Python; this one was run from an experiment file")
            return load_models(stored, None if data is None else Path(data))[1]
        if module is None:
            raise ModelError(
                f"the model of {folder} is the user's own, {settings['model']['name']}: pacfl.load(folder, module=...)"
            )
        model = as_model(module, settings["seed"])
        found = stored_models(stored)
        n_weights = {len(w) for received in found.received.values() for w in models_of(received)}
        if n_weights and n_weights != {len(model.initial)}:
            raise ModelError(
                f"module has {len(model.initial)} weights, the models of {folder} have {min(n_weights)}; give the "
                "module that was trained"
            )
        return LoadedModels(found, model, None)

    return read_result(stored, settings, models)
