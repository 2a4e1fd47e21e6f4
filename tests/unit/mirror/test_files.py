# SPDX-License-Identifier: BSD-3-Clause
"""Bundles as tar files: the same bytes for the same files, and nothing but plain files in them."""

from __future__ import annotations

import io
import random
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from channel_tools.mirror import files as tarfiles
from channel_tools.mirror.files import open_bundle, read_members, write_members
from channel_tools.mirror.format import BundleRejectedError
from tests.unit.mirror.bundles import ExportingSite, exporting_site, import_to, verify

LONG = "tool/" + "x" * 120 + ".whl"


def write(folder: Path, names: dict[str, bytes]) -> Path:
    for name, content in names.items():
        (folder / "files" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "files" / name).write_bytes(content)
    with (folder / "made.tar").open("wb") as stream:
        write_members(stream, ((name, (folder / "files" / name).open("rb")) for name in names))
    return folder / "made.tar"


def test_others_read_what_is_written(tmp_path: Path) -> None:
    names = {"a": b"", "b/c": b"x" * 513, LONG: b"long", "d" * 90 + "/" + "e" * 90: b"prefix"}
    file = write(tmp_path, names)
    with tarfile.open(file) as tar:
        found = {member.name: tar.extractfile(member) for member in tar.getmembers()}
        assert {name: stream.read() for name, stream in found.items() if stream} == names
    for name, member in read_members(file).items():
        assert file.read_bytes()[member.offset : member.offset + member.size_bytes] == names[name]
    assert file.read_bytes() == write(tmp_path, names).read_bytes()


def test_sizes_that_the_old_format_cannot_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tarfiles, "_OCTAL_LIMIT", 100)
    names = {"a": b"x" * 1000, LONG: b"y" * 1000}
    members = read_members(write(tmp_path, names))
    assert {name: member.size_bytes for name, member in members.items()} == {"a": 1000, LONG: 1000}


def member(
    name: str, kind: bytes = tarfile.REGTYPE, content: bytes = b"evil", link: str = ""
) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    info.size = len(content) if kind == tarfile.REGTYPE else 0
    return info, content if kind == tarfile.REGTYPE else b""


EVIL = {
    "climbs": member("../evil"),
    "absolute": member("/etc/evil"),
    "dots": member("channels/../../evil"),
    "backslash": member("a\\..\\evil"),
    "symlink": member("channels/link", tarfile.SYMTYPE, link="/etc/passwd"),
    "hardlink": member("channels/link", tarfile.LNKTYPE, link="metadata/timestamp.json"),
    "device": member("channels/null", tarfile.CHRTYPE),
    "fifo": member("channels/pipe", tarfile.FIFOTYPE),
    "folder": member("channels/folder", tarfile.DIRTYPE),
    "again": member("metadata/timestamp.json"),
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> ExportingSite:
    return exporting_site(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory, site: ExportingSite) -> Path:
    file = tmp_path_factory.mktemp("sound") / "bundle.tar"
    site.bundle(file)
    return file


@pytest.mark.parametrize("which", EVIL)
@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_archives_that_climb_or_link_are_refused(
    tmp_path: Path, sound: Path, site: ExportingSite, which: str, form: int
) -> None:
    file = Path(shutil.copy(sound, tmp_path / "bundle.tar"))
    with tarfile.open(file, "a", format=form) as tar:
        info, content = EVIL[which]
        tar.addfile(info, io.BytesIO(content))
    with pytest.raises(BundleRejectedError) as caught:
        import_to(file, tmp_path / "destination", site.fingerprint)
    assert caught.value.fault == "unsafe"
    assert not (tmp_path / "evil").exists()
    assert not (tmp_path / "destination" / "channels").exists()


def test_extended_headers_are_refused(tmp_path: Path, sound: Path) -> None:
    file = Path(shutil.copy(sound, tmp_path / "bundle.tar"))
    with tarfile.open(file, "a", format=tarfile.PAX_FORMAT, pax_headers={"path": "metadata/timestamp.json"}) as tar:
        info, content = member("ö" * 200)
        tar.addfile(info, io.BytesIO(content))
    with pytest.raises(BundleRejectedError):
        open_bundle(file)


def patched(sound: Path, tmp_path: Path, change: Callable[[bytearray], object]) -> Path:
    content = bytearray(sound.read_bytes())
    change(content)
    (tmp_path / "bundle.tar").write_bytes(content)
    return tmp_path / "bundle.tar"


def header(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize("size", [1 << 60, 10**15, 1 << 33])
def test_members_larger_than_the_file_take_no_memory(tmp_path: Path, size: int) -> None:
    (tmp_path / "bundle.tar").write_bytes(header("metadata/timestamp.json", size) + b"x" * 100)
    with pytest.raises(BundleRejectedError, match="cut short"):
        open_bundle(tmp_path / "bundle.tar")


def test_a_name_without_end(tmp_path: Path) -> None:
    content = header("././@LongLink", 1 << 20, tarfile.GNUTYPE_LONGNAME) + b"x" * (1 << 20) + header("short", 0)
    (tmp_path / "bundle.tar").write_bytes(content + b"\0" * 1024)
    with pytest.raises(BundleRejectedError, match="a header of 1048576 bytes"):
        open_bundle(tmp_path / "bundle.tar")


def test_bytes_behind_the_end(tmp_path: Path, sound: Path) -> None:
    with pytest.raises(BundleRejectedError, match="bytes after the archive's end"):
        open_bundle(patched(sound, tmp_path, lambda content: content.extend(b"more")))


def test_a_file_cut_short_anywhere_is_refused(tmp_path: Path, sound: Path, site: ExportingSite) -> None:
    whole = sound.read_bytes()
    last = len(whole) - 2 * tarfile.BLOCKSIZE  # after it there are only the blank blocks of the end
    for place in random.Random(1).sample(range(last), 40):  # noqa: S311 - places, no secrets
        (tmp_path / "bundle.tar").write_bytes(whole[:place])
        with pytest.raises(BundleRejectedError):
            verify(tmp_path / "bundle.tar", site.fingerprint)


def test_damage_anywhere_is_refused_or_without_meaning(tmp_path: Path, sound: Path, site: ExportingSite) -> None:
    """A changed byte is noticed, unless it lies where a tar file says nothing (times, owners, padding)."""
    whole = sound.read_bytes()
    noticed = 0
    places = random.Random(2).sample(range(len(whole)), 60)  # noqa: S311
    for place in places:
        content = bytearray(whole)
        content[place] ^= 0x55
        (tmp_path / "bundle.tar").write_bytes(content)
        try:
            report = verify(tmp_path / "bundle.tar", site.fingerprint)
        except BundleRejectedError:
            noticed += 1
        else:
            assert report.bundle.version == 1
    assert noticed > len(places) / 2
