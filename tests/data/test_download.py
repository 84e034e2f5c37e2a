"""Downloads, against a server on this machine: checked, unpacked whole, or not at all."""

from __future__ import annotations

import functools
import gzip
import hashlib
import io
import pickle
import struct
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from classwise.core.errors import UserError
from classwise.data import cifar10, mnist, svhn
from classwise.data.download import Remote, fetch


class Quiet(SimpleHTTPRequestHandler):
    requests: ClassVar[list[str]] = []

    def log_message(self, format: str, *args: object) -> None:
        self.requests.append(self.path)


class Server:
    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.url = folder, f"http://127.0.0.1:{port}/"

    def serve(self, name: str, content: bytes, checksum: str | None = None) -> Remote:
        (self.folder / name).write_bytes(content)
        return Remote(self.url + name, checksum or f"md5:{hashlib.md5(content).hexdigest()}")


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    folder = tmp_path / "served"
    folder.mkdir()
    Quiet.requests.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield Server(folder, http.server_address[1])
        http.shutdown()
        thread.join()


def tarred(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def zipped(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_data_set_is_fetched_once(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = pickle.dumps({"data": np.zeros((2, 3072), np.uint8), "labels": [4, 5]}, protocol=2)
    remote = server.serve("cifar-10-python.tar.gz", tarred({"cifar-10-batches-py/test_batch": batch}))
    monkeypatch.setattr(cifar10, "ARCHIVE", remote)
    root = tmp_path / "new" / "root"
    for _ in range(2):
        assert cifar10.load(root, download=True).labels.tolist() == [4, 5]
    assert cifar10.load(root).labels.tolist() == [4, 5]
    assert Quiet.requests == ["/cifar-10-python.tar.gz"]
    assert files_in(root) == ["cifar-10-batches-py", "cifar-10-batches-py/test_batch", "cifar-10-python.tar.gz"]


def test_a_damaged_file_comes_back_from_the_kept_archive(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = pickle.dumps({"data": np.zeros((1, 3072), np.uint8), "labels": [4]}, protocol=2)
    remote = server.serve("cifar-10-python.tar.gz", tarred({"cifar-10-batches-py/test_batch": batch}))
    monkeypatch.setattr(cifar10, "ARCHIVE", remote)
    cifar10.load(tmp_path, download=True)
    (tmp_path / "cifar-10-batches-py" / "test_batch").unlink()
    assert cifar10.load(tmp_path, download=True).labels.tolist() == [4]
    assert len(Quiet.requests) == 1


def test_plain_files_are_fetched_one_by_one(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    images = gzip.compress(struct.pack(">4B3I", 0, 0, 8, 3, 2, 1, 1) + bytes([0, 255]))
    labels = gzip.compress(struct.pack(">4BI", 0, 0, 8, 1, 2) + bytes([3, 8]))
    for name, content in (("t10k-images-idx3-ubyte", images), ("t10k-labels-idx1-ubyte", labels)):
        monkeypatch.setitem(mnist.REMOTES, name, server.serve(f"{name}.gz", content))
    loaded = mnist.load(tmp_path, download=True)
    assert loaded.labels.tolist() == [3, 8]
    assert loaded.batch(np.arange(2))[0].flatten().tolist() == [0.0, 1.0]
    assert len(Quiet.requests) == 2


def test_a_wrong_checksum_leaves_nothing(tmp_path: Path, server: Server) -> None:
    remote = server.serve("data.tar.gz", tarred({"folder/file": b"altered"}), checksum="md5:" + "0" * 32)
    into = tmp_path / "into"
    with pytest.raises(UserError, match=r"data\.tar\.gz is not the expected file: its checksum is not md5:0{32}"):
        fetch(remote, into)
    assert files_in(into) == []


def test_a_file_that_is_not_served_leaves_nothing(tmp_path: Path, server: Server) -> None:
    into = tmp_path / "into"
    with pytest.raises(UserError, match=r"could not download .*absent\.zip: 404.*Check the connection"):
        fetch(Remote(server.url + "absent.zip", "md5:" + "0" * 32), into)
    assert files_in(into) == []


def test_no_server_is_a_clear_error(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(svhn.REMOTES, "test", Remote("http://127.0.0.1:9/test_32x32.mat", "md5:" + "0" * 32))
    with pytest.raises(UserError, match=r"could not download http://127\.0\.0\.1:9/test_32x32\.mat"):
        svhn.load(tmp_path, download=True)


@pytest.mark.parametrize("name", ["broken.tar.gz", "broken.zip"])
def test_an_archive_that_cannot_be_unpacked_leaves_no_part(tmp_path: Path, server: Server, name: str) -> None:
    noise = np.random.default_rng(0).bytes(1 << 20)
    make = zipped if name.endswith("zip") else tarred
    remote = server.serve(name, make({"folder/first": b"whole", "folder/second": noise})[: 1 << 19])
    into = tmp_path / "into"
    with pytest.raises(UserError, match="could not unpack"):
        fetch(remote, into)
    assert files_in(into) == [name]


def test_unpacking_keeps_other_files(tmp_path: Path, server: Server) -> None:
    remote = server.serve("data.zip", zipped({"folder/a": b"new a", "folder/deep/b": b"new b"}))
    into = tmp_path / "into"
    (into / "folder").mkdir(parents=True)
    (into / "folder" / "mine").write_bytes(b"mine")
    (into / "folder" / "a").write_bytes(b"old a")
    fetch(remote, into)
    assert files_in(into) == ["data.zip", "folder", "folder/a", "folder/deep", "folder/deep/b", "folder/mine"]
    assert (into / "folder" / "a").read_bytes() == b"new a"


def test_an_archive_without_the_file_says_so(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cifar10, "ARCHIVE", server.serve("cifar-10-python.tar.gz", tarred({"other": b""})))
    with pytest.raises(UserError, match="holds no test_batch"):
        cifar10.load(tmp_path, download=True)
