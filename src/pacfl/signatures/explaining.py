"""Why clients or clusters of a federation differ, in the names that its clients use."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pacfl.errors import DataError
from pacfl.signatures.sigfile import SignatureFile
from pacfl.subspace.columns import ColumnAngles
from pacfl.subspace.explanation import Between, Explanation, explain_pairs

if TYPE_CHECKING:
    from pacfl.signatures.federation import Federation


@dataclass(frozen=True)
class Description:
    """What a client says of its samples beside what is compared."""

    samples: int | None = None  # None where their number is not known
    columns: tuple[str, ...] | None = None  # names of the features
    shape: tuple[int, ...] | None = None  # of one sample, where it has several axes
    table: ColumnAngles | None = None  # columns of a table that was signed with a schema

    @classmethod
    def of(cls, client: SignatureFile) -> "Description":
        """That of a signature file."""
        return cls(client.samples, client.columns, client.shape, client.table)


def stored(descriptions: Sequence[Description]) -> dict[str, Any]:
    """Ready for JSON: what clients have in common is there once."""
    of_features = list(dict.fromkeys((one.columns, one.shape) for one in descriptions))
    return {
        "samples": [one.samples for one in descriptions],
        "features": [{"columns": columns, "shape": shape} for columns, shape in of_features],
        "features_of": [of_features.index((one.columns, one.shape)) for one in descriptions],
    }


def restored(table: Any, n: int, features: int, tables: Sequence[ColumnAngles | None]) -> tuple[Description, ...]:
    """Descriptions of n clients as they were stored, checked."""
    if table is None:  # of format 3, which had none
        return (Description(),) * n
    kinds = [_features(kind, features) for kind in table["features"]]
    samples, at = table["samples"], table["features_of"]
    if len(samples) != n or len(at) != n or not all(one is None or (type(one) is int and one > 0) for one in samples):
        raise ValueError("it has no valid number of samples for each client")
    return tuple(replace(kinds[k], samples=one, table=own) for one, k, own in zip(samples, at, tables, strict=True))


def _features(kind: Any, features: int) -> Description:
    columns, shape = (None if kind[key] is None else tuple(kind[key]) for key in ("columns", "shape"))
    if shape is not None and math.prod(shape) != features:
        raise ValueError(f"it has no valid shape of {features} features")
    if columns is not None and (len(columns) != features or not all(isinstance(name, str) for name in columns)):
        raise ValueError(f"it has no valid names of {features} columns")
    return Description(columns=columns, shape=shape)


def explanation(federation: "Federation", a: str | int, b: str | int, between: Between) -> Explanation:
    """Why two clients, by name or position, or two clusters, by number, differ."""
    if (key := federation.settings.directions) is not None:
        raise DataError(
            f"directions of its signatures are keyed with key {key}: what differs can be seen only where the key is; "
            "give its file with --key"
        )
    places = [_place(federation, one, between) for one in (a, b)]
    if places[0] == places[1]:
        raise DataError(f"{a}: was named twice; name two different {between}")
    return explanations(federation, [(places[0], places[1])], between)[0]


def explanations(
    federation: "Federation", pairs: Iterable[tuple[int, int]], between: Between = "clusters"
) -> list[Explanation]:
    """Why the two of each pair differ: positions of clients, or numbers of clusters.

    Where directions are keyed, all that angles show; no features.
    """
    hidden = federation.settings.directions is not None
    known = [] if hidden else federation.descriptions
    columns = {one.columns for one in known if one.columns is not None}
    shapes = {one.shape for one in known if one.shape is not None}
    found = explain_pairs(
        federation.clients(),
        federation.clustering,
        pairs,
        between,
        client_names=federation.names,
        feature_names=next(iter(columns)) if len(columns) == 1 else None,
        shape=next(iter(shapes)) if len(shapes) == 1 and not columns else None,
        sizes=federation.sizes(),
        hidden=hidden,
    )
    return [replace(one, words=" ".join([one.words, *_cautions(federation, one)])) for one in found]


def _place(federation: "Federation", one: str | int, between: Between) -> int:
    if between == "clusters":
        numbers, n = federation.clustering.numbers, len(federation.clustering.numbers)
        number = int(one) if str(one).isdecimal() else -1
        if number not in numbers:
            listed = f"0 to {n - 1}" if numbers == list(range(n)) else some_of([str(k) for k in numbers])
            few = f"there are {n} clusters, {listed}" if n > 1 else f"there is {'one' if n else 'none'}"
            raise DataError(f"{one}: is no number of a cluster; {few}")
        return number
    if isinstance(one, str) and one in federation.names:
        place = federation.names.index(one)
    elif isinstance(one, int) and 0 <= one < len(federation.names):
        place = one
    else:
        raise DataError(f"{one}: is no client of this federation; its clients are {some_of(federation.names)}")
    reason = federation.not_judged().get(federation.names[place])
    if reason is not None:
        raise DataError(f"{federation.names[place]}: cannot be judged, so nothing can be explained: {reason}")
    return place


def some_of(names: Sequence[str], most: int = 20) -> str:
    """The first of many names, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _cautions(federation: "Federation", found: Explanation) -> list[str]:
    """What readers of the words must know."""
    said = []
    if federation.settings.labels.startswith("names hashed") and found.compared == "classes" and found.kind != "none":
        said.append("Names of classes are hashed: whoever has the key knows which they are.")
    if federation.settings.directions is not None and found.kind == "inputs":
        said.append("Directions are keyed: 'pacfl explain --key FILE' says which features differ, where the key is.")
    _, reduced, how = federation.settings.protection.partition("reduced by ")
    if reduced and not how.startswith("none") and found.kind == "inputs":
        said.append(f"Features are those of private signatures, reduced by {how}.")
    if found.between == "clients":
        a, b = (federation.descriptions[place].columns for place in (found.a, found.b))
        other = [(j, *both) for j, both in enumerate(zip(a, b, strict=True)) if both[0] != both[1]] if a and b else []
        if other:
            j, of_a, of_b = other[0]
            more = f", and {len(other) - 1} more" if len(other) > 1 else ""
            said.append(
                f"They name their columns differently: column {j} is {of_a} in {found.names[0]} and {of_b} in "
                f"{found.names[1]}{more}."
            )
    return said
