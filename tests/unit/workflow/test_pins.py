# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import rattler

from channel_tools.pins import Lock
from channel_tools.pins.files import FORMATS, PinFormat, read_lock
from channel_tools.requests.environment import EnvironmentRequest, InstallRequest
from channel_tools.requests.names import FormatName
from channel_tools.requests.pins import PinRequest
from channel_tools.system.errors import ChannelError, IntegrityError, NetworkError, UsageError
from channel_tools.system.progress import SilentProgress
from channel_tools.system.settings import CACHE_VARIABLE, Settings, make_settings
from channel_tools.workflow.environment import install
from channel_tools.workflow.pins import PinResult, pin_stack
from tests.unit.environments.toychannel import SUBDIR, ToyChannel, served
from tests.unit.matrix.toytree import FILES, write_tree

ADDRESS = "https://channel.example/ours"
pytestmark = pytest.mark.skipif(str(rattler.Subdir.current()) != SUBDIR, reason=f"toy packages are for {SUBDIR}")


@dataclass(frozen=True, kw_only=True)
class Pinner:
    """pin_stack on a toy tree whose stack installs toy-meta and libtoy, from a toy channel."""

    settings: Settings
    channel: ToyChannel

    @property
    def folder(self) -> Path:
        return self.settings.output / "pins" / "udp"

    def __call__(
        self,
        *,
        channels: Sequence[str] = (),
        formats: tuple[PinFormat, ...] = FORMATS,
        platforms: tuple[str, ...] = (),
        published: tuple[str, ...] = (),
        virtual: tuple[str, ...] = (),
        update: tuple[str, ...] | None = None,
        offline: bool = False,
        dry_run: bool = False,
    ) -> PinResult:
        request = PinRequest(
            install=InstallRequest(channels=tuple(channels) or (str(self.channel.root),)),
            formats=tuple(FormatName(name) for name in formats),
            platforms=platforms,
            published=published,
            virtual_packages=virtual,
            packages=update or (),
            update=update is not None,
            offline=offline,
            dry_run=dry_run,
        )
        return pin_stack(self.settings, request)


@pytest.fixture
def pin(tmp_path: Path) -> Pinner:
    channel = ToyChannel(root=tmp_path / "channel")
    for subdir in (SUBDIR, "linux-aarch64"):
        channel.add("libtoy", version="1.2", build="udp_h1", subdir=subdir, index=False)
    channel.add("libtoy", version="1.3", build="rdma_h1", index=False)
    channel.add("helper", version="1", subdir="noarch", index=False)
    channel.add("toy-meta", subdir="noarch", depends=["libtoy >=1", "helper"])
    stacks = (
        FILES["variants/stacks.yaml"]
        + "  other:\n    description: x\n    variants: [udp.yaml]\n    packages: [libtoy]\n    install: [libtoy]\n"
    )
    root = write_tree(tmp_path / "tree", {"variants/stacks.yaml": stacks}).root
    environ = {"CHANNEL_TOOLS_CACHE": str(tmp_path / "cache")}
    settings = make_settings(root=root, output=None, environ=environ, cwd=tmp_path)
    return Pinner(settings=settings, channel=channel)


def versions(lock: Lock, platform: int = 0) -> dict[str, str]:
    return {package.name: f"{package.version} {package.build}" for package in lock.platforms[platform].packages}


def changes(result: PinResult) -> list[tuple[str, str | None, str | None]]:
    return [(one.name, one.before, one.after) for one in result.changes]


class TestFirstTime:
    def test_writes_every_format(self, pin: Pinner) -> None:
        result = pin()
        assert versions(result.lock) == {"helper": "1 0", "libtoy": "1.2 udp_h1", "toy-meta": "1.0 0"}
        assert sorted(path.name for path in pin.folder.iterdir()) == list(result.files)
        assert len(result.files) == 6
        assert (result.kept, result.changes) == (False, ())
        assert read_lock(pin.folder / "conda-lock.yml") == result.lock

    def test_dry_run_writes_nothing(self, pin: Pinner) -> None:
        assert pin(dry_run=True).files
        assert not pin.folder.exists()

    def test_there_is_nothing_to_update(self, pin: Pinner) -> None:
        with pytest.raises(UsageError, match="libtoy: no earlier lock to update"):
            pin(update=("libtoy",))
        assert pin(update=()).lock.platforms

    def test_local_channels_are_told_of(self, pin: Pinner) -> None:
        assert pin().local == (pin.channel.address,)

    def test_a_platform_without_packages(self, pin: Pinner) -> None:
        with pytest.raises(ChannelError, match="no packages for linux-ppc64le"):
            pin(platforms=(SUBDIR, "linux-ppc64le"))
        assert not pin.folder.exists()


