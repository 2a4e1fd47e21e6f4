# SPDX-License-Identifier: BSD-3-Clause
"""Locks: solved, written for where their channels are published, and compared."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from channel_tools.pins import Lock, LockedPackage, solve_lock
from channel_tools.pins.lock import PinChange, compare_locks
from channel_tools.pins.solve import check_published, published_addresses, with_addresses
from channel_tools.system.errors import ChannelError, IntegrityError, NetworkError, SolveError, UsageError
from channel_tools.system.files import sha256_of_file
from tests.support.damage import bounded, damage
from tests.unit.environments.toychannel import SUBDIR, ToyChannel, move_packages, served
from tests.unit.pins.locks import TOY_LOCK, toy_package

VIRTUAL = ("__glibc=2.28=0", "__linux=4.18=0", "__unix=0=0")


@dataclass(frozen=True, kw_only=True)
class Solver:
    root: Path

    def __call__(
        self,
        *specs: str,
        channels: Sequence[str | Path],
        platforms: Sequence[str] = (SUBDIR,),
        virtual: Sequence[str] = VIRTUAL,
        previous: Lock | None = None,
        update: Sequence[str] = (),
    ) -> Lock:
        return asyncio.run(
            solve_lock(
                "toy",
                specs,
                [str(channel) for channel in channels],
                platforms,
                virtual_packages=dict.fromkeys(platforms, virtual),
                package_cache=self.root / "pkgs",
                previous=previous,
                update=update,
            )
        )


@pytest.fixture
def solve(tmp_path: Path) -> Solver:
    return Solver(root=tmp_path)


def names(lock: Lock, platform: int = 0) -> list[str]:
    return [f"{package.name}-{package.version}" for package in lock.platforms[platform].packages]


def test_says_all_that_was_asked_and_chosen(solve: Solver, channel: ToyChannel) -> None:
    lock = solve("app", channels=[channel.root])
    assert (lock.stack, lock.specs, lock.channels) == ("toy", ("app",), (channel.address,))
    (only,) = lock.platforms
    assert (only.platform, only.virtual_packages) == (SUBDIR, VIRTUAL)
    app = only.packages[-1]
    archive = channel.archive("app", build="udp_h1")
    assert (app.name, app.version, app.build, app.subdir, app.file_name) == (
        "app",
        "1.0",
        "udp_h1",
        SUBDIR,
        archive.name,
    )
    assert (app.channel, app.url) == (channel.address, archive.as_uri())
    assert app.size_bytes == archive.stat().st_size
    assert app.depends == ("library >=1", "data", "__glibc >=2.17")


def test_what_is_asked_for_by_its_address_is_locked_with_its_hashes(
    solve: Solver, channel: ToyChannel, tmp_path: Path
) -> None:
    with served(channel.root) as address:
        lock = solve(f"{address}/linux-64/library-1.0-0.conda", channels=[channel.root])
    library = next(package for package in lock.platforms[0].packages if package.name == "library")
    archive = channel.archive("library")
    assert (library.url, library.channel) == (f"{address}/linux-64/library-1.0-0.conda", address)
    assert (library.sha256, library.size_bytes) == (sha256_of_file(archive), archive.stat().st_size)
    assert list((tmp_path / "pkgs").glob("[!.]*")) == []  # nothing stays of what was fetched to be read


def test_dependencies_come_first(solve: Solver, channel: ToyChannel) -> None:
    assert names(solve("app", channels=[channel.root])) == ["data-1.0", "library-2.0", "app-1.0"]


def test_several_platforms(solve: Solver, channel: ToyChannel) -> None:
    channel.add("app", subdir="linux-aarch64", depends=["data"])
    lock = solve("app", channels=[channel.root], platforms=["linux-aarch64", "linux-64"])
    assert [one.platform for one in lock.platforms] == ["linux-64", "linux-aarch64"]
    assert names(lock, 1) == ["data-1.0", "app-1.0"]


def test_the_first_channel_goes_first(solve: Solver, channel: ToyChannel, tmp_path: Path) -> None:
    other = ToyChannel(root=tmp_path / "other")
    other.add("library", version="1.5", depends=["data"])
    lock = solve("app", channels=[other.root, channel.root])
    assert names(lock) == ["data-1.0", "library-1.5", "app-1.0"]
    assert lock.channels == (other.address, channel.address)


@pytest.mark.parametrize(
    ("form", "authorization"),
    [("http://user:secret@{host}", "Basic dXNlcjpzZWNyZXQ="), ("http://{host}/t/secret", "Bearer secret")],
    ids=["password", "token"],
)
def test_credentials_are_used_and_not_written(
    solve: Solver, channel: ToyChannel, form: str, authorization: str
) -> None:
    with served(channel.root, authorization=authorization) as address:
        lock = solve("data", channels=[form.format(host=address.removeprefix("http://"))])
    assert "secret" not in repr(lock)
    assert lock.channels == (address,)
    assert lock.platforms[0].packages[0].url == f"{address}/noarch/data-1.0-0.conda"


class TestEarlierLock:
    def test_is_kept_where_possible(self, solve: Solver, channel: ToyChannel) -> None:
        earlier = solve("app", channels=[channel.root])
        channel.add("library", version="3.0", depends=["data"])
        assert solve("app", channels=[channel.root], previous=earlier) == earlier
        assert names(solve("app", channels=[channel.root]))[1] == "library-3.0"

    def test_what_is_named_moves_alone(self, solve: Solver, channel: ToyChannel) -> None:
        earlier = solve("app", channels=[channel.root])
        channel.add("library", version="3.0", depends=["data"], index=False)
        channel.add("data", version="2.0", subdir="noarch")
        lock = solve("app", channels=[channel.root], previous=earlier, update=["library"])
        assert names(lock) == ["data-1.0", "library-3.0", "app-1.0"]

    def test_what_the_named_one_needs_moves_with_it(self, solve: Solver, channel: ToyChannel) -> None:
        earlier = solve("app", channels=[channel.root])
        channel.add("library", version="3.0", depends=["data >=2"], index=False)
        channel.add("data", version="2.0", subdir="noarch")
        lock = solve("app", channels=[channel.root], previous=earlier, update=["library"])
        assert names(lock) == ["data-2.0", "library-3.0", "app-1.0"]

    def test_what_is_no_longer_listed_goes(self, solve: Solver, channel: ToyChannel) -> None:
        earlier = solve("app", channels=[channel.root])
        channel.archive("library", "2.0").unlink()
        channel.index()
        assert names(solve("app", channels=[channel.root], previous=earlier))[1] == "library-1.0"

    def test_other_bytes_under_the_name_are_no_reason_to_stay(self, solve: Solver, channel: ToyChannel) -> None:
        earlier = solve("app", channels=[channel.root])
        channel.add("library", version="2.0", depends=["data"], files={"lib/x": b"other"})
        lock = solve("app", channels=[channel.root], previous=earlier)
        assert lock.platforms[0].packages[1].sha256 != earlier.platforms[0].packages[1].sha256

    def test_only_what_is_in_it_can_be_updated(self, solve: Solver, channel: ToyChannel) -> None:
        earlier = solve("app", channels=[channel.root])
        with pytest.raises(UsageError, match="libary: not in the earlier lock"):
            solve("app", channels=[channel.root], previous=earlier, update=["libary"])


class TestNoLock:
    def test_nothing_for_a_platform(self, solve: Solver, channel: ToyChannel) -> None:
        with pytest.raises(ChannelError, match=r"channel: no packages for linux-aarch64") as caught:
            solve("app", channels=[channel.root], platforms=["linux-64", "linux-aarch64"])
        assert caught.value.hint is not None
        assert "--platform linux-aarch64" in caught.value.hint

    @pytest.mark.parametrize("platform", ["noarch", "linux", "Linux-64", ""])
    def test_no_platform(self, solve: Solver, channel: ToyChannel, platform: str) -> None:
        with pytest.raises(UsageError, match=f"'{platform}' is not a platform"):
            solve("app", channels=[channel.root], platforms=[platform])

    def test_only_noarch_packages_give_the_solvers_reason(self, solve: Solver, tmp_path: Path) -> None:
        toy = ToyChannel(root=tmp_path / "noarch-only")
        toy.add("app", subdir="noarch", depends=["missing >=3"])
        with pytest.raises(SolveError, match=r"(?s)^linux-64: no set of packages.*missing >=3"):
            solve("App", channels=[toy.root])
        with pytest.raises(ChannelError, match="noarch-only: no packages for linux-64"):
            solve("app", "other", channels=[toy.root])

    def test_no_solution_names_the_platform(self, solve: Solver, channel: ToyChannel) -> None:
        with pytest.raises(SolveError, match=r"(?s)^linux-64: no set of packages.*nowhere"):
            solve("nowhere", channels=[channel.root])

    def test_virtual_packages_decide(self, solve: Solver, channel: ToyChannel) -> None:
        with pytest.raises(SolveError, match="__glibc"):
            solve("app", channels=[channel.root], virtual=["__glibc=2.12=0"])

    def test_no_channel(self, solve: Solver, tmp_path: Path) -> None:
        with pytest.raises(ChannelError, match="index cannot be read"):
            solve("app", channels=[tmp_path / "nowhere"])

    def test_a_channel_that_refuses_the_token_is_named_without_it(self, solve: Solver, channel: ToyChannel) -> None:
        with served(channel.root, authorization="Bearer other") as address:
            host = address.removeprefix("http://")
            with pytest.raises(NetworkError, match=r"cannot be reached.*401") as caught:
                solve("app", channels=[f"http://user:secret@{host}/t/secret"])
        assert "secret" not in str(caught.value)
        assert address in str(caught.value)
        assert caught.value.hint is not None
        assert "/t/TOKEN/" in caught.value.hint

    def test_an_index_without_hashes(self, solve: Solver, channel: ToyChannel) -> None:
        index = channel.root / "noarch/repodata.json"
        index.write_text(index.read_text().replace('"sha256"', '"sha"'))
        with pytest.raises(IntegrityError, match=r"data-1\.0-0\.conda: the index of .* has no sha256"):
            solve("data", channels=[channel.root])


ADDRESS = "https://channel.example/ours"


@pytest.fixture
def lock(tmp_path: Path, channel: ToyChannel) -> Lock:
    return channel.lock("app", cache=tmp_path / "pkgs", virtual=("__glibc=2.28=0",))


def test_only_local_channels_are_replaced_in_their_order() -> None:
    channels = ["file:///a", "https://conda.example/forge", "file:///b"]
    assert published_addresses(channels, [ADDRESS + "/"]) == {"file:///a": ADDRESS}
    assert published_addresses(channels, [ADDRESS, "https://b"]) == {"file:///a": ADDRESS, "file:///b": "https://b"}
    with pytest.raises(UsageError, match="3 published addresses, but 2 of the channels are local"):
        published_addresses(channels, ["https://1", "https://2", "https://3"])


def test_everything_but_the_addresses_stays(lock: Lock, channel: ToyChannel) -> None:
    moved = with_addresses(lock, {channel.address: "https://user:secret@channel.example/t/tk/ours"})
    assert moved.channels == (ADDRESS,)
    assert {package.channel for package in moved.platforms[0].packages} == {ADDRESS}
    assert moved.platforms[0].packages[-1].url == f"{ADDRESS}/linux-64/app-1.0-udp_h1.conda"
    assert with_addresses(moved, {ADDRESS: channel.address}) == lock


class TestCheck:
    def check(self, lock: Lock, channel: ToyChannel, tmp_path: Path, address: str) -> None:
        moved = with_addresses(lock, {channel.address: address})
        asyncio.run(check_published(moved, [address], package_cache=tmp_path / "pkgs"))

    def test_passes_where_the_index_has_all_with_these_hashes(
        self, lock: Lock, channel: ToyChannel, tmp_path: Path
    ) -> None:
        with served(channel.root, authorization="Bearer secret") as address:
            self.check(lock, channel, tmp_path, address.replace("//", "//user@") + "/t/secret")

    def test_gives_the_addresses_that_the_index_there_has(
        self, lock: Lock, channel: ToyChannel, tmp_path: Path
    ) -> None:
        move_packages(channel.root, "../files/SUBDIR/", channel.root / "files")
        with served(channel.root) as address:
            checked = asyncio.run(
                check_published(
                    with_addresses(lock, {channel.address: address}), [address], package_cache=tmp_path / "pkgs"
                )
            )
        urls = {package.url for package in checked.platforms[0].packages}
        assert f"{address}/files/linux-64/app-1.0-udp_h1.conda" in urls
        assert f"{address}/files/noarch/data-1.0-0.conda" in urls

    def test_names_what_is_missing(self, lock: Lock, channel: ToyChannel, tmp_path: Path) -> None:
        channel.archive("library", "2.0").unlink()
        channel.index()
        with served(channel.root) as address, pytest.raises(ChannelError, match=r"not list 1 .*library-2\.0-0\.conda"):
            self.check(lock, channel, tmp_path, address)

    def test_waits_for_no_pipe(self, lock: Lock, channel: ToyChannel, tmp_path: Path) -> None:
        damage(channel.root, "noarch/repodata.json", "pipe", tmp_path)
        with bounded("check"), pytest.raises(ChannelError, match=r"noarch/repodata\.json: is a pipe"):
            self.check(lock, channel, tmp_path, channel.address)

    def test_names_what_has_other_bytes(self, lock: Lock, channel: ToyChannel, tmp_path: Path) -> None:
        copy = ToyChannel(root=tmp_path / "copy")
        shutil.copytree(channel.root, copy.root)
        copy.add("library", version="2.0", files={"lib/x": b"other"})
        with pytest.raises(ChannelError, match=r"its index says sha256 .* for library-2\.0-0\.conda; the lock has"):
            self.check(lock, channel, tmp_path, copy.address)

    def test_says_how_to_do_without(self, lock: Lock, channel: ToyChannel, tmp_path: Path) -> None:
        with (
            served(channel.root, authorization="Bearer other") as address,
            pytest.raises(NetworkError, match="cannot be reached") as caught,
        ):
            self.check(lock, channel, tmp_path, address)
        assert caught.value.hint is not None
        assert "--offline" in caught.value.hint


DATA, APP = TOY_LOCK.platforms[0].packages


def with_packages(*packages: LockedPackage) -> Lock:
    return replace(TOY_LOCK, platforms=(replace(TOY_LOCK.platforms[0], packages=packages),))


def change(name: str, before: str | None, after: str | None) -> PinChange:
    kind = "added" if before is None else "removed" if after is None else "changed"
    return PinChange(platform="linux-64", name=name, kind=kind, before=before, after=after)  # type: ignore[arg-type]


def test_every_difference_is_said_once() -> None:
    before = with_packages(DATA, APP, toy_package("gone", "1", "0"))
    newer = toy_package("app", "1.0", "udp_h2", sha256="77" * 32)
    after = with_packages(toy_package("new", "2", "0"), newer, DATA)
    assert compare_locks(before, after) == (
        change("app", "1.0 udp_h1", "1.0 udp_h2"),
        change("gone", "1 0", None),
        change("new", None, "2 0"),
    )


def test_other_bytes_are_a_change() -> None:
    assert compare_locks(with_packages(DATA), with_packages(replace(DATA, sha256="77" * 32))) == (
        change("data", "1.10 pyhd8_0", "1.10 pyhd8_0"),
    )


def test_another_address_is_none() -> None:
    moved = replace(DATA, url=DATA.url.replace("ours", "theirs"), channel="https://channel.example/theirs")
    assert compare_locks(with_packages(DATA), with_packages(moved)) == ()


def test_a_platform_that_is_left_out_takes_its_packages_along() -> None:
    other = replace(TOY_LOCK, platforms=(replace(TOY_LOCK.platforms[0], platform="linux-aarch64", packages=(DATA,)),))
    assert [(one.platform, one.name, one.kind) for one in compare_locks(TOY_LOCK, other)] == [
        ("linux-64", "app", "removed"),
        ("linux-64", "data", "removed"),
        ("linux-aarch64", "data", "added"),
    ]
