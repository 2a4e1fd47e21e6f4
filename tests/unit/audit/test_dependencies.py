# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from channel_tools.audit.dependencies import Known, neighbours_in_cache, neighbours_in_files
from channel_tools.audit.model import PackageFacts
from channel_tools.audit.run import Gate
from channel_tools.system.errors import VerificationError
from tests.unit.audit.packages import Toy
from tests.unit.audit.spoiled import library

NEEDY = Toy(files={"lib/libtoy.so.1": library(needed=["liblower.so.1"], rpath="$ORIGIN")}, depends=("lower 1.*",))


def unpacked(cache: Path, name: str, version: str, *paths: str) -> None:
    """A package as clients keep it in their cache."""
    info = cache / f"{name}-{version}-0" / "info"
    info.mkdir(parents=True)
    index = {"name": name, "version": version, "build": "0", "build_number": 0, "subdir": "linux-64", "depends": []}
    (info / "index.json").write_text(json.dumps(index))
    rows = [{"_path": path, "path_type": "softlink"} for path in paths]
    (info / "paths.json").write_text(json.dumps({"paths": rows, "paths_version": 1}))


def test_the_foundations_packages_are_known_from_the_builds_own_cache(tmp_path: Path) -> None:
    unpacked(tmp_path / "pkgs", "lower", "1.2", "lib/liblower.so.1")
    unpacked(tmp_path / "pkgs", "lower", "2.0", "lib/liblower.so.2")
    (tmp_path / "pkgs" / "broken-1-0" / "info").mkdir(parents=True)
    (tmp_path / "pkgs" / "broken-1-0" / "info" / "index.json").write_text("{")
    package = NEEDY.write(tmp_path / "made")
    channel = tmp_path / "channel"
    channel.mkdir()
    with pytest.raises(VerificationError, match="not known: nothing in the channel satisfies 'lower 1"):
        Gate(channel=channel, build_paths=()).admit(package)
    Gate(channel=channel, build_paths=(), cache=tmp_path / "pkgs").admit(package)


def test_only_what_a_closure_holds_is_around_a_package(tmp_path: Path) -> None:
    unpacked(tmp_path, "lower", "1.2", "lib/liblower.so.1")
    unpacked(tmp_path, "lower", "2.0", "lib/liblower.so.2")
    unpacked(tmp_path, "other", "1.0", "lib/libother.so.1")
    facts = PackageFacts(file_name="toy.conda", subdir="linux-64", name="toy", index={"depends": ["lower >=2", "gone"]})
    around = Known(neighbours_in_cache(tmp_path)).dependencies_of(facts)
    assert around.files == {"lib/liblower.so.2"}
    assert around.versions == {"toy": ("None",), "lower": ("2.0",)}
    assert around.unresolved == ("nothing in the channel satisfies 'gone'; it has no package of that name",)


def test_a_missing_library_names_one_of_the_dependencies_that_are_not_known(tmp_path: Path) -> None:
    package = Toy(
        name="needy", depends=("gone", "lost", "away"), files={"lib/libneedy.so": library(needed=("libgone.so",))}
    ).write(tmp_path / "made")
    channel = tmp_path / "channel"
    channel.mkdir()
    with pytest.raises(VerificationError) as caught:
        Gate(channel=channel, build_paths=()).admit(package)
    said = str(caught.value)
    assert said.count("nothing in the channel satisfies") == 1
    assert "and 2 more dependencies; -c names further channels)" in said


def test_the_gate_sees_what_entered_since_it_was_made(tmp_path: Path) -> None:
    channel = tmp_path / "channel"
    gate = Gate(channel=channel, build_paths=())
    package = NEEDY.write(tmp_path / "made")
    channel.mkdir()
    with pytest.raises(VerificationError):
        gate.admit(package)
    Toy(name="lower", files={"lib/liblower.so.1": library(rpath="$ORIGIN")}).write(channel)
    assert gate.admit(package).findings == ()


def test_a_damaged_package_is_no_neighbour_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    damaged = NEEDY.write(tmp_path)
    damaged.write_bytes(b"x")
    unlisted = Toy(name="unlisted", info={"paths.json": b"{"}).write(tmp_path)
    (other,) = neighbours_in_files([damaged, unlisted])
    assert other.listing() == (frozenset(), {})
    first, second = caplog.messages
    assert first.startswith(f"{damaged}: ")
    assert first.endswith("; it is left out of what packages can depend on")
    assert second.startswith(f"{unlisted}: ")
    assert second.endswith("; none of its files is known")


@pytest.mark.parametrize("own", [{"constrains": ("dsk[array] >=2",)}, {"depends": ("dsk[array] >=2",)}])
def test_a_neighbour_is_what_its_channel_lists(
    tmp_path: Path, own: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """The channel has corrected its requirements, which no index could contain."""
    package = NEEDY.write(tmp_path / "made")
    lower = Toy(name="lower", files={"lib/liblower.so.1": library(rpath="$ORIGIN")}, **own).write(tmp_path / "channel")
    index = tmp_path / "channel" / "linux-64" / "repodata.json"
    gate = Gate(channel=tmp_path / "channel", build_paths=())
    index.write_text(json.dumps({"packages.conda": {lower.name: {"depends": [], "constrains": []}}}))
    gate.admit(package)
    assert caplog.messages == []
    index.unlink()
    gate = Gate(channel=tmp_path / "channel", build_paths=())
    for _ in range(2):
        with pytest.raises(VerificationError, match="not known: nothing in the channel satisfies 'lower 1"):
            gate.admit(package)
    (message,) = caplog.messages
    assert message.startswith(f"{lower}: its metadata has {next(iter(own))}")
