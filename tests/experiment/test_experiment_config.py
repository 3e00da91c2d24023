import tomllib
from pathlib import Path
from typing import Any

import pytest

from pacfl.errors import ConfigError
from pacfl.experiment.config import Data, Net, expand, from_content, read
from pacfl.federation.aggregation import Aggregation
from pacfl.federation.schedule import Schedule
from pacfl.learning.client_context import LocalTraining
from tests.experiment.tables import Table, only, table

TOML = """
seeds = [0, 1]

[data]
name = "digits"
clients = 8
scheme = { kind = "by-set", counts = [2, 2, 2, 2], size = 50 }

[model]
name = "mlp"

[learning]
epochs = 1
lr = 0.05

[schedule]
rounds = 3
evaluate-every = 2

[[algorithm]]
name = "fedavg"
learning = { momentum = 0.9 }

[[algorithm]]
name = "pacfl"
per-class = true
rank = 2
"""


def test_a_file_becomes_runs_of_every_algorithm_and_seed(tmp_path: Path) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text(TOML)
    runs = read(path)
    assert [(run.algorithm["name"], run.seed) for run in runs] == [
        ("fedavg", 0),
        ("fedavg", 1),
        ("pacfl", 0),
        ("pacfl", 1),
    ]
    first = runs[0]
    assert first.data == Data("digits", 8, {"kind": "by-set", "counts": [2, 2, 2, 2], "size": 50})
    assert first.schedule == Schedule(rounds=3, evaluate_every=2)
    assert first.learning == LocalTraining(epochs=1, lr=0.05, momentum=0.9)
    assert runs[2].learning == LocalTraining(epochs=1, lr=0.05), "the override is that algorithm's own"
    assert runs[2].algorithm == {"name": "pacfl", "per_class": True, "rank": 2}
    assert len({run.hash for run in runs}) == 4


def test_overrides_come_before_the_file(tmp_path: Path) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text(TOML)
    runs = read(
        path,
        (
            "data.clients=20",
            "data.name=fmnist",
            'data.scheme={ kind = "iid" }',
            "schedule.evaluate_every=7",
            "learning.weight-decay=0.001",
            "seeds=[5]",
        ),
    )
    assert {run.seed for run in runs} == {5}
    for run in runs:
        assert (run.data.clients, run.data.name, run.data.scheme) == (20, "fmnist", {"kind": "iid"})
        assert run.schedule.evaluate_every == 7
        assert run.learning.weight_decay == 0.001


def test_an_override_may_be_of_the_algorithms_with_a_name(tmp_path: Path) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text(TOML)
    before, after = read(path), read(path, ("algorithm.pacfl.rank=7", "algorithm.pacfl.learning.lr=0.5"))
    assert {run.algorithm["rank"] for run in after if run.algorithm["name"] == "pacfl"} == {7}
    assert {run.learning.lr for run in after if run.algorithm["name"] == "pacfl"} == {0.5}
    others = [[run for run in runs if run.algorithm["name"] != "pacfl"] for runs in (before, after)]
    assert others[0] == others[1]


@pytest.mark.parametrize(
    ("override", "why"),
    [
        ("data.clients", "KEY=VALUE"),
        ("=3", "KEY=VALUE"),
        ("algorithm.rank=3", "not a table"),
        ("data.clints=3", "clients"),
        ("seeds.first=3", "not a table"),
        ("algorithm.scaffold.rank=3", "no .* with the name 'scaffold'"),
    ],
)
def test_overrides_that_cannot_be_are_refused(tmp_path: Path, override: str, why: str) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text(TOML)
    with pytest.raises(ConfigError, match=why):
        read(path, (override,))


def test_an_experiment_of_nothing_but_an_algorithm_has_defaults() -> None:
    run = only({"algorithm": {"name": "fedavg"}})
    assert run.seed == 0
    assert (run.learning, run.schedule, run.model) == (LocalTraining(), Schedule(), Net())


