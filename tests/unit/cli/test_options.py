# SPDX-License-Identifier: BSD-3-Clause
"""A command whose options are the fields of a dataclass: its request, which is handed on as it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from channel_tools.cli.options import grouped


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    names: frozenset[str] = frozenset()
    host: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    target: Path
    words: tuple[str, ...] = ()
    since: Path | None = None
    fast: bool = False
    channels: tuple[str, ...] = ("conda-forge",)
    place: Place = field(default_factory=Place)


DECLARED = {
    "target": Annotated[Path, typer.Option("--to")],
    "words": Annotated[list[str] | None, typer.Argument()],
    "fast": Annotated[bool, typer.Option("--fast")],
}
SINCE = {"since": Annotated[Path, typer.Option("--since")]}


def requested(declared: dict[str, object], *words: str) -> Wanted | str:
    """What the command is handed, or the error that it ends with."""
    handed: list[Wanted] = []
    app = typer.Typer()

    @app.command()
    @grouped(Wanted, declared)
    def command(request: Wanted, *, more: Annotated[bool, typer.Option("--more")] = False) -> None:
        assert more
        handed.append(request)

    result = CliRunner().invoke(app, [*words, "--more"])
    return handed[0] if handed else result.output


def test_a_request_is_made_of_its_options_and_its_own_defaults() -> None:
    assert requested({**DECLARED}, "--to", "x") == Wanted(target=Path("x"))
    assert requested({**DECLARED}, "--to", "x", "--fast", "a", "b") == Wanted(
        target=Path("x"), words=("a", "b"), fast=True
    )


def test_an_option_is_required_without_a_default_that_its_type_allows() -> None:
    assert "Missing option '--to'" in str(requested({**DECLARED}))
    assert "Missing option '--since'" in str(requested({**DECLARED, **SINCE}, "--to", "x"))
    given = requested({**DECLARED, **SINCE}, "--to", "x", "--since", "y")
    assert given == Wanted(target=Path("x"), since=Path("y"))


def test_a_request_that_is_part_of_another_is_made_of_its_own_options() -> None:
    place = {
        "names": Annotated[list[str] | None, typer.Option("--name")],
        "host": Annotated[str | None, typer.Option("--host")],
    }
    declared = {**DECLARED, "place": place}
    assert requested(declared, "--to", "x") == Wanted(target=Path("x"))
    given = requested(declared, "--to", "x", "--name", "a", "--name", "b", "--name", "a", "--host", "h")
    assert given == Wanted(target=Path("x"), place=Place(names=frozenset({"a", "b"}), host="h"))


def test_a_list_option_that_is_not_given_leaves_the_default() -> None:
    channel = Annotated[list[str] | None, typer.Option("--channel")]
    declared: dict[str, object] = {**DECLARED, "channels": channel}
    assert requested(declared, "--to", "x") == Wanted(target=Path("x"))
    assert requested(declared, "--to", "x", "--channel", "ours") == Wanted(target=Path("x"), channels=("ours",))


def test_what_is_declared_is_a_field() -> None:
    with pytest.raises(KeyError, match="sinse"):
        grouped(Wanted, {**DECLARED, "sinse": SINCE["since"]})


def test_a_field_that_is_not_declared_is_no_option() -> None:
    assert "No such option" in str(requested({**DECLARED}, "--to", "x", "--since", "y"))
