# SPDX-License-Identifier: BSD-3-Clause
"""Every command with hostile values for every option: none ends in a traceback, hangs, or writes where it should not.

The table of runs comes from the command line's own definition: an option that is added is covered from then on. The
tests take a sample of it that has some runs of each command; ``make sweep`` takes all of it, and with ``SHARE=3/10``
the third of ten parts, each of which has runs of every option.
"""

from __future__ import annotations

import inspect
import json
import os
import random
import shutil
import time
import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import pytest
import typer.main

from channel_tools.channel import Channel, add_set, channel_writer, create_channel
from channel_tools.cli.app import app
from channel_tools.mirror.exporting.plan import SourceChannel
from channel_tools.publish.folder import FolderTarget
from channel_tools.serve.access.tokens import create_token, default_tokens_file
from channel_tools.system.progress import SilentProgress
from tests.support.damage import damage
from tests.support.packages import REGISTRY, make_conda
from tests.support.sweep import FINGERPRINT, FULL, PLACE, READONLY, Run, Sweeper, sweeper
from tests.support.toy_tree import write_toy_tree
from tests.unit.mirror.bundles import ExportingSite, new_keys
from tests.unit.publish.sets import make_set

pytestmark = [pytest.mark.integration, pytest.mark.slow]

_OF_EACH = 3
"""Runs of each command in a sample."""
_WHAT = "CHANNEL_TOOLS_TEST_SWEEP"
"""A variable: ``all`` for the whole table, ``3/10`` for every tenth run from the third on, a number for the sample of
that seed."""
_AT_ONCE = 500
_PARTS = 10
"""The most parts of the table that each have runs of every option: there are more values for each."""

# what brings a command past its first checks; a command that is missing here gets a value for each required parameter
_BASES: dict[str, list[str]] = {
    "render": ["-o", f"{PLACE}/new"],
    "audit": [f"{PLACE}/world/package.conda"],
    "build": ["--dry-run"],
    "validate": ["--prefix", f"{PLACE}/new"],
    "launch": ["--prefix", f"{PLACE}/new", "--dry-run", "x.py"],
    "pins": ["-o", f"{PLACE}/new"],
    "publish": ["--to", f"{PLACE}/new", f"{PLACE}/world/output/channel/linux-64/toy-1.0-0.conda"],
    "promote": ["--at", f"{PLACE}/world/published", "main", "testing"],
    "yank": ["--at", f"{PLACE}/world/published", "--reason", "x", "toy"],
    "hotfix": ["--at", f"{PLACE}/world/published", f"{PLACE}/world/patch.json"],
    "retain": ["--at", f"{PLACE}/world/published", "--keep", "1", "--grace", "0"],
    "serve": [f"{PLACE}/world/served", "--port", "0", "--workers", "1"],
    "env create": [f"{PLACE}/new"],
    "sources add": [f"{PLACE}/file"],
    "sources export": [f"{PLACE}/new"],
    "sources import": [f"{PLACE}/file"],
    "export feedstock": ["toy", "-o", f"{PLACE}/new", "--maintainer", "x"],
    "token create": ["x", "--all-channels", "--at", f"{PLACE}/world/served"],
    "token list": ["--at", f"{PLACE}/world/served"],
    "token revoke": ["x", "--at", f"{PLACE}/world/served"],
    "mirror create": ["--to", f"{PLACE}/new", "--keys", f"{PLACE}/world/keys", "--without-tool"],
    "mirror update": [
        *("--to", f"{PLACE}/new", "--keys", f"{PLACE}/world/keys", "--without-tool"),
        *("--since", f"{PLACE}/world/bundle"),
    ],
    "mirror verify": [f"{PLACE}/world/bundle", "--root-sha256", FINGERPRINT],
    "mirror import": [f"{PLACE}/world/bundle", "--to", f"{PLACE}/new", "--root-sha256", FINGERPRINT],
    "mirror keys create": ["--keys", f"{PLACE}/new"],
    "mirror keys rotate": ["--keys", f"{PLACE}/world/keys"],
    "mirror keys sign": ["--keys", f"{PLACE}/world/keys"],
    "mirror keys show": ["--keys", f"{PLACE}/world/keys"],
}