class TestAgain:
    def test_the_lock_stays_while_it_answers_the_same_question(self, pin: Pinner) -> None:
        pin()
        before = {path.name: path.read_bytes() for path in pin.folder.iterdir()}
        pin.channel.add("helper", version="2", subdir="noarch")
        result = pin()
        assert (result.kept, result.changes) == (True, ())
        assert {path.name: path.read_bytes() for path in pin.folder.iterdir()} == before

    def test_a_kept_lock_needs_no_channel(self, pin: Pinner) -> None:
        pin()
        (pin.channel.root / SUBDIR / "repodata.json").unlink()
        assert pin().kept

    def test_update_moves_everything(self, pin: Pinner) -> None:
        pin()
        pin.channel.add("helper", version="2", subdir="noarch", index=False)
        pin.channel.add("libtoy", version="1.4", build="udp_h2")
        result = pin(update=())
        assert changes(result) == [("helper", "1 0", "2 0"), ("libtoy", "1.2 udp_h1", "1.4 udp_h2")]

    def test_update_of_one_package_leaves_the_others(self, pin: Pinner) -> None:
        pin()
        pin.channel.add("helper", version="2", subdir="noarch", index=False)
        pin.channel.add("libtoy", version="1.4", build="udp_h2")
        assert changes(pin(update=("libtoy",))) == [("libtoy", "1.2 udp_h1", "1.4 udp_h2")]

    def test_another_platform_leaves_the_first_as_it_was(self, pin: Pinner) -> None:
        first = pin()
        pin.channel.add("helper", version="2", subdir="noarch")
        result = pin(platforms=(SUBDIR, "linux-aarch64"))
        assert result.lock.platforms[0] == first.lock.platforms[0]
        assert versions(result.lock, 1)["helper"] == "2 0"
        assert "environment.yml" not in {path.name for path in pin.folder.iterdir()}
        assert pin().kept

    def test_what_was_assumed_is_assumed_again(self, pin: Pinner) -> None:
        pin(virtual=("__cuda=12.9", "__glibc=2.17"))
        again = pin(update=())
        assert {"__cuda=12.9=0", "__glibc=2.17=0"} <= set(again.lock.platforms[0].virtual_packages)
        assert not pin(virtual=("__cuda=13",)).kept

    def test_other_formats_in_the_folder_stay_in_step(self, pin: Pinner) -> None:
        pin()
        pin.channel.add("libtoy", version="1.4", build="udp_h2")
        pin(update=(), formats=("explicit",))
        assert "libtoy=1.4=udp_h2" in (pin.folder / "environment.yml").read_text()
        assert "libtoy-1.4-udp_h2.conda" in (pin.folder / "pixi.lock").read_text()

    def test_a_lock_of_another_stack_is_not_overwritten(self, pin: Pinner) -> None:
        pin()
        request = PinRequest(install=InstallRequest(stack="other"), folder=pin.folder)
        with pytest.raises(UsageError, match="the lock of the stack udp, not of other"):
            pin_stack(pin.settings, request)

    def test_a_damaged_lock_is_not_overwritten(self, pin: Pinner) -> None:
        pin()
        path = pin.folder / "conda-lock.yml"
        damaged = path.read_text().replace("udp_h1", "udp_h9")
        path.write_text(damaged)
        with pytest.raises(IntegrityError, match="not those that were locked") as caught:
            pin(update=())
        assert caught.value.hint is not None
        assert "another folder with -o" in caught.value.hint
        assert path.read_text() == damaged


