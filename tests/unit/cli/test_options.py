# SPDX-License-Identifier: BSD-3-Clause
"""A command whose options are the fields of a dataclass: its request, which is handed on as it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from typer import Argument, Option
from typer.testing import CliRunner

from channel_tools.cli.options import asks


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    names: Annotated[frozenset[str], Option("--name")] = frozenset()
    host: Annotated[str | None, Option("--host")] = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    target: Annotated[Path, Option("--to")]
    since: Path | None = None
    words: Annotated[tuple[str, ...], Argument()] = ()
    fast: Annotated[bool, Option("--fast")] = False
    channels: Annotated[tuple[str, ...], Option("--channel")] = ("conda-forge",)
    place: Place = field(default_factory=Place)


@dataclass(frozen=True, kw_only=True, slots=True)
class WantedSince(Wanted):
    since: Annotated[Path, Option("--since")]
    fast: bool = False


R = TypeVar("R", bound=Wanted)


def requested(kind: type[R], *words: str) -> R | str:
    """What the command is handed, or the error that it ends with."""
    handed: list[R] = []
    app = typer.Typer()

    @app.command()
    @asks(kind)
    def command(request: R, *, more: Annotated[bool, typer.Option("--more")] = False) -> None:
        assert more
        handed.append(request)

    result = CliRunner().invoke(app, [*words, "--more"])
    return handed[0] if handed else result.output


def test_a_request_is_made_of_its_options_and_its_own_defaults() -> None:
    assert requested(Wanted, "--to", "x") == Wanted(target=Path("x"))
    given = requested(Wanted, "--to", "x", "--fast", "a", "b")
    assert given == Wanted(target=Path("x"), words=("a", "b"), fast=True)


def test_an_option_is_required_if_its_field_has_no_default() -> None:
    assert "Missing option '--to'" in str(requested(Wanted))
    assert "Missing option '--since'" in str(requested(WantedSince, "--to", "x"))
    given = requested(WantedSince, "--to", "x", "--since", "y")
    assert given == WantedSince(target=Path("x"), since=Path("y"))


def test_a_request_that_is_part_of_another_is_made_of_its_own_options() -> None:
    given = requested(Wanted, "--to", "x", "--name", "a", "--name", "b", "--name", "a", "--host", "h")
    assert given == Wanted(target=Path("x"), place=Place(names=frozenset({"a", "b"}), host="h"))


def test_a_list_option_that_is_not_given_leaves_the_default() -> None:
    assert requested(Wanted, "--to", "x", "--channel", "ours") == Wanted(target=Path("x"), channels=("ours",))


def test_a_field_whose_type_says_nothing_is_no_option() -> None:
    assert "No such option" in str(requested(Wanted, "--to", "x", "--since", "y"))
    assert "No such option" in str(requested(WantedSince, "--to", "x", "--since", "y", "--fast"))
