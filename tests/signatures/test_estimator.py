import doctest
import html.parser
import subprocess
import sys
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import pacfl
from pacfl import PACFLClustering
from pacfl.errors import ConfigError, DataError, NotFittedError
from pacfl.signatures import Reading, cluster_files, estimator, join_files
from pacfl.subspace import Evidence, proximity

Array = NDArray[Any]


def client(group: int, seed: int, features: int = 30) -> Array:
    """Samples around one of three directions."""
    rng = np.random.default_rng([group, seed])
    x = rng.normal(size=(60 + 5 * seed, features)) * np.linspace(1.5, 0.3, features)
    x[:, group * features // 3 : group * features // 3 + 3] += 4
    return x


def clients(per_group: int = 4, features: int = 30) -> dict[str, Array]:
    return {f"g{group}-{i}": client(group, i, features) for i in range(per_group) for group in range(2)}


@cache
def _fitted() -> PACFLClustering:
    return PACFLClustering().fit(clients())


def fitted() -> PACFLClustering:
    """A clustering at the automatic threshold, to be changed by one test."""
    return deepcopy(_fitted())


def written(folder: Path, arrays: dict[str, Array]) -> list[Path]:
    paths = [folder / f"{name}.npy" for name in arrays]
    for path, x in zip(paths, arrays.values(), strict=True):
        np.save(path, x)
    return paths


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"rank": 1, "measure": "sum", "linkage": "ward"},
        {"threshold": 25.0, "linkage": "weighted"},
        {"clusters": 3, "measure": "trace"},
        {"preprocess": "normalise"},
        {"preprocess": "unit", "rank": 4, "threshold": 20},
    ],
)
def test_clusters_are_those_of_the_command_line_before_and_after_newcomers(
    given: dict[str, Any], tmp_path: Path
) -> None:
    founders = clients()
    late = {"late": client(1, 90), "other": client(2, 0), "too": client(2, 1)}
    reading = Reading(preprocess=given["preprocess"]) if "preprocess" in given else None
    options = {key: value for key, value in given.items() if key != "preprocess"}
    folder = tmp_path / "federation"
    by_files = cluster_files(written(tmp_path, founders), reading=reading, output=folder, **options)
    found = PACFLClustering(**given).fit(founders)
    assert found.labels_.tolist() == by_files.clustering.labels.tolist()
    assert (found.threshold_, found.names_) == (by_files.clustering.threshold, by_files.names)
    assert np.array_equal(found.proximity_, by_files.clustering.proximity)
    assert all(np.array_equal(a, b) for a, b in zip(found.signatures_, by_files.bases, strict=True))

    joined = join_files(folder, written(tmp_path, late)).federation
    found.partial_fit(late)
    assert found.labels_.tolist() == joined.clustering.labels.tolist()
    assert found.names_ == joined.names
    assert np.allclose(found.proximity_, joined.clustering.proximity)


def test_the_evidence_is_that_of_the_command_line(tmp_path: Path) -> None:
    by_files = cluster_files(written(tmp_path, clients())).clustering.evidence
    found = fitted().evidence_
    assert isinstance(found, Evidence)
    for name in ("finding", "reasons", "guaranteed", "not_guaranteed_because", "floor", "reproducibility"):
        assert getattr(found, name) == by_files[name]
    assert [cut.n_clusters for cut in found.cuts] == [cut["n_clusters"] for cut in by_files["cuts"]]
    given = PACFLClustering(clusters=2).fit(clients()).evidence_
    assert (given.finding, given.guaranteed) == ("given", False)


def test_where_two_signatures_fill_the_space_the_measure_is_the_sum() -> None:
    small = clients(features=5)
    found = PACFLClustering().fit(small)
    assert found.measure_ == "sum"
    assert np.allclose(found.proximity_, proximity(found.signatures_, "sum"), atol=1e-4)
    assert PACFLClustering(measure="smallest", clusters=2).fit(small).measure_ == "smallest"
    assert fitted().measure_ == "smallest"


def test_predictions_are_what_newcomers_get_when_they_join_and_change_nothing() -> None:
    found = fitted()
    before = (found.labels_.copy(), found.names_, found.proximity_.copy())
    newcomers = [client(1, 90), client(2, 0), client(2, 1), client(0, 91)]
    predicted = found.predict(newcomers)
    assert np.array_equal(found.labels_, before[0])
    assert found.names_ == before[1]
    assert np.array_equal(found.proximity_, before[2])
    assert predicted.tolist() == [1, 2, 2, 0]  # of the third group the first would open a cluster, the second join it
    found.partial_fit(newcomers)
    assert found.labels_[-4:].tolist() == predicted.tolist()
    assert np.array_equal(found.labels_[:-4], before[0])
    assert found.n_clusters_ == 3
    assert found.predict([]).shape == (0,)
    assert found.predict([client(2, 5)]).tolist() == [2]


