# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from channel_tools.cli import console
from channel_tools.cli.app import app
from channel_tools.cli.plan import glibc_of, variant_texts
from channel_tools.requests.foundation import FoundationRequest
from channel_tools.system.settings import Settings
from channel_tools.workflow import foundation
from tests.unit.matrix.toytree import write_foundation, write_tree


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[FoundationRequest]:
    """Requests for the registry foundation, in place of which one of toys is made."""
    requests: list[FoundationRequest] = []

    def make(settings: Settings, request: FoundationRequest, **_others: object) -> None:
        requests.append(request)
        write_foundation(settings.foundation)

    monkeypatch.setattr(foundation, "make_registry_foundation", make)
    return requests


def test_a_plan_without_a_foundation_says_how_to_make_it_and_makes_it_on_request(
    tmp_path: Path, made: list[FoundationRequest]
) -> None:
    tree = write_tree(tmp_path)
    run = CliRunner().invoke
    refused = run(app, ["plan", "--root", str(tree.root)])
    assert (refused.exit_code, made) == (4, [])
    assert "channel_tools plan --make-foundation" in refused.stderr
    planned = run(app, ["plan", "--root", str(tree.root), "--make-foundation"])
    assert planned.exit_code == 0, planned.output
    assert "libtoy" in planned.stdout
    (request,) = made
    assert request.needed
    again = run(app, ["plan", "--root", str(tree.root), "--make-foundation"])
    assert (again.stdout, len(made)) == (planned.stdout, 1)


@pytest.mark.parametrize(
    ("answer", "agreed"),
    [("\n", True), ("y\n", True), (" YES \n", True), ("n\n", False), ("what?\n", False), ("", False)],
)
def test_a_question_is_asked_on_a_terminal(monkeypatch: pytest.MonkeyPatch, answer: str, *, agreed: bool) -> None:
    asked = _Terminal()
    monkeypatch.setattr(sys, "stdin", _Terminal(answer))
    monkeypatch.setattr(sys, "stderr", asked)
    assert console.confirmed("Make it now?") is agreed
    assert asked.getvalue() == "Make it now? [Y/n] "


@pytest.mark.parametrize("piped", ["stdin", "stderr"])
def test_nothing_is_asked_without_a_terminal(monkeypatch: pytest.MonkeyPatch, piped: str) -> None:
    streams = {"stdin": _Terminal("y\n"), "stderr": _Terminal(), piped: io.StringIO("y\n")}
    monkeypatch.setattr(sys, "stdin", streams["stdin"])
    monkeypatch.setattr(sys, "stderr", streams["stderr"])
    assert not console.confirmed("Make it now?")
    assert streams["stderr"].getvalue() in {"", "y\n"}


def test_the_toolchain_is_shown_only_where_it_differs() -> None:
    same = {"c_compiler": "gcc", "c_stdlib_version": "2.36", "target_platform": "linux-64"}
    packages = [
        ("lib", {**same, "transport": "udp", "cxx_compiler_version": "12"}),
        ("lib", {**same, "transport": "udp", "cxx_compiler_version": "13"}),
        ("other", {**same, "python": "3.11"}),
    ]
    assert variant_texts(packages) == [
        "cxx_compiler_version=12 transport=udp",
        "cxx_compiler_version=13 transport=udp",
        "python=3.11",
    ]


def test_what_is_built_with_more_than_the_oldest_glibc_is_named() -> None:
    built: list[tuple[str, dict[str, object]]] = [
        ("new", {"c_stdlib_version": "2.28", "python": "3.11"}),
        ("new", {"c_stdlib_version": "2.28", "python": "3.12"}),
        ("old", {"c_stdlib_version": "2.9"}),
        ("data", {}),
    ]
    assert glibc_of(built) == "glibc 2.9 or later, and new on 2.28 or later (its c_stdlib_version)"
    assert glibc_of(built[:2]) == "glibc 2.28 or later"
    assert glibc_of(built[3:]) == ""
