"""A site is looked at before its first round: every item says how it is and what to do."""

import json
import re
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import pytest
from test_deploy_cli import invoke

from pacfl.errors import DeployError
from pacfl.flower.deploy import approval, check, keys, layout, trust
from pacfl.flower.site import Site
from pacfl.flower.site_checks import Check, of_arrays
from pacfl.signatures import write_key

MODULE = """
import numpy as np
from torch import nn
from pacfl.flower.site import Site

def load_data(context):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 6)).astype(np.float32), np.arange(40) % 3
    CHANGE
    return Site(x[:30], y[:30], x[30:], y[30:])

def build_model():
    return nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3))
"""


def site(folder: Path, change: str = "pass", module: str = MODULE, secure: bool = False) -> Path:
    """An approved site, whose data are changed before they are returned; secure: one of three with secure sums."""
    names = ["lyon", "graz", "oslo"] if secure else ["lyon"]
    settings = {"federation": {"task": "checked_task"}, "aggregation": {"secure": secure}}
    layout.make(folder, names, settings=settings, port=1)
    (folder / "app" / "checked_task.py").write_text(module.replace("CHANGE", change))
    layout.approve(folder, approval.build(folder / "app"))
    return folder / "sites" / "lyon"


def by_item(found: list[Check], item: str) -> list[tuple[str, str]]:
    return [(one.level, one.what) for one in found if one.item == item]


@pytest.mark.parametrize(
    ("change", "item", "level", "message"),
    [
        ("x[3, 2] = np.nan", "finite", "problem", "x_train has 1 values that are NaN or infinite, first in sample 3"),
        ("x[35] = np.inf", "finite", "problem", "x_test has 6 values"),
        ("x = x[:, :5]", "model", "problem", r"does not take samples of shape \(5,\)"),
        ("y = y + 1", "classes", "problem", "labels 3, but the model has 3 outputs"),
        ("y = y - 1", "classes", "problem", "labels -1, but"),
        ("y[:30] = 0", "classes", "warning", "all training samples are of class 0"),
        ("y[:30] = y[:30] % 2", "classes", "warning", "no training sample is of class 2"),
        ("x, y = np.concatenate([x[:5], x[:0]]), y[:5]", "data", "warning", "5 training samples are too few"),
        ("x, y = x[:30], y[:30]", "data", "warning", "no test samples"),
        ("return 7", "data", "problem", "must return a Site, got int"),
        ("raise KeyError('data')", "data", "problem", "load_data failed: KeyError: 'data'"),
        ("y = y + 0.5", "model", "problem", "labels that are not integers"),
        ("return Site(x[:30], y[:29], x[30:], y[30:])", "model", "problem", "30 train samples with 29 labels"),
        ("x = x.astype(np.float64) * 1e39", "finite", "problem", "infinite"),
    ],
)
def test_each_thing_that_is_wrong_with_data_is_named(
    change: str, item: str, level: str, message: str, tmp_path: Path
) -> None:
    found = by_item(check.check(site(tmp_path / "d", change)), item)
    assert any(one == level and re.search(message, what) for one, what in found), found


def test_data_and_model_that_are_right_pass(tmp_path: Path) -> None:
    found = check.check(site(tmp_path / "d"))
    assert [one.item for one in found if one.level != "ok"] == ["server"]  # it does not run
    assert by_item(found, "data") == [("ok", "30 training samples and 10 test samples of shape 6")]
    assert by_item(found, "classes") == [("ok", "3 of 3, with 10 to 10 samples each")]
    assert "43 weights, 3 outputs" in by_item(found, "model")[0][1]


def test_paths_are_those_of_the_site(tmp_path: Path) -> None:
    """A relative path in site.config is seen from the folder of the site, as when it runs."""
    folder = site(tmp_path / "d", "x = np.load(str(context.node_config['data']))")
    np.save(folder / "x.npy", np.zeros((40, 6), np.float32))
    (folder / "site.config").write_text('data="x.npy"\nmost-epsilon=2.0\n')
    assert by_item(check.check(folder), "data")[0][0] == "ok"
    (folder / "site.config").write_text("data=nonsense\n")
    assert by_item(check.check(folder), "site.config")[0][0] == "problem"