def test_clients_in_a_list_are_numbered_and_newcomers_continue() -> None:
    arrays = list(clients(2).values())
    found = PACFLClustering(clusters=2).fit(arrays)
    assert found.names_ == tuple(f"client {i}" for i in range(4))
    assert found.partial_fit([client(0, 50)]).names_[-1] == "client 4"
    assert PACFLClustering(clusters=2).fit_predict(arrays).tolist() == [0, 1, 0, 1]


def test_the_first_partial_fit_is_a_fit() -> None:
    first, second = PACFLClustering().partial_fit(clients()), fitted()
    assert first.threshold_ == second.threshold_
    assert np.array_equal(first.labels_, second.labels_)


def test_a_newcomer_close_to_two_clusters_is_a_suggestion_to_merge_them() -> None:
    """Two clients at a right angle, and one in the middle, 45 degrees from both."""
    founders = {"a": np.eye(3)[[0, 0]], "b": np.eye(3)[[1, 1]]}
    found = PACFLClustering(rank=1, threshold=46.0).fit(founders)
    assert found.merge_suggestions_ == ()
    (merge,) = found.partial_fit({"c": np.array([[1.0, 1, 0], [2, 2, 0]])}).merge_suggestions_
    assert found.names_[merge.newcomer] == "c"
    assert set(merge.clusters) == {0, 1}
    assert found.partial_fit([]).merge_suggestions_ == ()


def test_scikit_learn_clones_it_and_finds_it_fitted() -> None:
    base = pytest.importorskip("sklearn.base", reason="an extra")
    exceptions, validation = (pytest.importorskip(f"sklearn.{part}") for part in ("exceptions", "utils.validation"))
    assert base.is_clusterer(PACFLClustering())
    found = PACFLClustering(clusters=2, linkage="ward")
    with pytest.raises(exceptions.NotFittedError):
        validation.check_is_fitted(found)
    validation.check_is_fitted(found.fit(clients()))
    copy = base.clone(found)
    assert copy.get_params() == found.get_params() == base.clone(copy).get_params(deep=False)
    assert not hasattr(copy, "labels_")
    assert repr(copy) == "PACFLClustering(clusters=2, linkage='ward')"
    assert repr(found) == "PACFLClustering(clusters=2, linkage='ward'), 8 clients in 2 clusters"
    assert np.array_equal(copy.fit(clients()).labels_, found.labels_)


def test_parameters_are_set_by_name() -> None:
    found = PACFLClustering().set_params(rank=2, threshold=9.0)
    assert (found.rank, found.threshold) == (2, 9.0)
    assert found.get_params()["rank"] == 2
    with pytest.raises(ConfigError, match="no parameter 'rang'; there are rank, threshold"):
        found.set_params(rang=3)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rank": 0}, "rank must be an integer of at least 1, got 0"),
        ({"rank": 2.5}, "rank must be an integer"),
        ({"threshold": "low"}, "threshold must be 'auto' or a number of at least 0, got 'low'"),
        ({"threshold": -1.0}, "threshold must be"),
        ({"threshold": float("nan")}, "threshold must be"),
        ({"clusters": 0}, "clusters must be"),
        ({"clusters": 9}, "clusters=9 is more than there are clients, 8"),
        ({"clusters": 2, "threshold": 5.0}, "threshold or clusters, not both"),
        ({"measure": "largest"}, "measure must be"),
        ({"linkage": "median"}, "linkage must be"),
        ({"preprocess": "whiten"}, "preprocess must be"),
    ],
)
def test_invalid_parameters_are_refused_when_clients_come(given: dict[str, Any], message: str) -> None:
    found = PACFLClustering(**given)
    with pytest.raises(ConfigError, match=message):
        found.fit(clients())


@pytest.mark.parametrize(
    ("xs", "message"),
    [
        (np.zeros((20, 4)), r"expected a list of arrays, .* got one array of shape \(20, 4\)"),
        ([], "no client"),
        ({}, "no client"),
        ({3: np.ones((5, 4))}, "named by strings, got 3"),
        ([np.ones((5, 4)), np.ones(5)], "client 1: "),
        ([client(0, 0), np.full((50, 30), np.nan)], "client 1: "),
        ([client(0, 0), np.array([["a"]])], "client 1: "),
        ([client(0, 0), client(0, 0, features=20)], "differ in features"),
    ],
)
def test_data_that_cannot_be_clustered_are_refused_with_the_client_named(xs: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        PACFLClustering().fit(xs)


def test_what_cannot_join_is_refused_and_changes_nothing() -> None:
    found = fitted()
    with pytest.raises(DataError, match="g0-0: already in the federation"):
        found.partial_fit({"g0-0": client(0, 0)})
    with pytest.raises(DataError, match="differ in features"):
        found.partial_fit([client(0, 0, features=20)])
    with pytest.raises(DataError, match="one array; if its first axis"):
        found.fit(clients(), np.zeros(8))
    with pytest.raises(DataError, match="second argument `ys`; leave y out"):
        found.fit(clients(), y=np.zeros(8))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="threshold changed since the clients were clustered; call fit again"):
        found.set_params(threshold=3.0).predict([client(0, 9)])
    assert len(found.names_) == 8


