# SPDX-License-Identifier: BSD-3-Clause
"""What builds for tests take from those in other clones."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from channel_tools.channel import Foundation, open_channel
from channel_tools.foundation.record import RECORD_NAME
from tests.support.kept_builds import kept_foundation
from tests.support.switchml_sources import CLONE, ROOT, SWITCH_SOURCE, by_the_link


def made(foundation: Path, environ: dict[str, str], name: str, *, room_bytes: int = 1000) -> list[str]:
    """Make a foundation of one package; returns the packages that were there before."""
    with kept_foundation(foundation, environ, room_bytes=room_bytes):
        found = sorted(path.name for path in foundation.glob("linux-64/*.conda"))
        (foundation / "linux-64").mkdir(parents=True, exist_ok=True)
        (foundation / "linux-64" / name).write_text(name)
        (foundation / RECORD_NAME).write_text("{}")
    return found


def test_a_new_clone_has_the_packages_of_others_and_a_finished_foundation_gets_none(tmp_path: Path) -> None:
    environ = {"CHANNEL_TOOLS_CACHE": str(tmp_path / "cache")}
    assert made(tmp_path / "first", environ, "a-1-h1_0.conda") == []
    assert made(tmp_path / "second", environ, "b-1-h1_0.conda") == ["a-1-h1_0.conda"]
    assert (tmp_path / "second" / "linux-64" / "a-1-h1_0.conda").read_text() == "a-1-h1_0.conda"
    assert open_channel(tmp_path / "second").foundation == Foundation(kind="registry")
    assert made(tmp_path / "first", environ, "c-1-h1_0.conda") == ["a-1-h1_0.conda"]


def test_packages_that_take_too_much_room_make_way_for_the_latest(tmp_path: Path) -> None:
    environ = {"CHANNEL_TOOLS_CACHE": str(tmp_path / "cache")}
    made(tmp_path / "first", environ, "a-1-h1_0.conda")
    made(tmp_path / "second", environ, "b-1-h1_0.conda")
    (tmp_path / "second" / "linux-64" / "a-1-h1_0.conda").unlink()
    made(tmp_path / "second", environ, "b-1-h1_0.conda", room_bytes=1)
    assert made(tmp_path / "third", environ, "c-1-h1_0.conda") == ["b-1-h1_0.conda"]


def test_clones_that_exchange_the_kept_packages_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    environ = {"CHANNEL_TOOLS_CACHE": str(tmp_path / "cache")}
    names = [f"a{number}-1-h1_0.conda" for number in range(20)]

    def exchange(clone: str) -> None:
        for _round in range(8):
            made(tmp_path / clone, environ, names[0], room_bytes=0)

    for clone in ("first", "second"):
        for name in names:
            made(tmp_path / clone, environ, name)
    with ThreadPoolExecutor() as pool:
        list(pool.map(exchange, ("first", "second")))
    assert made(tmp_path / "third", environ, names[0]) == sorted(names)


def test_sources_have_the_same_path_in_every_clone_beside_an_environment_that_has_a_link(tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    assert by_the_link(prefix, SWITCH_SOURCE) == SWITCH_SOURCE
    (tmp_path / CLONE).symlink_to(ROOT)
    assert by_the_link(prefix, SWITCH_SOURCE) == tmp_path / CLONE / "recipes" / "switchml-switch" / "src"
    assert by_the_link(prefix, SWITCH_SOURCE).samefile(SWITCH_SOURCE)
