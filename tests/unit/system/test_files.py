# SPDX-License-Identifier: BSD-3-Clause
""" """

from __future__ import annotations

import errno
import hashlib
import io
import os
import signal
import socket
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channel_tools.system.errors import ChannelError, DiskFullError, FileAccessError, error_from_os
from channel_tools.system.files import (
    HashedStream,
    absolute_path,
    atomic_path,
    disk_full_reported,
    link_or_copy,
    read_at_most,
    read_first_line,
    read_regular,
    read_tail,
    remove_leftovers,
    remove_tree,
    replace_files,
    sha256_of_file,
    write_text_atomically,
)
from channel_tools.system.locks import exclusive_lock


def test_failed_write_leaves_the_old_bytes_and_no_temporary(tmp_path: Path) -> None:
    target = tmp_path / "index.json"
    write_text_atomically(target, "old")
    with pytest.raises(FileNotFoundError), atomic_path(target) as temporary:
        temporary.with_name(str(temporary.write_text("half"))).read_text()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_several_files_are_replaced_or_none_and_no_temporary_stays(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "folder" / "second"
    first.write_text("old")
    replace_files([(first, b"new"), (second, b"new")])
    assert (first.read_text(), second.read_text()) == ("new", "new")
    unwritable = tmp_path / ("n" * 300)
    with pytest.raises(FileAccessError, match="too long"):
        replace_files([(first, b"newer"), (second, b"newer"), (unwritable, b"newer")])
    assert (first.read_text(), second.read_text()) == ("new", "new")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["first", "folder", "second"]


def test_folder_appears_whole(tmp_path: Path) -> None:
    target = tmp_path / "folder"
    with atomic_path(target) as temporary:
        temporary.mkdir()
        (temporary / "a").write_text("1")
        assert not target.exists()
    assert (target / "a").read_text() == "1"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_full_disk_is_named_as_such(tmp_path: Path, number: int) -> None:
    with pytest.raises(DiskFullError, match="no space left") as caught, disk_full_reported(tmp_path):
        raise OSError(number, os.strerror(number), str(tmp_path / "x"))
    assert caught.value.hint is not None


@pytest.mark.parametrize("kind", ["a pipe", "a folder", "a socket", "a symbolic link"])
def test_only_regular_files_are_written_over(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "target"
    with socket.socket(socket.AF_UNIX) as listener:
        if kind == "a pipe":
            os.mkfifo(target)
        elif kind == "a folder":
            target.mkdir()
        elif kind == "a socket":
            listener.bind(str(target))
        else:
            target.symlink_to("nowhere")
        before = target.lstat()
        with pytest.raises(FileAccessError, match=f"target: is {kind}"):
            write_text_atomically(target, "x")
        assert target.lstat() == before
        assert list(tmp_path.iterdir()) == [target]


def test_a_device_is_not_replaced_through_a_link(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(os.devnull)
    with pytest.raises(FileAccessError, match="link: is a device"):
        write_text_atomically(link, "x")
    assert link.is_symlink()


def test_errors_name_the_destination_and_no_temporary(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    target = tmp_path / "file" / "x"
    with pytest.raises((FileExistsError, NotADirectoryError)) as caught:
        write_text_atomically(target, "x")
    assert str(error_from_os(caught.value)).startswith(f"{tmp_path}/file: ")
    with pytest.raises(FileAccessError, match=r"x{300}: file name too long"):
        write_text_atomically(tmp_path / ("x" * 300), "x")


@pytest.mark.parametrize(
    ("content", "line"), [(b"secret\nmore", b"secret"), (b"a\r\n", b"a"), (b"", b""), (b"b", b"b")]
)
def test_the_first_line_of_a_file_or_pipe(tmp_path: Path, content: bytes, line: bytes) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    assert read_first_line(file) == line
    reading, writing = os.pipe()
    os.write(writing, content)
    os.close(writing)
    assert read_first_line(Path(f"/dev/fd/{reading}")) == line
    os.close(reading)


def test_no_first_line_is_waited_for_without_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(FileAccessError, match="nothing was written to this pipe"):
        read_first_line(tmp_path / "fifo", wait_s=0.01)
    with pytest.raises(FileAccessError, match="longer than 4096"):
        read_first_line(Path("/dev/zero"))
    with pytest.raises(FileAccessError, match="no such file"):
        read_first_line(tmp_path / "none")


def test_a_stream_is_read_up_to_an_amount_in_however_small_pieces() -> None:
    class Slow(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            return super().read(min(size or 0, 3))

    assert read_at_most(Slow(b"0123456789"), 8) == b"01234567"
    assert read_at_most(Slow(b"0123456789"), 80) == b"0123456789"


def test_a_small_file_takes_little_memory_whatever_the_limit(tmp_path: Path) -> None:
    """A read of so many bytes in one call makes room for all of them first."""
    file = tmp_path / "file"
    file.write_bytes(b"content")
    tracemalloc.start()
    try:
        assert read_regular(file, limit_bytes=1 << 40) == b"content"
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_a_file_that_is_too_large_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as stream:
        stream.truncate(1 << 40)
    with pytest.raises(FileAccessError, match="has more than 4294967296 bytes"):
        read_regular(tmp_path / "file", limit_bytes=4 << 30)


def test_other_errors_stay_what_they_are(tmp_path: Path) -> None:
    with pytest.raises(PermissionError), disk_full_reported(tmp_path):
        raise PermissionError(errno.EACCES, "denied")


def test_real_full_device_is_reported(tmp_path: Path) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no /dev/full")
    with (
        pytest.raises(DiskFullError),
        disk_full_reported(tmp_path),
        full.open("wb", buffering=0) as stream,
    ):
        stream.write(b"x")


@given(st.binary(max_size=4096))
def test_sha256_agrees_with_hashlib(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("hash") / "f"
    path.write_bytes(content)
    assert sha256_of_file(path) == hashlib.sha256(content).hexdigest()


def test_link_shares_the_bytes_and_keeps_an_existing_file(tmp_path: Path) -> None:
    source = tmp_path / "a"
    source.write_text("1")
    link_or_copy(source, tmp_path / "sub" / "b")
    assert (tmp_path / "sub" / "b").samefile(source)
    other = tmp_path / "c"
    other.write_text("2")
    link_or_copy(source, other)
    assert other.read_text() == "2"


def test_copy_where_links_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_kwargs: object) -> None:
        raise OSError(errno.EXDEV, "cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    source = tmp_path / "a"
    source.write_text("1")
    link_or_copy(source, tmp_path / "b")
    assert (tmp_path / "b").read_text() == "1"
    assert not (tmp_path / "b").samefile(source)


def test_leftovers_are_only_our_own_names(tmp_path: Path) -> None:
    (tmp_path / ".tmp-abc").mkdir()
    (tmp_path / ".tmp-abc" / "x").write_text("1")
    (tmp_path / ".tmp-file").write_text("1")
    (tmp_path / "kept").write_text("1")
    assert len(remove_leftovers(tmp_path)) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


HOLDER = """
import sys, pathlib
from channel_tools.system.locks import exclusive_lock
with exclusive_lock(pathlib.Path(sys.argv[1]), resource="x"):
    print("held", flush=True)
    sys.stdin.read()
"""


def _holder(lock: Path) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    return process


def test_second_writer_is_told_who_holds_the_lock(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    holder = _holder(lock)
    with holder:
        with (
            pytest.raises(ChannelError, match=f"the channel is in use by process {holder.pid}"),
            exclusive_lock(lock, resource="the channel"),
        ):
            pytest.fail("two writers")
        holder.kill()


def test_killed_holder_leaves_no_lock(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with _holder(lock) as holder:
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
    with exclusive_lock(lock, resource="the channel"):
        assert lock.with_name("lock.owner").read_text() == f"{os.getpid()}\n"


def test_the_end_of_a_long_log_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"first\n" + b"x" * (256 << 10) + b"\nlast \xff\n")
    assert read_tail(log).endswith("x\nlast \ufffd\n")
    assert "first" not in read_tail(log)


def test_a_folder_is_removed_beside_a_process_that_removes_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "work"
    for name in ("a/one", "a/two", "b/three"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    unlink = os.unlink
    raced: list[str] = []

    def unlink_after_another(path: str, *, dir_fd: int | None = None) -> None:
        if not raced:
            raced.append(path)
            unlink(path, dir_fd=dir_fd)  # the other process
        unlink(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", unlink_after_another)
    remove_tree(folder)
    assert raced
    assert not folder.exists()
    remove_tree(folder)


def test_an_absolute_path_has_no_folders_that_are_passed_by_and_keeps_the_names_of_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real/deep").mkdir(parents=True)
    (tmp_path / "named").symlink_to("real/deep")
    monkeypatch.chdir(tmp_path / "real")
    assert absolute_path(Path("../named/env")) == tmp_path / "named/env"
    assert absolute_path(Path("../named/../env")) == tmp_path / "real/env"
    assert absolute_path(Path("nowhere/../env")) == tmp_path / "real/env"
    assert absolute_path(tmp_path / "named") == tmp_path / "named"


def test_what_is_read_is_hashed_and_the_rest_on_request() -> None:
    stream = HashedStream(io.BytesIO(b"abcdef"))
    assert stream.read(2) == b"ab"
    assert stream.digest.hexdigest() == hashlib.sha256(b"ab").hexdigest()
    assert stream.hexdigest() == hashlib.sha256(b"abcdef").hexdigest()
    assert stream.read() == b""


def test_another_hash_can_be_continued() -> None:
    digest = hashlib.sha512(b"head ")
    assert HashedStream(io.BytesIO(b"body"), digest).hexdigest() == hashlib.sha512(b"head body").hexdigest()
