import hashlib
import socket
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from writing import arrays, same, write_idx

from pacfl.data import DATASETS, Remote, download, load_dataset, specs
from pacfl.errors import DataError, MissingLibraryError
from pacfl.files import LOCK

DATA = arrays((28, 28))


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A web server of this machine with a small MNIST."""
    pytest.importorskip("pooch", reason="downloading needs pooch")
    write_idx(tmp_path / "served", DATA, zipped=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "served")))
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def served_from(address: str, folder: Path) -> tuple[Remote, ...]:
    """The files of MNIST at the address, with the checksums of the small ones."""
    files = []
    for file in DATASETS["mnist"].files:
        name = file.target.rpartition("/")[2]
        contents = (folder / "served" / name).read_bytes()
        md5 = hashlib.md5(contents).hexdigest()
        files.append(replace(file, url=address + name, size=len(contents), md5=md5))
    return tuple(files)


def publish(monkeypatch: pytest.MonkeyPatch, files: tuple[Remote, ...]) -> None:
    monkeypatch.setitem(specs.DATASETS, "mnist", replace(DATASETS["mnist"], files=files))  # type: ignore[arg-type]


def test_what_is_downloaded_can_be_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    publish(monkeypatch, served_from(address, tmp_path))
    paths = download("mnist", tmp_path / "data")
    assert [path.parent for path in paths] == [tmp_path / "data/MNIST/raw"] * 4
    assert same(load_dataset("mnist", tmp_path / "data"), DATA)


def test_what_is_there_is_not_downloaded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    publish(monkeypatch, served_from(address, tmp_path))
    download("mnist", tmp_path / "data")
    for file in (tmp_path / "served").iterdir():
        file.unlink()
    assert len(download("mnist", tmp_path / "data")) == 4


def test_downloading_prints_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, capfd: pytest.CaptureFixture[str]
) -> None:
    publish(monkeypatch, served_from(address, tmp_path))
    download("mnist", tmp_path / "data")
    assert capfd.readouterr() == ("", "")


def test_a_file_with_another_checksum_is_not_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    files = served_from(address, tmp_path)
    publish(monkeypatch, (files[0], replace(files[1], md5="0" * 32), *files[2:]))
    with pytest.raises(DataError, match=rf"{files[1].url} could not be downloaded.*Nothing was saved"):
        download("mnist", tmp_path / "data")
    assert {path.name for path in (tmp_path / "data/MNIST/raw").iterdir()} == {"train-images-idx3-ubyte.gz", LOCK}


def test_an_interrupted_download_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pooch", reason="downloading needs pooch")
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer_half() -> None:
            connection, _ = server.accept()
            connection.recv(1000)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf")
            connection.close()

        thread = Thread(target=answer_half)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/file"
        publish(monkeypatch, (Remote(url, "MNIST/raw/file", 1000, "0" * 32),))
        with pytest.raises(DataError, match="could not be downloaded"):
            download("mnist", tmp_path)
        thread.join()
    assert [path.name for path in (tmp_path / "MNIST/raw").iterdir()] == [LOCK]


def test_without_a_network_the_message_has_the_address_and_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pooch", reason="downloading needs pooch")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    publish(monkeypatch, (Remote(f"http://127.0.0.1:{port}/file", "file", 1, "0" * 32),))
    with pytest.raises(DataError, match=rf"http://127.0.0.1:{port}/file could not be downloaded .*by hand"):
        download("mnist", tmp_path)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [LOCK]


def test_what_cannot_be_downloaded_is_refused_with_the_way_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DataError, match="celeba cannot be downloaded; from https"):
        download("celeba", tmp_path)
    with pytest.raises(DataError, match="did you mean 'cifar100'"):
        download("cifar-100", tmp_path)
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(MissingLibraryError, match=r"needs pooch: pip install 'pacfl\[data\]'"):
        download("mnist", tmp_path)


def test_checksums_have_the_form_of_md5_and_targets_are_where_readers_look(tmp_path: Path) -> None:
    for name, entry in DATASETS.items():
        for file in entry.files:
            assert len(file.md5) == 32
            int(file.md5, 16)
            path = tmp_path / name / file.target
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        if entry.files:
            assert any(form.search(tmp_path / name).complete for form in entry.formats), name
