# SPDX-License-Identifier: BSD-3-Clause
"""Files of pins in every format, through every command that takes them: each reads the same, or refuses the same."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from channel_tools.pins.choice import LockChoice
from channel_tools.pins.files import FORMATS, pin_files
from channel_tools.pins.names import read_locked_names
from channel_tools.pins.resolve import read_or_solve
from channel_tools.requests.environment import EnvironmentRequest, InstallRequest
from channel_tools.requests.inventory import InventoryRequest
from channel_tools.system.errors import ConfigError, UsageError
from channel_tools.system.progress import SilentProgress
from channel_tools.system.settings import CACHE_VARIABLE
from channel_tools.workflow.environment import install
from channel_tools.workflow.inventory import take_inventory
from tests.unit.environments.toychannel import SUBDIR, ToyChannel, served
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
    (platform,) = choice.platforms or (None,)
    request = EnvironmentRequest(
        prefix=path.parent / "env",
        lock=path,
        platform=platform,
        categories=choice.categories,
        environment=choice.environment,
        replace=True,
    )
    result = install(None, request, environ={CACHE_VARIABLE: str(path.parent)}, progress=_Noting(notes))
    return {record.name for record in result.records}


def _list(path: Path, choice: LockChoice, notes: Notes) -> set[str]:
    cache = path.parent / "pkgs"
    platform = choice.platforms[0] if choice.platforms else None
    request = InventoryRequest(
        target=path, platform=platform, categories=choice.categories, environment=choice.environment
    )
    inventory = take_inventory(None, request, package_cache=cache, environ={}, note=notes.append)
    return {component.name for component in inventory.components}


def _mirror(path: Path, choice: LockChoice, notes: Notes) -> set[str]:
    lock = asyncio.run(read_or_solve(path, choice, package_cache=path.parent / "pkgs", environ={}, note=notes.append))
    return {package.name for platform in lock.platforms for package in platform.packages}


COMMANDS: dict[str, Command] = {"env create": _install, "sbom": _list, "mirror create": _mirror}
OURS = ["conda-lock.yml", "environment.yml", "explicit.txt", "pixi.lock"]


def _ours(channel: ToyChannel, name: str) -> Path:
    lock = channel.lock("tool", cache=channel.root.parent / "solving")
    path = channel.root.parent / name
    path.write_text(pin_files(lock, FORMATS)[name])
    return path


def _foreign(channel: ToyChannel, kind: str, *others: foreign.Entry, algorithm: str = "sha256") -> Path:
    def entry(name: str, **values: str) -> foreign.Entry:
        digest = hashlib.new(algorithm, channel.archive(name).read_bytes(), usedforsecurity=False).hexdigest()
        return foreign.Entry(name=name, address=channel.address, hashes={algorithm: digest}, **values)

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


@pytest.mark.parametrize("kind", [kind for kind in foreign.FORMATS if kind != "pixi-3"])
@pytest.mark.parametrize("command", COMMANDS)
def test_an_md5_stands_for_the_package_that_the_index_lists_with_it(
    channel: ToyChannel, command: str, kind: str
) -> None:
    path, notes = _foreign(channel, kind, algorithm="md5"), Notes()
    assert COMMANDS[command](path, LockChoice(), notes) == PACKAGES
    assert sum("2 packages have only an md5" in note for note in notes) == 1
    lock = asyncio.run(read_or_solve(path, LockChoice(), package_cache=path.parent, environ={}, note=notes.append))
    for package in lock.platforms[0].packages:
        assert package.sha256 == hashlib.sha256(channel.archive(package.name).read_bytes()).hexdigest()


def _edit_index(channel: ToyChannel, **values: str | None) -> None:
    """Change fields of tool's record, or remove them (None)."""
    path = channel.root / SUBDIR / "repodata.json"
    index = json.loads(path.read_text())
    record = index["packages.conda"]["tool-1.0-0.conda"] | values
    index["packages.conda"]["tool-1.0-0.conda"] = {key: value for key, value in record.items() if value is not None}
    path.write_text(json.dumps(index))


@pytest.mark.parametrize("kind", ["conda-lock", "pixi-6", "explicit"])
@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"md5": "0" * 32}, f"lists this file with the md5 {'0' * 32}"),
        ({"md5": None}, "lists this file without a sha256 or an md5"),
        ({"sha256": None}, "lists this file without a sha256 or an md5"),
    ],
    ids=["other-md5", "no-md5", "no-sha256"],
)
def test_an_md5_that_the_index_does_not_confirm_is_refused_by_name_and_line(
    channel: ToyChannel, kind: str, values: dict[str, str | None], says: str
) -> None:
    path = _foreign(channel, kind, algorithm="md5")
    _edit_index(channel, **values)
    with pytest.raises(ConfigError, match=says) as caught:
        _install(path, LockChoice(), [])
    assert caught.value.line is not None
    assert "tool-1.0-0.conda" in path.read_text().splitlines()[caught.value.line - 1]
    assert not (path.parent / "env").exists()


def test_an_md5_is_looked_up_in_the_channels_that_are_given(channel: ToyChannel, tmp_path: Path) -> None:
    path = _foreign(channel, "explicit", algorithm="md5")
    moved = channel.root.rename(tmp_path / "moved")
    with pytest.raises(ConfigError, match="does not list this file"):
        _mirror(path, LockChoice(), [])
    with served(tmp_path) as host:
        given, cache = [f"{host}/moved"], tmp_path / "pkgs"
        lock = asyncio.run(
            read_or_solve(path, LockChoice(), channels=given, package_cache=cache, environ={}, note=Notes().append)
        )
        installing = InstallRequest(channels=tuple(given))
        request = EnvironmentRequest(prefix=tmp_path / "env", lock=path, install=installing)
        result = install(None, request, environ={CACHE_VARIABLE: str(tmp_path)}, progress=SilentProgress())
    assert {record.name for record in result.records} == {package.name for package in lock.platforms[0].packages}
    assert moved.is_dir()


def test_no_hash_at_all_is_never_looked_up(channel: ToyChannel) -> None:
    path = channel.root.parent / "list.txt"
    path.write_text(f"@EXPLICIT\n{channel.archive('tool').as_uri()}\n")
    with pytest.raises(ConfigError, match="no hash"):
        _mirror(path, LockChoice(), [])
