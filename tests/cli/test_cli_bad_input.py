"""What users get wrong, through the command: one line that says what came and what to do, and no traceback."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

Run = Callable[..., tuple[int, str, str]]
RNG = np.random.default_rng(0)


def idx(path: Path, array: np.ndarray, magic: int | None = None) -> None:
    """A file of MNIST's format, compressed: magic number, sizes, bytes."""
    header = [magic or 0x800 + array.ndim, *array.shape]
    content = b"".join(n.to_bytes(4, "big") for n in header) + array.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(content))


def fashion(folder: Path, n: int = 60, labels: np.ndarray | None = None) -> Path:
    """A small Fashion-MNIST in the layout people have."""
    raw = folder / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    for part in ("train", "t10k"):
        idx(raw / f"{part}-images-idx3-ubyte.gz", RNG.integers(0, 256, (n, 28, 28)))
        idx(raw / f"{part}-labels-idx1-ubyte.gz", np.arange(n) % 10 if labels is None else labels)
    return raw


def refused(run: Run, why: str, *settings: str) -> None:
    words = [word for setting in settings for word in ("--set", setting)]
    iid = ("--set", 'data.scheme={kind = "iid"}') if not any("scheme" in s for s in settings) else ()
    code, out, err = run(
        "run", "experiment.toml", "--data", "data", "--workers", 1, "--set", "seeds=0", *iid, *words, "--json"
    )
    assert code == 1
    assert why in " ".join(err.split()), err
    assert "Traceback" not in err
    assert why in " ".join(json.loads(out)["error"]["message"].split())
    assert not list(Path("runs").glob("*/result.json"))


def mine(**changes: np.ndarray) -> None:
    """An .npz of the user's, some of it changed."""
    x, y = RNG.integers(0, 256, (40, 8, 8)).astype(np.uint8), np.arange(40) % 4
    Path("data").mkdir(exist_ok=True)
    np.savez("data/mine.npz", **{"x_train": x, "y_train": y, "x_test": x, "y_test": y, **changes})


def test_the_files_as_they_should_be_are_taken(run: Run) -> None:
    """So that whatever is refused below is refused for what was done to it."""
    fashion(Path("data"))
    mine()
    for name in ("fmnist", "mine"):
        settings = ("--set", f"data.name={name}", "--set", 'data.scheme={kind = "iid"}', "--set", "seeds=0")
        assert run("run", "experiment.toml", "--data", "data", "--workers", 1, *settings)[0] == 0


def test_data_that_are_not_there(run: Run) -> None:
    refused(run, "fmnist is not complete", "data.name=fmnist")
    refused(run, "no data set 'fashion'", "data.name=fashion")
    refused(run, "did you mean 'fmnist'", "data.name=fmnst")


def test_a_folder_where_a_file_should_be(run: Run) -> None:
    raw = fashion(Path("data"))
    (raw / "train-images-idx3-ubyte.gz").unlink()
    (raw / "train-images-idx3-ubyte.gz").mkdir()
    refused(run, "train-images-idx3-ubyte", "data.name=fmnist")


@pytest.mark.parametrize("left", [0, 10, 1000])
def test_a_truncated_file(run: Run, left: int) -> None:
    path = fashion(Path("data")) / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:left])
    refused(run, "train-images-idx3-ubyte.gz", "data.name=fmnist")


def test_a_file_of_something_else(run: Run) -> None:
    path = fashion(Path("data")) / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(b"<html>not found</html>" * 50))
    refused(run, "train-images-idx3-ubyte.gz", "data.name=fmnist")
    Path("data/broken.npz").write_bytes(b"not an archive")
    refused(run, "broken", "data.name=broken")


def test_images_and_labels_exchanged(run: Run) -> None:
    raw = fashion(Path("data"))
    idx(raw / "train-labels-idx1-ubyte.gz", RNG.integers(0, 256, (60, 28, 28)))
    refused(run, "train-labels-idx1-ubyte.gz", "data.name=fmnist")


def test_more_labels_than_images(run: Run) -> None:
    raw = fashion(Path("data"))
    idx(raw / "train-labels-idx1-ubyte.gz", np.zeros(61))
    refused(run, "60 samples", "data.name=fmnist")


