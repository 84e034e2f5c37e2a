"""Files whole or not at all; and what a user may name as an output that is no plain file."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from classwise.core import storage
from classwise.core.errors import UserError
from classwise.core.storage import atomic_write, atomic_write_text, sweep

posix = pytest.mark.skipif(os.name != "posix", reason="has no such files")


def write(path: Path, content: bytes) -> None:
    with atomic_write(path) as handle:
        handle.write(content)


def test_two_writers_of_one_file_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with atomic_write(path) as one, atomic_write(path) as other:
        one.write(b"a" * 10)
        other.write(b"b" * 4)
        one.flush()
        other.flush()
        assert not path.exists()
    assert path.read_bytes() == b"a" * 10  # the last to finish, and nothing of the first
    assert [found.name for found in tmp_path.iterdir()] == ["file"]


def test_what_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    write(tmp_path / "file", b"old")

    def fail() -> None:
        with atomic_write(tmp_path / "file") as handle:
            handle.write(b"new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert {found.name: found.read_bytes() for found in tmp_path.iterdir()} == {"file": b"old"}


def test_names_may_be_as_long_as_the_file_system_lets_them(tmp_path: Path) -> None:
    write(tmp_path / ("é" * 127), b"content")
    assert (tmp_path / ("é" * 127)).read_bytes() == b"content"


def test_what_killed_writers_left_is_swept_when_it_is_old(tmp_path: Path) -> None:
    old, young, other = (tmp_path / name for name in (".a.0123abcd.partial", ".a.89ef4567.partial", "film.partial"))
    for path in (old, young, other):
        path.touch()
    for path in (old, other):
        os.utime(path, (time.time() - 7200,) * 2)
    write(tmp_path / "a", b"")
    assert {path.name for path in tmp_path.iterdir()} == {"a", young.name, other.name}
    sweep(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"a", other.name}


@posix
def test_an_existing_file_keeps_its_permission_bits_and_a_new_one_has_the_usual(tmp_path: Path) -> None:
    path = tmp_path / "file"
    before = os.umask(0o027)
    try:
        write(path, b"one")
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        path.chmod(0o604)
        write(path, b"two")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o604
    assert path.read_bytes() == b"two"


@posix
def test_a_file_that_may_not_be_written_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "file", b"kept")
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root, who runs some tests, may write anything
    with pytest.raises(UserError, match=r"cannot write .*file: Permission denied"):
        atomic_write_text(tmp_path / "file", "new")
    assert (tmp_path / "file").read_bytes() == b"kept"


@posix
def test_of_a_symlink_the_target_is_written(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "target").write_bytes(b"old")
    (tmp_path / "middle").symlink_to("there/target")
    (tmp_path / "link").symlink_to("middle")
    (tmp_path / "dangling").symlink_to("there/new")
    write(tmp_path / "link", b"new")
    write(tmp_path / "dangling", b"more")
    assert all((tmp_path / name).is_symlink() for name in ("link", "middle", "dangling"))
    assert (tmp_path / "there" / "target").read_bytes() == b"new"
    assert (tmp_path / "there" / "new").read_bytes() == b"more"


@posix
def test_a_pipe_is_written_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    (tmp_path / "link").symlink_to(pipe)
    for path in (pipe, tmp_path / "link"):
        reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
        reader.start()
        write(path, b"content")
        reader.join(30)
    assert read == [b"content", b"content"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@posix
def test_a_device_is_written_and_stays_a_device(tmp_path: Path) -> None:
    """Copies of /dev/full and /dev/null: a mistake here would replace the real ones."""
    full, null = tmp_path / "full", tmp_path / "null"
    try:
        os.mknod(full, 0o666 | stat.S_IFCHR, os.makedev(1, 7))
        os.mknod(null, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        null.write_bytes(b"")
    except PermissionError:
        pytest.skip("only root makes devices, and not on every file system")
    write(null, b"content")
    with pytest.raises(UserError, match=r"cannot write .*full: No space left on device"):
        atomic_write_text(full, "content")
    assert all(stat.S_ISCHR(path.lstat().st_mode) for path in (full, null))


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError) as refused:
        write(tmp_path, b"")
    assert refused.value.errno == errno.EISDIR
    with pytest.raises(UserError, match=r"cannot write .*: it is a folder"):
        atomic_write_text(tmp_path, "")


PRINTS = """
import os, sys
from pathlib import Path
from classwise.core.storage import atomic_write
for name in ("stdout", "fd/1"):
    print("before", name)
    with atomic_write(Path("/dev", name)) as handle:
        handle.write(b"content\\n")
print("after")
"""


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/stdout"), reason="has no such file")
def test_the_output_is_written_in_its_turn_whatever_it_is(tmp_path: Path) -> None:
    """Into a pipe, and into a file that has something already, as after ``>> file``."""
    expected = "before stdout\ncontent\nbefore fd/1\ncontent\nafter\n"
    program = [sys.executable, "-c", PRINTS]
    assert subprocess.run(program, capture_output=True, text=True, check=True).stdout == expected
    (tmp_path / "file").write_text("there\n")
    with (tmp_path / "file").open("a") as sink:
        subprocess.run(program, stdout=sink, check=True)
    assert (tmp_path / "file").read_text() == f"there\n{expected}"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_remove_takes_what_matches_and_folders_left_empty(tmp_path: Path) -> None:
    for name in ("a/1.csv", "a/2.csv", "b/1.csv", "b/mine.txt", "c.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    storage.remove(tmp_path, ("*/*.csv", "c.json", "none.*"))
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == ["b", "b/mine.txt"]
