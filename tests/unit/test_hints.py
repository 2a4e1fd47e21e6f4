# SPDX-License-Identifier: BSD-3-Clause
"""What the program's messages advise can be done: the options that they name exist, and so do the programs."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest
import typer

import channel_tools
from channel_tools.cli.app import app

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

PROGRAM = Path(channel_tools.__file__).parent
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*[a-z0-9]")
STRANGER = re.compile(
    r"(?:^|[`:;,]|\bor|\bwith|\brun)\s*(?:rattler-build|boa|pixi|mamba|micromamba|quetz|cosign|patchelf|pipx|uv)"
    r" (?:auth|build|create|global|info|install|lock|login|run|sign|verify|-)"
)
"""The start of a command of a program that this one neither brings nor requires."""
WRITTEN = {
    "foundation/repairs/toolchain.py": "compilers' options",
    "ranks/jobs.py": "a job script and sbatch's options",
    "mirror/data/bootstrap.py": "a program of its own",
    "page/render.py": "commands of each client, in a page for its users",
    "conda/engine_messages.py": "the engine's words that it replaces",
}
"""Modules whose texts are mostly not read by people."""
OTHERS = {
    "--file": "conda create",
    "--pdeathsig": "setpriv",
    "--snakefile": "snakemake, which build --workflow writes a workflow for",
    "--keep-going": "snakemake",
    "--no-huge": "DPDK, in a variable",
    "--force-reinstall": "conda, in doctor's advice for an environment that conda made",
    "--set": "conda, whose default is the cause",
    "--address": "switchml-switch, in the lines for a page",
    "--controller-port": "switchml-switch",
    "--nnodes": "torchrun, in the lines for a page",
    "--nproc-per-node": "torchrun",
    "--rdzv-backend": "torchrun",
    "--rdzv-endpoint": "torchrun",
}
"""Options of other programs, which stand beside them in the text."""


class Parameter(Protocol):
    """What is needed of a parameter of a command."""

    opts: list[str]
    secondary_opts: list[str]


def options_of(parameters: Iterable[Parameter], commands: Mapping[str, object]) -> Iterator[str]:
    """The options of a command or group, and of the commands in it."""
    for parameter in parameters:
        yield from (*parameter.opts, *parameter.secondary_opts)
    for command in commands.values():
        yield from options_of(getattr(command, "params", ()), getattr(command, "commands", {}))


def texts_of(module: Path) -> Iterator[tuple[int, str]]:
    """The strings of a module, except docstrings."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value


@pytest.fixture(scope="module")
def sentences() -> list[tuple[str, str]]:
    """Where a text is, and the text."""
    modules = {path.relative_to(PROGRAM).as_posix(): path for path in sorted(PROGRAM.rglob("*.py"))}
    assert modules.keys() >= WRITTEN.keys()
    return [
        (f"{name}:{line}", text)
        for name, path in modules.items()
        if name not in WRITTEN
        for line, text in texts_of(path)
        if " " in text.strip()
    ]


def test_options_that_messages_name_exist(sentences: list[tuple[str, str]]) -> None:
    known = {*options_of((), {"": typer.main.get_command(app)}), "--help"}
    named = [(where, option) for where, text in sentences for option in OPTION.findall(text)]
    assert len({option for _where, option in named} & known) > 20
    assert [(where, option) for where, option in named if option not in known | OTHERS.keys()] == []
    assert {option for _where, option in named} >= OTHERS.keys()


def test_programs_that_messages_advise_are_there(sentences: list[tuple[str, str]]) -> None:
    assert [(where, text) for where, text in sentences if STRANGER.search(text)] == []
