# SPDX-License-Identifier: BSD-3-Clause
"""Pin files, and locks that people, other tools and broken disks bring.

``golden/``: the files of a fixed lock.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from channel_tools.pins import Lock
from channel_tools.pins.files import FORMATS, PinFormat, formats_in, pin_files, read_lock, write_pin_files
from channel_tools.system.errors import ChannelToolsError, ConfigError, IntegrityError, UsageError
from tests.support.golden import assert_golden
from tests.unit.pins.locks import CHANNEL, SHA256, TOY_LOCK

GOLDEN = Path(__file__).parent / "golden"
TWO = replace(
    TOY_LOCK,
    platforms=(
        TOY_LOCK.platforms[0],
        replace(
            TOY_LOCK.platforms[0],
            platform="linux-aarch64",
            packages=TOY_LOCK.platforms[0].packages[:1],
            virtual_packages=("__cuda=12.4=0", "__glibc=2.34=0"),
        ),
    ),
)


@pytest.mark.parametrize("name", sorted(pin_files(TWO, FORMATS)))
def test_files_are_as_the_golden_ones(name: str) -> None:
    assert_golden(GOLDEN / name, pin_files(TWO, FORMATS)[name])


@pytest.mark.parametrize(
    ("formats", "names"),
    [
        ((), ["conda-lock.yml"]),
        (("explicit",), ["conda-lock.yml", "explicit.txt"]),
        (("environment", "conda-lock"), ["conda-lock.yml", "environment.yml"]),
        (("pixi",), ["conda-lock.yml", "pixi.lock", "pixi.toml"]),
        (("pip-constraints",), ["conda-lock.yml", "pip-constraints.txt"]),
    ],
)
def test_the_lock_is_always_among_them(formats: tuple[PinFormat, ...], names: list[str]) -> None:
    assert list(pin_files(TOY_LOCK, formats)) == names


def test_several_platforms_have_files_of_their_own() -> None:
    assert list(pin_files(TWO, ["explicit"])) == [
        "conda-lock.yml",
        "explicit-linux-64.txt",
        "explicit-linux-aarch64.txt",
    ]


class TestWriting:
    def write(self, folder: Path, lock: Lock, *formats: PinFormat) -> None:
        write_pin_files(folder, pin_files(lock, formats))

    def test_what_was_written_is_read(self, tmp_path: Path) -> None:
        self.write(tmp_path / "new", TWO, *FORMATS)
        assert read_lock(tmp_path / "new/conda-lock.yml") == TWO
        assert formats_in(tmp_path / "new") == {"environment", "explicit", "pixi", "pip-constraints"}

    def test_what_is_the_same_is_not_touched(self, tmp_path: Path) -> None:
        self.write(tmp_path, TOY_LOCK, *FORMATS)
        before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
        self.write(tmp_path, TOY_LOCK, *FORMATS)
        assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before

    def test_files_of_a_former_choice_of_platforms_go_and_others_stay(self, tmp_path: Path) -> None:
        self.write(tmp_path, TOY_LOCK, *FORMATS)
        (tmp_path / "environment-mine.yml").write_text("name: mine\n")
        (tmp_path / "explicit.md").write_text("# Written by channel_tools pins\n")
        self.write(tmp_path, TWO, *FORMATS)
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
            [*pin_files(TWO, FORMATS), "environment-mine.yml", "explicit.md"]
        )

    def test_a_file_in_the_place_of_the_folder_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(UsageError, match=r"file: .*the files are written to"):
            self.write(tmp_path / "file", TOY_LOCK)

    def test_a_folder_of_somebody_else_has_no_formats(self, tmp_path: Path) -> None:
        (tmp_path / "environment.yml").write_text("name: mine\n")
        (tmp_path / "pixi.toml").write_text("[workspace]\n")
        assert formats_in(tmp_path) == set()
        assert formats_in(tmp_path / "nowhere") == set()


Change = Callable[[str], str]
FILES = pin_files(TOY_LOCK, ["explicit", "pixi"])
OWN = FILES["conda-lock.yml"]
EXPLICIT = FILES["explicit.txt"]
PIXI = FILES["pixi.lock"]
FOREIGN = f"""\
version: 1
metadata:
  content_hash: {{linux-64: abcd}}
  channels: [{{url: conda-forge, used_env_vars: []}}]
  platforms: [linux-64]
  sources: [environment.yml]
