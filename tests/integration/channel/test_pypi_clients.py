# SPDX-License-Identifier: BSD-3-Clause
"""What others made reads our channels, locks and packages: the clients that PyPI has, as their own programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from channel_tools.channel import Channel, add_set, channel_writer, verify_channel
from channel_tools.conda.package import sidecar_sha256, write_sidecar
from channel_tools.system.beneath import Beneath
from tests.support.packages import make_conda, new_channel
from tests.support.pypi_clients import CLIENTS, run_client
from tests.support.serving import make_token, running

pytestmark = [pytest.mark.integration, pytest.mark.slow]

_SCRIPT = Path(__file__).parents[2] / "support" / "rattler_client.py"
_RATTLERS = sorted(name for name in CLIENTS if name.startswith("py-rattler"))


@dataclass(frozen=True, kw_only=True)
class Place:
    """A channel with attestations: its folder, and its address on a server, with a token."""

    channel: Channel
    served: str

    def address(self, kind: str) -> str:
        return self.served if kind == "served" else self.channel.path.as_uri()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    work = tmp_path_factory.mktemp("clients")
    channel = new_channel(work / "channels")
    libtoy = make_conda(work / "made", "libtoy", files={"lib/libtoy.txt": b"lib"})
    toy = make_conda(work / "made", "toy", index={"depends": ["libtoy >=1"]}, files={"share/toy.txt": b"toy"})
    for package in (libtoy, toy):
        write_sidecar(package, b"[{}]")
    with channel_writer(channel) as writer:
        add_set(writer, [libtoy, toy])
    token = make_token(channel.path.parent, channel.path.name)
    with running(channel.path.parent, work=work) as server:
        yield Place(channel=channel, served=f"{server.address}/t/{token}/{channel.path.name}")


@pytest.mark.parametrize("how", ["sharded", "plain"])
@pytest.mark.parametrize("kind", ["folder", "served"])
@pytest.mark.parametrize("rattler", _RATTLERS)
def test_earlier_py_rattlers_install_and_read_where_attestations_are(
    place: Place, tmp_path: Path, rattler: str, kind: str, how: str
) -> None:
    found = json.loads(run_client(rattler, "python", _SCRIPT, place.address(kind), tmp_path / "env", how, "toy"))
    assert sorted(found) == ["libtoy-1.0-0.conda", "toy-1.0-0.conda"]
    assert (tmp_path / "env" / "share" / "toy.txt").read_bytes() == b"toy"
    for name, row in found.items():
        assert row["url"] == f"{place.address(kind)}/linux-64/{name}"
        expected = sidecar_sha256(Beneath(root=place.channel.path / "linux-64"), name)
        assert row["attestations_sha256"] in {expected, None}


def test_conda_mirror_copies_a_served_channel(place: Place, tmp_path: Path) -> None:
    """Byte for byte, with an index of them; version 0.10 lists packages of both formats as ``packages``."""
    words = ("--upstream-channel", place.served, "--target-directory", tmp_path, "--platform", "linux-64")
    run_client("tools", "conda-mirror", *words, "--no-progress")
    rows = json.loads((tmp_path / "linux-64" / "repodata.json").read_bytes())["packages"]
    assert sorted(rows) == ["libtoy-1.0-0.conda", "toy-1.0-0.conda"]
    for name in rows:
        ours = place.channel.path / "linux-64" / name
        assert (tmp_path / "linux-64" / name).read_bytes() == ours.read_bytes()


def test_conda_package_handling_reads_our_packages_and_we_take_what_it_makes(place: Place, tmp_path: Path) -> None:
    source = place.channel.path / "linux-64" / "toy-1.0-0.conda"
    run_client("tools", "cph", "extract", source, "--dest", tmp_path / "unpacked")
    assert (tmp_path / "unpacked" / "share" / "toy.txt").read_bytes() == b"toy"
    (tmp_path / "linux-64").mkdir()
    made = tmp_path / "linux-64" / source.name
    run_client("tools", "cph", "create", tmp_path / "unpacked", made.name, "--out-folder", made.parent)
    channel = new_channel(tmp_path / "other")
    with channel_writer(channel) as writer:
        add_set(writer, [made, place.channel.path / "linux-64" / "libtoy-1.0-0.conda"])
    assert verify_channel(channel) == []
