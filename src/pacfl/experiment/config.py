"""TOML -> settings that are checked -> runs, each with a hash of its content."""

import hashlib
import json
import tomllib
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pacfl import algorithms, plugins, settings
from pacfl.data import Normalise, build_division, build_drift
from pacfl.data.loading import LOADERS
from pacfl.data.partition import SCHEMES, TestChoice, kinds_of_tests
from pacfl.errors import ConfigError
from pacfl.experiment.store import FORMAT, PYTHON
from pacfl.experiment.summary import check_targets, label
from pacfl.experiment.sweeps import sweep
from pacfl.federation.aggregation import Aggregation
from pacfl.federation.algorithm import Algorithm
from pacfl.federation.schedule import Schedule
from pacfl.learning.client_context import LocalTraining
from pacfl.learning.engines import ENGINES
from pacfl.learning.evaluation import Metrics, normalise
from pacfl.learning.losses import find_loss
from pacfl.learning.metrics import METRICS
from pacfl.learning.model import BatchNorm
from pacfl.learning.nets import NETS, architecture
from pacfl.learning.settings import LOSS_NAMES, OPTIMISER_NAMES
from pacfl.settings import NonNegativeInt, Positive, PositiveInt, ShareBelowOne, build, check, later, suggestion

OVERRIDABLE: Final = ("learning", "aggregation")  # by an entry of [[algorithm]]
SECTIONS: Final = ("data", "model", "learning", "schedule", "aggregation")
KEYS: Final = ("seeds", "engine", "device", *SECTIONS, "algorithm", "evaluation", "item")


@dataclass(frozen=True)
class Data:
    """Which data, and how they are divided among clients."""

    name: str = "digits"
    clients: PositiveInt = 20
    scheme: Mapping[str, Any] = field(default_factory=lambda: {"kind": "iid"})
    sets: tuple[str, ...] = ()  # of a mixture
    disjoint_labels: bool | None = None  # of a mixture: every set has labels of its own
    samples: NonNegativeInt = 0  # for training, drawn evenly from every class; 0: all there are
    validation: ShareBelowOne = 0.0  # part of every client's training samples that replaces its test samples
    normalise: Normalise = later("auto")  # what is normalised: features, channels, or nothing
    test: TestChoice = later("owned")  # the test samples of each client; several kinds: the first is the primary one
    seed: NonNegativeInt | None = later(None)  # of everything that is drawn about data, instead of the run's
    options: Mapping[str, Any] | None = later(None)  # of the loader of the data set
    drift: Mapping[str, Any] | None = later(None)  # clients that change group in mid-run

    def __post_init__(self) -> None:
        kinds = kinds_of_tests("Data.test", self.test)
        object.__setattr__(self, "test", kinds if len(kinds) > 1 else kinds[0])  # a list of one is that one
        check(self)
        build_division(self.scheme)
        if self.drift is not None:
            build_drift(self.drift)
        if self.validation and self.test != "owned":
            given = repr(self.test) if isinstance(self.test, str) else list(self.test)
            raise ConfigError(
                f"Data.validation replaces the test samples, got test {given} with it; leave out one of them"
            )
        if twice := {"sets", "disjoint_labels"} & set(self.options or {}):
            raise ConfigError(f"Data.options has {sorted(twice)[0]}, which is a setting of [data] itself; put it there")


@dataclass(frozen=True)
class Net:
    """Which network, and its own settings."""

    name: str = "mlp"
    options: Mapping[str, Any] = field(default_factory=dict)
    batch_norm: BatchNorm = later("averaged")

    def __post_init__(self) -> None:
        check(self)
        architecture(self.name, self.options)


