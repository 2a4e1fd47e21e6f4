# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import functools
import http.server
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rattler import MatchSpec
from securesystemslib.signer import CryptoSigner

from channel_tools.channel import Channel, add_set, channel_writer, index_channel
from channel_tools.channel import records as refresh
from channel_tools.conda.package import sidecar_of, write_sidecar
from channel_tools.provenance.attestations import signed_sidecar
from channel_tools.publish.folder import FolderTarget
from channel_tools.publish.maintenance import hotfix, yank
from channel_tools.system.files import sha256_of_file
from channel_tools.system.progress import SilentProgress
from tests.support.packages import make_conda, new_channel
from tests.support.processes import TEST_TIMEOUT_S
from tests.support.readers import unpack
from tests.support.server_thread import in_thread
from tests.unit.publish.sets import make_set

pytestmark = pytest.mark.integration

_ROOT = Path(__file__).parents[3]


def drive(*arguments: object) -> object:
    """Run one of the programs beside this file and return what it printed."""
    command = [sys.executable, "-m", "tests.integration.conda.clients", *map(str, arguments)]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=TEST_TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_readers_never_see_a_half_written_index_while_packages_are_published(tmp_path: Path) -> None:
    outcome = drive("read", tmp_path)
    assert isinstance(outcome, dict)
    assert (outcome["faults"], outcome["status"], outcome["published"]) == ([], 0, 40)
    assert outcome["reads"] > 40


ODD: list[dict[str, object]] = [
    {
        "arch": "x86_64",
        "platform": "linux",
        "license": "MIT",
        "license_family": "MIT",
        "constrains": [],
        "features": None,
    },
    {
        "track_features": "foo bar",
        "constrains": ["z <2"],
        "depends": ["python >=3.11,<3.12.0a0", "b-c 1.* *_0", "d 2.0", "e"],
    },
    {
        "track_features": ["foo", "bar"],
        "purls": ["pkg:generic/toy@1"],
        "legacy_bz2_md5": "ab" * 16,
        "date": "2020-01-01",
    },
    {"timestamp": 1600000000000, "python_site_packages_path": "lib/python3.11/site-packages", "app_entry": "x"},
    {"timestamp": 1600000000, "track_features": "", "license": None, "features": "mkl", "random": {"a": 1}},
]
EXPORTS: list[dict[str, list[str]] | None] = [
    None,
    {},
    {"weak": ["a >=1"], "strong": []},
    {"strong": ["a"], "noarch": ["b"]},
    {"weak_constrains": ["c <3"], "strong_constrains": ["d"]},
]


def test_records_agree_with_rattlers_own_indexer(tmp_path: Path) -> None:
    made = [
        make_conda(tmp_path / "made", f"odd{number}", index=extra, run_exports=exports, about={"home": "x"})
        for number, (extra, exports) in enumerate(zip(ODD, EXPORTS, strict=True))
    ]
    made += [
        make_conda(tmp_path / "made", f"any{number}", subdir="noarch", index={"noarch": kind, "depends": ["python"]})
        for number, kind in enumerate(("python", "generic"))
    ]
    write_sidecar(made[0], signed_sidecar([{}], CryptoSigner.generate_ed25519()))
    channel = new_channel(tmp_path)
    with channel_writer(channel) as writer:
        add_set(writer, made)
    drive("index", tmp_path / "made")
    assert records(channel.path / "linux-64")[made[0].name]["attestations_sha256"] == sha256_of_file(
        sidecar_of(made[0])
    )
    for subdir, count in (("linux-64", 5), ("noarch", 2)):
        ours, theirs = records(channel.path / subdir), records(tmp_path / "made" / subdir)
        assert len(ours) == count
        assert ours == theirs
        assert shards(channel.path / subdir) == shards(tmp_path / "made" / subdir)


def test_patched_and_removed_records_agree_with_rattlers_own_indexer(tmp_path: Path) -> None:
    """rattler hides what is removed by the key ``removed`` alone; for conda, the records here are gone as well."""
    patch = {
        "patch_instructions_version": 1,
        "packages": {"odd1-1.0-0.tar.bz2": {"license": "MIT", "track_features": None}},
        "packages.conda": {"odd0-1.0-0.conda": {"depends": ["x <2"], "constrains": ["y"], "license": None}},
        "remove": ["odd2-1.0-0.conda"],
    }
    made = [make_conda(tmp_path / "made", f"odd{number}", index=extra) for number, extra in enumerate(ODD[:4])]
    instructions = json.dumps(patch).encode()
    carrier = make_conda(
        tmp_path / "made",
        "patches",
        subdir="noarch",
        index={"noarch": "generic"},
        files={"linux-64/patch_instructions.json": instructions},
    )
    (tmp_path / "patch_instructions.json").write_bytes(instructions)
    target = FolderTarget(root=tmp_path / "target")
    target.publish(target.plan(make_set(made), label="main"), progress=SilentProgress())
    path = tmp_path / "patch_instructions.json"
    hotfix(target, path, subdir=None, label=None, replace=False, dry_run=False)
    yank(target, "odd3", label=None, reason="wrong", dry_run=False)
    made[3].unlink()
    drive("index", tmp_path / "made", carrier.name)
    ours, theirs = target.root / "linux-64", tmp_path / "made" / "linux-64"
    gone = {"odd2-1.0-0.conda"}
    assert records(ours) == {name: row for name, row in records(theirs).items() if name not in gone}
    assert records(ours, "repodata_from_packages.json") == records(theirs, "repodata_from_packages.json")
    assert removed(theirs) == gone
    assert removed(ours) == gone | {"odd3-1.0-0.conda"}
    shards_here, shards_there = shards(ours), shards(theirs)
    assert shards_here.pop("odd3") == {"packages": {}, "packages.conda": {}, "removed": ["odd3-1.0-0.conda"]}
    there = shards_there["odd2"]
    assert isinstance(there, dict)
    assert shards_here == shards_there | {"odd2": there | {"packages.conda": {}}}