def test_the_default_data_can_be_dealt_to_the_default_number_of_clients() -> None:
    from pacfl.data import build_scheme, load_dataset, partition  # only here: it reads the data
    from pacfl.learning.randomness import stream

    data = Data()
    parts = partition(load_dataset(data.name), build_scheme(data.scheme), data.clients, stream(0, "partition"))
    assert parts.n_clients == data.clients


# Sweeps


def test_a_list_where_one_value_is_wanted_is_a_sweep() -> None:
    runs = expand(table(seeds=[0, 1], learning={"lr": [0.1, 0.01], "momentum": [0.0, 0.5, 0.9]}))
    assert len(runs) == 12
    assert {(r.seed, r.learning.lr, r.learning.momentum) for r in runs} == {
        (seed, lr, momentum) for seed in (0, 1) for lr in (0.1, 0.01) for momentum in (0.0, 0.5, 0.9)
    }


def test_algorithms_names_data_models_and_schemes_are_swept_too() -> None:
    runs = expand(
        table(
            data={"name": ["digits", "usps"], "scheme": [{"kind": "iid"}, {"kind": "label-skew", "share": 0.2}]},
            model={"name": ["mlp", "logistic"]},
            algorithm={"name": ["fedavg", "solo"]},
        )
    )
    assert len(runs) == 16
    assert len({run.hash for run in runs}) == 16


def test_an_algorithms_settings_are_swept_for_it_alone() -> None:
    runs = expand(table(algorithm=[{"name": "fedavg"}, {"name": "pacfl", "threshold": ["auto", 5.0], "rank": [2, 3]}]))
    assert [run.label() for run in runs] == [
        "fedavg",
        "pacfl(threshold=auto, rank=2)",
        "pacfl(threshold=auto, rank=3)",
        "pacfl(threshold=5.0, rank=2)",
        "pacfl(threshold=5.0, rank=3)",
    ]


def schemes(scheme: Any, **data: Any) -> list[Any]:
    return [run.data.scheme for run in expand(table(data={"scheme": scheme, **data}))]


def test_a_list_in_a_scheme_is_a_sweep_where_the_setting_takes_a_single_value() -> None:
    assert schemes({"kind": "dirichlet", "alpha": [0.1, 0.5]}) == [
        {"kind": "dirichlet", "alpha": 0.1},
        {"kind": "dirichlet", "alpha": 0.5},
    ]
    by_set = {"kind": "by-set", "counts": [2, 2, 2, 2], "size": [20, 40], "per-class": [True, False]}
    assert [(s["counts"], s["size"], s["per_class"]) for s in schemes(by_set)] == [
        ([2, 2, 2, 2], size, per_class) for size in (20, 40) for per_class in (True, False)
    ]
    attributes = {"kind": "by-attribute", "attributes": ["Bald", "Smiling"]}
    assert schemes(attributes) == [attributes]
    given = {"kind": "given", "indices": [[0, 1], [2]]}
    assert schemes(given) == [given]


def test_a_list_of_lists_is_a_sweep_where_the_setting_is_a_list() -> None:
    found = schemes({"kind": "by-set", "counts": [[2, 2, 2, 2], [8, 0, 0, 0]], "size": 20})
    assert [scheme["counts"] for scheme in found] == [[2, 2, 2, 2], [8, 0, 0, 0]]
    runs = expand(table(data={"name": "mixture", "sets": [["usps", "fmnist"], ["usps", "mnist"]]}))
    assert [run.data.sets for run in runs] == [("usps", "fmnist"), ("usps", "mnist")]
    indices = [[[0, 1], [2]], [[3], [4]]]
    assert [scheme["indices"] for scheme in schemes({"kind": "given", "indices": indices})] == indices


