# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from channel_tools.conda import archive
from channel_tools.conda.archive import Member, check_metadata, path_rows, read_info, read_package
from channel_tools.conda.contents import InfoFiles, PackageProblem
from channel_tools.system.errors import IntegrityError
from tests.support.packages import link, make_conda

PACKAGE = Path("toy-1.0-0.conda")
INDEX = b'{"name": "toy", "version": "1.0", "build": "0", "build_number": 0, "subdir": "noarch", "depends": []}'


def test_facts_are_those_of_the_file(tmp_path: Path) -> None:
    path = make_conda(tmp_path, "toy", run_exports={"weak": ["toy >=1"]}, about={"summary": "a toy"})
    facts = read_package(path, contents=True)
    assert facts.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert facts.size_bytes == path.stat().st_size
    assert facts.index["name"] == "toy"
    assert facts.about == {"summary": "a toy"}
    assert facts.run_exports == {"weak": ["toy >=1"]}


def test_a_part_of_more_than_a_megabyte_is_read_to_its_end(tmp_path: Path) -> None:
    payload = hashlib.shake_256(b"big").digest(2 * archive.SMALL_BYTES)
    path = make_conda(tmp_path, "toy", files={"share/big": payload})
    assert read_package(path, contents=True).sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    content = bytearray(path.read_bytes())
    content[archive.SMALL_BYTES] ^= 1
    path.write_bytes(content)
    with pytest.raises(IntegrityError):
        read_package(path, contents=True)


def test_links_inside_the_prefix_are_allowed(tmp_path: Path) -> None:
    files: dict[str, bytes | tarfile.TarInfo] = {
        "lib/libtoy.so.1": b"elf",
        "lib/libtoy.so": link("lib/libtoy.so", "libtoy.so.1"),
        "lib/deep/libtoy.so": link("lib/deep/libtoy.so", "../libtoy.so.1"),
    }
    read_package(make_conda(tmp_path, "toy", files=files), contents=True)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        pytest.param({"../evil": b"x"}, "outside the folder", id="climbs out"),
        pytest.param({"/etc/evil": b"x"}, "outside the folder", id="absolute"),
        pytest.param({"a/../../evil": b"x"}, "outside the folder", id="climbs out later"),
        pytest.param({"lib/x": link("lib/x", "/etc/passwd")}, "points outside", id="absolute link"),
        pytest.param({"lib/x": link("lib/x", "../../y")}, "points outside", id="link climbs out"),
        pytest.param({"x": link("x", "../y", tarfile.LNKTYPE)}, "points outside", id="hard link climbs out"),
        pytest.param({"x": link("x", "", tarfile.FIFOTYPE)}, "neither a file", id="pipe"),
        pytest.param({"x" * 256: b"x"}, "too long for a file system", id="long name"),
        pytest.param({".": b"x"}, "would be written over another", id="the prefix itself"),
        pytest.param({"x": b"x", "./x": b"y"}, "would be written over another", id="twice"),
        pytest.param({"x": b"x", "x/y": b"y"}, "x in it is both a file and a folder", id="file and folder"),
        pytest.param(
            {"x": link("x", "x", tarfile.LNKTYPE)}, "is not a file that comes before it", id="hard link to itself"
        ),
        pytest.param(
            {"x": link("x", "y", tarfile.LNKTYPE), "y": b""}, "is not a file that comes", id="hard link forward"
        ),
    ],
)
def test_members_that_leave_the_prefix_are_refused(
    tmp_path: Path, files: dict[str, bytes | tarfile.TarInfo], message: str
) -> None:
    path = make_conda(tmp_path, "toy", files=files)
    with pytest.raises(IntegrityError, match=message) as caught:
        read_package(path, contents=True)
    assert str(path) in caught.value.message
    assert path.name in str(caught.value.hint)


