# SPDX-License-Identifier: BSD-3-Clause
"""Parts of locks: what is chosen is read whole or refused with its line, and the rest concerns nobody.

Each kind of entry that cannot be installed is written into every format that has it, among the chosen packages and
beside them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.pins.choice import LockChoice
from channel_tools.pins.files import read_lock
from channel_tools.system.errors import ChannelToolsError, ConfigError, UsageError
from tests.unit.pins.foreign import ADDRESS, FORMATS, MD5, SHA256, Entry, conda_lock, explicit, pixi_lock

HERE = LockChoice(platforms=("linux-64",))
GOOD = Entry(name="alib")


def names(folder: Path, text: str, choice: LockChoice = HERE, notes: list[str] | None = None) -> list[str]:
    path = folder / "lock"
    path.write_text(text)
    lock = read_lock(path, choice, note=(notes if notes is not None else []).append)
    (platform,) = lock.platforms
    return sorted(package.name for package in platform.packages)


BAD = {
    "pip": (Entry(name="toolbox", kind="pip"), r"toolbox: a pip package"),
    "md5-only": (Entry(name="bad", hashes={"md5": MD5}), r"no sha256"),
    "token": (Entry(name="bad", address="https://channel.example/t/secret/ours"), r"credentials in the address"),
    "password": (Entry(name="bad", address="https://me:secret@channel.example/ours"), r"credentials in the address"),
    "path-in-the-name": (Entry(name="..%2f..%2fbad"), r"bad"),
    "name": (Entry(name="bad$name"), r"bad\$name"),
    "version": (Entry(name="bad", version="1..0"), r"1\.\.0|cannot be read as a pixi.lock"),
}


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("bad", BAD)
def test_an_entry_that_cannot_be_installed_is_refused_with_its_line(tmp_path: Path, kind: str, bad: str) -> None:
    entry, says = BAD[bad]
    text = FORMATS[kind](GOOD, entry)
    with pytest.raises(ConfigError, match=says) as caught:
        names(tmp_path, text)
    assert caught.value.hint
    assert "secret" not in f"{caught.value} {caught.value.hint}"
    if not (kind.startswith("pixi") and caught.value.line is None):  # rattler refuses some files as a whole
        assert caught.value.line is not None
        around = "".join(text.splitlines()[caught.value.line - 1 : caught.value.line + 2])
        assert entry.url in around or entry.name in around or str(entry.hashes.get("md5")) in around


@pytest.mark.parametrize("kind", ["pixi-6", "pixi-7"])
def test_packages_that_pixi_builds_are_named(tmp_path: Path, kind: str) -> None:
    text = FORMATS[kind](GOOD, Entry(name="mytool", kind="source"))
    with pytest.raises(ConfigError, match=r"lock:\d+: mytool: a package that pixi builds from source"):
        names(tmp_path, text)


@pytest.mark.parametrize("kind", [kind for kind in FORMATS if kind != "explicit"])
@pytest.mark.parametrize("bad", ["pip", "md5-only", "token"])
def test_entries_of_other_platforms_concern_nobody(tmp_path: Path, kind: str, bad: str) -> None:
    entry = BAD[bad][0]
    other = Entry(name=entry.name, kind=entry.kind, platform="osx-64", address=entry.address, hashes=entry.hashes)
    notes: list[str] = []
    assert names(tmp_path, FORMATS[kind](GOOD, other), notes=notes) == ["alib"]
    assert not notes


@pytest.mark.parametrize("bad", BAD)
def test_entries_of_other_categories_are_left_out_with_a_note(tmp_path: Path, bad: str) -> None:
    entry = BAD[bad][0]
    other = Entry(
        name=entry.name,
        kind=entry.kind,
        category="dev",
        address=entry.address,
        hashes=entry.hashes,
        version=entry.version,
    )
    notes: list[str] = []
    assert names(tmp_path, conda_lock(GOOD, other), notes=notes) == ["alib"]
    assert len(notes) == 1
    assert f"the category dev ({entry.name})" in notes[0]
    with pytest.raises(ConfigError, match=BAD[bad][1]):
        names(tmp_path, conda_lock(GOOD, other), LockChoice(platforms=("linux-64",), categories=("dev",)))


class TestCategories:
    TEXT = conda_lock(
        GOOD,
        Entry(name="blib", category="gpu"),
        Entry(name="clib", category="dev"),
        Entry(name="alib", category="dev"),
        Entry(name="__glibc"),
    )

    @pytest.mark.parametrize(
        ("categories", "expected"),
        [
            ((), ["alib"]),
            (("main",), ["alib"]),
            (("gpu",), ["alib", "blib"]),
            (("dev",), ["alib", "clib"]),
            (("dev", "gpu"), ["alib", "blib", "clib"]),
        ],
    )
    def test_are_added_to_main(self, tmp_path: Path, categories: tuple[str, ...], expected: list[str]) -> None:
        notes: list[str] = []
        choice = LockChoice(platforms=("linux-64",), categories=categories)
        assert names(tmp_path, self.TEXT, choice, notes) == expected
        left_out = {"blib", "clib"} - set(expected)
        assert {name for name in left_out if any(f"({name})" in note for note in notes)} == left_out
        assert len(notes) == len(left_out)

    def test_one_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=r"no category docs; it has dev, gpu, main"):
            names(tmp_path, self.TEXT, LockChoice(categories=("docs",)))


@pytest.mark.parametrize("kind", [kind for kind in FORMATS if kind.startswith("pixi") and kind != "pixi-3"])
def test_environments(tmp_path: Path, kind: str) -> None:
    text = FORMATS[kind](
        GOOD, Entry(name="blib", environment="test"), Entry(name="toolbox", kind="pip", environment="test")
    )
    assert names(tmp_path, text) == ["alib"]
    with pytest.raises(ConfigError, match="toolbox: a pip package"):
        names(tmp_path, text, LockChoice(platforms=("linux-64",), environment="test"))
    with pytest.raises(UsageError, match="no environment 'docs'; it has default, test"):
        names(tmp_path, text, LockChoice(environment="docs"))


@pytest.mark.parametrize("kind", FORMATS)
def test_a_platform_that_is_not_there(tmp_path: Path, kind: str) -> None:
    with pytest.raises(UsageError, match=r"locked for .*linux-64.*, not for linux-aarch64"):
        names(tmp_path, FORMATS[kind](GOOD), LockChoice(platforms=("linux-aarch64",)))


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("choice", [LockChoice(categories=("dev",)), LockChoice(environment="test")])
def test_a_choice_that_the_format_does_not_have(tmp_path: Path, kind: str, choice: LockChoice) -> None:
    if (kind == "conda-lock" and choice.categories) or (kind.startswith("pixi") and choice.environment):
        choice = LockChoice(categories=("none",)) if choice.categories else LockChoice(environment="none")
    with pytest.raises(UsageError):
        names(tmp_path, FORMATS[kind](GOOD), choice)


def test_names_of_platforms_in_pixi_locks(tmp_path: Path) -> None:
    text = f"""\