def test_groups_are_swept_like_schemes() -> None:
    groups = {"rotate": [0, 90], "permute-labels": [2, 4]}
    assert [scheme["groups"] for scheme in schemes({"kind": "iid", "groups": groups})] == [
        {"rotate": [0, 90], "permute_labels": 2},
        {"rotate": [0, 90], "permute_labels": 4},
    ]
    by_angles = {"rotate": [[0, 90], [0, 180]]}
    assert [s["groups"]["rotate"] for s in schemes({"kind": "iid", "groups": by_angles})] == [[0, 90], [0, 180]]
    listed = [{"rotate": [0, 90]}, {"permute-labels": 2}]
    assert len(schemes({"kind": ["iid"], "groups": listed})) == 2


def test_schemes_in_a_list_are_each_swept() -> None:
    found = schemes([{"kind": "iid"}, {"kind": ["dirichlet", "quantity-skew"], "alpha": [0.1, 0.5]}])
    assert found == [
        {"kind": "iid"},
        *({"kind": kind, "alpha": alpha} for kind in ("dirichlet", "quantity-skew") for alpha in (0.1, 0.5)),
    ]


def test_a_sweep_in_a_scheme_gives_the_runs_of_its_values() -> None:
    swept = expand(table(data={"scheme": {"kind": "dirichlet", "alpha": [0.1, 0.5]}}))
    single = [only(table(data={"scheme": {"kind": "dirichlet", "alpha": alpha}})) for alpha in (0.1, 0.5)]
    assert [run.hash for run in swept] == [run.hash for run in single]


def test_an_empty_list_asks_for_nothing_in_a_scheme_too() -> None:
    with pytest.raises(ConfigError, match="asks for no run"):
        schemes({"kind": "dirichlet", "alpha": []})
    many = [i / 10_000 for i in range(1, 1000)]
    with pytest.raises(ConfigError, match=r"data\.scheme\.alpha, data\.scheme\.minimum ask for 998,001 runs"):
        schemes({"kind": "dirichlet", "alpha": many, "minimum": list(range(1, 1000))})


def test_an_override_of_learning_may_be_a_sweep() -> None:
    runs = expand(
        table(
            learning={"lr": [0.1, 0.01]},
            algorithm=[{"name": "fedavg", "learning": {"lr": [0.5, 0.05]}}, {"name": "solo"}],
        )
    )
    assert [(run.algorithm["name"], run.learning.lr) for run in runs] == [
        ("fedavg", 0.5),
        ("fedavg", 0.05),
        ("solo", 0.1),
        ("solo", 0.01),
    ]


def test_lists_that_are_values_are_not_swept() -> None:
    scheme = {"kind": "by-set", "counts": [4, 4], "size": 50}
    data = {"name": "mixture", "clients": 8, "sets": ["usps", "fmnist"], "scheme": scheme}
    run = only(table(data=data))
    assert run.data.sets == ("usps", "fmnist")
    assert run.data.scheme["counts"] == [4, 4]


def test_the_same_run_asked_for_twice_is_one_run() -> None:
    assert len(expand(table(seeds=[0, 0], algorithm=[{"name": "fedavg"}, {"name": "fedavg"}]))) == 1


@pytest.mark.parametrize("nothing", [{"seeds": []}, {"learning": {"lr": []}}, {"algorithm": []}, {"algorithm": [{}]}])
def test_an_experiment_that_asks_for_nothing_is_refused(nothing: Table) -> None:
    with pytest.raises(ConfigError):
        expand(table(**nothing))


# Spelling


def test_either_spelling_is_the_same_run() -> None:
    snake = table(
        schedule={"evaluate_every": 2},
        learning={"weight_decay": 0.1},
        algorithm={"name": "lg-fedavg", "shared_layers": 1},
    )
    kebab = table(
        schedule={"evaluate-every": 2},
        learning={"weight-decay": 0.1},
        algorithm={"name": "lg-fedavg", "shared-layers": 1},
    )
    assert only(snake) == only(kebab)
    assert only(snake).hash == only(kebab).hash