_WORDS = (
    *("", " ", "x", "x" * 300, "x/" * 2500, "a\nb", "\x1b[31mred", "\x7f", "\udcff", "../../x", ".", "..", "-", "--x"),
    *("~", "~nosuchuser/x", "$(touch x)", "%00", "*", "@", "é\u202e", "a=b", "[", "{", "<>", "1.0", "0"),
)
_PATHS = (
    *("/dev/null", "/dev/full", "/dev/zero", "/proc/self/mem", "/"),
    *(f"{PLACE}/{name}" for name in ("fifo", "socket", "dangling", "loop", "unreadable", "file", "folder")),
    *(f"{PLACE}/{name}" for name in ("file/x", "locked/x", "nowhere/a/b/c", "fifo/x", "x" * 256, "a\nb", "\udcff")),
    *(f"{PLACE}/world/damaged/{name}" for name in ("channel", "listing", "index", "bundle", "tree", "cache")),
    *(f"{PLACE}/locked", FULL, f"{FULL}/x", READONLY, f"{READONLY}/x", f"{PLACE}/{'x/' * 2300}"),
)
_ADDRESSES = (
    *(
        "http://[",
        "http://",
        "https://",
        "http://h:99999/x",
        "http://h:x/y",
        "http://u:p@[::1",
        "http:///x",
        "http://a b/",
    ),
    *("ftp://x/y", "s3://", "s3://b", "s3://BAD_/x", "file://", "file:///%00", "file://host/x", "file:///dev/null"),
    *(
        "javascript:alert(1)",
        "gopher://x",
        "http://h/\x01",
        "http://h/%zz",
        "anaconda://",
        "prefix://",
        "quetz+http://[",
    ),
    *("cloudsmith://", "artifactory+http://h:99999/x", "http://127.0.0.1:1/x", "://", "file://{place}/fifo"),
)
_NUMBERS = ("-1", "0", "1", "1e30", "1" + "0" * 30, "nan", "inf", "-inf", "x", "", "0x10", "2147483648", "1e308", " 1")


@dataclass(frozen=True, kw_only=True)
class _Parameter:
    name: str
    flag: str | None
    """None for an argument."""
    values: tuple[str, ...]
    required: bool


def _commands() -> Iterator[tuple[str, list[_Parameter]]]:
    """Every command by its words, with its parameters."""

    def walk(one: typer.Typer, words: tuple[str, ...], made: object) -> Iterator[tuple[str, list[_Parameter]]]:
        commands = made.commands  # type: ignore[attr-defined]
        for info in one.registered_commands:
            assert info.name is not None
            assert info.callback is not None
            hints = inspect.signature(info.callback, eval_str=True).parameters
            params = [one for one in commands[info.name].params if one.name in hints]
            assert {one.name for one in params} == hints.keys()
            yield (
                " ".join((*words, info.name)),
                [_parameter(one, hints[one.name].annotation) for one in params if not getattr(one, "is_flag", False)],
            )
        for group in one.registered_groups:
            assert group.name is not None
            assert group.typer_instance is not None
            yield from walk(group.typer_instance, (*words, group.name), commands[group.name])

    yield from walk(app, (), typer.main.get_command(app))


def _parameter(one: typing.Any, annotation: object) -> _Parameter:  # noqa: ANN401 - typer's own, which it does not export
    flag = next((text for text in one.opts if text.startswith("--")), one.opts[0])
    values = _values(set(_kinds(annotation)))
    return _Parameter(
        name=one.name,
        flag=flag if flag.startswith("-") else None,
        values=tuple(values),
        required=one.required,
    )


def _kinds(annotation: object) -> Iterator[object]:
    """The types of single values below Annotated, unions and lists."""
    inner = typing.get_args(annotation)
    if typing.get_origin(annotation) is typing.Annotated:
        yield from _kinds(inner[0])
    elif inner and typing.get_origin(annotation) is not typing.Literal:
        for one in inner:
            yield from _kinds(one)
    elif annotation is not type(None):
        yield annotation