def test_hard_links_to_earlier_files_are_allowed(tmp_path: Path) -> None:
    files: dict[str, bytes | tarfile.TarInfo] = {"a": b"x", "b/c": link("b/c", "a", tarfile.LNKTYPE)}
    paths: list[dict[str, object]] = [{"_path": "a"}, {"_path": "b/c", "path_type": "hardlink"}]
    read_package(make_conda(tmp_path, "toy", files=files, paths=paths), contents=True)


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        pytest.param([], "not listed in paths.json", id="unlisted file"),
        pytest.param([{"_path": "share/toy.txt", "size_in_bytes": 7}], "paths.json says 7", id="other size"),
        pytest.param(
            [{"_path": "share/toy.txt", "size_in_bytes": 6}, {"_path": "bin/toy"}],
            "bin/toy is listed",
            id="lacks a file",
        ),
        pytest.param([{"_path": 3}], r"paths\[0\]\._path", id="no name"),
    ],
)
def test_contents_must_be_those_that_paths_json_lists(
    tmp_path: Path, paths: list[dict[str, object]], message: str
) -> None:
    with pytest.raises(IntegrityError, match=message):
        read_package(make_conda(tmp_path, "toy", paths=paths), contents=True)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        pytest.param({"sha256": "ab" * 32}, "paths.json says abab", id="sha256"),
        pytest.param({"path_type": "softlink"}, "is a hardlink, paths.json says softlink", id="kind"),
        pytest.param({"path_type": "device"}, r"paths\[0\]\.path_type", id="unknown kind"),
        pytest.param({"sha256": 3}, r"paths\[0\]\.sha256", id="no hash"),
    ],
)
def test_files_must_be_what_paths_json_says(tmp_path: Path, row: dict[str, object], message: str) -> None:
    paths = [{"_path": "share/toy.txt", "size_in_bytes": 6} | row]
    with pytest.raises(IntegrityError, match=message):
        read_package(make_conda(tmp_path, "toy", paths=paths), contents=True)


def test_a_true_hash_is_accepted_and_a_path_listed_twice_is_not(tmp_path: Path) -> None:
    row: dict[str, object] = {"_path": "share/toy.txt", "sha256": hashlib.sha256(b"hello\n").hexdigest()}
    read_package(make_conda(tmp_path, "toy", paths=[row]), contents=True)
    with pytest.raises(IntegrityError, match=r"lists share/toy\.txt twice"):
        read_package(make_conda(tmp_path, "toy", paths=[row, row]), contents=True)


@pytest.mark.parametrize(
    "links",
    [
        pytest.param({"d/up": "..", "x": "d/up/../secret"}, id="target by way of a link"),
        pytest.param({"d/up": "..", "d/up/../../x": "y"}, id="name by way of a link"),
        pytest.param({"a/b/c": "../..", "e": "a/b/c/../x", "f": "e/y"}, id="link to a link"),
    ],
)
def test_links_that_lead_outside_together_are_refused(tmp_path: Path, links: dict[str, str]) -> None:
    files: dict[str, bytes | tarfile.TarInfo] = {name: link(name, target) for name, target in links.items()}
    with pytest.raises(IntegrityError, match=r"outside the folder"):
        read_package(make_conda(tmp_path, "toy", files=files), contents=True)


def test_links_in_a_circle_lead_nowhere(tmp_path: Path) -> None:
    files: dict[str, bytes | tarfile.TarInfo] = {"a": link("a", "b"), "b": link("b", "a"), "c/d": b"x"}
    read_package(make_conda(tmp_path, "toy", files=files), contents=True)


