# SPDX-License-Identifier: BSD-3-Clause
"""Files of pins in every format, through every command that takes them: each reads the same, or refuses the same."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from channel_tools.pins import solve_lock
from channel_tools.pins.choice import LockChoice
from channel_tools.pins.files import FORMATS, pin_files
from channel_tools.pins.names import read_locked_names
from channel_tools.system.errors import ConfigError, UsageError
from channel_tools.system.progress import SilentProgress
from channel_tools.workflow.environment import install_lock
from channel_tools.workflow.inventory import take_inventory
from channel_tools.workflow.locks import read_or_solve
from tests.unit.environments.toychannel import SUBDIR, ToyChannel
from tests.unit.pins import foreign

Notes = list[str]
Command = Callable[[Path, LockChoice, Notes], set[str]]
PACKAGES = {"tool", "library"}


@pytest.fixture
def channel(tmp_path: Path) -> ToyChannel:
    toy = ToyChannel(root=tmp_path / "channel")
    toy.add("tool", depends=["library >=1"], index=False)
    toy.add("library", index=False)
    toy.add("extra", index=False)
    toy.index()
    return toy


class _Noting(SilentProgress):
    def __init__(self, notes: Notes) -> None:
        self._notes = notes

    def note(self, message: str) -> None:
        self._notes.append(message)


def _install(path: Path, choice: LockChoice, notes: Notes) -> set[str]:
    result = install_lock(
        path,
        path.parent / "env",
        channels=(),
        package_cache=path.parent / "pkgs",
        environ={},
        progress=_Noting(notes),
        choice=choice,
    )
    return {record.name for record in result.records}


def _list(path: Path, choice: LockChoice, notes: Notes) -> set[str]:
    cache = path.parent / "pkgs"
    inventory = take_inventory(None, path, choice=choice, package_cache=cache, note=notes.append)
    return {component.name for component in inventory.components}


def _mirror(path: Path, choice: LockChoice, notes: Notes) -> set[str]:
    lock = read_or_solve(path, choice, package_cache=path.parent / "pkgs", note=notes.append)
    return {package.name for platform in lock.platforms for package in platform.packages}


COMMANDS: dict[str, Command] = {"env create": _install, "sbom": _list, "mirror create": _mirror}
OURS = ["conda-lock.yml", "environment.yml", "explicit.txt", "pixi.lock"]


def _ours(channel: ToyChannel, name: str) -> Path:
    lock = solve_lock(
        "toy",
        ["tool"],
        [channel.address],
        [SUBDIR],
        virtual_packages={SUBDIR: ()},
        package_cache=channel.root.parent / "solving",
    )
    path = channel.root.parent / name
    path.write_text(pin_files(lock, FORMATS)[name])
    return path


def _foreign(channel: ToyChannel, kind: str, *others: foreign.Entry) -> Path:
    def entry(name: str, **values: str) -> foreign.Entry:
        sha256 = hashlib.sha256(channel.archive(name).read_bytes()).hexdigest()
        return foreign.Entry(name=name, address=channel.address, hashes={"sha256": sha256}, **values)

    beside = {"conda-lock": {"category": "gpu"}, "explicit": None}.get(kind, {"environment": "gpu"})
    entries = [entry("tool"), entry("library"), *([] if beside is None else [entry("extra", **beside)]), *others]
    path = channel.root.parent / "lock"
    path.write_text(
        foreign.FORMATS[kind](*entries).replace("-h1_0.conda", "-0.conda").replace("build: h1_0", "build: '0'")
    )
    return path


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("command", COMMANDS)
def test_our_files_are_read_by_every_command(channel: ToyChannel, command: str, name: str) -> None:
    notes: Notes = []
    assert COMMANDS[command](_ours(channel, name), LockChoice(), notes) == PACKAGES
    assert bool(notes) == (name == "environment.yml")


@pytest.mark.parametrize("kind", [kind for kind in foreign.FORMATS if kind != "pixi-3"])
@pytest.mark.parametrize("command", COMMANDS)
def test_the_chosen_part_is_the_same_for_every_command(channel: ToyChannel, command: str, kind: str) -> None:
    run, path, notes = COMMANDS[command], _foreign(channel, kind), Notes()
    assert run(path, LockChoice(), notes) == PACKAGES
    assert len(notes) == (1 if kind == "conda-lock" else 0)
    if kind == "conda-lock":
        assert run(path, LockChoice(categories=("gpu",)), notes) == PACKAGES | {"extra"}
    elif kind != "explicit":
        assert run(path, LockChoice(environment="gpu"), notes) == {"extra"}


@pytest.mark.parametrize("kind", foreign.FORMATS)
@pytest.mark.parametrize("command", COMMANDS)
def test_what_cannot_be_installed_is_refused_by_every_command(channel: ToyChannel, command: str, kind: str) -> None:
    path = _foreign(channel, kind, foreign.Entry(name="toolbox", kind="pip"))
    with pytest.raises(ConfigError, match="toolbox: a pip package"):
        COMMANDS[command](path, LockChoice(), [])
    assert {"tool-1.0-0.conda", "library-1.0-0.conda"} <= read_locked_names([path]).files


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("content", "error", "says"),
    [
        ("- pip: [x==1]", ConfigError, r"environment.yml:4: x==1: a pip package"),
        ("- extra  # [win]", ConfigError, r"environment.yml:4: the comment # \[win\] is a selector"),
        ("- extra >=", ConfigError, r"environment.yml:4: .*extra >="),
        ("- defaults::extra", ConfigError, r"environment.yml:4: .*defaults is several channels"),
        ("- 1", ConfigError, r"environment.yml:4: 1 is not a dependency"),
        ("- npm: [x]", ConfigError, r"environment.yml:4: npm: not an installer"),
    ],
)
def test_an_environment_file_that_cannot_be_followed(
    channel: ToyChannel, command: str, content: str, error: type[Exception], says: str
) -> None:
    path = channel.root.parent / "environment.yml"
    path.write_text(f"channels: [{channel.address}]\ndependencies:\n- tool\n{content}\n")
    with pytest.raises(error, match=says):
        COMMANDS[command](path, LockChoice(), [])


@pytest.mark.parametrize("command", COMMANDS)
def test_an_environment_file_is_solved_and_what_has_no_effect_is_named(channel: ToyChannel, command: str) -> None:
    path = channel.root.parent / "environment.yml"
    path.write_text(
        f"name: 1.10\nprefix: /opt/env\nchannels: ['{channel.address}', nodefaults]\n"
        f"dependencies: ['tool = 1.0', '{channel.address}::library', pip: []]\n"
        "variables: {A: b}\nplatforms: [linux-64]\n"
    )
    notes: Notes = []
    assert COMMANDS[command](path, LockChoice(), notes) == PACKAGES
    said = "\n".join(notes)
    assert "environment.yml:6: ignored platforms" in said
    assert "variables are not set (A)" in said
    assert "specs are solved now" in said


@pytest.mark.parametrize("command", COMMANDS)
def test_an_environment_file_for_another_platform_or_without_channels(channel: ToyChannel, command: str) -> None:
    path = channel.root.parent / "environment.yml"
    path.write_text("# platform: osx-64\ndependencies: [tool]\n")
    with pytest.raises(UsageError, match="osx-64"):
        COMMANDS[command](path, LockChoice(platforms=(SUBDIR,)), [])
    for text, says in (("", "names no channels"), ("channels: ['https://host/t/$TOKEN/c']\n", "has a variable")):
        path.write_text(f"{text}dependencies: [tool]\n")
        with pytest.raises(ConfigError, match=says):
            COMMANDS[command](path, LockChoice(), [])
