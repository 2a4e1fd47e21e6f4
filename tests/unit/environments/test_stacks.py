# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import json
from pathlib import Path

import pytest

from channel_tools.environments.stacks import channels_of_stacks
from channel_tools.system.errors import UsageError
from channel_tools.system.settings import INSTALLED_STACKS, STACKS_PACKAGE, Tree


def environment(prefix: Path, **addresses: str) -> Tree:
    """The stacks of an environment whose packages came from these addresses."""
    (prefix / "conda-meta").mkdir(parents=True)
    for name, address in addresses.items():
        package = name.replace("__", "-")
        file_name = f"{package}-1.0-0.conda"
        record = {"name": package, "version": "1.0", "build": "0", "build_number": 0, "subdir": "noarch"}
        record |= {
            "depends": [],
            "fn": file_name,
            "channel": address,
            "url": f"{address}/noarch/{file_name}",
            "files": [],
        }
        (prefix / "conda-meta" / f"{package}-1.0-0.json").write_text(json.dumps(record))
    return Tree(root=prefix / INSTALLED_STACKS, has_recipes=False)


def test_stacks_come_from_the_channels_of_their_environment_their_own_first(tmp_path: Path) -> None:
    assert STACKS_PACKAGE == "channel_tools-stacks"
    tree = environment(
        tmp_path / "env", base="https://conda.example/forge", channel_tools__stacks="https://conda.example/lab"
    )
    assert channels_of_stacks(tree) == ("https://conda.example/lab", "https://conda.example/forge")


def test_an_environment_from_no_channel_says_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="was not installed from a channel"):
        channels_of_stacks(environment(tmp_path / "env"))
