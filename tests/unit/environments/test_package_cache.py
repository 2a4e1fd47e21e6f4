# SPDX-License-Identifier: BSD-3-Clause
"""Damage to each file and folder of a package cache, made from the cache's own layout: one kind of each sort.

An environment then has exactly what its packages say, or there is one error, at once, and nothing outside changes.
"""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import Mock

import pytest
import rattler

from channel_tools.environments import create_environment, create_locked_environment, package_cache
from channel_tools.environments.package_cache import PackageStore
from channel_tools.pins.files import FORMATS, pin_files, read_lock
from channel_tools.pins.virtual import to_generic
from channel_tools.system.errors import IntegrityError, NetworkError
from channel_tools.system.progress import SilentProgress
from tests.support.damage import (
    EXTENTS,
    GROWTH_BYTES,
    SORTS,
    bounded,
    damage,
    faults_of,
    kinds_of,
    peak_memory_bytes,
    places_of,
    state_of,
)
from tests.unit.environments.conftest import make_channel
from tests.unit.environments.toychannel import SUBDIR

VIRTUAL = ("__glibc=2.28=0", "__unix=0=0")


@dataclass(frozen=True, kw_only=True)
class Site:
    """A channel, a lock of it without sizes, and a package cache that was filled from them."""

    root: Path

    @property
    def cache(self) -> Path:
        return self.root / "pkgs"

    @property
    def prefix(self) -> Path:
        return self.root / "envs" / "env"

    def solved(self) -> None:
        asyncio.run(
            create_environment(
                self.prefix,
                ["tool"],
                [(self.root / "channel").as_uri()],
                package_cache=self.cache,
                subdir=SUBDIR,
                progress=SilentProgress(),
                virtual_packages=[],
            )
        )

    def locked(self) -> None:
        asyncio.run(
            create_locked_environment(
                self.prefix,
                read_lock(self.root / "explicit.txt").platforms[0],
                specs=(),
                sources={},
                virtual_packages=to_generic(VIRTUAL),
                package_cache=self.cache,
                progress=SilentProgress(),
            )
        )

    def installed(self) -> dict[str, bytes]:
        """The files of packages in the environment."""
        files = [path for path in self.prefix.rglob("*") if path.is_file() and "conda-meta" not in path.parts]
        return {str(path.relative_to(self.prefix)): path.read_bytes() for path in files if path.name != "CACHEDIR.TAG"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return make_site(tmp_path_factory.mktemp("cache"))


def make_site(folder: Path) -> Site:
    made = Site(root=folder)
    channel = make_channel(made.root / "channel")
    lock = channel.lock("tool", cache=made.root / "solving", virtual=VIRTUAL)
    (made.root / "explicit.txt").write_text(pin_files(lock, FORMATS)["explicit.txt"])
    made.solved()
    return made


def make_victim(cache: Path, victim: Path) -> None:
    """The same files with other bytes, which no link in a cache may bring in or lead to."""
    shutil.copytree(cache, victim, symlinks=True)
    for path in victim.rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes() + b"precious")


@pytest.mark.parametrize("every", EXTENTS)
@pytest.mark.parametrize("sort", SORTS)
def test_what_is_installed_from_a_damaged_cache_is_right_or_not_installed(
    site: Site, tmp_path: Path, sort: str, *, every: bool
) -> None:
    expected, kept = site.installed(), tmp_path / "kept"
    assert {"bin/tool", "lib/library"} <= expected.keys()
    places = places_of(site.cache)
    assert len(places) > 12
    shutil.copytree(site.cache, kept, symlinks=True)
    victim, peak, failures = tmp_path / "victim", peak_memory_bytes(), []
    make_victim(kept, victim)
    before = state_of(victim)
    uses: Mapping[str, Callable[[], None]] = {"from a channel": site.solved, "from a lock": site.locked}
    made = [(place, kind) for number, place in enumerate(places) for kind in kinds_of(sort, number, every=every)]
    for place, kind in made:
        for name, use in uses.items():
            shutil.rmtree(site.cache)
            shutil.rmtree(site.prefix.parent)
            shutil.copytree(kept, site.cache, symlinks=True)
            damage(site.cache, place, kind, victim / place)
            done: list[str] = []

            def install(use: Callable[[], None] = use, done: list[str] = done) -> None:
                use()
                done.append("")

            failures += faults_of(install, f"{name}, {place}: {kind}")
            if done and site.installed() != expected:
                failures.append(f"{name}, {place}: {kind}: other files were installed")
            if state_of(victim) != before:
                failures.append(f"{name}, {place}: {kind}: what the link leads to was changed")
                shutil.rmtree(victim)
                make_victim(kept, victim)
                before = state_of(victim)
    assert failures == []
    assert peak_memory_bytes() - peak < GROWTH_BYTES


