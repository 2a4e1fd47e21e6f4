# SPDX-License-Identifier: BSD-3-Clause
"""What files of pins name: all of it, or the file is refused, since what is not named is deleted."""

from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.pins.files import pin_files
from channel_tools.pins.names import LockedNames, read_locked_names
from channel_tools.system.errors import ConfigError, IntegrityError
from tests.unit.pins.foreign import FORMATS, MD5, SHA256, Entry
from tests.unit.pins.locks import TOY_LOCK

ENTRIES = (
    Entry(name="alib"),
    Entry(name="a-b", version="1!2.0"),
    Entry(name="old", hashes={"md5": MD5}),
    Entry(name="secret", address="https://me:pass@channel.example/t/token/ours"),
    Entry(name="toolbox", kind="pip"),
)
BESIDE = (
    Entry(name="elsewhere", platform="osx-64", category="dev"),
    Entry(name="tester", environment="test", category="test"),
)
NAMED = {"alib-1.0-h1_0", "a-b-1!2.0-h1_0", "old-1.0-h1_0", "secret-1.0-h1_0"}


def named(folder: Path, text: str | bytes, name: str = "lock") -> LockedNames:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_locked_names([path])


def both(*stems: str) -> set[str]:
    return {stem + suffix for stem in stems for suffix in (".conda", ".tar.bz2")}


@pytest.mark.parametrize("kind", FORMATS)
def test_every_entry_of_a_lock_is_named(tmp_path: Path, kind: str) -> None:
    beside = () if kind == "explicit" else BESIDE[:1] if kind == "pixi-3" else BESIDE
    found = named(tmp_path, FORMATS[kind](*ENTRIES, *beside))
    assert found.files == both(*NAMED, *(f"{one.name}-1.0-h1_0" for one in beside))
    assert found.hashes == {SHA256, MD5}


@pytest.mark.parametrize("kind", ["conda-lock", "explicit"])
def test_escapes_in_addresses_are_read(tmp_path: Path, kind: str) -> None:
    assert named(tmp_path, FORMATS[kind](Entry(name="a", version="1%2Bcpu"))).files == both("a-1+cpu-h1_0")


@pytest.mark.parametrize("kind", ["pixi-6", "pixi-7"])
def test_packages_that_pixi_builds_are_in_no_channel(tmp_path: Path, kind: str) -> None:
    text = FORMATS[kind](Entry(name="alib"), Entry(name="mytool", kind="source"))
    assert named(tmp_path, text).files == both("alib-1.0-h1_0")


@pytest.mark.parametrize("name", ["conda-lock.yml", "explicit.txt", "pixi.lock", "environment.yml"])
def test_our_files_name_every_package(tmp_path: Path, name: str) -> None:
    found = named(tmp_path, pin_files(TOY_LOCK, ["environment", "explicit", "pixi"])[name], name)
    if name == "environment.yml":
        assert found.specs == {"app=1.0=udp_h1", "data=1.10=pyhd8_0"}
    else:
        assert found.files == both("app-1.0-udp_h1", "data-1.10-pyhd8_0")


@pytest.mark.parametrize(
    ("text", "specs"),
    [
        (
            "dependencies:\n- toy=1.0=h1_0\n- python=3.11\n- pip\n- pip: [x==1]\n",
            {"toy=1.0=h1_0", "python=3.11", "pip"},
        ),
        ("dependencies: [ours::toy >=1]  # [linux]\nvariables: {A: b}\n", {"ours::toy >=1"}),
        ("# platform: linux-64\ntoy=1.0=h1_0\nother-tool=2=0\n", {"toy=1.0=h1_0", "other-tool=2=0"}),
        ("toy ==1.0 =h1_0\n", {"toy ==1.0 =h1_0"}),
    ],
)
def test_specs_without_builds_are_named_as_they_are(tmp_path: Path, text: str, specs: set[str]) -> None:
    assert named(tmp_path, text) == LockedNames(specs=frozenset(specs))


@pytest.mark.parametrize("kind", [kind for kind in FORMATS if kind != "explicit"])
def test_a_version_that_is_not_known_is_refused(tmp_path: Path, kind: str) -> None:
    text = FORMATS[kind](Entry(name="alib"))
    with pytest.raises(ConfigError, match="version"):
        named(tmp_path, "version: 99\n" + text.partition("\n")[2])


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"dependencies:\n",
        b"dependencies:\n  - pip: [x]\n",
        b"dependencies:\n  - toy\n  - conda: [x]\n",
        b"\xff\xfe\x00",
        b"locked:\n- https://host/linux-64/toy-1.0-0.conda\n",
        b'{"packages": ["toy-1.0-0.conda"]}',
        b"@EXPLICIT\nhttps://host/linux-64/toy.conda\n",
        b"@EXPLICIT\nhttps://host/linux-64/toy-1.0-0.conda#12ab\n",
        b"toy=1.0=0\n-e ./toy\n",
    ],
)
def test_what_is_not_understood_is_refused(tmp_path: Path, text: bytes) -> None:
    with pytest.raises(ConfigError, match="lock"):
        named(tmp_path, text)


@pytest.mark.parametrize("name", ["conda-lock.yml", "explicit.txt"])
def test_a_file_of_ours_that_was_cut_off_is_refused(tmp_path: Path, name: str) -> None:
    text = pin_files(TOY_LOCK, ["explicit"])[name]
    cut = text[: text.rindex("- name" if name == "conda-lock.yml" else "http")]
    with pytest.raises((ConfigError, IntegrityError), match="truncated"):
        named(tmp_path, cut)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_locked_names([tmp_path / "missing"])
    assert read_locked_names([]) == LockedNames()
