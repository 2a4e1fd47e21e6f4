# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import hashlib
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from channel_tools.channel.archive import read_package
from channel_tools.errors import IntegrityError
from tests.unit.channel.toys import link, make_conda


def test_facts_are_those_of_the_file(tmp_path: Path) -> None:
    path = make_conda(tmp_path, "toy", run_exports={"weak": ["toy >=1"]}, about={"summary": "a toy"})
    facts = read_package(path, contents=True)
    assert facts.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert facts.size_bytes == path.stat().st_size
    assert facts.index["name"] == "toy"
    assert facts.about == {"summary": "a toy"}
    assert facts.run_exports == {"weak": ["toy >=1"]}


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
        pytest.param({"../evil": b"x"}, "outside the prefix", id="climbs out"),
        pytest.param({"/etc/evil": b"x"}, "outside the prefix", id="absolute"),
        pytest.param({"a/../../evil": b"x"}, "outside the prefix", id="climbs out later"),
        pytest.param({"lib/x": link("lib/x", "/etc/passwd")}, "points outside", id="absolute link"),
        pytest.param({"lib/x": link("lib/x", "../../y")}, "points outside", id="link climbs out"),
        pytest.param({"x": link("x", "../y", tarfile.LNKTYPE)}, "points outside", id="hard link climbs out"),
        pytest.param({"x": link("x", "", tarfile.FIFOTYPE)}, "neither a file", id="pipe"),
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


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        pytest.param([], "not in paths.json", id="unlisted file"),
        pytest.param([{"_path": "share/toy.txt", "size_in_bytes": 7}], "paths.json says 7", id="other size"),
        pytest.param(
            [{"_path": "share/toy.txt", "size_in_bytes": 6}, {"_path": "bin/toy"}],
            "bin/toy is listed",
            id="lacks a file",
        ),
        pytest.param([{"_path": 3}], "has the row", id="no name"),
    ],
)
def test_contents_must_be_those_that_paths_json_lists(
    tmp_path: Path, paths: list[dict[str, object]], message: str
) -> None:
    with pytest.raises(IntegrityError, match=message):
        read_package(make_conda(tmp_path, "toy", paths=paths), contents=True)


@pytest.mark.parametrize("missing", ["info/index.json", "info/paths.json"])
def test_required_metadata_must_be_there(tmp_path: Path, missing: str) -> None:
    with pytest.raises(IntegrityError, match=f"{missing} is missing"):
        read_package(make_conda(tmp_path, "toy", without=(missing,)), contents=True)


def test_a_file_named_otherwise_than_its_metadata_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match=r"its index.json names toy-1.0-0.conda"):
        read_package(make_conda(tmp_path, "toy", stem="other-1.0-0"), contents=False)


def test_a_file_with_foreign_zip_members_is_refused(tmp_path: Path) -> None:
    path = make_conda(tmp_path, "toy")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("more", b"")
    with pytest.raises(IntegrityError, match="expected info-toy"):
        read_package(path, contents=False)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(cut=st.floats(min_value=0, max_value=0.999))
def test_a_file_cut_short_anywhere_is_refused(tmp_path: Path, cut: float) -> None:
    path = make_conda(tmp_path, "toy")
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * cut)])
    with pytest.raises(IntegrityError, match="complete"):
        read_package(path, contents=True)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
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