def packed_as(path: Path, part: str, plain: bytes, *, method: int = zipfile.ZIP_STORED) -> Path:
    """The package with the unpacked bytes of a part replaced."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    parts[f"{part}-{path.name.removesuffix('.conda')}.tar.zst"] = zstandard.compress(plain)
    with zipfile.ZipFile(path, "w", compression=method) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return path


def gnu_tar(member: tarfile.TarInfo, content: bytes) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as tar:
        tar.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def test_a_part_that_unpacks_to_far_more_than_it_is_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("channel_tools.system.tarstream._FREE_BYTES", 8 << 20)
    size = 64 << 20
    paths: list[dict[str, object]] = [{"_path": "zeros", "size_in_bytes": size}]
    member = tarfile.TarInfo("zeros")
    member.size = size
    path = packed_as(make_conda(tmp_path, "toy", paths=paths), "pkg", gnu_tar(member, bytes(size)))
    assert path.stat().st_size < 20_000
    with pytest.raises(IntegrityError, match="unpacks to far more bytes than any archive"):
        read_package(path, contents=True)
    monkeypatch.undo()
    read_package(path, contents=True)  # as large as a library, it is none of our business


def test_headers_that_ask_for_memory_are_refused(tmp_path: Path) -> None:
    long_name = tarfile.TarInfo("x" * 100_000)
    with pytest.raises(IntegrityError, match="a header of 100352 bytes"):
        read_package(packed_as(make_conda(tmp_path, "toy"), "info", gnu_tar(long_name, b"")), contents=True)


@pytest.mark.parametrize("part", ["info", "pkg"])
@pytest.mark.parametrize("size", [0, 5 << 20], ids=["small", "streamed"])
def test_bytes_behind_the_end_and_damaged_headers_are_refused(tmp_path: Path, part: str, size: int) -> None:
    filler = bytes(range(256)) * (size // 256)
    sound = gnu_tar(tarfile.TarInfo("info/empty"), b"") if part == "info" else b""
    for junk in (b"hidden", b"\0" * 5000 + b"hidden"):
        path = packed_as(make_conda(tmp_path, "toy", files={}, paths=[]), part, sound + junk + filler)
        with pytest.raises(IntegrityError, match=r"after the archive's end|damaged header"):
            read_package(path, contents=True)


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_compressed_zip_is_refused(tmp_path: Path, method: int) -> None:
    path = packed_as(make_conda(tmp_path, "toy"), "pkg", b"", method=method)
    with pytest.raises(IntegrityError, match="is compressed"):
        read_package(path, contents=True)


@pytest.mark.parametrize("missing", ["info/index.json", "info/paths.json"])
def test_required_metadata_must_be_there(tmp_path: Path, missing: str) -> None:
    with pytest.raises(IntegrityError, match=f"it has no {missing}"):
        read_package(make_conda(tmp_path, "toy", without=(missing,)), contents=True)


def test_a_file_named_otherwise_than_its_metadata_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match=r"index.json names toy-1.0-0.conda"):
        read_package(make_conda(tmp_path, "toy", stem="other-1.0-0"), contents=False)


def test_a_file_with_foreign_zip_members_is_refused(tmp_path: Path) -> None:
    path = make_conda(tmp_path, "toy")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("more", b"")
    with pytest.raises(IntegrityError, match="expected info-toy"):
        read_package(path, contents=False)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.floats(min_value=0, max_value=0.999))
def test_a_file_cut_short_anywhere_is_refused(tmp_path: Path, cut: float) -> None:
    path = make_conda(tmp_path, "toy")
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * cut)])
    with pytest.raises(IntegrityError, match="complete"):
        read_package(path, contents=True)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_flipped_byte_is_refused_or_harmless(tmp_path: Path, data: st.DataObject) -> None:
    path = make_conda(tmp_path, "toy")
    before = read_package(path, contents=True)
    content = bytearray(path.read_bytes())
    position = data.draw(st.integers(min_value=0, max_value=len(content) - 1))
    content[position] ^= data.draw(st.integers(min_value=1, max_value=255))
    path.write_bytes(content)
    try:
        after = read_package(path, contents=True)
    except IntegrityError:
        return
    assert (after.index, after.about, after.run_exports) == (before.index, before.about, before.run_exports)


def members(**files: bytes) -> Iterator[Member]:
    for name, content in files.items():
        header = tarfile.TarInfo(name.replace("__", "/").replace("_json", ".json"))
        header.size = len(content)
        yield header, io.BytesIO(content)


def refuse(problem: PackageProblem) -> None:
    raise AssertionError(problem)


def test_metadata_are_the_plain_files_below_info() -> None:
    with InfoFiles(all_files=True) as info:
        read_info(members(info__index_json=INDEX), PACKAGE, info, refuse)
        assert dict(info) == {"index.json": INDEX}
        check_metadata(info, PACKAGE)
    with InfoFiles(all_files=True) as info, pytest.raises(IntegrityError, match="not a plain file below info/"):
        read_info(members(share__toy=b""), PACKAGE, info, refuse)


@pytest.mark.parametrize("index", [b"[]", b"{", INDEX.replace(b'"1.0"', b"1")], ids=["list", "cut", "number"])
def test_metadata_that_no_index_can_contain_are_refused(index: bytes) -> None:
    with InfoFiles(all_files=False) as info:
        read_info(members(info__index_json=index), PACKAGE, info, refuse)
        with pytest.raises(IntegrityError, match=r"toy-1\.0-0\.conda"):
            check_metadata(info, PACKAGE)


def test_an_older_package_may_have_a_list_of_its_files_instead_of_rows() -> None:
    files = {"files": b"share/toy.txt\n"}
    assert [*path_rows(files, Path("toy-1.0-0.tar.bz2"))] == ["share/toy.txt"]
    with pytest.raises(IntegrityError, match=r"paths\.json"):
        path_rows(files, PACKAGE)
