"""Clusters of clients from arrays, with the interface of scikit-learn. Neither scikit-learn nor torch is needed."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from html import escape
from inspect import signature as signature_of
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pacfl.errors import ConfigError, DataError, NotFittedError, library
from pacfl.features.reading import Preprocess, Reading, encoded, preprocessed
from pacfl.features.reading import Samples as Signable
from pacfl.settings import NonNegative, PositiveInt, Share, check_value
from pacfl.signatures import figures
from pacfl.signatures.federation import Clients, Federation, Joined, federate, join
from pacfl.signatures.labels import class_names
from pacfl.signatures.sigfile import SignatureFile
from pacfl.signatures.signing import dependence, named, sign, sign_privately, warn_of_dependence
from pacfl.subspace import (
    Compare,
    Diagnosis,
    Evidence,
    Explanation,
    GivenCut,
    Linkage,
    Measure,
    MergeSuggestion,
    evidence_of,
)
from pacfl.subspace.explanation import Between
from pacfl.subspace.signature import RANK
from pacfl.subspace.sparse import is_sparse

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Samples = Mapping[str, ArrayLike] | Iterable[ArrayLike]  # one array (n, ...) for each client
Labels = Mapping[str, ArrayLike | None] | Iterable[ArrayLike | None] | None  # one array (n,) for each; None: has none
Groups = Labels

PARAMETERS: Final[Mapping[str, Any]] = {
    "rank": PositiveInt,
    "threshold": Literal["auto"] | NonNegative,
    "clusters": PositiveInt | None,
    "measure": Literal["auto"] | Measure,
    "linkage": Linkage,
    "preprocess": Preprocess,
    "compare": Compare,
    "epsilon": NonNegative | None,
    "delta": Share,
    "encoder": str | None,
}


class PACFLClustering:
    """Clusters of clients by the principal angles between their data: `pacfl cluster` and `pacfl join` for arrays.

    Parameters
    ----------
    rank : directions in a client's signature.
    threshold : "auto", from the clients' own sampling noise; or degrees, which cut the angles as measured.
    clusters : a number of clusters instead of a threshold.
    measure : of the angles between two signatures: "smallest", "sum", "trace" or "entrywise". "auto" is "smallest",
        and "sum" where two signatures fill the space, so that the smallest angle is always 0.
    linkage : between clusters: "average", "weighted", "complete", "single" or "ward".
    preprocess : of each client's samples: "raw" (unchanged), "normalise" (mean 0 and standard deviation 1) or "unit"
        (samples of length 1).
    compare : "classes", the same classes of clients, which needs the labels of all; "inputs", all their samples, as the
        paper does; or "auto", classes where clients share labelled ones, and inputs where they do not. A threshold in
        degrees, and linkages other than "average", compare inputs.
    epsilon : differential privacy of each sample and its label in the signatures, to see what it costs; None for plain
        signatures. The classes that all clients agree on are those of `fit`.
    delta : its delta.
    encoder : of each client's samples, before preprocessing: "spectrum" or "standardise" (signals), "ngrams" (texts),
        or "package.module:function"; None for samples that are numbers already.

    Attributes, once clients were clustered
    ---------------------------------------
    labels_ : (n,) the cluster of each client, from 0; -1 for clients that cannot be judged and are in no cluster.
    not_judged_ : why, by the names of these clients, and what would help.
    n_clusters_ : how many clusters there are.
    names_ : the clients' names: the keys of a mapping, or "client 0", "client 1", ...
    threshold_ : degrees at which the dendrogram was cut. Automatic thresholds, and those of a number of clusters, cut
        the angles after they were rescaled to the noise of a typical client.
    measure_ : the measure that was used.
    evidence_ : why this threshold; `evidence_.reasons` says it in words, `evidence_.guaranteed` whether its error rate
        was verified for federations like this one.
    diagnosis_ : the kind of difference between clients and between clusters, its size in units of noise, and whether to
        learn together, together with a corrected prior, or apart; `diagnosis_.words` says it in words.
    proximity_ : (n, n) angles between clients as measured, in degrees.
    signatures_ : n × (features, directions), orthonormal.
    merge_suggestions_ : pairs of clusters that clients of the last `partial_fit` are both close to; `newcomer` is a
        position in `names_`.
    federation_ : all of this in one `pacfl.signatures.Federation`.

    Examples
    --------
    Six clients, whose samples vary in two different planes of a space with 20 dimensions:

    >>> import numpy as np
    >>> from pacfl import PACFLClustering
    >>> rng = np.random.default_rng(0)
    >>> def client(first):
    ...     return rng.normal(size=(200, 20)) + 5 * rng.normal(size=(200, 2)) @ np.eye(20)[first : first + 2]
    >>> clustering = PACFLClustering(rank=2).fit([client(0), client(0), client(0), client(9), client(9), client(9)])
    >>> clustering
    PACFLClustering(rank=2), 6 clients in 2 clusters
    >>> clustering.labels_
    array([0, 0, 0, 1, 1, 1])
    >>> clustering.evidence_.finding
    'distinct'
    >>> clustering.predict([client(9), client(15)])  # the second would open a cluster of its own
    array([1, 2])
    >>> clustering.partial_fit({"site 7": client(0)}).labels_
    array([0, 0, 0, 1, 1, 1, 0])

    Six clients with the same samples, of which the last three give them other labels:

    >>> def labelled(shift):
    ...     y = np.tile([0, 1, 2], 40)
    ...     return 5 * np.eye(20)[y] + rng.normal(size=(120, 20)), (y + shift) % 3
    >>> xs, ys = zip(*[labelled(shift) for shift in (0, 0, 0, 1, 1, 1)])
    >>> PACFLClustering().fit(xs).labels_
    array([0, 0, 0, 0, 0, 0])
    >>> PACFLClustering().fit(xs, ys).labels_
    array([0, 0, 0, 1, 1, 1])
    >>> clustering = PACFLClustering().fit(xs, ys)
    >>> clustering.diagnosis_.kind, clustering.diagnosis_.recommendation
    ('concept', 'apart')
    >>> [(one.a, one.b) for one in clustering.explain(0, 5).relabelled]
    [('0', '1'), ('1', '2'), ('2', '0')]

    """

    federation_: Federation
    merge_suggestions_: tuple[MergeSuggestion, ...]
    _fitted_with: dict[str, Any]
    _agreed: list[str]  # the classes of all clients, which private signatures need

    def __init__(
        self,
        rank: int = RANK,
        threshold: float | Literal["auto"] = "auto",
        clusters: int | None = None,
        measure: Measure | Literal["auto"] = "auto",
        linkage: Linkage = "average",
        preprocess: Preprocess = "raw",
        compare: Compare = "auto",
        epsilon: float | None = None,
        delta: float = 1e-5,
        encoder: str | None = None,
    ) -> None:
        """Store the parameters; `fit` checks them, because `set_params` may change one after the other."""
        self.rank = rank
        self.threshold = threshold
        self.clusters = clusters
        self.measure = measure
        self.linkage = linkage
        self.preprocess = preprocess
        self.compare = compare
        self.epsilon = epsilon
        self.delta = delta
        self.encoder = encoder

    def fit(self, xs: Samples, ys: Labels = None, groups: Groups = None, *, y: None = None) -> Self:
        """Sign and cluster the clients.

        xs: an array (n, ...) for each client, in a list or by name. ys: the classes (n,) of its samples, in a list or
        by name; None for a client without labels. groups: for samples that depend on each other, as windows of a signal
        do, the group (n,) of each, given in the same way; no split that measures noise separates a group.
        y: not used, there for scikit-learn.
        """
        _check_not_named_y(y)
        self._check_parameters()
        clients = self._signed(xs, ys, groups, 0)
        if not clients:
            raise DataError("there is no client to cluster; give one array (n, ...) for each")
        if self.clusters is not None and self.clusters > len(clients):
            raise ConfigError(f"clusters={self.clusters} is more than there are clients, {len(clients)}")
        measure = None if self.measure == "auto" else self.measure
        threshold = None if self.threshold == "auto" else float(self.threshold)
        self.federation_ = federate(clients, measure, self.linkage, threshold, self.clusters, compare=self.compare)
        self.merge_suggestions_ = ()
        self._fitted_with = self.get_params()
        return self

    def fit_predict(self, xs: Samples, ys: Labels = None, groups: Groups = None, *, y: None = None) -> NDArray[np.intp]:
        """The clusters of the clients: `fit(xs, ys, groups).labels_`."""
        return self.fit(xs, ys, groups, y=y).labels_

    def predict(self, xs: Samples, ys: Labels = None, groups: Groups = None) -> NDArray[np.intp]:
        """The clusters (m,) that newcomers would get from `partial_fit`; nothing changes.

        A newcomer outside every cluster gets a label from `n_clusters_` on: it would open a cluster. Newcomers of one
        call may share such a cluster, so what is predicted for one can depend on the others. One that cannot be judged
        gets -1.
        """
        joined = self._joined(xs, ys, groups)
        return np.array([] if joined is None else list(joined.placed.values()), dtype=np.intp)

    def partial_fit(self, xs: Samples, ys: Labels = None, groups: Groups = None, *, y: None = None) -> Self:
        """Let newcomers join: each the nearest cluster within the threshold, or a new one. No other client moves.

        Without clients to join, it is `fit`.
        """
        _check_not_named_y(y)
        if not hasattr(self, "federation_"):
            return self.fit(xs, ys, groups)
        joined = self._joined(xs, ys, groups)
        n = len(self.names_)
        if joined is not None:
            self.federation_ = joined.federation
        found = () if joined is None else joined.suggestions
        self.merge_suggestions_ = tuple(replace(merge, newcomer=n + merge.newcomer) for merge in found)
        return self

    def explain(self, a: str | int, b: str | int, between: Between = "clients") -> Explanation:
        """Why two clients, by name or position, or two clusters, by number, differ; `.words` says it in words."""
        check_value("between", between, Between)
        return self._fitted().explain(a, b, between)

    def plot(self, kind: figures.Plot = "dendrogram", ax: "Axes | None" = None) -> "Axes":
        """Draw the dendrogram, or the angles between clients as a heat map; needs matplotlib (extra `figures`).

        ax: where to draw; by default in a new figure of pyplot.
        """
        check_value("kind", kind, figures.Plot)
        federation = self._fitted()
        if len(federation.names) < 2:
            raise DataError("one client has no angles to draw; cluster at least two")
        size, draw_on = figures.plots(federation)[kind]
        if ax is None:
            pyplot = library("matplotlib.pyplot", "drawing pictures", "figures")
            ax = pyplot.subplots(figsize=size, layout="constrained")[1]
        draw_on(federation, ax)
        return ax

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002 - scikit-learn's form; nothing is nested
        """The parameters by name."""
        return {name: getattr(self, name) for name in PARAMETERS}

    def set_params(self, **parameters: Any) -> Self:
        """Change parameters; they count from the next `fit` on."""
        unknown = [name for name in parameters if name not in PARAMETERS]
        if unknown:
            raise ConfigError(f"PACFLClustering has no parameter {unknown[0]!r}; there are {', '.join(PARAMETERS)}")
        for name, value in parameters.items():
            setattr(self, name, value)
        return self

    @property
    def labels_(self) -> NDArray[np.intp]:
        """The cluster of each client."""
        return self._fitted().clustering.labels

    @property
    def not_judged_(self) -> dict[str, str]:
        """Clients in no cluster, and why."""
        return self._fitted().not_judged()

    @property
    def n_clusters_(self) -> int:
        """How many clusters there are."""
        return int(self.labels_.max()) + 1

    @property
    def names_(self) -> tuple[str, ...]:
        """The clients' names."""
        return self._fitted().names

    @property
    def threshold_(self) -> float:
        """Degrees at which the dendrogram was cut."""
        return self._fitted().clustering.threshold

    @property
    def measure_(self) -> Measure:
        """The measure that was used."""
        return self._fitted().clustering.measure

    @property
    def evidence_(self) -> Evidence | GivenCut:
        """Why this threshold."""
        return evidence_of(self._fitted().clustering)

    @property
    def diagnosis_(self) -> Diagnosis:
        """How clients differ, and what to do about it."""
        return self._fitted().diagnosis

    @property
    def proximity_(self) -> NDArray[np.float64]:
        """(n, n) angles as measured, in degrees."""
        return self._fitted().clustering.proximity

    @property
    def signatures_(self) -> tuple[NDArray[np.float32], ...]:
        """Orthonormal columns, n × (features, directions)."""
        return self._fitted().bases

    def __repr__(self) -> str:
        defaults = signature_of(type(self)).parameters
        changed = {name: value for name, value in self.get_params().items() if value != defaults[name].default}
        made = f"PACFLClustering({', '.join(f'{name}={value!r}' for name, value in changed.items())})"
        if not hasattr(self, "federation_"):
            return made
        return f"{made}, {self.federation_.size()}"

    def _repr_html_(self) -> str:
        if not hasattr(self, "federation_"):
            return f"<code>{escape(repr(self))}</code>"
        headings, *rows = self.federation_.table()
        lines = [_html_row("th", headings), *(_html_row("td", row) for row in rows)]
        words = f"{self.federation_.cut()}. {self.evidence_.reasons} {self.diagnosis_.words}"
        return f"<code>{escape(repr(self))}</code><table>{''.join(lines)}</table><p>{escape(words)}</p>"

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn asks of every estimator."""
        utils = library("sklearn.utils", "scikit-learn's view of an estimator", "methods")
        return utils.Tags("clusterer", utils.TargetTags(required=False), input_tags=utils.InputTags(two_d_array=False))

    def _fitted(self) -> Federation:
        if not hasattr(self, "federation_"):
            raise NotFittedError("this PACFLClustering has no clusters yet; call fit first")
        return self.federation_

    def _joined(self, xs: Samples, ys: Labels, groups: Groups) -> Joined | None:
        """The federation with newcomers in it; None if there are none."""
        federation = self._fitted()
        changed = [name for name, value in self.get_params().items() if value != self._fitted_with[name]]
        if changed:
            raise ConfigError(f"{', '.join(changed)} changed since the clients were clustered; call fit again")
        newcomers = self._signed(xs, ys, groups, len(federation.names))
        return join(federation, newcomers) if newcomers else None

    def _signed(self, xs: Samples, ys: Labels, groups: Groups, first: int) -> Clients:
        """The signatures of clients by name; those without one are numbered from `first` on."""
        arrays = _by_name(xs, first)
        labels, units = _labels_by_name(ys, list(arrays)), _labels_by_name(groups, list(arrays), "groups")
        samples = {}
        for name, x in arrays.items():
            y = None if self.epsilon is not None and self.compare == "inputs" else labels[name]
            of_samples, of_groups = (None if given is None else np.asarray(given) for given in (y, units[name]))
            with named(name):
                numbers = encoded(Signable(_as_array(x), of_samples, _columns(x), of_groups), self.encoder)
                samples[name] = numbers._replace(x=preprocessed(numbers.x, self.preprocess))
        if self.epsilon is not None and first == 0:
            self._agreed = sorted({label for name, own in samples.items() for label in _class_names(name, own)})
        signed = {name: self._signature(name, own) for name, own in samples.items()}
        if self.epsilon is None:
            warn_of_dependence({name: dependence(name, own, Reading()) for name, own in samples.items()})
        return signed

    def _signature(self, name: str, samples: Signable) -> SignatureFile:
        how = Reading(preprocess=self.preprocess, encoder=self.encoder)
        if self.epsilon is None:
            return sign(name, samples, self.rank, how)
        agreed = None if samples.labels is None else self._agreed
        return sign_privately(name, samples, self.rank, how, self.epsilon, self.delta, agreed)

    def _check_parameters(self) -> None:
        for name, value in self.get_params().items():
            check_value(name, value, PARAMETERS[name])
        if self.threshold != "auto" and self.clusters is not None:
            raise ConfigError(f"give threshold or clusters, not both; got {self.threshold} and {self.clusters}")
        if self.compare == "classes" and (self.threshold != "auto" or self.linkage != "average"):
            raise ConfigError(
                f"compare='classes' needs threshold='auto' and linkage='average', got {self.threshold!r} and "
                f"{self.linkage!r}; use compare='inputs' for others"
            )


def _as_array(x: ArrayLike) -> NDArray[Any]:
    """Samples as an array; sparse ones stay sparse."""
    return x.tocsr() if is_sparse(x) else np.asarray(x)  # type: ignore[union-attr]  # scipy's formats have it


def _columns(x: ArrayLike) -> tuple[str, ...] | None:
    """The names of a data frame's columns."""
    columns = getattr(x, "columns", None)
    return None if columns is None else tuple(map(str, columns))


