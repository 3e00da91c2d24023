"""The model card: what a reader of exported models has to know, in Markdown."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pacfl.experiment.summary import metric_of, scores
from pacfl.experiment.tested_on import on_test
from pacfl.privacy.accounting import epsilon_of_sums, epsilon_of_uploads

DELTA: Final = 1e-5  # of the guarantee that is stated for updates, and the default of signatures
SECRET: Final = "secret"  # noise that nobody can compute again
INTENDED_USE: Final = "To be written by whoever publishes these models: what they are for, and what they are not for."


@dataclass(frozen=True)
class CardFacts:
    """What is known about a run, or about a federation, when its models leave."""

    title: str
    method: str
    data: Mapping[str, Any]  # one line each
    training: Mapping[str, Any]
    clusters: Mapping[int, Sequence[str]]  # names of clients
    scores: Mapping[str, Mapping[str, Mapping[str, float]]]  # metric: protocol: mean, std, worst_tenth
    privacy: Sequence[str]  # sentences
    input: str
    outputs: str
    versions: Mapping[str, str] = field(default_factory=dict)


def write_card(facts: CardFacts) -> str:
    """The card, without its last section, the files."""
    parts = [
        f"# {facts.title}",
        f"## Intended use\n\n{INTENDED_USE}",
        f"## Input and output\n\n{facts.input}\n\n{facts.outputs}",
        f"## Data\n\n{_list(facts.data)}",
        f"## Training\n\n{facts.method}\n\n{_list(facts.training)}",
        f"## Clusters\n\n{_clusters(facts.clusters)}",
        f"## Scores\n\n{_scores(facts.scores)}",
        "## Privacy\n\n" + "\n".join(facts.privacy),
        f"## Versions\n\n{_list(facts.versions)}",
    ]
    return "\n\n".join(parts) + "\n"


def privacy_spent(settings: Mapping[str, Any], sampled: Iterable[Sequence[int]]) -> list[str]:
    """What differential privacy guarantees for the samples of clients, in sentences.

    settings: those of the algorithm and of the aggregation that were given. sampled: the clients of each round.
    """
    sentences = []
    if settings.get("signature_epsilon") is not None:
        epsilon, delta = settings["signature_epsilon"], settings.get("signature_delta", DELTA)
        sentences.append(
            f"Signatures: each sample of a client is protected with epsilon {epsilon:g}, delta {delta:g}, by the noise "
            f"in the signature of its client.{_seeded(settings.get('signature_noise', SECRET))}"
        )
    clip, noise = settings.get("clip_norm"), settings.get("noise_multiplier") or 0.0
    times = max(Counter(client for clients in sampled for client in clients).values(), default=0)
    if clip is not None and noise and settings.get("secure"):
        epsilon = epsilon_of_sums(noise, times, DELTA)
        sentences.append(
            f"Sums of updates: clipped to norm {clip:g}, with noise of {noise:g} clip norms on each sum, masked. "
            f"The data of a client that is in {times} sums, as many as any, are protected with "
            f"epsilon {epsilon:.3g}, delta {DELTA:g}, from a server that works "
            f"together with no client.{_seeded(settings.get('noise', SECRET))}"
        )
    elif clip is not None and noise:
        epsilon = epsilon_of_uploads(noise, times, DELTA)
        sentences.append(
            f"Updates: clipped to norm {clip:g}, with noise of {noise:g} clip norms. The data of a client that sent "
            f"{times} updates, as many as any, are protected with epsilon {epsilon:.3g}, delta {DELTA:g}, from "
            f"whoever sees all of its updates.{_seeded(settings.get('noise', SECRET))}"
        )
    elif clip is not None:
        sentences.append(f"Updates: clipped to norm {clip:g}, without noise. Clipping alone guarantees no privacy.")
    return sentences or [
        "No differential privacy was asked for. A model may reveal something about the samples that it was trained on."
    ]


def scores_of(result: Mapping[str, Any]) -> dict[str, Mapping[str, Mapping[str, float]]]:
    """The primary metric, the loss and other metrics of a result or of a record, by protocol.

    Those on other kinds of test samples than the primary one have the kind in their names.
    """
    own = {metric_of(result): scores(result), "loss": result.get("loss", {}), **result.get("metrics", {})}
    for kind in result.get("tests", {}):
        own |= {f"{metric}, {kind} test samples": by for metric, by in scores_of(on_test(result, kind)).items()}
    return own


def _seeded(noise: str) -> str:
    return "" if noise == SECRET else " The noise was drawn from the seed: it protects nobody who knows the seed."


def _list(facts: Mapping[str, Any]) -> str:
    return "\n".join(f"- {name}: {value}" for name, value in facts.items())


def _clusters(clusters: Mapping[int, Sequence[str]]) -> str:
    if not clusters:
        return "Clients share no model."
    rows = (f"| {k} | {len(names)} | {', '.join(names)} |" for k, names in clusters.items())
    return "\n".join(["| cluster | clients | which |", "|---|---|---|", *rows])


def _scores(by_metric: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    rows = [
        f"| {metric} | {protocol.replace('_', '-')} | {s['mean']:.4f} | {s['std']:.4f} | {s['worst_tenth']:.4f} |"
        for metric, by_protocol in by_metric.items()
        for protocol, s in by_protocol.items()
        if s.get("mean") is not None
    ]
    if not rows:
        return "The models were not evaluated."
    heading = ["| metric | model | mean over clients | standard deviation | worst tenth |", "|---|---|---|---|---|"]
    return "\n".join([*heading, *rows]) + (
        "\n\nOn the test samples of each client. *received*: the model as the client receives it. *last-trained*: as "
        "the client last trained it. *personal*: after the personalisation of the method at the client."
    )
