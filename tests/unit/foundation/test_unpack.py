# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import tarfile
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channel_tools.foundation.unpack import TreeWriter, unpack_deb
from channel_tools.system.errors import IntegrityError
from tests.unit.foundation.archives import MTIME_S, Member, write_deb

if TYPE_CHECKING:
    from pathlib import Path


def _unpack(tmp_path: Path, files: dict[str, str | bytes] | list[Member], **options: str) -> Path:
    root = tmp_path / "root"
    root.mkdir()
    unpack_deb(write_deb(tmp_path, "toy", files, **options), root)
    return root


@pytest.mark.parametrize("data_name", ["data.tar.xz", "data.tar.gz", "data.tar.zst", "data.tar"])
def test_files_come_out_with_their_bytes_and_permission_to_run(tmp_path: Path, data_name: str) -> None:
    root = _unpack(tmp_path, {"usr/bin/tool": "#!/bin/sh\n", "usr/lib/x.so": b"\x7fELF"}, data_name=data_name)
    assert (root / "usr/bin/tool").read_text() == "#!/bin/sh\n"
    assert (root / "usr/bin/tool").stat().st_mode & 0o777 == 0o755
    assert (root / "usr/lib/x.so").stat().st_mode & 0o777 == 0o644


def test_the_newest_time_of_the_files_is_returned(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    assert unpack_deb(write_deb(tmp_path, "toy", {"a": "1"}), tmp_path / "root") == MTIME_S


def test_links_are_kept_as_they_are(tmp_path: Path) -> None:
    root = _unpack(
        tmp_path,
        [
            Member(name="./usr/lib/libz.so.1.2", content=b"z"),
            Member(name="./usr/lib/libz.so", kind=tarfile.SYMTYPE, target="libz.so.1.2"),
            Member(name="./usr/lib/abs.so", kind=tarfile.SYMTYPE, target="/lib/x/libz.so.1"),
            Member(name="./usr/lib/hard", kind=tarfile.LNKTYPE, target="./usr/lib/libz.so.1.2"),
        ],
    )
    assert (root / "usr/lib/libz.so").readlink().as_posix() == "libz.so.1.2"
    assert (root / "usr/lib/abs.so").readlink().as_posix() == "/lib/x/libz.so.1"
    assert (root / "usr/lib/hard").read_bytes() == b"z"


def test_a_later_deb_replaces_what_an_earlier_one_put_there(tmp_path: Path) -> None:
    root = _unpack(tmp_path, {"etc/a": "old"})
    unpack_deb(write_deb(tmp_path, "other", {"etc/a": "new"}), root)
    assert (root / "etc/a").read_text() == "new"


def test_skipped_paths_are_not_unpacked(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    deb = write_deb(tmp_path, "toy", {"usr/src/a/b": "1", "usr/lib/c": "2"})
    unpack_deb(deb, tmp_path / "root", skip=["usr/src/*"])
    assert not (tmp_path / "root/usr/src").exists()
    assert (tmp_path / "root/usr/lib/c").is_file()


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ([Member(name="../escape", content=b"x")], "outside the folder"),
        ([Member(name="/etc/passwd", content=b"x")], "outside the folder"),
        ([Member(name="./a/../../b", content=b"x")], "outside the folder"),
        ([Member(name="./lib/l", kind=tarfile.SYMTYPE, target="../../../x")], "points outside the folder"),
        ([Member(name="./l", kind=tarfile.LNKTYPE, target="../outside")], "outside the folder"),
        ([Member(name="./l", kind=tarfile.LNKTYPE, target="./missing")], "not a file written before"),
        (
            [Member(name="./l", kind=tarfile.SYMTYPE, target="/etc"), Member(name="./l/passwd", content=b"x")],
            "below the link l",
        ),
        ([Member(name="./f", content=b"x"), Member(name="./f/g", content=b"x")], "below the file f"),
        ([Member(name="./null", kind=tarfile.CHRTYPE)], "neither file, folder nor link"),
    ],
    ids=[
        "climbs",
        "absolute",
        "climbs-inside",
        "link-climbs",
        "hard-climbs",
        "hard-missing",
        "through-link",
        "under-file",
        "device",
    ],
)
def test_an_archive_that_would_write_elsewhere_is_refused(tmp_path: Path, members: list[Member], expected: str) -> None:
    with pytest.raises(IntegrityError, match=expected):
        _unpack(tmp_path, members)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["root", "toy_1.0-1_amd64.deb"]


@pytest.mark.parametrize("share", [0.0, 0.2, 0.6, 0.95])
def test_a_deb_cut_short_is_an_integrity_error_that_names_it(tmp_path: Path, share: float) -> None:
    deb = write_deb(tmp_path, "toy", {f"usr/{number}": str(number) * 999 for number in range(50)})
    content = deb.read_bytes()
    deb.write_bytes(content[: int(len(content) * share)])
    (tmp_path / "root").mkdir()
    with pytest.raises(IntegrityError, match=r"toy_1\.0-1_amd64\.deb"):
        unpack_deb(deb, tmp_path / "root")


@pytest.mark.parametrize("data_name", ["data.tar.gz", "data.tar.zst"])
def test_a_checksum_that_does_not_fit_is_an_integrity_error(tmp_path: Path, data_name: str) -> None:
    deb = write_deb(tmp_path, "toy", {"usr/a": "1"}, data_name=data_name)
    content = bytearray(deb.read_bytes().removesuffix(b"\n"))
    content[-5] ^= 1  # the last but four: of the sum in gzip, of the data in zstd
    deb.write_bytes(content + b"\n" * (len(content) % 2))
    (tmp_path / "root").mkdir()
    with pytest.raises(IntegrityError, match=r"toy_1\.0-1_amd64\.deb: no complete \.deb"):
        unpack_deb(deb, tmp_path / "root")


def test_a_deb_without_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match=r"holds no data\.tar"):
        _unpack(tmp_path, {"a": "1"}, data_name="other.tar")


def test_an_unknown_compression_is_named(tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match=r"data\.tar\.lz is compressed in an unknown way"):
        _unpack(tmp_path, {"a": "1"}, data_name="data.tar.lz")


@given(name=st.text(alphabet=st.sampled_from("ab./\0"), max_size=12))
def test_no_member_name_leaves_the_folder(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    base = tmp_path_factory.mktemp("any")
    root = base / "root"
    root.mkdir()
    writer = TreeWriter(root, base / "x.deb")

    class _Empty:
        def read(self, size: int = -1, /) -> bytes:
            del size
            return b""

    try:
        written = writer.write_file(name, _Empty(), executable=False)
    except IntegrityError:
        pass
    else:
        assert written.resolve().is_relative_to(root.resolve())
    assert [path.name for path in base.iterdir()] == ["root"]