@pytest.mark.parametrize("kind", ["folder", "pipe", "socket", "link to a device"])
def test_what_is_no_archive_is_not_waited_for(tmp_path: Path, kind: str) -> None:
    """rattler opens an archive by its path, and waits for the other end of a pipe."""
    site = make_site(tmp_path)
    channel = site.root / "channel"
    [archive] = channel.glob("*/library-2.0-0.conda")
    damage(channel, archive.relative_to(channel).as_posix(), kind, site.root)
    for use, source in ((site.solved, "the channel's index"), (site.locked, "the lock")):
        shutil.rmtree(site.cache)
        shutil.rmtree(site.prefix.parent, ignore_errors=True)
        with bounded(kind), pytest.raises(IntegrityError, match=rf"{source} names it, but {archive} is a .*; expected"):
            use()


@pytest.mark.parametrize("content", [b"", b"precious\n", bytes(40)])
def test_a_link_in_the_place_of_a_lock_has_nothing_written_where_it_leads(
    site: Site, tmp_path: Path, content: bytes
) -> None:
    victim = tmp_path / "victim"
    locks = sorted(site.cache.glob("*.lock"))
    assert len(locks) == 3
    for lock in locks:
        victim.write_bytes(content)
        shutil.rmtree(site.prefix.parent)
        lock.unlink()
        lock.symlink_to(victim)
        site.solved()
        assert victim.read_bytes() == content


def test_a_package_that_is_a_link_to_a_folder_elsewhere_is_unpacked_again(site: Site, tmp_path: Path) -> None:
    package, elsewhere = site.cache / "library-2.0-0", tmp_path / "elsewhere"
    package.rename(elsewhere)
    package.symlink_to(elsewhere)
    shutil.rmtree(site.prefix.parent)  # which has links to the same files
    before = state_of(elsewhere)
    site.solved()
    assert not package.is_symlink()
    assert state_of(elsewhere) == before


def test_nothing_of_a_package_that_is_being_checked_is_removed_at_the_error_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread would go on, and move what is left of it to where rattler looks, or try that for ever."""
    channel = make_channel(tmp_path / "channel")
    archive = channel.archive("library", "2.0")
    archive.write_bytes(archive.read_bytes()[:-100])
    check, unpack, begun, left = package_cache._check, package_cache._unpack, threading.Event(), []

    async def late_unpack(record: rattler.RepoDataRecord, folder: Path, store: PackageStore) -> tuple[str, str]:
        if record.name.normalized == "library":
            assert await asyncio.to_thread(begun.wait, 60)
        return await unpack(record, folder, store)

    def slow_check(folder: Path, record: rattler.RepoDataRecord, store: PackageStore) -> None:
        begun.set()
        end_s = time.monotonic() + 1
        while folder.exists() and time.monotonic() < end_s:
            time.sleep(0.01)
        left.append(folder.exists())
        check(folder, record, store)

    monkeypatch.setattr(package_cache, "_unpack", late_unpack)
    monkeypatch.setattr(package_cache, "_check", slow_check)
    with pytest.raises(IntegrityError, match=r"library-2\.0"):
        Site(root=tmp_path).solved()
    assert left == [True]
    assert [path.name for path in (tmp_path / "pkgs").iterdir() if path.name.startswith("tool")] == ["tool-1.0-0"]


def test_the_error_of_a_package_that_is_not_fetched_keeps_its_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_channel(tmp_path / "channel")

    async def cut_off(*_: object) -> None:
        raise OSError("error sending request for url")

    monkeypatch.setattr(package_cache, "download_and_extract", cut_off)
    with pytest.raises(NetworkError) as caught:
        Site(root=tmp_path).solved()
    assert isinstance(caught.value.__cause__, OSError)


def test_a_package_that_is_gone_before_it_is_moved_is_an_error_at_once(tmp_path: Path) -> None:
    failed: list[OSError] = []

    def move() -> None:
        record, store = Mock(spec=rattler.RepoDataRecord), Mock(spec=package_cache.PackageStore)
        try:
            package_cache._move(tmp_path / "gone", tmp_path / "place", record, store)
        except OSError as err:
            failed.append(err)

    thread = threading.Thread(target=move, daemon=True)  # before, it never ended
    thread.start()
    thread.join(timeout=30)
    assert [type(err) for err in failed] == [FileNotFoundError]
