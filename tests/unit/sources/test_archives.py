# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import bz2
import gzip
import io
import lzma
import stat
import subprocess
import sys
import tarfile
import tracemalloc
import zipfile
import zlib
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


def _sparse(realsize: int, *, pax: bool) -> bytes:
    """A member that is a hole of ``realsize`` bytes, as GNU tar writes it by default or with --format=pax."""
    info = tarfile.TarInfo("toy/hole")
    if pax:
        info.pax_headers = {
            "GNU.sparse.major": "1",
            "GNU.sparse.minor": "0",
            "GNU.sparse.name": "toy/hole",
            "GNU.sparse.realsize": str(realsize),
        }
        content = f"1\n{realsize}\n0\n".encode().ljust(512, b"\0")
        info.size = len(content)
        return info.tobuf(tarfile.PAX_FORMAT) + content + bytes(1024)
    info.type = tarfile.GNUTYPE_SPARSE
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[386:410] = b"%011o\0%011o\0" % (0o77777777777, 0)  # one piece, of no bytes
    header[483:495] = b"%011o\0" % min(realsize, 0o77777777777)
    header[148:156] = b"        "
    header[148:156] = b"%06o\0 " % sum(header[:512])
    return bytes(header) + bytes(1024)


def _zeros(packer: Callable[[bytes], bytes], size: int) -> bytes:
    info = tarfile.TarInfo("toy/zeros")
    info.size = size
    return packer(info.tobuf() + bytes(size) + bytes(1024))


def _zip_of_zeros(size: int, *, link: bool = False) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        info = zipfile.ZipInfo("toy/zeros")
        info.external_attr = (stat.S_IFLNK | 0o777 if link else stat.S_IFREG | 0o644) << 16
        info.compress_type = zipfile.ZIP_DEFLATED
        archive.writestr(info, bytes(size))
    return packed.getvalue()


def _deep(depth: int) -> str:
    return "/".join(["toy"] + ["f"] * depth)


BOMBS: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "sparse": (".tar", lambda: _sparse(6 << 30, pax=False), "is a sparse file"),
    "sparse-pax": (".tar.gz", lambda: gzip.compress(_sparse(6 << 30, pax=True)), "is a sparse file"),
    "gzip": (".tar.gz", lambda: _zeros(gzip.compress, 64 << 20), "far more bytes"),
    "bzip2": (".tar.bz2", lambda: _zeros(bz2.compress, 64 << 20), "far more bytes"),
    "xz": (".tar.xz", lambda: _zeros(lzma.compress, 64 << 20), "far more bytes"),
    "zstd": (".tar.zst", lambda: _zeros(zstandard.compress, 64 << 20), "far more bytes"),
    "zip": (".zip", lambda: _zip_of_zeros(64 << 20), "far more bytes"),
    "zip-link": (".zip", lambda: _zip_of_zeros(64 << 20, link=True), "far more bytes"),
    "deep": (".tar.gz", lambda: tar_gz({_deep(2000): b"x"}), "more than 250 folders deep"),
    "deep-zip": (".zip", lambda: _zip({_deep(2000): b"x"}), "more than 250 folders deep"),
    "damaged-bzip2": (".tar.bz2", lambda: bz2.compress(bytes(10_000))[:20] + b"x" * 90, "not a complete archive"),
    "encrypted-zip": (
        ".zip",
        lambda: (
            _zip({"toy/a": TEXT})
            .replace(b"PK\3\4\x14\0\0", b"PK\3\4\x14\0\1")
            .replace(b"PK\1\2\x14\3\x14\0\0", b"PK\1\2\x14\3\x14\0\1")
        ),
        "encrypted",
    ),
}


@pytest.mark.parametrize("kind", BOMBS)
def test_what_unpacks_to_more_than_it_may_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr("channel_tools.system.tarstream._FREE_BYTES", 8 << 20)
    suffix, make, words = BOMBS[kind]
    path = write(tmp_path, f"toy{suffix}", make())
    tracemalloc.start()
    try:
        with pytest.raises(IntegrityError, match=words) as caught:
            check_archive(path)
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()
    assert str(path) in caught.value.message


def test_a_dictionary_that_does_not_fit_into_memory_is_said_in_words(tmp_path: Path) -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 20}]
    content = bytearray(lzma.compress(gzip.decompress(tar_gz({"toy/a": TEXT})), filters=filters))
    at = content.index(b"\x21\x01")  # the filter, the length of its properties, and the size of its dictionary
    content[at + 2] = 39  # 3 GiB
    header = content[12 : 12 + (content[12] + 1) * 4 - 4]
    content[12 + len(header) : 16 + len(header)] = zlib.crc32(header).to_bytes(4, "little")
    path = write(tmp_path, "toy.tar.xz", bytes(content))
    script = (
        "import resource, sys; from pathlib import Path; from channel_tools.sources.archives import check_archive\n"
        "from channel_tools.system.errors import IntegrityError\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
        "try: check_archive(Path(sys.argv[1]))\n"
        "except IntegrityError as err: print(err.message)"
    )
    run = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, check=False, timeout=60)
    assert "not a complete archive: MemoryError" in run.stdout, run.stderr