def _values(kinds: set[object]) -> tuple[str, ...]:
    if kinds <= {int, float}:
        return _NUMBERS
    if kinds <= {str, Path}:
        return (*_WORDS, *_PATHS, *_ADDRESSES)
    assert len(kinds) == 1, f"no hostile values are known for {kinds}"
    (kind,) = kinds
    closed = [one.value for one in kind] if isinstance(kind, type) and issubclass(kind, Enum) else typing.get_args(kind)
    assert closed, f"no hostile values are known for {kind}"
    return (*map(str, closed), *_WORDS)


def _table() -> dict[str, list[Run]]:
    """For each command its runs, one per parameter and value; only this parameter is other than the base's."""
    table = {}
    for words, parameters in _commands():
        base = _base(words, parameters)
        runs = table[words] = [Run(arguments=(*words.split(), *base))]
        for parameter in parameters:
            runs += [
                Run(arguments=(*words.split(), *_with(base, parameters, parameter, value)))
                for value in parameter.values
            ]
        runs += _situations((*words.split(), *base))
    return table


def _base(words: str, parameters: Sequence[_Parameter]) -> list[str]:
    if words in _BASES:
        return _BASES[words]
    required = [one for one in parameters if one.required]
    return [text for one in required for text in ([] if one.flag is None else [one.flag]) + [f"{PLACE}/new"]]


def _with(base: Sequence[str], parameters: Sequence[_Parameter], changed: _Parameter, value: str) -> list[str]:
    """The base with another value of one parameter."""
    flags = {one.flag: one for one in parameters if one.flag is not None}
    options, arguments, rest = [], [], list(base)
    while rest:
        text = rest.pop(0)
        if text.startswith("-"):
            takes = text in flags or text == "-o"
            own = text == changed.flag or (text == "-o" and changed.flag is not None and changed.name in _SHORT)
            options += [] if own else [text, *rest[:1]] if takes else [text]
            rest = rest[1:] if takes else rest
        else:
            arguments.append(text)
    if changed.flag is not None:
        return [
            *options,
            f"{changed.flag}={value}" if changed.flag.startswith("--") else f"{changed.flag}{value}",
            "--",
            *arguments,
        ]
    place = [one.name for one in parameters if one.flag is None].index(changed.name)
    return [*options, "--", *arguments[:place], value, *arguments[place + 1 :]]


_SHORT = frozenset({"destination", "folder"})


def _situations(arguments: Sequence[str]) -> list[Run]:
    """The base where its surroundings are hostile."""
    places = (
        f"{READONLY}/x",
        f"{FULL}/x",
        f"{PLACE}/locked/x",
        f"{PLACE}/file",
        "/dev/null",
        f"{PLACE}/{'x' * 256}",
        "relative",
    )
    damaged = [
        Run(arguments=arguments, environ={"CHANNEL_TOOLS_OUTPUT": f"{PLACE}/world/damaged"}),
        Run(arguments=arguments, environ={"CHANNEL_TOOLS_CACHE": f"{PLACE}/world/damaged/cache"}),
    ]
    variables = ("CHANNEL_TOOLS_OUTPUT", "CHANNEL_TOOLS_CACHE", "HOME", "TMPDIR", "CHANNEL_TOOLS_ROOT")
    without_home: dict[str, str | None] = {"HOME": None, "CHANNEL_TOOLS_CACHE": None}
    return [
        Run(arguments=arguments, stdout="/dev/full"),
        Run(arguments=arguments, stderr="/dev/full"),
        Run(arguments=arguments, stdout="-"),
        Run(arguments=arguments, stdout="-", stderr="-"),
        Run(arguments=arguments, cwd="gone"),
        *damaged,
        Run(arguments=arguments, environ=without_home),
        *(Run(arguments=arguments, environ={name: place}) for name in variables for place in places),
    ]