package:
- name: data
  version: 1.0.1
  manager: conda
  platform: linux-64
  dependencies: {{library: '>=1', __glibc: ''}}
  url: {CHANNEL}/noarch/data-1.0.1-pyhd8_0.conda
  hash: {{md5: {"a" * 32}, sha256: {SHA256}}}
  category: main
  optional: false
- name: pytest
  version: '8'
  manager: conda
  platform: linux-64
  url: {CHANNEL}/noarch/pytest-8-0.conda
  hash: {{sha256: {SHA256}}}
  category: dev
  optional: true
"""


def written(folder: Path, text: str, name: str = "lock") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize("name", ["conda-lock.yml", "explicit.txt", "pixi.lock"])
@pytest.mark.parametrize("ending", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_the_format_shows_in_the_text(tmp_path: Path, name: str, ending: str) -> None:
    lock = read_lock(written(tmp_path, FILES[name].replace("\n", ending), "anything.at.all"))
    assert [package.sha256 for package in lock.platforms[0].packages] == [
        package.sha256 for package in TOY_LOCK.platforms[0].packages
    ]


def test_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    assert read_lock(written(tmp_path, "\ufeff" + OWN)) == TOY_LOCK


def test_locks_of_other_tools_are_read_as_far_as_they_go(tmp_path: Path) -> None:
    (platform,) = read_lock(written(tmp_path, FOREIGN)).platforms
    (package,) = platform.packages
    assert (package.name, package.version, package.build, package.subdir) == ("data", "1.0.1", "pyhd8_0", "noarch")
    assert package.depends == ("library >=1", "__glibc")
    assert package.size_bytes == 0


@pytest.mark.parametrize("prefix", ["", "sha256:"])
def test_explicit_lists_of_other_tools(tmp_path: Path, prefix: str) -> None:
    text = f"# made by hand\n\n@EXPLICIT\n{CHANNEL}/linux-64/a-b-1!2.0-h_0.tar.bz2#{prefix}{SHA256}\n"
    (platform,) = read_lock(written(tmp_path, text)).platforms
    assert platform.platform == "linux-64"
    assert (platform.packages[0].name, platform.packages[0].version) == ("a-b", "1!2.0")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("name: env\ndependencies: [a=1=0]\n", "no hashes; expected conda-lock.yml", id="environment-file"),
        pytest.param("", "not a lock", id="empty"),
        pytest.param("metadata: [\n", r"lock:2: this is not valid YAML", id="no-yaml"),
        pytest.param("metadata: {}\n", r"metadata\.content_hash: Field required", id="no-conda-lock"),
        pytest.param(OWN.replace("version: 1\n", "version: 2\n", 1), "version 2 of conda-lock.yml", id="conda-lock-2"),
        pytest.param(OWN.replace("schema: '1'", "schema: '2'"), "this program reads '1'", id="newer-schema-of-ours"),
        pytest.param(OWN.replace('{"platform"', '{"platfrm"', 1), "records is damaged", id="record"),
        pytest.param(PIXI.replace("version: 7", "version: 99"), "cannot be read as a pixi.lock.*99", id="pixi-99"),
        pytest.param(PIXI.replace("default:", "other:"), "no environment 'default'", id="pixi-without-default"),
        pytest.param(PIXI[: PIXI.index("packages:\n- conda")], "cannot be read as a pixi.lock", id="pixi-cut-off"),
        pytest.param(FOREIGN.replace("manager: conda", "manager: pip", 1), "data: a pip package", id="pip"),
        pytest.param(FOREIGN.replace(f", sha256: {SHA256}", ""), "data: no sha256", id="md5-only"),
        pytest.param(FOREIGN.replace("linux-64\n  dep", "osx-64\n  dep"), "osx-64 is not among", id="platform"),
        pytest.param(FOREIGN.replace("/noarch/data", "/win-64/data"), "for win-64 among those for", id="subdir"),
        pytest.param(
            FOREIGN.replace("-pyhd8_0.conda", ".zip"), r"lock:13: data: not the address of a package", id="address"
        ),
        pytest.param(
            FOREIGN + FOREIGN[FOREIGN.index("- name: data") :].replace("1.0.1", "1.0.2"),
            r"lock:25: data: more than one package of this name for linux-64, the first in line 8",
            id="duplicates",
        ),
        pytest.param(EXPLICIT.replace(SHA256, "0" * 63, 1), r"lock:6: no sha256 after", id="explicit-short-hash"),
        pytest.param(EXPLICIT.replace("#" + SHA256, "", 1), r"lock:6: no sha256 after", id="explicit-no-hash"),
        pytest.param(EXPLICIT[: EXPLICIT.rindex("#")], "no sha256 after", id="explicit-cut-in-a-line"),
        pytest.param(EXPLICIT[: EXPLICIT.rindex("http")], "1 package, but .* with 2", id="explicit-cut-at-a-line"),
        pytest.param(
            EXPLICIT.replace("# packages", "#") + EXPLICIT[EXPLICIT.rindex("http") :].replace("app-1.0", "app-1.1"),
            r"lock:8: app: more than one package of this name for linux-64, the first in line 7",
            id="explicit-duplicates",
        ),
        pytest.param(EXPLICIT.replace("linux-64/", "win-64/"), "for win-64 among", id="explicit-subdir"),
        pytest.param(f"@EXPLICIT\n{CHANNEL}/noarch/a-1-0.conda#{SHA256}\n", "there is no line", id="explicit-platform"),
        pytest.param(f"@EXPLICIT\n./a-1-0.conda#{SHA256}\n", "not the address of a package", id="explicit-relative"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=f"(?s)lock.*{says}" if not says.startswith("lock") else says) as caught:
        read_lock(written(tmp_path, text))
    assert caught.value.hint


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda text: text.replace(SHA256, "ab" * 32), id="hash"),
        pytest.param(lambda text: text.replace("1.0-udp_h1.conda", "1.1-udp_h1.conda"), id="address"),
        pytest.param(lambda text: text[: text.rindex("- name")], id="cut-off"),
        pytest.param(lambda text: text.replace("__glibc=2.28=0", "__glibc=2.36=0"), id="virtual-package"),
    ],
)
def test_a_lock_of_ours_that_was_edited_or_cut_off_is_known(tmp_path: Path, change: Change) -> None:
    changed = change(OWN)
    assert changed != OWN
    with pytest.raises(IntegrityError, match=r"lock: the packages for linux-64 are not those that were locked"):
        read_lock(written(tmp_path, changed))


@pytest.mark.parametrize("name", ["conda-lock.yml", "explicit.txt", "pixi.lock"])
@pytest.mark.parametrize("secret", ["https://user:secret@channel.example", "https://channel.example/t/secret"])
def test_credentials_in_addresses_are_refused_and_not_repeated(tmp_path: Path, name: str, secret: str) -> None:
    text = pin_files(moved(TOY_LOCK, secret), ["explicit", "pixi"])[name]
    with pytest.raises(ConfigError, match=r"credentials in the address https://channel\.example") as caught:
        read_lock(written(tmp_path, text))
    assert "secret" not in f"{caught.value} {caught.value.hint}"


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"{tmp_path / 'lock'}: cannot be read: No such file")):
        read_lock(tmp_path / "lock")


def test_no_text(tmp_path: Path) -> None:
    (tmp_path / "lock").write_bytes(b"\xff\xfe@EXPLICIT")
    with pytest.raises(ConfigError, match="byte 0 is not UTF-8"):
        read_lock(tmp_path / "lock")


def moved(lock: Lock, host: str) -> Lock:
    def new(address: str) -> str:
        return address.replace("https://channel.example", host)

    platforms = [
        replace(one, packages=tuple(replace(p, url=new(p.url), channel=new(p.channel)) for p in one.packages))
        for one in lock.platforms
    ]
    return replace(lock, channels=tuple(map(new, lock.channels)), platforms=tuple(platforms))


@pytest.mark.parametrize("name", ["conda-lock.yml", "explicit.txt", "pixi.lock", "foreign"])
def test_no_damage_ends_in_anything_but_an_error_of_ours(tmp_path: Path, name: str) -> None:
    text = {**FILES, "foreign": FOREIGN}[name]
    chance = random.Random(name)  # noqa: S311 - damage, not secrets
    outcomes = set()
    for _ in range(150):
        start, length = chance.randrange(len(text)), chance.choice([1, 1, 2, 8, 60, 400])
        filler = "".join(chance.choices("\n :-[]{}'\"#@\0\u00e9x0", k=chance.choice([0, 0, 1, 3])))
        try:
            read_lock(written(tmp_path, text[:start] + filler + text[start + length :]))
            outcomes.add("read")
        except ChannelToolsError:
            outcomes.add("refused")
    assert "refused" in outcomes