def test_joins_leaves_and_drifts_can_be_written_down(tmp_path: Path) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text(
        TOML + '\n[schedule.joins]\n2 = [3, 4]\n\n[schedule.leaves]\n1 = [0]\n\n[schedule.reprofile]\n"5" = [1]\n'
    )
    schedule = read(path)[0].schedule
    assert schedule.joins == {2: (3, 4)}
    assert schedule.leaves == {1: (0,)}
    assert schedule.reprofile == {5: (1,)}


@pytest.mark.parametrize(
    ("given", "wrong", "meant"),
    [
        ({"algoritm": []}, "algoritm", "algorithm"),
        ({"data": {"client": 3}}, "client", "clients"),
        ({"model": {"nme": "mlp"}}, "nme", "name"),
        ({"model": {"name": "lenet"}}, "lenet", "lenet5"),
        ({"learning": {"epoch": 3}}, "epoch", "epochs"),
        ({"schedule": {"evaluate-evry": 3}}, "evaluate-evry", "evaluate-every"),
        ({"algorithm": {"name": "fedavgg"}}, "fedavgg", "fedavg"),
        ({"algorithm": {"name": "pacfl", "tresholds": 3.0}}, "tresholds", "threshold"),
        ({"algorithm": {"name": "fedavg", "learning": {"momentun": 0.9}}}, "momentun", "momentum"),
        ({"data": {"scheme": {"kind": "dirichlett", "alpha": 1.0}}}, "dirichlett", "dirichlet"),
        ({"data": {"scheme": {"kind": "dirichlet", "alfa": 1.0}}}, "alfa", "alpha"),
    ],
)
def test_a_word_that_is_not_known_is_answered_by_the_nearest(given: Table, wrong: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f"{wrong}.*did you mean '{meant}'"):
        expand(table(**given))


# Types


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"seeds": ["zero"]}, "seeds"),
        ({"seeds": [-1]}, "seeds"),
        ({"seeds": [True]}, "seeds"),
        ({"seeds": 1.5}, "seeds"),
        ({"data": 3}, "data"),
        ({"data": {"clients": "many"}}, "clients"),
        ({"data": {"clients": 0}}, "clients"),
        ({"data": {"clients": True}}, "clients"),
        ({"data": {"clients": 2.5}}, "clients"),
        ({"data": {"name": 3}}, "name"),
        ({"data": {"scheme": "iid"}}, "scheme"),
        ({"data": {"scheme": {}}}, "scheme"),
        ({"data": {"sets": "usps"}}, "sets"),
        ({"data": {"sets": [1, 2]}}, "sets"),
        ({"data": {"disjoint_labels": "yes"}}, "disjoint_labels"),
        ({"model": "lenet5"}, "model"),
        ({"model": {"name": 5}}, "name"),
        ({"learning": 3}, "learning"),
        ({"learning": {"lr": "fast"}}, "lr"),
        ({"learning": {"lr": True}}, "lr"),
        ({"learning": {"epochs": 1.5}}, "epochs"),
        ({"learning": {"momentum": 1.0}}, "momentum"),
        ({"schedule": []}, "schedule"),
        ({"schedule": {"rounds": "three"}}, "rounds"),
        ({"schedule": {"rounds": True}}, "rounds"),
        ({"schedule": {"rounds": -1}}, "rounds"),
        ({"schedule": {"participation": 0}}, "participation"),
        ({"schedule": {"joins": 3}}, "joins"),
        ({"schedule": {"joins": {"soon": [1]}}}, "joins"),
        ({"schedule": {"joins": {"1": 3}}}, "joins"),
        ({"schedule": {"joins": {"1": ["a"]}}}, "joins"),
        ({"algorithm": "fedavg"}, "algorithm"),
        ({"algorithm": ["fedavg"]}, "algorithm"),
        ({"algorithm": [{"rank": 3}]}, "name"),
        ({"algorithm": [{"name": 3}]}, "name"),
        ({"algorithm": [{"name": "fedavg", "learning": 3}]}, "learning"),
        ({"algorithm": [{"name": "fedprox", "mu": "much"}]}, "mu"),
        ({"algorithm": [{"name": "pacfl", "threshold": "automatic"}]}, "threshold"),
    ],
    ids=str,
)
def test_values_of_a_wrong_kind_are_refused_by_name(given: Table, word: str) -> None:
    """As settings that cannot be, and never by a failure of the program."""
    with pytest.raises(ConfigError, match=rf"\b{word}\b"):
        expand(table(**given))


