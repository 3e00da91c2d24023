"""Run folders as experiments write them, made up quickly and of any size."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from pacfl.experiment.description import save_clustering
from pacfl.experiment.store import RunFolder
from pacfl.experiment.summary import ACCURACY, CLASSIFICATION, result, summaries
from pacfl.features.reading import Reading, Samples
from pacfl.federation.rounds import Score
from pacfl.learning.evaluation import Metrics
from pacfl.signatures import federation
from pacfl.signatures import folder as folders
from pacfl.signatures.sigfile import SignatureFile
from pacfl.signatures.signing import sign
from pacfl.subspace import cluster, signature, split_half_angles

GROUPS = ("sea", "land", "air", "fire")
METHODS = ("solo", "fedavg", "fedprox", "fednova", "scaffold", "lg-fedavg", "per-fedavg", "ifca", "cfl", "pacfl")


def angles(true_cluster: Sequence[int], seed: int = 0) -> np.ndarray:
    """Degrees between clients: small within a cluster, large between clusters, and no two equal."""
    rng = np.random.default_rng(seed)
    own = np.asarray(true_cluster)
    base = np.where(own[:, None] == own[None, :], 3.0, 12.0 + 4.0 * np.abs(own[:, None] - own[None, :]))
    noise = rng.random(base.shape)
    square = base + (noise + noise.T) / 2
    np.fill_diagonal(square, 0.0)
    return square


def write_runs(
    runs: Path,
    methods: Sequence[str] = METHODS,
    seeds: Sequence[int] = (0, 1, 2),
    n: int = 100,
    newcomers: int = 0,
    **options: Any,
) -> Path:
    """A folder of finished runs: methods × seeds on n clients in four clusters."""
    for seed in seeds:
        for i, method in enumerate(methods):
            write_run(runs, {"name": method}, seed, n, newcomers, skill=0.5 + 0.04 * i, **options)
    return runs


def write_run(
    runs: Path,
    algorithm: Mapping[str, Any],
    seed: int,
    n: int,
    newcomers: int = 0,
    skill: float = 0.7,
    dataset: str = "weather",
    names: Sequence[str] | None = None,
    square: np.ndarray | None = None,
    threshold: float | None = None,
    learning: Mapping[str, Any] | None = None,
    sections: Mapping[str, Mapping[str, Any]] | None = None,
    evidence: Mapping[str, Any] | None = None,
    metrics: Metrics = CLASSIFICATION,
) -> RunFolder:
    """One finished run; sections: settings to replace, evidence: fields to add to that of the clustering."""
    rng = np.random.default_rng([seed, n, sum(map(ord, str(algorithm)))])
    true_cluster = np.arange(n) % len(GROUPS)
    late = list(range(n - newcomers, n))
    settings = _settings(algorithm, seed, n, newcomers, dataset)
    settings["learning"] |= learning or {}
    for section, values in (sections or {}).items():
        settings[section] |= values
    name = sha256(json.dumps(settings).encode()).hexdigest()[:16]
    folder = RunFolder(runs / name)
    folder.path.mkdir(parents=True)
    (folder.path / "run.json").write_text(json.dumps(settings))
    folder.describe("clients", _clients(true_cluster, rng, names))
    records = list(_records(rng, true_cluster, late, algorithm["name"], skill, metrics))
    for record in records:
        folder.append(record)
    if algorithm["name"] == "pacfl":
        square = angles(true_cluster.tolist(), seed) if square is None else square
        _describe_clustering(folder, square, seed, threshold, evidence or {})
    folder.finish({"hash": name, "algorithm": algorithm["name"], "seed": seed, **result(records, 50), "seconds": 12.5})
    return folder


def write_federation(folder: Path, names: Sequence[str], kinds: int = 3) -> Path:
    """What `pacfl cluster` writes: parties of some kinds, in turn."""
    rng = np.random.default_rng(0)
    data = [rng.normal(size=(60, 20)) + 3 * np.eye(20)[i % kinds] for i in range(len(names))]
    clients = {
        name: SignatureFile(signature(x, 2).astype(np.float32), 2, False, "raw", 60, split_half_angles(x, 2))
        for name, x in zip(names, data, strict=True)
    }
    folder.mkdir(parents=True)
    folders.save(federation.federate(clients, clusters=kinds), folder)
    return folder


def _settings(algorithm: Mapping[str, Any], seed: int, n: int, newcomers: int, dataset: str) -> dict[str, Any]:
    return {
        "format": 2,
        "seed": seed,
        "data": {"name": dataset, "clients": n, "scheme": {"kind": "by-set", "size": 60}, "sets": list(GROUPS)},
        "model": {"name": "mlp"},
        "learning": {"epochs": 5, "batch_size": 10, "lr": 0.05, "momentum": 0.5, "weight_decay": 0.0},
        "schedule": {
            "rounds": 50, "participation": 0.1, "evaluate_every": 5, "personal_every": 0, "newcomers": newcomers,
            "fine_tune": 5, "client_dropout": 0.0, "joins": {}, "leaves": {}, "reprofile": {},
        },
        "algorithm": dict(algorithm),
        "device": "cpu",
    }  # fmt: skip


def _clients(true_cluster: np.ndarray, rng: np.random.Generator, names: Sequence[str] | None) -> dict[str, Any]:
    entries = []
    for c, k in enumerate(true_cluster.tolist()):
        labels = rng.multinomial(60 + c % 7, rng.dirichlet(np.full(10, 0.4))).tolist()
        entry = {"train": sum(labels), "test": 40, "labels": labels, "set": GROUPS[k], "true_cluster": k}
        entries.append(entry if names is None else {**entry, "name": names[c]})
    return {"data": "weather", "shape": [8, 8], "classes": 10, "sets": list(GROUPS), "clients": entries}


def _records(
    rng: np.random.Generator, true_cluster: np.ndarray, late: list[int], method: str, skill: float, metrics: Metrics
) -> Any:
    n = len(true_cluster)
    founders = [c for c in range(n) if c not in late]
    talent = rng.normal(0, 0.03, n)
    for t in range(51 + bool(late)):
        present = founders if t < 51 else list(range(n))
        cluster_of = {str(c): int(true_cluster[c]) if method in ("pacfl", "ifca", "cfl") else 0 for c in present}
        sent = 0 if method == "solo" or t >= 50 else 40_000
        record: dict[str, Any] = {
            "round": t, "clients": len(present), "sampled": present[:5] if t < 50 else [], "lost": [],
            "bytes_down": sent, "bytes_up": sent,
            "cluster_of": cluster_of, "clusters": len(set(cluster_of.values())), "sizes": [n], "ari": 1.0,
        }  # fmt: skip
        if t >= 50 or (t + 1) % 5 == 0:
            evaluated = late if t == 51 else founders
            protocols = [
                "received",
                "last_trained",
                *(["personal"] if t >= 50 else []),
                *(["fine_tuned"] if t == 51 else []),
            ]
            record |= _scores(rng, evaluated, protocols, skill * (1 - np.exp(-(t + 5) / 15)), talent, metrics)
        yield record


def _scores(
    rng: np.random.Generator,
    evaluated: list[int],
    protocols: list[str],
    level: float,
    talent: np.ndarray,
    metrics: Metrics,
) -> dict[str, Any]:
    by_client = {
        protocol: {
            str(c): [float(np.clip(level + talent[c] + rng.normal(0.02 * i, 0.01), 0, 1)), float(2.5 - 2 * level)]
            for c in evaluated
        }
        for i, protocol in enumerate(protocols)
    }
    scores = {
        p: {
            int(c): Score(*pair, dict.fromkeys(metrics.names, 10 * pair[0]) if int(c) else {}) for c, pair in by.items()
        }
        for p, by in by_client.items()
    }
    named = {} if metrics.primary == ACCURACY else {"metric": metrics.primary}
    return {**named, **summaries(scores, metrics)}


def _describe_clustering(
    folder: RunFolder, square: np.ndarray, seed: int, threshold: float | None, evidence: Mapping[str, Any]
) -> None:
    n = len(square)
    own = list(3.5 + 0.3 * np.random.default_rng(seed).standard_normal((n, 8)))
    if n > 200 and threshold is None:
        threshold = 8.0  # to choose one takes long
    found = cluster(square, own, threshold=threshold)
    found = replace(found, evidence={**found.evidence, **evidence})
    save_clustering(folder, range(n), found)


def write_labelled_federation(folder: Path, n: int = 8, side: int = 4) -> Path:
    """Images of three classes; every second client labels 0 what others label 1; the last one has too few samples."""
    rng = np.random.default_rng(1)
    means = 3 * rng.standard_normal((3, side, side))
    clients = {}
    for i in range(n + 1):
        y = np.repeat(np.arange(3), 40 if i < n else 2)
        x = means[y] + rng.standard_normal((len(y), side, side))
        labels = np.array([1, 0, 2])[y] if i % 2 else y
        clients[f"site {i}" if i < n else "small site"] = sign(f"site {i}", Samples(x, labels), 3, Reading(labels="y"))
    folder.mkdir(parents=True)
    folders.save(federation.federate(clients), folder)
    return folder