version: 7
platforms: [{{name: big, subdir: linux-64}}, {{name: small, subdir: linux-64}}]
environments:
  default:
    channels: [{{url: {ADDRESS}/}}]
    packages:
      big: [{{conda: {GOOD.url}}}]
      small: [{{conda: {Entry(name="blib").url}}}]
packages:
- {{conda: {GOOD.url}, sha256: {SHA256}}}
- {{conda: {Entry(name="blib").url}, sha256: {SHA256}}}
"""
    assert names(tmp_path, text, LockChoice(platforms=("small",))) == ["blib"]
    for choice in (HERE, LockChoice()):
        with pytest.raises(UsageError, match="for linux-64 more than once: big, small"):
            names(tmp_path, text, choice)


@pytest.mark.parametrize("version", [6, 7])
@pytest.mark.parametrize("form", ["relative", "absolute", "file"])
def test_paths_in_pixi_locks(tmp_path: Path, version: int, form: str) -> None:
    file = tmp_path / "my channel/linux-64/alib-1.0-h1_0.conda"
    location = {"relative": "./my channel/linux-64/alib-1.0-h1_0.conda", "absolute": str(file), "file": file.as_uri()}
    text = pixi_lock(version, GOOD).replace(GOOD.url, location[form])
    path = tmp_path / "pixi.lock"
    path.write_text(text)
    (package,) = read_lock(path).platforms[0].packages
    assert (package.name, package.version, package.subdir) == ("alib", "1.0", "linux-64")
    assert package.url == file.as_uri()
    assert package.channel == (tmp_path / "my channel").as_uri()


@pytest.mark.parametrize("suffix", [f"#{SHA256}", f"#sha256:{SHA256}", f"#{SHA256.upper()}"])
def test_absolute_paths_in_explicit_lists(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "list.txt"
    path.write_text(f"@EXPLICIT\n/srv/my channel/linux-64/alib-1.0-h1_0.tar.bz2{suffix}\n")
    (package,) = read_lock(path).platforms[0].packages
    assert (package.url, package.sha256) == ("file:///srv/my%20channel/linux-64/alib-1.0-h1_0.tar.bz2", SHA256)


def test_the_same_entry_twice_is_one(tmp_path: Path) -> None:
    for text in (explicit(GOOD, GOOD), conda_lock(GOOD, GOOD)):
        assert names(tmp_path, text) == ["alib"]


def test_variables_for_credentials_are_left_to_the_option(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_text(conda_lock(Entry(name="alib", address="https://me:$TOKEN@channel.example/ours")))
    (package,) = read_lock(path, HERE).platforms[0].packages
    assert (package.channel, package.url) == (ADDRESS, GOOD.url)


def test_an_address_of_another_package_is_refused(tmp_path: Path) -> None:
    text = conda_lock(GOOD).replace("version: '1.0'", "version: '1.1'")
    with pytest.raises(ConfigError, match=r"lock:10: alib: its address is that of another package than alib 1\.1"):
        names(tmp_path, text)


def test_an_error_is_one_of_ours(tmp_path: Path) -> None:
    with pytest.raises(ChannelToolsError, match="newer lockfile format version 8"):
        names(tmp_path, pixi_lock(7, GOOD).replace("version: 7", "version: 8"))


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("choice", [HERE, LockChoice()])
def test_a_lock_that_names_nothing_is_refused(tmp_path: Path, kind: str, choice: LockChoice) -> None:
    with pytest.raises(
        ChannelToolsError, match=r"names no packages|locked for .*not for linux-64|cannot be read|valid list"
    ):
        names(tmp_path, FORMATS[kind](), choice)


def test_a_lock_with_only_other_categories_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="names no packages for linux-64"):
        names(tmp_path, conda_lock(Entry(name="alib", category="dev")))


def test_a_conda_lock_of_an_older_conda_lock_names_channels_as_text(tmp_path: Path) -> None:
    path = tmp_path / "conda-lock.yml"
    path.write_text(conda_lock(GOOD).replace("{url: conda-forge, used_env_vars: []}", "conda-forge"))
    assert read_lock(path).channels == ("conda-forge",)


def test_a_conda_lock_of_mamba_has_constraints(tmp_path: Path) -> None:
    path = tmp_path / "conda-lock.yml"
    path.write_text(conda_lock(GOOD).replace("dependencies: {},", "dependencies: {}, constrains: {zlib: '==1.2'},"))
    platform = read_lock(path).platforms[0]
    assert platform.packages[0].constrains == ("zlib ==1.2",)


def test_a_conda_lock_without_a_list_of_packages_names_none(tmp_path: Path) -> None:
    path = tmp_path / "conda-lock.yml"
    path.write_text(conda_lock(GOOD).split("package:")[0] + "package:\n")
    with pytest.raises(ConfigError, match="it names no packages"):
        read_lock(path)
