# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import io
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from channel_tools.system import beneath
from channel_tools.system.beneath import (
    Beneath,
    link_or_copy_entry,
    made_folder,
    open_below,
    remove_entry,
    status_at,
    temporary_name,
    write_new,
)
from channel_tools.system.errors import ChannelError, ChannelToolsError, FileAccessError
from channel_tools.system.files import TEMPORARY_PREFIX

_LIMIT = 1 << 10


@pytest.fixture(params=["openat2", "by parts"])
def files(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Beneath:
    """A folder with a file ``sub/file``, beside one that nobody may reach through it."""
    if request.param == "by parts":  # as on a kernel without openat2
        monkeypatch.setattr(beneath, "_OPENAT2", 100_000)
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (root / "sub" / "file").write_bytes(b"inside")
    (root / ".own").mkdir()
    (root / ".own" / "record").write_bytes(b"record")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_bytes(b"outside")
    return Beneath(root=root)


def test_a_file_is_read_and_a_missing_one_is_missing(files: Beneath) -> None:
    assert files.read("sub/file", limit_bytes=_LIMIT) == b"inside"
    assert files.at("sub").read("file", limit_bytes=_LIMIT) == b"inside"
    assert files.read(".own/record", limit_bytes=_LIMIT) == b"record"
    for name in ("sub/none", "none/file"):
        assert files.stat(name) is None
        with pytest.raises(FileNotFoundError):
            files.read(name, limit_bytes=_LIMIT)


@pytest.mark.parametrize("target", ["file", "../sub/file", "../again/file", "./../sub/../sub/file"])
def test_a_link_that_stays_inside_is_followed(files: Beneath, target: str) -> None:
    (files.path / "again").symlink_to("sub")
    (files.path / "sub" / "link").symlink_to(target)
    assert files.read("sub/link", limit_bytes=_LIMIT) == b"inside"
    assert files.read("again/link", limit_bytes=_LIMIT) == b"inside"


def test_what_is_missing_in_a_linked_folder_is_missing(files: Beneath) -> None:
    """It was told as a link to something that does not exist."""
    (files.path / "again").symlink_to("sub")
    assert files.stat("again/none") is None
    assert files.names("again/none") == []
    with pytest.raises(FileNotFoundError):
        files.read("again/none", limit_bytes=_LIMIT)
    files.write("again/new/file", b"new")
    assert (files.path / "sub" / "new" / "file").read_bytes() == b"new"


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("../../outside/file", "out of the folder"),
        ("/etc/passwd", "a symbolic link to /etc/passwd, out of the folder"),
        ("/proc/self/environ", "out of the folder"),
        ("../.own/record", "begins with a dot"),
        ("nowhere", "does not exist"),
        ("link", "circular"),
    ],
)
def test_another_link_is_an_error_that_says_what_it_is(files: Beneath, target: str, said: str) -> None:
    (files.path / "sub" / "link").symlink_to(target)
    for use in (
        lambda: files.read("sub/link", limit_bytes=_LIMIT),
        lambda: files.stat("sub/link"),
        lambda: files.write("sub/link/file", b"x"),
    ):
        with pytest.raises(ChannelError, match=f"root/sub/link.*: is .*{said}"):
            use()


def test_a_linked_folder_leads_no_writer_out(files: Beneath, tmp_path: Path) -> None:
    (files.path / "linked").symlink_to(tmp_path / "outside")
    with (files.path / "sub" / "file").open("rb") as source:
        for use in (
            lambda: files.write("linked/new", b"x"),
            lambda: files.write("linked/new/below", b"x"),
            lambda: files.link(source, "linked/new"),
            lambda: files.remove("linked/file"),
            lambda: files.remove_leftovers("linked"),
            lambda: files.names("linked"),
            lambda: files.open_to_write("linked/file"),
            lambda: files.put_aside("linked/file", "aside"),
            lambda: files.at("linked").update_times(),
            lambda: files.at("linked").free_bytes(),
        ):
            with pytest.raises(ChannelError, match="out of the folder"):
                use()
    assert [path.name for path in (tmp_path / "outside").iterdir()] == ["file"]


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


KINDS: dict[str, Callable[[Path], None]] = {"a folder": Path.mkdir, "a pipe": os.mkfifo, "a socket": _socket}


