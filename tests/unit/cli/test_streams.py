# SPDX-License-Identifier: BSD-3-Clause
"""What every command prints for those who want no colours, and for those who want the result alone."""

from __future__ import annotations

import inspect
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from channel_tools.cli.app import app
from tests.support.command_line import run_tool
from tests.unit.matrix.toytree import write_tree

ESCAPE = "\x1b"
FORCED = {"FORCE_COLOR": "1", "GITHUB_ACTIONS": "true"}
"""Variables by which rich and typer print colours to what is no terminal."""


def commands(tree: typer.Typer, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], set[str]]]:
    """Every command of the tree, without the groups, with the names of its parameters."""
    for one in tree.registered_commands:
        assert one.name is not None
        assert one.callback is not None
        yield (*words, one.name), set(inspect.signature(one.callback).parameters)
    for group in tree.registered_groups:
        assert group.typer_instance is not None
        yield from commands(group.typer_instance, (*words, str(group.name)))


EVERY = dict(commands(app))


def test_every_command_takes_both_options() -> None:
    assert len(EVERY) > 50
    lacking = [words for words, names in EVERY.items() if not {"quiet", "color"} <= names]
    assert lacking == []


@pytest.mark.parametrize("words", [(), *EVERY], ids=" ".join)
def test_no_command_prints_an_escape_where_none_is_wanted(words: tuple[str, ...], tmp_path: Path) -> None:
    """As it ends without arguments: an error of ours, one of its arguments, or a result."""
    result = run_tool(*words, cwd=tmp_path, environ={**FORCED, "NO_COLOR": "1"})
    said = result.stdout + result.stderr
    assert said
    assert ESCAPE not in said
    assert "\\x1b" not in said  # as harmless shows one


@pytest.mark.parametrize("words", [("build",), ("attest", "sign"), ("lits",)], ids=" ".join)
def test_colours_are_printed_where_they_are_wanted(words: tuple[str, ...], tmp_path: Path) -> None:
    """What the test above looks for is there without the variable."""
    result = run_tool(*words, cwd=tmp_path, environ=FORCED)
    assert ESCAPE in result.stderr
    plain = run_tool("--color", "never", *words, cwd=tmp_path, environ=FORCED)
    assert plain.returncode == result.returncode
    assert ESCAPE not in plain.stderr


def on_a_terminal(*words: str, folder: Path, environ: dict[str, str]) -> str:
    """What a command prints on a terminal."""
    reader, writer = pty.openpty()
    kept = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    command = [sys.executable, "-m", "channel_tools", *words]
    with subprocess.Popen(command, cwd=folder, env={**kept, **environ}, stdout=writer, stderr=writer) as process:
        os.close(writer)
        said = b""
        while True:
            try:
                chunk = os.read(reader, 1 << 16)
            except OSError:  # Linux says so at the end of a terminal
                break
            if not chunk:
                break
            said += chunk
        process.wait()
    os.close(reader)
    return said.decode()


def test_a_terminal_gets_colours_unless_it_is_told_not_to(tmp_path: Path) -> None:
    write_tree(tmp_path)
    words = ("plan", "--variant", "nix")
    assert ESCAPE in on_a_terminal(*words, folder=tmp_path, environ={})
    for given, environ in ((("--color", "never"), {}), ((), {"NO_COLOR": "1"})):
        said = on_a_terminal(*words, *given, folder=tmp_path, environ=environ)
        assert "'nix' is not a stack" in said
        assert ESCAPE not in said


def test_quiet_is_the_result_and_errors_alone(tmp_path: Path) -> None:
    write_tree(tmp_path / "tree")
    words = ("render", "--variant", "udp", "--foundation", "conda-forge", "-o")
    result = run_tool("init", "new", "--upstream", "tree", cwd=tmp_path)
    assert result.stderr
    for before, after in ((("--quiet",), ()), ((), ("-q",))):
        folder = f"site{len(before)}"
        quiet = run_tool(*before, "init", folder, "--upstream", "tree", *after, cwd=tmp_path)
        assert quiet.stdout == result.stdout.replace("new", folder)
        assert quiet.stderr == ""
    failed = run_tool(*words, "out", "-q", "--root", "nowhere", cwd=tmp_path)
    assert failed.returncode == 2
    assert failed.stderr.startswith("error: nowhere")
