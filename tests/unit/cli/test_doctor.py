# SPDX-License-Identifier: BSD-3-Clause
"""``doctor`` of an environment that has the records of a stack's packages, and nothing else."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.text import Text

from channel_tools.cli.console import print_finding
from channel_tools.system.errors import ValidationError
from tests.support.command_line import run_tool

ROOT = Path(__file__).parents[3]
UDP = ("pytorch-switchml-1.0-plugin_h0_0", "libswitchml-1.0-udp_h0_0", "switchml-switch-1.0-h0_0")
MPI = ("pytorch-cray-mpich-1.0-plugin_h0_0", "mpich-4.0-h0_0")


@pytest.mark.parametrize(
    ("packages", "asked", "other"),
    [(UDP, "cray-mpich", "udp"), (UDP, "rdma", "udp"), (MPI, "udp", "cray-mpich")],
    ids=["another backend", "another transport", "the other way round"],
)
def test_an_environment_of_another_stack_is_said_to_be_one(
    packages: tuple[str, ...], asked: str, other: str, tmp_path: Path
) -> None:
    (tmp_path / "conda-meta").mkdir()
    for name in packages:
        (tmp_path / "conda-meta" / f"{name}.json").write_text("{}")
    done = run_tool("doctor", "--root", str(ROOT), "--stack", asked, str(tmp_path), cwd=tmp_path)
    assert done.returncode == ValidationError.exit_code, done.stderr
    assert done.stdout == (
        f"fault    environment: {tmp_path}: is an environment of the stack {other}, not of {asked}"
        f" -> channel_tools doctor --stack {other} {tmp_path}\n"
    )
    assert done.stderr == (f"error: stack {asked}: its fabric would not carry the data: see environment above\n")


class Terminal(io.StringIO):
    """A terminal's side of standard output."""

    def isatty(self) -> bool:
        return True


def test_on_a_terminal_words_and_commands_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Terminal()
    monkeypatch.setattr("sys.stdout", shown)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    path = "/scratch/a-very-long-path/that-does-not-fit/into-one-line"
    fix = f"channel_tools env add {path} --variant udp"
    print_finding("fault    ", f"environment: {path}: has none of the well-known packages of the stack", fix)
    drawn = Text.from_ansi(shown.getvalue())
    assert [(span.start, span.end, str(span.style)) for span in drawn.spans] == [(0, len("fault"), "bold color(1)")]
    lines = drawn.plain.splitlines()
    assert lines[-1] == f"         -> {fix}"
    assert lines[0].startswith("fault    environment:")
    assert all(line.startswith("         ") for line in lines[1:])
    assert path + ":" in drawn.plain.split()
    assert max(len(line) for line in lines[:-1] if path not in line) <= 40