@pytest.mark.parametrize("kind", KINDS)
def test_only_regular_files_are_read_and_replaced(files: Beneath, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files.path)  # a socket's name is short
    KINDS[kind](Path("odd"))
    for use in (
        lambda: files.read("odd", limit_bytes=_LIMIT),
        lambda: files.file_stat("odd"),
        lambda: files.write("odd", b"x"),
        lambda: files.open_to_write("odd"),
    ):
        with pytest.raises(ChannelError, match=f"root/odd: is {kind}; expected a regular file"):
            use()
    if kind != "a folder":
        with pytest.raises(ChannelError, match=f"root/odd: is {kind}; expected a folder"):
            files.write("odd/below", b"x")
    assert not [name for name in files.names() if name.startswith(".tmp-")]


def test_a_file_in_the_place_of_a_folder_is_named(files: Beneath) -> None:
    for use in (
        lambda: files.read("sub/file/x", limit_bytes=_LIMIT),
        lambda: files.names("sub/file"),
        lambda: files.write("sub/file/x/y", b""),
    ):
        with pytest.raises(ChannelError, match="root/sub/file: is a file; expected a folder"):
            use()


def test_a_device_that_never_ends_and_a_large_file_are_refused(files: Beneath) -> None:
    with (files.path / "sparse").open("wb") as stream:
        stream.truncate(1 << 40)
    with pytest.raises(ChannelError, match=f"sparse: has {1 << 40} bytes or more; at most {_LIMIT} are read"):
        files.read("sparse", limit_bytes=_LIMIT)
    (files.path / "endless").symlink_to("/dev/zero")
    with pytest.raises(ChannelError, match="out of the folder"):
        files.read("endless", limit_bytes=_LIMIT)
    with pytest.raises(ChannelError, match="zero: is a device; expected a regular file"):
        Beneath(root=Path("/dev")).read("zero", limit_bytes=_LIMIT)


def test_writing_replaces_a_link_and_not_what_it_leads_to(files: Beneath) -> None:
    (files.path / "link").symlink_to("sub/file")
    files.write("link", b"new")
    assert not (files.path / "link").is_symlink()
    assert files.read("link", limit_bytes=_LIMIT) == b"new"
    assert files.read("sub/file", limit_bytes=_LIMIT) == b"inside"


@pytest.mark.parametrize("name", ["sub", "sub/file", "sub/link"])
def test_what_is_put_aside_is_the_same_with_a_new_time(files: Beneath, name: str) -> None:
    (files.path / "sub" / "link").symlink_to("/etc/passwd")
    path = files.path / name
    os.utime(path, (0, 0), follow_symlinks=False)
    before = path.lstat()
    files.put_aside(name, "aside")
    after = path.with_name("aside").lstat()
    assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)
    assert after.st_mtime > 0
    with pytest.raises(FileNotFoundError):
        files.put_aside(name, "other")


def test_a_file_is_opened_to_write_with_its_folder_and_keeps_its_bytes(files: Beneath) -> None:
    for name, content in (("sub/file", b"xnside"), ("new/below/file", b"x")):
        descriptor = files.open_to_write(name, mode=0o600)
        try:
            os.pwrite(descriptor, b"x", 0)
        finally:
            os.close(descriptor)
        assert files.read(name, limit_bytes=_LIMIT) == content
    assert (files.path / "new/below/file").stat().st_mode & 0o077 == 0
    (files.path / "link").symlink_to("sub/file")
    with pytest.raises(ChannelError, match="is a symbolic link"):
        files.open_to_write("link")


def test_files_appear_together_or_not_at_all(files: Beneath) -> None:
    def contents() -> Iterator[tuple[str, bytes]]:
        yield "deep/er/a", b"a"
        raise ChannelToolsError("no content")

    with pytest.raises(ChannelToolsError, match="no content"):
        files.write_all(contents())
    assert files.names("deep/er") == []
    with files.staged([("deep/er/a", b"1"), ("deep/er/a", b"2"), ("c", b"c")]) as staged:
        assert files.stat("deep/er/a") is None
        staged.put_in_place()
    assert files.read("deep/er/a", limit_bytes=_LIMIT) == b"2"
    assert [name for name in files.names() if name.startswith(".tmp-")] == []


def test_a_hard_link_is_made_once_and_a_copy_where_there_are_none(
    files: Beneath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"package")
    with source.open("rb") as stream:
        files.link(stream, "new/one")
        files.link(stream, "sub/file")
        monkeypatch.setattr(os, "link", _no_links)
        files.link(stream, "new/two")
    assert (files.path / "new" / "one").samefile(source)
    assert files.read("sub/file", limit_bytes=_LIMIT) == b"inside"
    assert files.read("new/two", limit_bytes=_LIMIT) == b"package"
    assert files.names("new") == ["one", "two"]


