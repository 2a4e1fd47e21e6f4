# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import random
import zipfile
from typing import TYPE_CHECKING

import pytest

from channel_tools.conda.archive import read_index_json, read_info_files, read_info_json, stream_component
from channel_tools.conda.metadata import PackageMetadata
from channel_tools.system.errors import IntegrityError
from tests.support.packages import write_files

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def package(tmp_path: Path) -> Path:
    noise = random.Random(1).randbytes(200_000)  # noqa: S311 - no secret, only incompressible
    metadata = PackageMetadata(name="demo", version="1", build="h_0", subdir="linux-64")
    return write_files(tmp_path, metadata, {"noise": noise})


def _drain(path: Path) -> int:
    return sum(len(stream.read()) for _, stream in stream_component(path, "pkg") if stream is not None)


def test_the_payload_streams(package: Path) -> None:
    assert _drain(package) == 200_000


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_a_package_cut_short_is_an_integrity_error(package: Path, share: float) -> None:
    content = package.read_bytes()
    package.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(IntegrityError, match=r"demo-1-h_0\.conda: not a complete conda package"):
        read_index_json(package)


def test_spoiled_bytes_in_the_payload_are_an_integrity_error(package: Path) -> None:
    content = bytearray(package.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 64] = bytes(64)
    package.write_bytes(content)
    with pytest.raises(IntegrityError, match="not a complete conda package"):
        _drain(package)


def test_a_missing_package_is_named(tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match=r"absent-1-h_0\.conda: the package does not exist"):
        read_index_json(tmp_path / "absent-1-h_0.conda")


def test_a_zip_that_is_no_package_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x-1-h_0.conda"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme", "hello")
    with pytest.raises(IntegrityError, match=r"contains readme; expected info-x-1-h_0\.tar\.zst"):
        read_index_json(path)


def test_only_the_files_asked_for_are_returned(package: Path) -> None:
    found = read_info_files(package, frozenset({"index.json", "run_exports.json"}))
    assert sorted(found) == ["index.json"]


def test_a_metadata_file_that_is_not_there_is_named(package: Path) -> None:
    with pytest.raises(IntegrityError, match=r"it has no info/recipe\.json"):
        read_info_json(package, "recipe.json")