def _make_world(world: Path) -> None:
    """A tree, a channel, a published one, a server's folder, keys, a bundle and a lock, all small."""
    write_toy_tree(world / "tree")
    made = world / "made"
    toys = [make_conda(made, "toy"), make_conda(made, "toy", version="0.9")]
    for folder in (world / "output" / "channel", world / "output" / "foundation"):
        with channel_writer(create_channel(folder, REGISTRY)) as writer:
            add_set(writer, (), [make_conda(made, "zlib")])
            add_set(writer, toys)
    for folder in (world / "published", world / "served" / "ours"):
        target = FolderTarget(root=folder)
        target.publish(target.plan(make_set(toys), label="main"), progress=SilentProgress())
    shutil.copy(toys[0], world / "package.conda")
    (world / "patch.json").write_text(
        json.dumps({"patch_instructions_version": 1, "packages.conda": {toys[0].name: {"depends": ["x"]}}})
    )
    create_token(
        default_tokens_file(world / "served"),
        name="t",
        channels=None,
        labels=None,
        access="read",
        expires_s=None,
        clock=time.time,
    )
    channel = Channel(path=world / "output" / "channel", foundation=REGISTRY)
    site = ExportingSite(
        keys=new_keys(world / "keys"),
        channels=(SourceChannel(name="channel", address=channel.path.as_uri(), own=True),),
    )
    site.bundle(world / "bundle")
    (world / "fingerprint").write_text(site.fingerprint, encoding="ascii")
    _make_damaged(world)


def _make_damaged(world: Path) -> None:
    """Folders of each sort that a command takes, with something else in the place of one of their files."""
    damaged, outside = world / "damaged", world / "beside"
    outside.mkdir()
    for name, place, kind in (
        ("channel", ".channel_tools", "link out"),
        ("listing", "linux-64", "link to a device"),
        ("index", "linux-64/repodata.json", "gone"),
        ("bundle", "bundle.json", "link to a device"),
        ("tree", "variants", "link to itself"),
        ("cache", "pkgs", "link to a device"),
    ):
        folder = damaged / name
        match name:
            case "bundle":
                shutil.copytree(world / "bundle", folder)
            case "tree":
                shutil.copytree(world / "tree", folder)
            case "cache":
                (folder / place).mkdir(parents=True)
            case _:
                shutil.copytree(world / "published", folder)
        damage(folder, place, kind, outside)
    # to the pipe of each run, since a pipe itself cannot be copied
    (damaged / "index" / "linux-64" / "repodata.json").symlink_to("../../../../fifo")


@pytest.fixture(scope="module")
def server() -> Iterator[Sweeper]:
    with sweeper(_make_world) as running:
        yield running


def test_no_hostile_value_ends_in_a_traceback(server: Sweeper) -> None:
    wanted = os.environ.get(_WHAT) or "0"
    runs = [run for of_one in _table().values() for run in _sample(of_one, wanted)]
    if not server.has_mounts:
        runs = [run for run in runs if FULL not in str(run) and READONLY not in str(run)]
    outcomes = [one for first in range(0, len(runs), _AT_ONCE) for one in server.sweep(runs[first : first + _AT_ONCE])]
    bad = [str(outcome) for outcome in outcomes if outcome.findings]
    assert not bad, f"{len(bad)} of {len(runs)} runs ({_WHAT}={wanted}):\n" + "\n".join(bad)


def _sample(runs: Sequence[Run], wanted: str) -> Sequence[Run]:
    if wanted == "all":
        return runs
    if "/" in wanted:
        number, parts = map(int, wanted.split("/"))
        assert 1 <= number <= parts, f"{_WHAT}={wanted}: expected as in 3/10"
        return runs[number - 1 :: parts]
    return random.Random(int(wanted)).sample(runs, _OF_EACH)  # noqa: S311


def test_parts_of_the_table_add_up_to_it_and_hold_runs_of_every_option() -> None:
    for words, parameters in _commands():
        assert all(len(one.values) >= _PARTS for one in parameters), words
    for of_one in _table().values():
        parts = [run for number in range(_PARTS) for run in _sample(of_one, f"{number + 1}/{_PARTS}")]
        assert sorted(map(str, parts)) == sorted(map(str, of_one))


def test_what_a_run_does_wrong_is_found(server: Sweeper) -> None:
    """Else a sweep that finds nothing would say nothing."""
    (stray,) = server.sweep([Run(arguments=("mirror", "keys", "create"))])
    assert stray.code == 0, stray
    assert any(finding.startswith("wrote home/") for finding in stray.findings)