def removed(folder: Path) -> set[str]:
    return set(json.loads((folder / "repodata.json").read_bytes())["removed"])


def records(folder: Path, name: str = "repodata.json") -> dict[str, dict[str, object]]:
    rows: dict[str, dict[str, object]] = json.loads((folder / name).read_bytes())["packages.conda"]
    return {name: comparable(row) for name, row in rows.items()}


def comparable(row: dict[str, Any]) -> dict[str, Any]:
    """The record without the time at which it was indexed, its MatchSpecs in rattler's spelling.

    rattler's indexer writes ``d ==2.0`` for a package's ``d 2.0``; here, as in conda-index, its own words stay.
    """
    assert isinstance(row["indexed_timestamp"], int)
    specs = {key: [str(MatchSpec(spec)) for spec in row[key]] for key in ("depends", "constrains") if key in row}
    return {key: value for key, value in (row | specs).items() if key != "indexed_timestamp"}


def shards(folder: Path) -> dict[str, object]:
    index = msgspec.msgpack.decode(unpack(folder / "repodata_shards.msgpack.zst"))
    assert index["info"]["subdir"] == folder.name
    assert index["info"]["shards_base_url"] == "./shards/"
    found = {}
    for name, sha256 in index["shards"].items():
        shard = msgspec.msgpack.decode(unpack(folder / "shards" / f"{sha256.hex()}.msgpack.zst"))
        rows = {file: comparable(row) for file, row in shard["packages.conda"].items()}
        # rattler 0.28's indexer writes this hash as bytes, too; CEP 16 names sha256 and md5, and conda reads no others
        for row in rows.values():
            if isinstance(row.get("attestations_sha256"), bytes):
                row["attestations_sha256"] = row["attestations_sha256"].hex()
        shard["packages.conda"] = rows
        found[name] = shard
    return found


def test_many_files_are_read_in_several_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refresh, "_FILES_PER_PROCESS", 4)
    monkeypatch.setattr(refresh, "_FILES_AT_ONCE", 3)
    monkeypatch.setattr("os.sched_getaffinity", lambda _process: {0, 1})
    channel = new_channel(tmp_path)
    for number in range(20):
        make_conda(channel.path, f"toy{number}")
    damaged = channel.path / "linux-64" / "toy7-1.0-0.conda"
    damaged.write_bytes(damaged.read_bytes()[:-20])
    with channel_writer(channel) as writer:
        report = index_channel(writer)
    assert (report.listed, [finding.path for finding in report.refused]) == (19, [damaged])
    assert list(records(channel.path / "linux-64")) == sorted(
        f"toy{number}-1.0-0.conda" for number in range(20) if number != 7
    )


class _Server(http.server.ThreadingHTTPServer):
    """Serves a folder on the loopback and remembers what was asked for."""

    def __init__(self, folder: Path) -> None:
        self.asked: list[str] = []
        super().__init__(("127.0.0.1", 0), functools.partial(_Handler, directory=str(folder)))


class _Handler(http.server.SimpleHTTPRequestHandler):
    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        del code, size
        assert isinstance(self.server, _Server)
        self.server.asked.append(self.path)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Not on the terminal."""


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, list[str]]]:
    server = _Server(folder)
    with in_thread(server) as address:
        yield f"{address}/channel", server.asked


@pytest.fixture
def channel(tmp_path: Path) -> Channel:
    made = new_channel(tmp_path)
    libtoy = make_conda(tmp_path / "made", "libtoy", files={"lib/libtoy.txt": b"lib"})
    toy = make_conda(tmp_path / "made", "toy", index={"depends": ["libtoy >=1"]}, files={"share/toy.txt": b"toy"})
    with channel_writer(made) as writer:
        add_set(writer, [libtoy, toy])
    shutil.rmtree(tmp_path / "made")
    return made


@pytest.mark.parametrize("how", ["sharded", "plain"])
@pytest.mark.parametrize("scheme", ["file", "http"])
def test_a_client_installs_from_the_channel(channel: Channel, tmp_path: Path, scheme: str, how: str) -> None:
    prefix = tmp_path / "env"
    with served(tmp_path) as (http_address, asked):
        address = http_address if scheme == "http" else channel.address
        assert drive("install", address, prefix, "toy", how) == ["libtoy-1.0-0.conda", "toy-1.0-0.conda"]
    assert (prefix / "share" / "toy.txt").read_bytes() == b"toy"
    assert (prefix / "lib" / "libtoy.txt").read_bytes() == b"lib"
    if scheme == "http":
        assert any("/shards/" in path for path in asked) == (how == "sharded")
        assert any(path.endswith("/repodata.json.zst") for path in asked) == (how == "plain")
