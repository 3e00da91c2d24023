"""Settings of runs in words."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pacfl.experiment.swept import Settings, differing, flatten, in_words


def titles(experiments: Sequence[Settings]) -> list[str]:
    """A title for each experiment; where two would be the same, with every setting in which they differ.

    >>> titles([{"data": {"name": "digits", "clients": 20, "scheme": {"kind": "iid"}},
    ...          "model": {"name": "mlp"}, "schedule": {"rounds": 5}}])
    ['digits, iid, 20 clients, mlp, 5 rounds']
    """
    short = [_short(settings) for settings in experiments]
    return [
        ", ".join([title, *_details(own, [e for e, s in zip(experiments, short, strict=True) if s == title])])
        for own, title in zip(experiments, short, strict=True)
    ]


def description(runs: Sequence[Settings]) -> str:
    """What was run, in sentences."""
    first = runs[0]
    data, schedule, training = first["data"], first["schedule"], first["learning"]
    differ = differing_in_rows(runs)
    seeds = sorted({run["seed"] for run in runs})
    sets = f" ({', '.join(data['sets'])})" if data.get("sets") else ""
    newcomers = schedule.get("newcomers")
    joined = f"; {newcomers} newcomers joined after the last" if newcomers else ""
    same = ", ".join(f"{_word(key)} {in_words(value)}" for key, value in flatten(training).items() if key not in differ)
    own = f"; {', '.join(map(_word, differ))} as in each row" if differ else ""
    tests = data.get("test", "owned")
    tested = "" if isinstance(tests, str) else f" Tested on {tests[0]} test samples; also on {' and '.join(tests[1:])}."
    return (
        f"Data: {data['name']}{sets}, split among {data['clients']} clients by {_scheme(data['scheme'])}.{tested} "
        f"Model: {first['model']['name']}. {schedule['rounds']} rounds with {100 * schedule['participation']:.4g} % "
        f"of the clients in each{joined}. Local training: {same}{own}. "
        f"{'Seeds' if len(seeds) > 1 else 'Seed'} {', '.join(map(str, seeds))}."
    )


def site_description(run: Settings, n_sites: int, unfinished: tuple[int, int] | None) -> str:
    """What a federation of real sites trains, in sentences; their data and model are not known here."""
    training = ", ".join(f"{_word(key)} {in_words(value)}" for key, value in flatten(run["learning"]).items())
    rounds = "all rounds are done" if unfinished is None else f"{unfinished[0]} of {unfinished[1]} rounds are done"
    return (
        f"Federation of {n_sites} sites, each with its own data: {rounds}, with "
        f"{100 * run['schedule']['participation']:.4g} % of the sites in each. Local training: {training}. "
        f"Seed {run['seed']}."
    )


def row_settings(run: Settings) -> dict[str, Any]:
    """What else may differ between runs on the same data: the settings of local training, and where it took place."""
    flat = flatten({name: value for name, value in run.items() if name not in _NOT_OF_ROWS})
    return {key.removeprefix("learning."): value for key, value in flat.items()}


def differing_in_rows(runs: Sequence[Settings]) -> list[str]:
    """Those of them in which runs differ; an aggregation stands in the label of the algorithm."""
    return [key for key in differing([row_settings(run) for run in runs]) if not key.startswith("aggregation.")]


_NOT_OF_ROWS: Final = ("format", "seed", "data", "model", "schedule", "algorithm")


def _short(settings: Settings) -> str:
    data = settings["data"]
    where = f"{data['name']}, {_scheme(data['scheme'])}, {data['clients']} clients"
    return f"{where}, {settings['model']['name']}, {settings['schedule']['rounds']} rounds"


def _details(own: Settings, same_title: Sequence[Settings]) -> list[str]:
    flat = [flatten({name: one[name] for name in ("data", "model", "schedule")}) for one in (own, *same_title)]
    return [f"{_word(key.partition('.')[2])} {in_words(flat[0][key])}" for key in differing(flat) if key in flat[0]]


def _scheme(scheme: Mapping[str, Any]) -> str:
    given = ", ".join(f"{key} {value}" for key, value in scheme.items() if key != "kind")
    return f"{scheme['kind']} ({given})" if given else str(scheme["kind"])


def _word(key: str) -> str:
    return key.replace("_", " ")
