"""A finished run has its models: those that were evaluated, to the bit."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pacfl.errors import StoreError
from pacfl.experiment.config import Run, expand, from_content
from pacfl.experiment.models import stored_models
from pacfl.experiment.run import load_models, resume
from pacfl.experiment.store import RunFolder, folder_of
from pacfl.federation.client_side import ClientSide
from pacfl.federation.local import one_thread
from tests.small_federation import LIVELY, NAMES

TABLE: dict[str, Any] = {
    "data": {"name": "digits", "clients": 6, "scheme": {"kind": "by-set", "counts": [3, 0, 3, 0], "size": 40}},
    "model": {"name": "mlp"},
    "learning": {"epochs": 1, "lr": 0.05},
    "schedule": {"rounds": 3, "participation": 0.4, "newcomers": 1, "leaves": {"3": [0]}},
}


def one(name: str, **sections: Any) -> Run:
    (run,) = expand({**TABLE, "algorithm": {"name": name, **LIVELY.get(name, {})}, **sections})
    return run


def finished(run: Run, runs: Path, **options: Any) -> RunFolder:
    folder = folder_of(run, runs)
    list(resume(run, folder, **options))
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_stored_models_score_what_the_run_reported(name: str, tmp_path: Path) -> None:
    """Received and personal models of every client that was evaluated at the end, newcomers too."""
    folder = finished(one(name), tmp_path)
    experiment, models = load_models(folder)
    side = ClientSide(experiment.setup)
    compared = 0
    for record in folder.records()[-2:]:
        for protocol in ("received", "personal"):
            for client, (accuracy, loss) in record["by_client"][protocol].items():
                with one_thread():
                    score = side._score(protocol, getattr(models, protocol)(int(client)), 0, int(client))
                assert (score.primary, score.loss) == (accuracy, loss), (protocol, client)
                compared += 1
    assert compared == 2 * 5
    assert {str(c): models.cluster(c) for c in models.clients} == folder.records()[-1]["cluster_of"]


def test_an_array_that_many_clients_have_is_stored_once(tmp_path: Path) -> None:
    files = list((finished(one("fedavg"), tmp_path).path / "models").iterdir())
    assert len(files) == 1
    assert files[0].stat().st_size < 4 * (64 * 200 + 200 + 200 * 10 + 10) + 200


def test_a_run_may_store_no_models(tmp_path: Path) -> None:
    folder = finished(one("fedavg"), tmp_path, models=False)
    assert not {"models", "models.json"} & {path.name for path in folder.path.iterdir()}
    with pytest.raises(StoreError, match="--no-models"):
        load_models(folder)


def test_models_are_those_of_the_last_time_the_run_was_run(tmp_path: Path) -> None:
    run = one("fedavg")
    folder = finished(run, tmp_path)
    before = stored_models(folder).models[0]
    finished(run, tmp_path, rerun=True, models=False)
    assert folder.load_models() is None
    finished(run, tmp_path, rerun=True)
    np.testing.assert_array_equal(stored_models(folder).models[0], before)
    folder.reset()
    assert {path.name for path in folder.path.iterdir()} <= {"run.json", ".lock"}


def test_models_of_a_run_that_is_not_finished_are_refused(tmp_path: Path) -> None:
    folder = finished(one("fedavg"), tmp_path)
    (folder.path / "result.json").unlink()
    with pytest.raises(StoreError, match="finished"):
        load_models(folder)


@pytest.mark.parametrize("victim", ["list", "array", "gone"])
def test_damaged_models_are_named(victim: str, tmp_path: Path) -> None:
    folder = finished(one("fedavg"), tmp_path)
    (array,) = (folder.path / "models").iterdir()
    path = folder.path / "models.json" if victim == "list" else array
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    if victim == "gone":
        path.unlink()
    with pytest.raises(StoreError, match=path.name):
        load_models(folder)


def test_models_of_another_form_are_refused(tmp_path: Path) -> None:
    folder = finished(one("fedavg"), tmp_path)
    folder.save_models({"surprise": 1})
    with pytest.raises(StoreError, match="another release"):
        load_models(folder)


def test_a_run_is_read_again_from_what_it_stored(tmp_path: Path) -> None:
    run = one("pacfl", engine="eager")
    content = json.loads((folder_of(run, tmp_path).path / "run.json").read_text())
    assert from_content(content) == run
    assert from_content(content).hash == run.hash
