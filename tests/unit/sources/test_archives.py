# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import bz2
import gzip
import io
import lzma
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from channel_tools.sources.archives import check_archive
from channel_tools.system.errors import IntegrityError
from tests.unit.sources.toys import TEXT, tar_gz

LINK, HARD_LINK, DEVICE, FIFO = tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    ".tar": lambda data: data,
    ".tar.gz": gzip.compress,
    ".tgz": gzip.compress,
    ".tar.xz": lzma.compress,
    ".tar.bz2": bz2.compress,
    ".tar.zst": zstandard.compress,
}


def write(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("members", "named"),
    [
        pytest.param({"/etc/passwd": b"x"}, "/etc/passwd", id="absolute"),
        pytest.param({"toy/a": b"x", "../b": b"x"}, "../b", id="parent"),
        pytest.param({"toy/../../b": b"x"}, "toy/../../b", id="parent-inside"),
        pytest.param({"toy/l": (LINK, "/etc")}, "toy/l", id="absolute-link"),
        pytest.param({"toy/l": (LINK, "../../x")}, "toy/l", id="link-out"),
        pytest.param({"toy/l": (LINK, "."), "toy/l/a": b"x"}, "toy/l/a", id="below-link"),
        pytest.param({"toy/l": (HARD_LINK, "/etc/passwd")}, "/etc/passwd", id="hard-link-out"),
        pytest.param({"toy/l": (HARD_LINK, "../x")}, "../x", id="hard-link-up"),
        pytest.param({"toy/d": (DEVICE, "")}, "toy/d", id="device"),
        pytest.param({"toy/f": (FIFO, "")}, "toy/f", id="fifo"),
    ],
)
def test_unsafe_members_are_refused_by_name(
    tmp_path: Path, members: dict[str, bytes | tuple[bytes, str]], named: str
) -> None:
    path = write(tmp_path, "toy.tar.gz", tar_gz(members))
    with pytest.raises(IntegrityError) as caught:
        check_archive(path)
    assert repr(named) in caught.value.message
    assert str(path) in caught.value.message


def test_links_inside_and_hard_links_to_members_are_fine(tmp_path: Path) -> None:
    members: dict[str, bytes | tuple[bytes, str]] = {
        "toy/a": TEXT,
        "toy/b/l": (LINK, "../a"),
        "toy/c": (HARD_LINK, "toy/a"),
        "toy/d": (LINK, "b/nowhere"),
    }
    check_archive(write(tmp_path, "toy.tar.gz", tar_gz(members)))


@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize("kept", [0.3, 0.7])
def test_an_archive_that_is_cut_short_is_refused(tmp_path: Path, suffix: str, kept: float) -> None:
    plain = gzip.decompress(tar_gz({f"toy/{number}": bytes(str(number), "ascii") * 3000 for number in range(9)}))
    whole = PACKERS[suffix](plain)
    check_archive(write(tmp_path, f"whole{suffix}", whole))
    cut = write(tmp_path, f"cut{suffix}", whole[: int(len(whole) * kept) - 100])
    with pytest.raises(IntegrityError, match="not a complete archive"):
        check_archive(cut)


def test_a_page_in_an_archives_place_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match="not a complete archive"):
        check_archive(write(tmp_path, "toy.tar.gz", b"<html>sign in</html>"))


def test_an_empty_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match="the archive has no members"):
        check_archive(write(tmp_path, "toy.tar.gz", tar_gz({})))


def test_an_archive_that_cannot_be_checked_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match=r"\.7z"):
        check_archive(write(tmp_path, "toy.7z", b"7z"))


def test_what_is_no_archive_by_its_name_is_taken_as_it_is(tmp_path: Path) -> None:
    check_archive(write(tmp_path, "fix.patch", b"anything"))


def _zip(entries: dict[str, bytes], *, link: str | None = None) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in entries.items():
            info = zipfile.ZipInfo(name)
            mode = stat.S_IFLNK | 0o777 if name == link else stat.S_IFREG | 0o644
            info.external_attr = mode << 16
            archive.writestr(info, content)
    return packed.getvalue()


def test_zip_archives_are_held_to_the_same_rules(tmp_path: Path) -> None:
    check_archive(write(tmp_path, "fine.zip", _zip({"toy/a": TEXT, "toy/l": b"a"}, link="toy/l")))
    with pytest.raises(IntegrityError, match=r"'\.\./a'"):
        check_archive(write(tmp_path, "up.zip", _zip({"../a": TEXT})))
    with pytest.raises(IntegrityError, match="points outside the folder, to '/etc'"):
        check_archive(write(tmp_path, "link.zip", _zip({"toy/l": b"/etc"}, link="toy/l")))
    with pytest.raises(IntegrityError, match="not a complete archive"):
        check_archive(write(tmp_path, "cut.zip", _zip({"toy/a": TEXT})[:-30]))


@given(
    parts=st.lists(st.sampled_from(["a", "b", "..", ".", "", "c"]), min_size=1, max_size=6), is_absolute=st.booleans()
)
def test_no_accepted_member_leaves_the_folder(
    tmp_path_factory: pytest.TempPathFactory, *, parts: list[str], is_absolute: bool
) -> None:
    name = ("/" if is_absolute else "") + "/".join(parts)
    if not name.strip("/."):
        return
    path = write(tmp_path_factory.mktemp("member"), "toy.tar.gz", tar_gz({name: b"x"}))
    leaves = name.startswith("/") or ".." in parts
    if leaves:
        with pytest.raises(IntegrityError):
            check_archive(path)
    else:
        check_archive(path)