def test_labels_beyond_the_classes_of_the_set(run: Run) -> None:
    fashion(Path("data"), labels=np.arange(60) % 11)
    refused(run, "must lie in 0..9, got 0..10", "data.name=fmnist")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"y_train": np.arange(40) % 4 + 0.5}, "the same kind of targets"),
        ({"y_train": np.arange(40) % 4 - 1}, "y_train"),
        ({"y_train": np.arange(39) % 4}, "40 samples"),
        ({"y_test": np.array(["cat"] * 40)}, "y_test"),
        ({"x_test": np.zeros((40, 7, 8), dtype=np.uint8)}, "(40, 7, 8)"),
        ({"x_train": np.zeros((40, 2, 2, 8, 8), dtype=np.uint8)}, "(40, 2, 2, 8, 8)"),
        ({"x_train": np.full((40, 8, 8), np.nan, dtype=np.float32)}, "finite"),
        ({"x_train": np.zeros((0, 8, 8), dtype=np.uint8)}, "at least one sample"),
    ],
    ids=["halves", "negative", "too few", "words", "another size", "five axes", "no numbers", "nothing"],
)
def test_arrays_of_a_wrong_kind(run: Run, changes: dict[str, np.ndarray], why: str) -> None:
    mine(**changes)
    refused(run, why, "data.name=mine")


def test_arrays_that_are_missing_from_a_file(run: Run) -> None:
    Path("data").mkdir()
    np.savez("data/mine.npz", x_train=np.zeros((4, 8, 8)))
    refused(run, "y_train", "data.name=mine")


def test_a_pickled_file_is_not_opened(run: Run) -> None:
    mine(x_train=np.array([{"a": 1}] * 40))
    refused(run, "mine", "data.name=mine")


def test_images_of_a_size_that_the_model_cannot_take(run: Run) -> None:
    refused(run, "8x8", "model.name=lenet5")
    refused(run, "8x8", "model.name=resnet9")


@pytest.mark.parametrize("scheme", ['{kind = "iid"}', '{kind = "label-skew", share = 0.3}'])
def test_fewer_samples_than_clients(run: Run, scheme: str) -> None:
    mine()
    settings = ("data.name=mine", "data.clients=50", f"data.scheme={scheme}")
    refused(run, "50 clients would have less than 1 training samples", *settings)


def test_more_layers_than_the_model_has(run: Run) -> None:
    refused(run, "2 layers", "algorithm=[{name='lg-fedavg', shared-layers=9}]")


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ("schedule.leaves={1 = [8]}", "client 8"),
        ("schedule.newcomers=8", "newcomers"),
        ("algorithm=[{name='fedprox', mu='much'}]", "mu"),
        ("algorithm=[{name='pacfl', threshold='automatic'}]", "threshold"),
        ("learning.batch_size=0", "batch"),
    ],
)
def test_plans_and_settings_that_cannot_be(run: Run, settings: str, why: str) -> None:
    refused(run, why, settings)


# A run that leaves the numbers

# Weight decay of 5 at a rate of 1 makes weights four times as large with every step: overflow after some rounds
EXPLODING = ("--set", "learning.lr=1", "--set", "learning.weight-decay=5", "--set", "learning.momentum=0.0")


def test_a_diverging_run_stops_with_a_message_and_keeps_what_it_had(run: Run) -> None:
    plan = ("--set", "schedule.rounds=40", "--set", "schedule.evaluate-every=1", "--set", "seeds=0")
    only = ("--set", "algorithm=[{name='fedavg'}]")
    words = ("run", "experiment.toml", "--workers", 1, *EXPLODING, *plan, *only)
    code, out, err = run(*words)
    assert code == 1
    assert "diverged" in err
    assert "learning rate" in err
    assert "Traceback" not in err + out
    n = int(json.loads(run("ls", "--json")[1])["state"].split()[0])
    assert 1 <= n < 40
    shown = json.loads(run("show", json.loads(run("ls", "--json")[1])["hash"], "--json")[1])
    assert [record["round"] for record in shown["rounds"]] == list(range(1, n + 1))
    assert shown["result"] is None
    assert run(*words)[2].splitlines()[-1] == err.splitlines()[-1], "the same again"


def test_other_runs_go_on_when_one_diverges(run: Run) -> None:
    rates = ("--set", "learning.lr=[1e30, 0.05]", "--set", "seeds=0")
    code, out, err = run("run", "experiment.toml", "--workers", 1, *rates, "--json")
    assert code == 1
    assert err.count("diverged") == 2
    assert [json.loads(line)["algorithm"] for line in out.splitlines()] == ["fedavg", "pacfl(clusters=4)"]
    states = [json.loads(line)["state"] for line in run("ls", "--json")[1].splitlines()]
    assert sorted(states) == ["0 rounds", "0 rounds", "finished", "finished"]