def test_code_that_nobody_approved_does_not_run(tmp_path: Path) -> None:
    folder = site(tmp_path / "d", f"open({str(tmp_path / 'evidence')!r}, 'w')")
    (folder / approval.LIST).write_text("")
    assert "pacfl deploy approve" in by_item(check.check(folder), "app")[0][1]
    assert not (tmp_path / "evidence").exists()


def test_a_key_that_others_can_read_or_that_is_another_one_is_a_problem(tmp_path: Path) -> None:
    folder = site(tmp_path / "d")
    assert by_item(check.check(folder), "key")[0][0] == "ok"
    (folder / "node.key").chmod(0o644)
    assert "others can read" in by_item(check.check(folder), "key")[0][1]
    (tmp_path / "other").mkdir()
    keys.write_node_key(tmp_path / "other")
    (tmp_path / "other" / "node.pub").replace(folder / "node.pub")
    assert "is not of node.key" in by_item(check.check(folder), "key")[0][1]
    (folder / "node.key").unlink()
    assert "ssh-keygen" in by_item(check.check(folder), "key")[0][1]


def test_whom_a_site_trusts_is_looked_at_where_sums_are_secure(tmp_path: Path) -> None:
    folder = site(tmp_path / "d", secure=True)
    listed = folder / trust.FILE
    ((level, what),) = by_item(check.check(folder), trust.FILE)
    assert (level, "3 sites: graz, lyon, oslo;" in what) == ("ok", True)

    lines = listed.read_text().splitlines()
    for change, expected, message in [
        ([line for line in lines if "oslo" not in line], "problem", "2 of at least 3 sites are in it (graz, lyon)"),
        ([line for line in lines if "lyon" not in line], "problem", f"pacfl deploy trust {folder} lyon {folder}"),
        ([*lines, "SHA256:short graz"], "problem", "line 6: expected SHA256:... and a name"),
        ([*lines, f"SHA256:{'a' * 43} graz"], "warning", "graz has several keys in it"),
    ]:
        listed.write_text("\n".join(change))
        ((level, what),) = by_item(check.check(folder), trust.FILE)
        assert (level, message in what) == (expected, True), what

    listed.write_text("\n".join(lines))
    listed.chmod(0o620)
    assert "others can write" in by_item(check.check(folder), trust.FILE)[0][1]
    listed.unlink()
    assert "cannot be read" in by_item(check.check(folder), trust.FILE)[0][1]


def test_a_list_with_fewer_sites_than_a_round_waits_for_is_a_warning(tmp_path: Path) -> None:
    """Three are enough for a sum of a cluster, but the others of the federation are refused."""
    folder = site(tmp_path / "d", secure=True)
    app = tmp_path / "d" / "app" / "pyproject.toml"
    app.write_text(app.read_text().replace("minimum-clients = 3", "minimum-clients = 4"))
    layout.approve(tmp_path / "d", approval.build(app.parent))
    ((level, what),) = by_item(check.check(folder), trust.FILE)
    assert (level, "3 of at least 4 sites" in what) == ("warning", True)


def test_the_list_does_not_matter_where_sums_are_not_secure(tmp_path: Path) -> None:
    folder = site(tmp_path / "d")
    (folder / trust.FILE).write_text("nonsense")
    assert by_item(check.check(folder), trust.FILE) == []


def test_a_key_that_hides_directions_is_looked_at(tmp_path: Path) -> None:
    """By its path as site.config has it, from the folder of the site."""
    folder = site(tmp_path / "d")
    assert by_item(check.check(folder), "signature-key") == []
    (folder / "site.config").write_text('signature-key="f.key"\n')
    assert "f.key: the key cannot be read" in by_item(check.check(folder), "signature-key")[0][1]
    made = write_key(folder / "f.key")
    assert by_item(check.check(folder), "signature-key") == [("ok", f"key {made}; all sites need the same one")]
    (folder / "f.key").chmod(0o640)
    ((level, what),) = by_item(check.check(folder), "signature-key")
    assert (level, "chmod 600" in what) == ("problem", True)
    (folder / "f.key").write_text("short")
    assert "a key has 16 to" in by_item(check.check(folder), "signature-key")[0][1]


def test_an_app_whose_settings_are_wrong_is_a_problem(tmp_path: Path) -> None:
    folder = site(tmp_path / "d")
    app = tmp_path / "d" / "app" / "pyproject.toml"
    app.write_text(app.read_text().replace("momentum = 0.5", "momentum = 5.0"))
    layout.approve(tmp_path / "d", approval.build(app.parent))
    ((level, what),) = by_item(check.check(folder), "settings")
    assert (level, "momentum" in what) == ("problem", True)


