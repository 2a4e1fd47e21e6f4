# SPDX-License-Identifier: BSD-3-Clause
"""A page that was kept in step, change by change, is the page that is made of the channel from nothing."""

from __future__ import annotations

import cProfile
import dataclasses
import gc
import io
import pstats
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from channel_tools.channel import channel_writer, index_channel
from channel_tools.channel.listing import Patch, with_patch, with_yanked, without_yanked
from channel_tools.channel.maintenance import relist
from channel_tools.channel.model import Channel
from channel_tools.channel.results import BuildRecord
from channel_tools.conda.package import write_sidecar
from channel_tools.page import front
from channel_tools.page.model import PageStore, ShownStack, TreeRecords
from channel_tools.page.write import follow_page, remember_records
from tests.support.packages import make_conda, new_channel, own
from tests.unit.page.sites import publish, run_of, toys, write_page


class Changes:
    """Everything that changes what a page shows; each picks a package by chance."""

    def __init__(self, channel: Channel, made: Path, chance: random.Random) -> None:
        self.channel = channel
        self._made = made
        self._chance = chance
        self._number = 0

    def publish(self) -> None:
        self._number += 1
        name = self._chance.choice(("libtoy", "toy", "new"))
        publish(
            self.channel,
            make_conda(
                self._made,
                name,
                build=f"h{self._number}",
                about=own(f"later {self._number}") | {"summary": f"The {self._number}th"},
                variant={"python": "3.11.* *_cpython", "pytorch": self._chance.choice(("2.5", "2.6"))},
                index={"depends": ["new", "__glibc >=2.17"], "license": "MIT"},
            ),
        )

    def yank(self) -> None:
        self._relist(lambda loaded: with_yanked(loaded.listing, [self._key()], "wrong results"))

    def unyank(self) -> None:
        self._relist(lambda loaded: without_yanked(loaded.listing, list(loaded.listing.yanked)))

    def hotfix(self) -> None:
        subdir, _slash, name = self._key().partition("/")
        patch = Patch(records={name: {"depends": ["elsewhere"]}})
        self._relist(lambda loaded: with_patch(loaded.listing, subdir, patch, replace=False))

    def delete(self) -> None:
        path = self.channel.path / self._key()
        if len(list(path.parent.glob("*.conda"))) > 1:
            path.unlink()
        self._index()

    def attest(self) -> None:
        write_sidecar(self.channel.path / self._key(), self._chance.choice((b"[]", b"other")))
        self._index()

    def validate(self) -> None:
        self._number += 1
        passed, pytorch = self._chance.random() < 0.7, self._chance.choice(("2.5.1", "2.6.0"))
        run = run_of(self._number % 28 + 1, self._stem(), self._stem(), passed=passed, pytorch=pytorch)
        stack = ShownStack(name="toys", description="Toys", install=("toy",), validated=True, runs=(run,))
        name = self._stem() + ".conda"
        seconds = self._chance.choice((None, 60.0))
        record = BuildRecord(file_name=name, finished=f"2026-11-20T00:00:{self._number:02}", seconds=seconds)
        with channel_writer(self.channel) as writer:
            paged = writer
            remember_records(paged, TreeRecords(stacks=(stack,), builds={name: record}))
            follow_page(paged)

    def say_something_else(self) -> None:
        write_page(self.channel, title=self._chance.choice(("One", "Other")), address="https://channel.example/ours")

    def _key(self) -> str:
        packages = sorted(self.channel.path.glob("*/*.conda"))
        return self._chance.choice(packages).relative_to(self.channel.path).as_posix()

    def _stem(self) -> str:
        return Path(self._key()).name.removesuffix(".conda")

    def _relist(self, change: Callable[..., object]) -> None:
        with channel_writer(self.channel) as writer:
            relist(writer, change)  # type: ignore[arg-type]
            follow_page(writer)

    def _index(self) -> None:
        with channel_writer(self.channel) as writer:
            index_channel(writer)
            follow_page(writer)


def site(channel: Channel) -> dict[str, bytes]:
    files = [channel.path / "index.html", *(channel.path / "page").rglob("*")]
    return {str(path.relative_to(channel.path)): path.read_bytes() for path in files if path.is_file()}


def site_from_nothing(channel: Channel, folder: Path) -> dict[str, bytes]:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(channel.path, folder / channel.path.name, ignore=shutil.ignore_patterns("page", "page.msgpack"))
    copy = dataclasses.replace(channel, path=folder / channel.path.name)
    (copy.path / "index.html").unlink()
    with channel_writer(copy) as writer:
        follow_page(writer)
    return site(copy)


def test_a_page_kept_in_step_is_the_page_made_from_nothing(tmp_path: Path) -> None:
    channel = new_channel(tmp_path)
    publish(channel, *toys(tmp_path / "made"))
    write_page(channel)
    chance = random.Random(4)  # noqa: S311 - which changes are made is no secret
    changes = Changes(channel, tmp_path / "made", chance)
    kinds = [name for name in vars(Changes) if not name.startswith("_")]
    for name in chance.sample(kinds, k=len(kinds)):
        getattr(changes, name)()
        assert site(channel) == site_from_nothing(channel, tmp_path / "copy"), name


def test_what_is_taken_back_after_a_kill_is_not_on_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    channel = new_channel(tmp_path)
    publish(channel, *toys(tmp_path / "made"))
    write_page(channel)
    before = site(channel)
    changes = Changes(channel, tmp_path / "made", random.Random(1))  # noqa: S311 - as above
    write = PageStore.write

    def killed(place: PageStore, files: list[tuple[str, Callable[[], bytes]]]) -> None:
        if any(name.startswith("page/") for name, _content in files):
            write(place, files)
            raise KeyboardInterrupt
        write(place, files)

    with monkeypatch.context() as patched:
        patched.setattr(PageStore, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            changes.yank()
    assert site(channel) != before
    changes.unyank()
    assert site(channel) == before


_MOST_CALLS = 2200
"""Of Python functions for a page of a package; 1,914 when this was written, 2,480 with a macro for each small part."""


def test_a_page_of_a_package_takes_few_calls(tmp_path: Path) -> None:
    """The whole page of a large channel is some tens of thousands of pages, so each call of each of them counts."""
    depends: dict[str, object] = {"depends": [f"p{number} >=1.0,<2" for number in range(5)]}
    files = [make_conda(tmp_path / "made", f"p{number}", about=own(str(number)), index=depends) for number in range(20)]
    channel = new_channel(tmp_path)
    publish(channel, *files)
    write_page(channel)  # compiles the templates
    (channel.path / ".channel_tools/state/page.msgpack").unlink()
    gc.collect()  # the finalizers of what other tests left would be counted, too
    profile = cProfile.Profile()
    report = profile.runcall(write_page, channel)
    calls = pstats.Stats(profile, stream=io.StringIO()).total_calls  # type: ignore[attr-defined]
    assert report.written > 40
    assert calls / report.written < _MOST_CALLS


def test_every_page_of_a_long_list_says_how_many_packages_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one whose rows have not changed."""
    monkeypatch.setattr(front, "_NAMES_PER_PAGE", 10)
    channel = new_channel(tmp_path)
    publish(channel, *(make_conda(tmp_path / "made", f"p{number}") for number in range(1000, 1012)))
    write_page(channel)
    publish(channel, make_conda(tmp_path / "made", "p1010a"))
    assert not (channel.path / "page/packages-3.html").exists()
    for number in (1, 2):
        assert "All 13 packages" in (channel.path / f"page/packages-{number}.html").read_text()