@dataclass(frozen=True)
class Evaluation:
    """What is reported of runs beside the primary metric."""

    targets: tuple[Positive, ...] = ()  # means of the primary metric to be reached; not part of a run
    metrics: tuple[str, ...] = ()  # part of a run: they are computed while it runs

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class Run:
    """One algorithm with one seed, and every setting."""

    seed: int
    data: Data
    model: Net
    learning: LocalTraining
    schedule: Schedule
    algorithm: Mapping[str, Any]  # name, and settings
    device: str = "cpu"  # where clients train; another one rounds differently, so it is part of the run
    engine: str = "auto"  # and so does this
    metrics: tuple[str, ...] = later(())  # beside the primary one, sorted
    aggregation: Aggregation = later(Aggregation())

    def content(self) -> dict[str, Any]:
        """Everything that decides the result, as plain values."""
        plain = {"format": FORMAT, **settings.content(self)}
        plain["model"] |= plain["model"].pop("options")
        if code := plugins.digests(_import_paths(self)) | self.build_algorithm().code():
            plain["plugins"] = code
        content: dict[str, Any] = json.loads(json.dumps(plain, sort_keys=True))
        return content

    @property
    def hash(self) -> str:
        """The name of this content."""
        return hashlib.sha256(json.dumps(self.content(), sort_keys=True).encode()).hexdigest()[:16]

    def label(self) -> str:
        """The algorithm in a few characters, with the settings that were given."""
        return label(self.algorithm, settings.content(self.aggregation))

    def build_algorithm(self) -> Algorithm:
        """The algorithm, with its settings and those of the aggregation."""
        return algorithms.build(**self.algorithm, aggregation=self.aggregation)


def from_content(content: Mapping[str, Any]) -> Run:
    """The run of a stored content; plug-ins are also looked for in the current folder."""
    plugins.search_in(Path.cwd())
    if content.get("origin") == PYTHON:
        raise ConfigError(
            "the run was started from Python, where its data and model are; use pacfl.load(folder, module=...) there"
        )
    try:
        evaluated = Evaluation(metrics=tuple(content.get("metrics", ())))
        run = _run(content, content["seed"], content["device"], content["engine"], evaluated)
    except LookupError as error:
        raise ConfigError(f"the settings of the run lack {error}") from None
    code = run.content().get("plugins", {})
    for package, digest in content.get("plugins", {}).items():
        if code.get(package) != digest:
            raise ConfigError(f"{package} is not as it was when the run was stored; restore its code, or run it again")
    return run


def read(path: Path, overrides: tuple[str, ...] = ()) -> list[Run]:
    """The runs of an experiment file; overrides such as data.clients=20 replace its values."""
    return expand(read_table(path, overrides))


def read_table(path: Path, overrides: tuple[str, ...] = ()) -> dict[str, Any]:
    """The settings in an experiment file; overrides such as data.clients=20 replace its values.

    From then on, import paths also lead to modules in the folder of the file and in the current one.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    plugins.search_in(path.parent.absolute())
    plugins.search_in(Path.cwd())
    for override in overrides:
        _override(table, override)
    return table


def evaluation(table: Mapping[str, Any]) -> Evaluation:
    """What a table of settings asks to report of its runs."""
    return build(Evaluation, table.get("evaluation", {}), "evaluation")


KINDS: Final = {"data": Data, "learning": LocalTraining, "schedule": Schedule, "aggregation": Aggregation}


def expand(table: Mapping[str, Any]) -> list[Run]:
    """All runs that a table of settings asks for: a list where a single value is expected is a sweep."""
    for key in table:
        if key not in KEYS:
            raise ConfigError(f"the experiment has no section {key!r}{suggestion(key, KEYS)}")
    evaluated = evaluation(table)
    listed = table.get("algorithm", [])
    seeds = table.get("seeds", [0])
    device, engine = table.get("device", "cpu"), table.get("engine", "auto")
    if not isinstance(device, str):
        raise ConfigError(f"device must be a string, got {device!r}")
    if engine not in ENGINES:
        raise ConfigError(f"engine must be one of {', '.join(ENGINES)}, got {engine!r}")
    entries = listed if isinstance(listed, list) else [listed]
    if not entries:
        raise ConfigError("an experiment needs at least one [[algorithm]] with a name")
    runs: dict[str, Run] = {}
    for entry in entries:
        for chosen in sweep(_sections(table, entry), KINDS):
            for seed in seeds if isinstance(seeds, list) else [seeds]:
                run = _run(chosen, seed, device, engine, evaluated)
                runs[run.hash] = run
    if not runs:
        raise ConfigError("the experiment asks for no run: a list of seeds or values is empty")
    return list(runs.values())


def _sections(table: Mapping[str, Any], entry: Any) -> dict[str, Any]:
    """The settings of one entry of [[algorithm]], which may override [learning] and [aggregation]."""
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str | list):
        raise ConfigError(f"every [[algorithm]] needs a name, got {entry!r}")
    sections = {name: table.get(name, {}) for name in SECTIONS}
    own = {name: entry.get(name, {}) for name in OVERRIDABLE}
    for name, value in (*sections.items(), *own.items()):
        if not isinstance(value, Mapping):
            example = ' such as { rule = "median" }' if name == "aggregation" else ""
            raise ConfigError(f"[{name}] must be a table{example}, got {value!r}")
    merged = {name: {**_snaked(sections[name]), **_snaked(value)} for name, value in own.items()}
    return {**sections, **merged, "algorithm": {key: value for key, value in entry.items() if key not in OVERRIDABLE}}


def _run(sections: Mapping[str, Mapping[str, Any]], seed: Any, device: str, engine: str, evaluated: Evaluation) -> Run:
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise ConfigError(f"seeds must be integers from 0, got {seed!r}")
    algorithm = _snaked(sections["algorithm"])
    learning = build(LocalTraining, sections["learning"], "learning")
    aggregation = build(Aggregation, sections.get("aggregation", {}), "aggregation")
    try:
        algorithms.build(**algorithm, aggregation=aggregation).check_training(learning)
    except ConfigError as error:
        raise ConfigError(f"[[algorithm]] {error}") from None
    return Run(
        seed,
        build(Data, _scheme_snaked(sections["data"]), "data"),
        _net(sections["model"]),
        learning,
        build(Schedule, sections["schedule"], "schedule"),
        algorithm,
        device,
        engine,
        _metrics(evaluated, learning),
        aggregation=aggregation,
    )


def _net(table: Mapping[str, Any]) -> Net:
    given = _snaked(table)
    own: dict[str, Any] = {key: given.pop(key) for key in ("name", "batch_norm") if key in given}
    return build(Net, {**own, "options": given}, "model")


def _import_paths(run: Run) -> list[str]:
    """Where the parts of a run come from that are not pacfl's own."""
    named: tuple[tuple[plugins.Kind, str, Container[str]], ...] = (
        ("algorithms", run.algorithm["name"], algorithms.NAMES),
        ("models", run.model.name, NETS),
        *(("datasets", name, LOADERS) for name in (run.data.name, *run.data.sets)),
        ("partitions", run.data.scheme["kind"], SCHEMES),
        ("losses", run.learning.loss, LOSS_NAMES),
        ("optimisers", run.learning.optimiser, OPTIMISER_NAMES),
        *(("metrics", name, METRICS) for name in run.metrics),
    )
    paths = (plugins.import_path(kind, name) for kind, name, own in named if name not in own)
    return [path for path in paths if path is not None]