class TestPublished:
    def test_only_the_addresses_differ(self, pin: Pinner) -> None:
        local = pin(dry_run=True).lock
        result = pin(published=(ADDRESS,), offline=True)
        assert result.local == ()
        assert [one.sha256 for one in result.lock.platforms[0].packages] == [
            one.sha256 for one in local.platforms[0].packages
        ]
        assert pin.channel.address not in "".join(path.read_text() for path in pin.folder.iterdir())
        assert pin(published=(ADDRESS,), offline=True).kept

    def test_an_update_from_the_local_channel_keeps_what_was_published(self, pin: Pinner) -> None:
        pin(published=(ADDRESS,), offline=True)
        pin.channel.add("helper", version="2", subdir="noarch", index=False)
        pin.channel.add("libtoy", version="1.4", build="udp_h2")
        result = pin(published=(ADDRESS,), offline=True, update=("libtoy",))
        assert changes(result) == [("libtoy", "1.2 udp_h1", "1.4 udp_h2")]

    def test_they_are_kept_by_later_runs(self, pin: Pinner) -> None:
        with served(pin.channel.root) as address:
            pin(published=(address,))
            pin.channel.add("libtoy", version="1.4", build="udp_h2")
            result = pin(update=())
            assert changes(result) == [("libtoy", "1.2 udp_h1", "1.4 udp_h2")]
            assert result.lock.channels == (address,)
        assert pin().kept

    def test_later_runs_look_there_before_they_write(self, pin: Pinner) -> None:
        with served(pin.settings.output) as address:
            pin(published=(address,), offline=True)
            before = (pin.folder / "conda-lock.yml").read_bytes()
            pin.channel.add("libtoy", version="1.4", build="udp_h2")
            with pytest.raises(NetworkError, match=address):
                pin(update=())
        assert (pin.folder / "conda-lock.yml").read_bytes() == before

    def test_other_channels_are_another_matter(self, pin: Pinner, tmp_path: Path) -> None:
        pin(published=(ADDRESS,), offline=True)
        other = ToyChannel(root=tmp_path / "second")
        other.add("helper", version="7", subdir="noarch")
        result = pin(channels=[other.address, pin.channel.address])
        assert result.local == (other.address, pin.channel.address)

    def test_it_is_seen_whether_the_packages_are_there(self, pin: Pinner) -> None:
        with served(pin.channel.root, authorization="Bearer secret") as address:
            result = pin(published=(f"{address}/t/secret",))
            assert result.lock.channels == (address,)
        empty = ToyChannel(root=pin.settings.output / "empty")
        empty.root.mkdir(parents=True)
        empty.index()
        with pytest.raises(ChannelError, match="does not list 3 of the locked packages"):
            pin(published=(empty.address,), update=())
        assert "secret" not in "".join(path.read_text() for path in pin.folder.iterdir())


class TestInstallingTheLock:
    def install(self, pin: Pinner, *channels: str, lock: str = "conda-lock.yml") -> list[str]:
        installing = InstallRequest(channels=channels)
        request = EnvironmentRequest(prefix=pin.settings.output / "env", lock=pin.folder / lock, install=installing)
        environ = {CACHE_VARIABLE: str(pin.settings.cache)}
        result = install(None, request, environ=environ, progress=SilentProgress())
        return [record.name for record in result.records]

    def test_from_where_it_says(self, pin: Pinner) -> None:
        pin()
        assert self.install(pin) == ["helper", "libtoy", "toy-meta"]

    @pytest.mark.parametrize("lock", ["conda-lock.yml", "explicit.txt", "pixi.lock"])
    def test_from_a_mirror(self, pin: Pinner, lock: str) -> None:
        pin(published=(ADDRESS,), offline=True)
        assert self.install(pin, str(pin.channel.root), lock=lock) == ["helper", "libtoy", "toy-meta"]

    def test_from_the_same_address_with_credentials(self, pin: Pinner) -> None:
        with served(pin.channel.root, authorization="Bearer secret") as address:
            pin(channels=[f"{address}/t/secret"])
            assert len(self.install(pin, f"{address}/t/secret")) == 3

    def test_two_channels_that_the_lock_does_not_know(self, pin: Pinner) -> None:
        pin()
        with pytest.raises(UsageError, match="2 channels are given, but not all of them are channels of the lock"):
            self.install(pin, "https://a.example", "https://b.example")

    def test_for_another_platform(self, pin: Pinner) -> None:
        pin(platforms=("linux-aarch64",))
        with pytest.raises(UsageError, match="locked for linux-aarch64, not for linux-64"):
            self.install(pin)
