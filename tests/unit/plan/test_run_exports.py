# SPDX-License-Identifier: BSD-3-Clause
"""run_exports are the same from a folder and from an address, wherever a channel has them."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
import zstandard
from rattler import Channel, SparseRepoData

from channel_tools.conda.package import RunExports
from channel_tools.plan.remote_run_exports import RemoteRunExports
from channel_tools.plan.run_exports import FolderRunExports
from channel_tools.system.errors import FileAccessError, FoundationError
from tests.support.damage import bounded, damage
from tests.support.folder_server import serve_folder
from tests.support.packages import make_conda

if TYPE_CHECKING:
    from pathlib import Path

    from rattler import RepoDataRecord

WEAK = {"weak": ["toy >=1.0,<2.0a0"]}
EXPECTED = RunExports(weak=("toy >=1.0,<2.0a0",))


def _record(channel: str, folder: Path, name: str, **more: object) -> RepoDataRecord:
    record = {"name": "toy", "version": "1.0", "build": "0", "build_number": 0, "depends": [], "subdir": "linux-64"}
    index = folder / "linux-64" / "repodata.json"
    index.parent.mkdir(parents=True, exist_ok=True)
    index.write_text(json.dumps({"info": {}, "packages": {}, "packages.conda": {name: record | more}}))
    (found,) = SparseRepoData(Channel(channel), "linux-64", index).load_records("toy")
    return found


def _both(folder: Path, name: str, **more: object) -> list[RunExports | None]:
    """What is found in the folder and over HTTP."""
    here = asyncio.run(FolderRunExports(folder).of(_record(folder.as_uri(), folder, name, **more)))
    with serve_folder(folder) as address:
        record = _record(address, folder, name, **more)
        return [here, asyncio.run(RemoteRunExports(address, {}).of(record))]


def _index(content: object) -> bytes:
    return json.dumps({"info": {}, "packages": {}, "packages.conda": content}).encode()


@pytest.mark.parametrize("exports", [WEAK, {"strong": ["toy"], "noarch": ["toy 1.*"]}, {}])
def test_from_the_index(tmp_path: Path, exports: dict[str, list[str]]) -> None:
    (tmp_path / "linux-64").mkdir()
    (tmp_path / "linux-64/run_exports.json").write_bytes(_index({"toy-1.0-0.conda": {"run_exports": exports}}))
    expected = RunExports(**{kind: tuple(specs) for kind, specs in exports.items()})
    assert _both(tmp_path, "toy-1.0-0.conda") == [expected, expected]


def test_from_the_compressed_index_of_an_address(tmp_path: Path) -> None:
    (tmp_path / "linux-64").mkdir()
    packed = zstandard.compress(_index({"toy-1.0-0.conda": {"run_exports": WEAK}}))
    (tmp_path / "linux-64/run_exports.json.zst").write_bytes(packed)
    assert _both(tmp_path, "toy-1.0-0.conda")[1] == EXPECTED


def test_from_the_record(tmp_path: Path) -> None:
    assert _both(tmp_path, "toy-1.0-0.conda", run_exports=WEAK) == [EXPECTED, EXPECTED]


@pytest.mark.parametrize(("exports", "expected"), [(WEAK, EXPECTED), (None, RunExports())])
def test_from_the_package(tmp_path: Path, exports: dict[str, list[str]] | None, expected: RunExports) -> None:
    package = make_conda(tmp_path, "toy", run_exports=exports)
    assert _both(tmp_path, package.name) == [expected, expected]


def test_of_a_package_that_is_nowhere_nothing_is_known(tmp_path: Path) -> None:
    assert _both(tmp_path, "toy-1.0-0.conda") == [None, None]


def test_an_index_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "linux-64").mkdir()
    (tmp_path / "linux-64/run_exports.json").write_text("<html>")
    with pytest.raises(FoundationError, match=r"linux-64/run_exports.json: not a valid run_exports.json"):
        asyncio.run(FolderRunExports(tmp_path).of(_record(tmp_path.as_uri(), tmp_path, "toy-1.0-0.conda")))
    with serve_folder(tmp_path) as address, pytest.raises(FoundationError, match=r"not a valid run_exports.json"):
        asyncio.run(RemoteRunExports(address, {}).of(_record(address, tmp_path, "toy-1.0-0.conda")))


@pytest.mark.parametrize("kind", ["folder", "pipe", "link to a device", "too large"])
def test_what_is_no_file_is_named(tmp_path: Path, kind: str) -> None:
    (tmp_path / "linux-64").mkdir()
    (tmp_path / "linux-64/run_exports.json").touch()
    damage(tmp_path, "linux-64/run_exports.json", kind, tmp_path)
    with bounded(kind), pytest.raises(FileAccessError, match=r"run_exports\.json: (is a|has more than)"):
        asyncio.run(FolderRunExports(tmp_path).of(_record(tmp_path.as_uri(), tmp_path, "toy-1.0-0.conda")))