def _metrics(evaluated: Evaluation, learning: LocalTraining) -> tuple[str, ...]:
    """The metrics beside the primary one; refused, as targets are, if they do not fit the loss."""
    targets = find_loss(learning.loss).targets
    metrics = Metrics(targets, normalise(evaluated.metrics, targets))
    try:
        metrics.check()
        check_targets(evaluated.targets, metrics.primary)
    except ConfigError as error:
        raise ConfigError(f"[evaluation] {error}") from None
    return metrics.names


def _override(table: dict[str, Any], text: str) -> None:
    path, equals, value = text.partition("=")
    if not equals or not path:
        raise ConfigError(f"--set takes KEY=VALUE such as data.clients=20, got {text!r}")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value
    *names, key = path.split(".")
    listed = table.get("algorithm")
    tables = [table]
    if len(names) > 1 and names[0] == "algorithm" and isinstance(listed, list):
        tables = [entry for entry in listed if isinstance(entry, dict) and entry.get("name") == names[1]]
        if not tables:
            raise ConfigError(f"--set {text}: the experiment has no [[algorithm]] with the name {names[1]!r}")
        names = names[2:]
    for own in tables:
        _set(own, names, key, parsed, text)


def _set(table: dict[str, Any], names: Sequence[str], key: str, value: Any, text: str) -> None:
    for name in names:
        table = table.setdefault(name, {})
        if not isinstance(table, dict):
            raise ConfigError(f"--set {text}: {name} is not a table; edit the file instead")
    for spelling in (key.replace("-", "_"), key.replace("_", "-")):
        table.pop(spelling, None)
    table[key] = value


def _snaked(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key.replace("-", "_"): value for key, value in table.items()}


def _scheme_snaked(table: Mapping[str, Any]) -> dict[str, Any]:
    """[data] with one spelling for the keys of its scheme and options, at any depth: they are content of a run."""

    def deep(value: Any) -> Any:
        return {key: deep(own) for key, own in _snaked(value).items()} if isinstance(value, Mapping) else value

    return {key: deep(value) if key in ("scheme", "options") else value for key, value in table.items()}
