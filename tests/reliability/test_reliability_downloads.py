"""Interrupted downloads: a file under its final name is complete, and the same command starts again."""

import hashlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pacfl.data import DATASETS, Remote, download, specs
from pacfl.errors import DataError
from pacfl.files import LOCK

pytest.importorskip("pooch", reason="downloading needs pooch")

CONTENT = bytes(range(256)) * 4096
TARGET = "MNIST/raw/file"


class Unsteady(ThreadingHTTPServer):
    """Serves one file. Request i gets the share `parts[i]` of it; then the connection breaks or stalls."""

    daemon_threads = True
    parts: tuple[float, ...] = ()
    silent = False
    requests = 0
    half_sent = threading.Event()


class Handler(BaseHTTPRequestHandler):
    server: Unsteady

    def do_GET(self) -> None:
        part = dict(enumerate(self.server.parts)).get(self.server.requests, 1.0)
        self.server.requests += 1
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT[: int(part * len(CONTENT))])
        self.wfile.flush()
        if part < 1:
            self.server.half_sent.set()
            time.sleep(60 if self.server.silent else 0)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Unsteady]:
    serving = Unsteady(("127.0.0.1", 0), Handler)
    serving.half_sent = threading.Event()
    thread = threading.Thread(target=serving.serve_forever, args=(0.01,))
    thread.start()
    monkeypatch.setitem(specs.DATASETS, "mnist", replace(DATASETS["mnist"], files=(remote(serving),)))  # type: ignore[arg-type]
    yield serving
    serving.shutdown()
    thread.join()
    serving.server_close()


def remote(server: Unsteady) -> Remote:
    url = f"http://127.0.0.1:{server.server_port}/file"
    return Remote(url, TARGET, len(CONTENT), hashlib.md5(CONTENT).hexdigest())


def files_in(folder: Path) -> dict[str, bytes]:
    """Content of every file but the lock."""
    found = (path for path in folder.rglob("*") if path.is_file() and path.name != LOCK)
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


@pytest.mark.parametrize("part", [0.0, 0.5, 0.999])
def test_a_broken_download_is_repeated_by_the_same_command(part: float, server: Unsteady, tmp_path: Path) -> None:
    server.parts = (part,)
    with pytest.raises(DataError, match=r"could not be downloaded.*try again"):
        download("mnist", tmp_path)
    assert files_in(tmp_path) == {}
    download("mnist", tmp_path)
    assert files_in(tmp_path) == {TARGET: CONTENT}


@pytest.mark.parametrize("found", [b"", CONTENT[:-1], CONTENT[:-1] + b"?"], ids=["empty", "cut", "flipped"])
@pytest.mark.usefixtures("server")
def test_an_incomplete_file_is_downloaded_again(found: bytes, tmp_path: Path) -> None:
    (tmp_path / TARGET).parent.mkdir(parents=True)
    (tmp_path / TARGET).write_bytes(found)
    download("mnist", tmp_path)
    assert files_in(tmp_path) == {TARGET: CONTENT}


PROGRAM = """
import sys
from dataclasses import replace
from pathlib import Path
from pacfl.data import DATASETS, Remote, download, specs
url, target, size, md5, folder = sys.argv[1:]
specs.DATASETS["mnist"] = replace(DATASETS["mnist"], files=(Remote(url, target, int(size), md5),))
download("mnist", Path(folder))
"""


def other_process(server: Unsteady, folder: Path) -> subprocess.Popen[bytes]:
    file = remote(server)
    words = (file.url, file.target, str(file.size), file.md5, str(folder))
    return subprocess.Popen([sys.executable, "-c", PROGRAM, *words])


def test_a_killed_download_leaves_no_file_under_its_final_name_and_is_repeated(
    server: Unsteady, tmp_path: Path
) -> None:
    server.parts, server.silent = (0.5,), True
    with other_process(server, tmp_path) as process:
        assert server.half_sent.wait(30)
        time.sleep(0.2)  # until the client has written it
        process.kill()
    assert not (tmp_path / TARGET).exists()
    assert files_in(tmp_path), "killed too early to prove anything: no partial file"
    download("mnist", tmp_path)
    assert files_in(tmp_path) == {TARGET: CONTENT}


def test_two_processes_download_the_same_file_once(server: Unsteady, tmp_path: Path) -> None:
    with other_process(server, tmp_path) as first, other_process(server, tmp_path) as second:
        assert (first.wait(60), second.wait(60)) == (0, 0)
    assert server.requests == 1
    assert files_in(tmp_path) == {TARGET: CONTENT}
