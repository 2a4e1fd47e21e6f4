# SPDX-License-Identifier: BSD-3-Clause
"""Coroutines are run by commands, not inside stages: a stage that runs its own cannot be awaited with another."""

from __future__ import annotations

import ast
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "channel_tools"
STARTING = {"run", "Runner", "new_event_loop", "run_until_complete"}
BY_COMMANDS = {"cli", "workflow"}
ALLOWED = {  # how often a stage starts a loop, and why
    "publish/third_party/services.py": (
        2,
        "targets of all kinds share an interface that is not asynchronous",
    ),
    "validate/runner.py": (1, "only the installation is asynchronous; ranks, switch and services are processes"),
}


def _loops(source: str) -> int:
    """How often the text starts an event loop by asyncio."""
    calls = [node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return sum(
        isinstance(call, ast.Attribute)
        and call.attr in STARTING
        and (call.attr == "run_until_complete" or (isinstance(call.value, ast.Name) and call.value.id == "asyncio"))
        for call in calls
    )


def test_stages_start_no_event_loop_of_their_own() -> None:
    paths = [path for path in FOLDER.rglob("*.py") if path.relative_to(FOLDER).parts[0] not in BY_COMMANDS]
    counts = {str(path.relative_to(FOLDER)): _loops(path.read_text(encoding="utf-8")) for path in paths}
    assert {name: count for name, count in counts.items() if count} == {
        name: count for name, (count, _why) in ALLOWED.items()
    }, "make the stage's function `async def`, and run it in workflow/"


def test_every_way_to_start_a_loop_is_seen() -> None:
    source = "asyncio.run(a())\nwith asyncio.Runner() as r: r.run(b())\nloop.run_until_complete(c())\nsubprocess.run(d)"
    assert _loops(source) == len(["run", "Runner", "run_until_complete"])
