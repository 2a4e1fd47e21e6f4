# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest
import rattler

from channel_tools.environments.history import HISTORY
from channel_tools.environments.state import Unfinished, channel_of, mark_unfinished, read_state, unmark
from channel_tools.system.errors import IntegrityError
from channel_tools.system.settings import STACKS_PACKAGE

CONDA_FORGE = "https://conda.anaconda.org/conda-forge"


def add(prefix: Path, name: str, *, channel: str, depends: tuple[str, ...] = (), address: str | None = None) -> None:
    package = rattler.PackageRecord(
        name=name,
        version="1.0",
        build=rattler.BuildString("0"),
        build_number=0,
        subdir="linux-64",
        depends=list(depends),
    )
    url = address or f"{channel}/linux-64/{name}-1.0-0.conda"
    record = rattler.RepoDataRecord(package, f"{name}-1.0-0.conda", url, channel)
    (prefix / "conda-meta").mkdir(parents=True, exist_ok=True)
    path = prefix / "conda-meta" / f"{name}-1.0-0.json"
    rattler.PrefixRecord(record, paths_data=rattler.PrefixPaths()).write_to_path(path, pretty=True)


def command(prefix: Path, *words: str) -> None:
    with (prefix / HISTORY).open("a") as stream:
        stream.write(f"==> 2026-11-25 10:00:00 <==\n# cmd: {' '.join(words)}\n")


def test_the_channels_are_in_the_order_of_commands_then_that_of_the_stacks(tmp_path: Path) -> None:
    add(tmp_path, "aaa", channel="file:///srv/foundation")
    add(tmp_path, STACKS_PACKAGE, channel="file:///srv/ours")
    add(tmp_path, "numpy", channel=CONDA_FORGE)
    assert read_state(tmp_path).channels == ("file:///srv/ours", "file:///srv/foundation", CONDA_FORGE)
    command(tmp_path, "/opt/conda/bin/conda", "create", "-c", "conda-forge", "-c", "defaults", "numpy>=2", "it's")
    command(tmp_path, "channel_tools", "env", "add", "--channel=file:///srv/foundation/", "--channel")
    assert read_state(tmp_path).channels == (CONDA_FORGE, "file:///srv/foundation", "file:///srv/ours")


@pytest.mark.parametrize(
    ("address", "channel"),
    [
        (f"{CONDA_FORGE}/linux-64/tool-1.0-0.conda", CONDA_FORGE),
        ("https://host.example/t/sesame/ours/linux-64/tool-1.0-0.conda", "https://host.example/ours"),
        ("file:///tmp/tool.conda", "file:///srv/ours"),
    ],
)
def test_a_package_is_of_the_channel_in_its_address(tmp_path: Path, address: str, channel: str) -> None:
    add(tmp_path, "tool", channel="file:///srv/ours/", address=address)
    assert channel_of(read_state(tmp_path).records[0]) == channel


def test_what_is_lacking_is_said_with_what_needs_it(tmp_path: Path) -> None:
    add(tmp_path, "tool", channel=CONDA_FORGE, depends=("library >=2", "__glibc", 'extra[when="python <3"]', "lost"))
    add(tmp_path, "library", channel="file:///elsewhere")
    state = read_state(tmp_path)
    assert state.unmet(["tool", "__unix"], [CONDA_FORGE]) == [
        "library >=2 (for tool): it has library 1.0 0",
        "lost (for tool)",
    ]
    assert state.unmet(["library"], ["file:///elsewhere/"]) == []
    (lacking,) = state.unmet(["library"], ["https://u:sesame@host.example/t/sesame/ours"])
    assert lacking == "library from https://host.example/ours/: it has that of file:///elsewhere"


def test_an_interrupted_run_says_what_the_environment_is_there_for(tmp_path: Path) -> None:
    add(tmp_path, "tool", channel=CONDA_FORGE)
    unfinished = Unfinished(packages=("tool-1.0-0",), requested={"tool": ("tool >=1,<2", "tool[version='>=1']")})
    mark_unfinished(tmp_path, unfinished)
    (tmp_path / "conda-meta" / "cut-1.0-0.json").write_text('{"na')
    state = read_state(tmp_path)
    assert (state.unfinished, state.requested) == (unfinished, unfinished.requested)
    assert [path.name for path in state.damaged] == ["cut-1.0-0.json"]
    unmark(tmp_path)
    with pytest.raises(IntegrityError, match=r"cut-1\.0-0\.json: the record of an installed package cannot be read"):
        read_state(tmp_path)


@pytest.mark.parametrize("marker", ["", "tool-1.0-0\nlib", "# update specs: ['to"])
def test_a_note_of_an_earlier_version_or_cut_off_says_nothing_of_it(tmp_path: Path, marker: str) -> None:
    add(tmp_path, "tool", channel=CONDA_FORGE)
    (tmp_path / "conda-meta" / ".channel_tools-unfinished").write_text(marker)
    state = read_state(tmp_path)
    assert state.unfinished is not None
    assert (state.unfinished.requested, state.requested) == (None, {})