def _no_links(*_given: object, **_named: object) -> None:
    raise PermissionError(1, "Operation not permitted")


def test_leftovers_are_removed_and_nothing_that_they_lead_to(files: Beneath, tmp_path: Path) -> None:
    (files.path / "sub" / ".tmp-file").write_bytes(b"")
    (files.path / "sub" / ".tmp-folder").mkdir()
    (files.path / "sub" / ".tmp-folder" / "x").symlink_to(tmp_path / "outside")
    (files.path / "sub" / ".tmp-link").symlink_to(tmp_path / "outside")
    assert files.remove_leftovers("sub") == [".tmp-file", ".tmp-folder", ".tmp-link"]
    assert files.names("sub") == ["file"]
    assert (tmp_path / "outside" / "file").read_bytes() == b"outside"


def test_what_the_system_denies_is_another_error(files: Beneath, tmp_path: Path) -> None:
    with pytest.raises(FileAccessError, match="file name too long"):
        files.write("x" * 300, b"")
    with pytest.raises(FileNotFoundError):
        Beneath(root=tmp_path / "none").read("x", limit_bytes=_LIMIT)


def test_a_folder_that_is_held_stays_the_same_whatever_its_path_leads_to(files: Beneath, tmp_path: Path) -> None:
    with files.held() as held:
        (tmp_path / "root").rename(tmp_path / "moved")
        (tmp_path / "root" / "sub").mkdir(parents=True)
        assert held.at("sub").read("file", limit_bytes=_LIMIT) == b"inside"
        held.write("sub/new", b"new")
    assert (tmp_path / "moved" / "sub" / "new").read_bytes() == b"new"
    assert files.names("sub") == []


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


def test_a_new_file_replaces_nothing_not_even_a_link(tmp_path: Path, folder: int) -> None:
    write_new(folder, "bytes", b"one")
    write_new(folder, "stream", io.BytesIO(b"two"))
    assert ((tmp_path / "bytes").read_text(), (tmp_path / "stream").read_text()) == ("one", "two")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for name in ("bytes", "link"):
        with pytest.raises(FileExistsError):
            write_new(folder, name, b"other")
    assert not (tmp_path / "elsewhere").exists()


def test_what_is_removed_is_the_link_and_not_what_it_leads_to(tmp_path: Path, folder: int) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "kept", target_is_directory=True)
    (tmp_path / "whole" / "below").mkdir(parents=True)
    for name in ("link", "whole", "absent"):
        remove_entry(folder, name)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert status_at(folder, "link") is None


def test_folders_are_made_where_they_are_missing(tmp_path: Path, folder: int) -> None:
    (tmp_path / "a").mkdir()
    os.close(made_folder(folder, "a/b/c"))
    os.close(made_folder(folder, "a/b/c"))
    assert (tmp_path / "a" / "b" / "c").is_dir()


def test_an_open_file_gets_another_name(tmp_path: Path, folder: int) -> None:
    (tmp_path / "one").write_bytes(b"content")
    with (tmp_path / "one").open("rb") as source:
        link_or_copy_entry(source, folder, "two")
    assert (tmp_path / "two").read_bytes() == b"content"


def test_a_temporary_name_is_one_that_leftovers_are_known_by() -> None:
    assert temporary_name().startswith(TEMPORARY_PREFIX)
    assert temporary_name() != temporary_name()


@pytest.fixture
def root(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "root" / "folder").mkdir(parents=True)
    (tmp_path / "root" / "folder" / "file").write_text("inside")
    (tmp_path / "outside").write_text("outside")
    (tmp_path / "root" / "near").symlink_to("folder/file")
    (tmp_path / "root" / "out").symlink_to("../outside")
    (tmp_path / "root" / "absolute").symlink_to(tmp_path / "outside")
    descriptor = os.open(tmp_path / "root", os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


@pytest.mark.parametrize("name", ["folder/file", "near"])
def test_a_file_beneath_the_folder_is_opened_also_by_a_link(root: int, name: str) -> None:
    with open(open_below(root, name, os.O_RDONLY), encoding="utf-8") as stream:  # noqa: PTH123 - a descriptor
        assert stream.read() == "inside"


@pytest.mark.parametrize("name", ["out", "absolute", "../outside"])
def test_nothing_outside_the_folder_is_opened(root: int, name: str) -> None:
    with pytest.raises(OSError, match="out of the folder"):
        open_below(root, name, os.O_RDONLY)