def _by_name(xs: Samples, first: int) -> dict[str, ArrayLike]:
    if isinstance(xs, Mapping):
        wrong = [name for name in xs if not isinstance(name, str)]
        if wrong:
            raise DataError(f"clients are named by strings, got {wrong[0]!r}")
        return dict(xs)
    if hasattr(xs, "shape") or hasattr(xs, "__array__"):
        raise DataError(
            f"expected a list of arrays, one (n, ...) for each client, got one array of shape {np.asarray(xs).shape}; "
            "if its first axis is that of the clients, give list(x)"
        )
    return {f"client {i}": x for i, x in enumerate(xs, first)}


def _class_names(name: str, samples: Signable) -> set[str]:
    """The classes of a client's samples."""
    with named(name):
        return set() if samples.labels is None else set(class_names(samples.labels, samples.x.shape[0]).tolist())


def _labels_by_name(ys: Labels, names: list[str], what: str = "labels") -> dict[str, ArrayLike | None]:
    """The labels, or groups, of each client, None for one without."""
    if ys is None:
        return dict.fromkeys(names)
    if isinstance(ys, str) or hasattr(ys, "shape") or hasattr(ys, "__array__"):
        raise DataError(
            f"expected a list of arrays of {what}, one (n,) for each client, got one array; "
            "if its first axis is that of the clients, make it a list"
        )
    given = dict(ys) if isinstance(ys, Mapping) else None
    if given is None:
        listed = list(ys)
        if len(listed) != len(names):
            raise DataError(f"{what} of {len(listed)} clients were given for {len(names)}; give None for those without")
        return dict(zip(names, listed, strict=True))
    for one, other, fault in ((names, given, f"has no {what}"), (list(given), names, f"has {what} but no samples")):
        lacking = [name for name in one if name not in other]
        if lacking:
            raise DataError(f"{lacking[0]}: {fault}; name the same clients, with None for those without {what}")
    return given


def _check_not_named_y(y: object) -> None:
    if y is not None:
        raise DataError("labels are given for each client, as the second argument `ys`; leave y out")


def _html_row(tag: str, cells: Iterable[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"
