"""Settings of runs in plain words."""

from collections.abc import Mapping, Sequence
from typing import Any

Settings = Mapping[str, Any]


def title(settings: Settings) -> str:
    """An experiment in a few words.

    >>> title({"data": {"name": "digits", "clients": 20, "scheme": {"kind": "iid"}}})
    'digits, iid, 20 clients'
    """
    data = settings["data"]
    return f"{data['name']}, {_scheme(data['scheme'])}, {data['clients']} clients"


def words(runs: Sequence[Settings]) -> str:
    """What was run, in sentences."""
    first = runs[0]
    data, plan, learning = first["data"], first["schedule"], first["learning"]
    differ = differing([run["learning"] for run in runs])
    seeds = sorted({run["seed"] for run in runs})
    sets = f" ({', '.join(data['sets'])})" if data.get("sets") else ""
    newcomers = plan.get("newcomers")
    came = f", and {newcomers} newcomers came after the last" if newcomers else ""
    same = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in learning.items() if key not in differ)
    own = f"; {', '.join(differ)} as each row says" if differ else ""
    return (
        f"{data['clients']} clients held the data {data['name']}{sets}, divided as {_scheme(data['scheme'])}. "
        f"They trained the model {first['model']['name']} for {plan['rounds']} rounds, "
        f"{100 * plan['participation']:.4g} % of them in each{came}. Local learning: {same}{own}. "
        f"{'Seeds' if len(seeds) > 1 else 'Seed'} {', '.join(map(str, seeds))}."
    )


def differing(tables: Sequence[Mapping[str, Any]]) -> list[str]:
    """The keys whose values are not the same everywhere.

    >>> differing([{"lr": 0.1, "batch_size": 10}, {"lr": 0.01, "batch_size": 10}])
    ['lr']
    """
    keys = dict.fromkeys(key for table in tables for key in table)
    return [key for key in keys if any(table.get(key) != tables[0].get(key) for table in tables)]


def _scheme(scheme: Mapping[str, Any]) -> str:
    given = ", ".join(f"{key} {value}" for key, value in scheme.items() if key != "kind")
    return f"{scheme['kind']} ({given})" if given else str(scheme["kind"])