def test_a_whole_number_will_do_for_a_real_one() -> None:
    whole, real = (only(table(schedule={"participation": sample})) for sample in (1, 1.0))
    assert whole.schedule.participation == 1.0
    assert isinstance(whole.schedule.participation, float)
    assert whole.hash == real.hash


@pytest.mark.parametrize("content", [b"seeds = [", b"\xff\xfe", b"seeds = [1]\nseeds = [2]"])
def test_a_file_that_is_no_toml_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"broken\.toml"):
        read(path)
    with pytest.raises(ConfigError, match=r"absent\.toml"):
        read(tmp_path / "absent.toml")


# Files without algorithms describe pictures and studies, which are made without running anything
EXPERIMENTS = [
    path
    for path in sorted((Path(__file__).parents[2] / "experiments").glob("*.toml"))
    if "algorithm" in tomllib.loads(path.read_text())
]


@pytest.mark.skipif(not EXPERIMENTS, reason="the experiments are not part of a source distribution")
@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_every_experiment_that_lies_beside_the_tests_can_be_read(path: Path) -> None:
    runs = read(path)
    assert len(runs) == len({run.hash for run in runs}) > 0


# Aggregation


def test_an_entry_overrides_the_aggregation_and_lists_are_sweeps() -> None:
    runs = expand(
        table(
            aggregation={"rule": "median", "clip-norm": 2.0},
            algorithm=[{"name": "fedavg"}, {"name": "cfl", "aggregation": {"rule": ["uniform", "mean"]}}],
        )
    )
    assert [run.aggregation for run in runs] == [
        Aggregation("median", clip_norm=2.0),
        Aggregation("uniform", clip_norm=2.0),
        Aggregation("mean", clip_norm=2.0),
    ]
    assert [run.build_algorithm().aggregation for run in runs] == [run.aggregation for run in runs]
    assert [run.label() for run in runs] == [
        "fedavg(rule=median, clip_norm=2.0)",
        "cfl(rule=uniform, clip_norm=2.0)",
        "cfl(clip_norm=2.0)",
    ]


def test_the_default_aggregation_is_no_part_of_the_content() -> None:
    plain = only(table())
    assert "aggregation" not in plain.content()
    assert only(table(aggregation={"rule": "mean", "noise-multiplier": 0.0})).hash == plain.hash
    median = only(table(aggregation={"rule": "median"}))
    assert median.content()["aggregation"] == {"rule": "median"}
    assert from_content(median.content()) == median
    assert from_content(plain.content()) == plain


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"algorithm": {"name": "fedavg", "aggregation": "median"}}, r"\[aggregation\] must be a table such as { rule"),
        ({"algorithm": {"name": "fedavg", "clip-norm": 1.0}}, r"'clip.norm': it is called 'aggregation.clip-norm' now"),
        ({"aggregation": {"rle": "median"}}, "did you mean 'rule'"),
        ({"aggregation": {"rule": "krum"}}, "rule must be one of 'mean'"),
        ({"aggregation": {"noise-multiplier": 1.0}}, "noise hides nothing without clip-norm"),
        ({"aggregation": {"rule": "median"}, "algorithm": {"name": "solo"}}, "solo sends nothing"),
        ({"aggregation": {"clip-norm": 1.0}, "algorithm": {"name": "ifca"}}, "IFCA cannot hide updates"),
    ],
    ids=str,
)
def test_an_aggregation_that_cannot_be_is_refused(given: Table, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        expand(table(**given))
