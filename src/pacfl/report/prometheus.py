"""How far something is, in the text format that Prometheus scrapes."""

from collections.abc import Iterator, Mapping

from pacfl.report.progress import PHASES, RunProgress, State

Sample = tuple[Mapping[str, str], float | None]
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def metrics(state: State, now: float) -> str:
    """All metrics; what is not known is missing."""
    lines: list[str] = []
    for name, kind, what, samples in _families(state, now):
        known = [(labels, value) for labels, value in samples if value is not None]
        if known:
            lines += [f"# HELP pacfl_{name} {what}", f"# TYPE pacfl_{name} {kind}"]
            lines += [f"pacfl_{name}{_labelled(labels)} {_number(value)}" for labels, value in known]
    return "\n".join(lines) + "\n"


def _families(state: State, now: float) -> Iterator[tuple[str, str, str, list[Sample]]]:
    """Name, type, description and samples: of the whole, and of each run where there are several."""
    whole = {"kind": state.kind, "name": state.name}
    silent = None if state.updated is None else max(now - state.updated, 0.0)
    alive = sum(site.alive for site in state.sites)
    n_clients = sum(len(one.clients) for one in state.clusters)
    yield "rounds_done", "gauge", "Rounds of training that have ended.", [(whole, state.done)]
    yield "rounds_planned", "gauge", "Rounds of training in all.", [(whole, state.planned)]
    yield (
        "score",
        "gauge",
        "Primary metric, mean over clients, models as received.",
        [({**whole, "metric": state.metric}, state.score)],
    )
    yield (
        "bytes_total",
        "counter",
        "Bytes of messages, as the algorithm sent them.",
        [
            ({**whole, "direction": "down"}, state.bytes_down),
            ({**whole, "direction": "up"}, state.bytes_up),
        ],
    )
    yield "clusters", "gauge", "Clusters that have clients.", [(whole, len(state.clusters) or None)]
    yield "clients", "gauge", "Clients that are known.", [(whole, len(state.sites) or n_clients or None)]
    yield "clients_alive", "gauge", "Sites that are connected.", [(whole, alive if state.sites else None)]
    yield (
        "rounds_missed",
        "gauge",
        "Rounds in a row that a site missed.",
        [({**whole, "site": site.name}, site.missed) for site in state.sites],
    )
    yield "seconds_since_update", "gauge", "Seconds since something changed.", [(whole, silent)]
    yield (
        "eta_seconds",
        "gauge",
        "Seconds until the last round has ended, if rounds take as long as before.",
        [(whole, state.eta)],
    )
    yield "problems", "gauge", "What somebody has to look at.", [(whole, len(state.problems))]
    yield (
        "phase",
        "gauge",
        "1 for the phase that it is in.",
        [({**whole, "phase": phase}, phase == state.phase) for phase in dict.fromkeys((*PHASES, state.phase))],
    )
    yield "run_rounds_done", "gauge", "Rounds of a run that have ended.", [(_run(r), r.done) for r in state.runs]
    yield "run_rounds_planned", "gauge", "Rounds of a run in all.", [(_run(r), r.planned) for r in state.runs]
    yield (
        "run_score",
        "gauge",
        "Primary metric of a run.",
        [({**_run(run), "metric": run.metric}, run.score) for run in state.runs],
    )


def _run(run: RunProgress) -> dict[str, str]:
    return {"run": run.hash, "algorithm": run.algorithm, "seed": str(run.seed)}


def _labelled(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))