@contextmanager
def server(folder: Path, seconds_ahead: float = 0.0) -> Iterator[int]:
    """A server with the certificate of a deployment, whose clock may be wrong; its port."""

    class Health(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def date_time_string(self, timestamp: float | None = None) -> str:
            return formatdate((timestamp or time.time()) + seconds_ahead, usegmt=True)

        def log_message(self, *_: object) -> None:
            pass

    class Quiet(HTTPServer):
        def handle_error(self, *_: object) -> None:
            """A client that does not trust the certificate closes the connection."""

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "server" / "server.crt", folder / "server" / "server.key")
    with Quiet(("0.0.0.0", 0), Health) as serving:
        serving.socket = context.wrap_socket(serving.socket, server_side=True)
        thread = threading.Thread(target=serving.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield serving.server_address[1]
        finally:
            serving.shutdown()
            thread.join()


def points_to(folder: Path, address: str) -> Path:
    """The site, for a server at another address."""
    about = json.loads((folder / layout.SITE).read_text())
    (folder / layout.SITE).write_text(json.dumps({**about, "server": address}))
    return folder


def test_a_server_is_trusted_by_its_authority_its_name_and_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = site(tmp_path / "d")
    monkeypatch.setattr(check, "_app", lambda *_: ())
    assert "cannot be reached" in by_item(check.check(points_to(folder, "127.0.0.1:1")), "server")[0][1]
    with server(tmp_path / "d") as port:
        found = check.check(points_to(folder, f"127.0.0.1:{port}"))
        assert (by_item(found, "server")[0][0], by_item(found, "clock")[0][0]) == ("ok", "ok")
        (level, what), *_ = by_item(check.check(points_to(folder, f"127.0.0.2:{port}")), "server")
        assert (level, "mismatch" in what) == ("problem", True)
        layout.make(tmp_path / "other", ["lyon"])
        (tmp_path / "other" / "server" / "ca.crt").replace(folder / "ca.crt")
        (level, what), *_ = by_item(check.check(points_to(folder, f"127.0.0.1:{port}")), "server")
        assert (level, "ca.crt must be" in what) == ("problem", True)


@pytest.mark.parametrize(("ahead", "level"), [(0.0, "ok"), (100.0, "warning"), (-400.0, "problem")])
def test_a_clock_that_is_wrong_is_seen(
    ahead: float, level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = site(tmp_path / "d")
    monkeypatch.setattr(check, "_app", lambda *_: ())
    with server(tmp_path / "d", ahead) as port:
        ((found, what),) = by_item(check.check(points_to(folder, f"127.0.0.1:{port}")), "clock")
    assert found == level
    assert ("behind" in what) == (ahead > 0.0 or "0 s behind" in what)


def test_a_certificate_that_ends_soon_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "YEARS", {"authority": 10, "server": 20 / 365})
    monkeypatch.setattr(keys.write_certificates, "__defaults__", (20 / 365,))
    folder = site(tmp_path / "d")
    monkeypatch.setattr(check, "_app", lambda *_: ())
    with server(tmp_path / "d") as port:
        found = by_item(check.check(points_to(folder, f"127.0.0.1:{port}")), "server")
    assert found[0][0] == "warning"
    assert "ends in 20 days" in found[0][1]


def test_the_command_prints_all_items_and_says_by_its_exit_code_whether_there_is_a_problem(tmp_path: Path) -> None:
    folder = site(tmp_path / "d", "x[0] = np.nan")
    code, output = invoke("deploy", "check", folder, "--json")
    found = json.loads(output)
    assert (code, found["problems"]) == (1, 3)  # NaN, so that the loss is NaN, too, and the server is down
    assert {one["item"] for one in found["checks"]} >= {"versions", "key", "disk", "server", "app", "data", "finite"}
    code, output = invoke("deploy", "check", folder)
    assert code == 1
    assert "problem  finite: x_train has 6 values" in output


def test_another_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DeployError, match="is not the folder of a site"):
        check.check(tmp_path)


def test_integers_are_finite() -> None:
    found = list(of_arrays(Site(np.zeros((20, 3), int), np.zeros(20, int), np.zeros((2, 3), int), np.zeros(2, int))))
    assert by_item(found, "finite") == [("ok", "no NaN and nothing infinite")]
