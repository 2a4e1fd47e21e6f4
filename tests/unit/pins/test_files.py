# SPDX-License-Identifier: BSD-3-Clause
"""``golden/``: the files of a fixed lock; refresh with ``REFRESH_GOLDEN=1 pytest tests/unit/pins``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from channel_tools.errors import UsageError
from channel_tools.pins import Lock
from channel_tools.pins.files import FORMATS, PinFormat, formats_in, pin_files, write_pin_files
from channel_tools.pins.read import read_lock
from tests.unit.matrix.golden import assert_golden
from tests.unit.pins.toylock import TOY_LOCK

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
        assert formats_in(tmp_path / "new") == {"environment", "explicit", "pixi"}

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
        with pytest.raises(UsageError, match=r"file: .*the files go to"):
            self.write(tmp_path / "file", TOY_LOCK)

    def test_a_folder_of_somebody_else_has_no_formats(self, tmp_path: Path) -> None:
        (tmp_path / "environment.yml").write_text("name: mine\n")
        (tmp_path / "pixi.toml").write_text("[workspace]\n")
        assert formats_in(tmp_path) == set()
        assert formats_in(tmp_path / "nowhere") == set()
