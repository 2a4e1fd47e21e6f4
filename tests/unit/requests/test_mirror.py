# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from channel_tools.pins.choice import LockChoice
from channel_tools.requests.mirror import MirrorRequest
from channel_tools.system.errors import UsageError


def asked(options: dict[str, Any]) -> MirrorRequest:
    return MirrorRequest(destination=Path("bundle"), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"locks": (Path("a.lock"),), "python": "3.13"}, "--python or --pytorch with --lock"),
        ({"specs": ("numpy",), "stacks": ("udp",)}, "MatchSpecs with --variant"),
        ({"tool_pythons": ("3.13", "4")}, "--tool-python 4: expected a version like 3"),
        ({"categories": ("dev",)}, "--category or --environment without a lock"),
    ],
    ids=["lock", "specs", "tool", "category"],
)
def test_options_that_contradict_each_other_are_no_request(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        asked(options)


def test_this_program_is_included_for_the_python_that_runs_it_unless_others_are_named() -> None:
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert asked({}).pythons == (here,)
    assert asked({"tool_pythons": ("3.12", "3.13")}).pythons == ("3.12", "3.13")
    assert asked({"without_tool": True, "tool_pythons": ("4",)}).pythons == ()


def test_the_part_of_a_lock_is_what_its_options_choose() -> None:
    part = {"platforms": ("linux-64",), "categories": ("dev",), "environment": "gpu"}
    assert asked({"locks": (Path("a.lock"),), **part}).choice == LockChoice(**part)  # type: ignore[arg-type]