def test_without_clusters_there_is_nothing_to_ask() -> None:
    found = PACFLClustering()
    for ask in (lambda: found.predict([client(0, 0)]), lambda: found.labels_, found.plot):
        with pytest.raises(NotFittedError, match="call fit first"):
            ask()
    assert not hasattr(found, "labels_")


def test_one_client_is_one_cluster() -> None:
    assert PACFLClustering().fit([client(0, 0)]).labels_.tolist() == [0]


class Cells(html.parser.HTMLParser):
    """The text of every cell and paragraph; tags that are not closed are an error."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert not attrs, "self-contained: nothing is loaded"
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.setdefault(self.open[-1], []).append(data)


def test_a_notebook_shows_clusters_sizes_and_the_evidence_in_words() -> None:
    arrays = clients()
    arrays["<script>"] = arrays.pop("g0-0")
    found = PACFLClustering(threshold=30.0).fit(arrays)
    shown = Cells(found._repr_html_()).texts
    cells = [tuple(shown["td"][i : i + 5]) for i in range(0, len(shown["td"]), 5)]
    assert [(number, size) for number, size, *_ in cells] == [("0", "4"), ("1", "4")]
    assert "<script>" in cells[1][4]
    assert found.evidence_.reasons in shown["p"][0]
    assert shown["code"] == [repr(found)]
    assert Cells(PACFLClustering()._repr_html_()).texts == {"code": ["PACFLClustering()"]}


def test_the_dendrogram_and_the_angles_are_drawn() -> None:
    matplotlib = pytest.importorskip("matplotlib", reason="an extra")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    found = fitted()
    axes = found.plot()
    assert axes.get_title().startswith("2 clusters at")
    assert {label.get_text() for label in axes.get_xticklabels()} == set(found.names_)
    own = pyplot.figure().subplots()
    assert found.plot("heatmap", ax=own) is own
    drawn = own.get_images()[0].get_array()
    assert drawn is not None
    assert sorted(np.asarray(drawn).ravel()) == pytest.approx(sorted(found.proximity_.ravel()))
    with pytest.raises(ConfigError, match="kind must be one of 'dendrogram', 'heatmap'"):
        found.plot("tree")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="one client"):
        PACFLClustering().fit([client(0, 0)]).plot()
    pyplot.close("all")


def test_the_example_of_the_documentation_is_true() -> None:
    done = doctest.testmod(estimator)
    assert done.failed == 0
    assert done.attempted > 5


def test_it_needs_neither_torch_nor_scikit_learn() -> None:
    program = """
import sys
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in "torch sklearn matplotlib pandas".split():
            raise ImportError(f"{name} is not here")
sys.meta_path.insert(0, Nothing())
import numpy as np
from pacfl import PACFLClustering
rng = np.random.default_rng(0)
print(PACFLClustering(clusters=1).fit([rng.normal(size=(20, 8)) for _ in range(3)]).labels_.tolist())
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(Path(pacfl.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "[0, 0, 0]\n", done.stderr


def test_private_signatures_of_arrays_show_who_labels_otherwise() -> None:
    rng = np.random.default_rng(0)
    patterns = rng.normal(size=(3, 8, 8))

    def labelled(shift: int) -> tuple[Any, Any]:
        y = rng.integers(0, 3, 600)
        return patterns[y] + rng.normal(size=(600, 8, 8)), (y + shift) % 3

    xs, ys = zip(*[labelled(shift) for shift in (0, 0, 0, 1, 1, 1)], strict=True)
    private = PACFLClustering(epsilon=4.0).fit(xs, ys)
    assert private.labels_.tolist() == [0, 0, 0, 1, 1, 1]
    assert private.federation_.settings.private
    x, y = labelled(1)
    assert private.predict([x], [y]).tolist() == [1]
    with pytest.raises(DataError, match="'7' is not among the 3 agreed classes"):
        private.predict([x], [np.where(y == 0, 7, y)])
    assert PACFLClustering(epsilon=4.0, compare="inputs").fit(xs, ys).labels_.max() == 0


def test_normalised_samples_are_not_private() -> None:
    with pytest.raises(DataError, match="would not be private"):
        PACFLClustering(epsilon=1.0, preprocess="normalise").fit([np.random.default_rng(0).normal(size=(9, 3))] * 2)
