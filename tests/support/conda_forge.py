# SPDX-License-Identifier: BSD-3-Clause
"""Records of conda-forge, for plans over a foundation as it really is.

``CHANNEL_TOOLS_TEST_CONDA_FORGE`` names a folder with ``channel/``, an index of records without packages, and
``conda_build_config.yaml``, conda-forge's global pinning. Where it names none, the tests that need it are skipped.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
VARIABLE = "CHANNEL_TOOLS_TEST_CONDA_FORGE"


def conda_forge_folder() -> Path:
    """The folder that the variable names; skips the test where it names none."""
    named = os.environ.get(VARIABLE, "")
    if not named:
        pytest.skip(f"no records of conda-forge: set {VARIABLE} to a folder that has them to run this test")
    folder = Path(named).absolute()
    assert (folder / "channel").is_dir(), f"{VARIABLE}={named}: has no channel/"
    return folder


def _copy(channel: Path, destination: Path) -> None:
    """A copy that can be added to, also of a folder that can only be read."""
    shutil.copytree(channel, destination, copy_function=shutil.copyfile)
    for folder in (destination, destination / "linux-64", destination / "noarch"):
        folder.chmod(0o755)


def copy_tree(destination: Path, *, pinning: Path | None = None) -> Path:
    """A copy of the project's tree, without a foundation lock; with this pinning, if given."""
    for name in ("recipes", "variants", "patches"):
        ignored = shutil.ignore_patterns("build", "build-*", ".*_cache", "__pycache__")
        shutil.copytree(_ROOT / name, destination / name, ignore=ignored)
    # the recipe of channel_tools takes the program and its project files from beside it
    shutil.copytree(
        _ROOT / "channel_tools", destination / "channel_tools", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in ("LICENSE", "README.md", "pyproject.toml"):
        shutil.copyfile(_ROOT / name, destination / name)
    if pinning is not None:
        stacks = destination / "variants" / "stacks.yaml"
        stacks.write_text(f"pinning: {pinning}\n{stacks.read_text(encoding='utf-8')}", encoding="utf-8")
    return destination


def copy_with_newer(channel: Path, destination: Path, names: tuple[str, ...]) -> Path:
    """A copy of a channel's index in which the newest noarch package of each name has a successor, a day younger."""
    _copy(channel, destination)
    index = destination / "noarch" / "repodata.json"
    content = json.loads(index.read_bytes())
    records = content["packages.conda"]
    for name in names:
        newest = max((one for one in records.values() if one["name"] == name), key=lambda one: int(one["timestamp"]))
        version = f"{newest['version']}.1"
        successor = newest | {"version": version, "sha256": "0" * 64, "timestamp": newest["timestamp"] + 86_400_000}
        records[f"{name}-{version}-{newest['build']}.conda"] = successor
    index.write_text(json.dumps(content), encoding="utf-8")
    return destination


def copy_with_pinned(channel: Path, destination: Path) -> Path:
    """A copy of a channel's index with what the pinning names and it lacks: OpenSSL 3.5, gflags 2.3, glog with that."""
    _copy(channel, destination)
    index = destination / "linux-64" / "repodata.json"
    content = json.loads(index.read_bytes())
    records = content["packages.conda"]
    made: tuple[tuple[str, str, dict[str, str]], ...] = (
        ("openssl", "3.5.9", {}),
        ("gflags", "2.3.0", {}),
        ("glog", "0.7.1", {"gflags >=2.2.2,<2.3.0a0": "gflags >=2.3.0,<2.4.0a0"}),
    )
    for name, version, changed in made:
        newest = max((one for one in records.values() if one["name"] == name), key=lambda one: int(one["timestamp"]))
        build, depends = f"{newest['build']}_pinned", [changed.get(spec, spec) for spec in newest["depends"]]
        record = newest | {"version": version, "build": build, "depends": depends, "sha256": "0" * 64}
        records[f"{name}-{version}-{build}.conda"] = record
    index.write_text(json.dumps(content), encoding="utf-8")
    return destination
