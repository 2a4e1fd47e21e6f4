# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from channel_tools.environments import EnvironmentResult, create_environment, create_locked_environment
from channel_tools.pins import Lock, PlatformLock, solve_lock
from channel_tools.pins.files import FORMATS, pin_files, read_lock
from channel_tools.pins.md5 import LookUp
from channel_tools.pins.virtual import to_generic
from channel_tools.system.errors import IntegrityError, NetworkError, SolveError, UsageError
from channel_tools.system.progress import SilentProgress
from tests.unit.environments.toychannel import SUBDIR, ToyChannel, move_packages, served

VIRTUAL = ("__glibc=2.28=0", "__unix=0=0")
LOCKS = ["conda-lock.yml", "explicit.txt", "pixi.lock"]


@dataclass(frozen=True, kw_only=True)
class Installer:
    """create_locked_environment with everything in one temporary folder."""

    root: Path

    @property
    def prefix(self) -> Path:
        return self.root / "env"

    @property
    def cache(self) -> Path:
        return self.root / "pkgs"

    def lock(self, *specs: str, channel: ToyChannel | str) -> Lock:
        address = channel if isinstance(channel, str) else channel.address
        return asyncio.run(
            solve_lock(
                "toy",
                specs,
                [address],
                [SUBDIR],
                virtual_packages={SUBDIR: VIRTUAL},
                package_cache=self.root / "solving",
            )
        )

    def read(self, lock: Lock, name: str) -> PlatformLock:
        """What the file ``name`` of the lock says."""
        path = self.root / "locks" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(pin_files(lock, FORMATS)[name])
        return read_lock(path).platforms[0]

    def __call__(
        self,
        lock: PlatformLock,
        *,
        prefix: Path | None = None,
        sources: Mapping[str, str] | None = None,
        virtual: Sequence[str] = VIRTUAL,
        specs: Sequence[str] = (),
        replace: bool = False,
        look_up: LookUp = lambda _packages: {},
    ) -> EnvironmentResult:
        return asyncio.run(
            create_locked_environment(
                prefix or self.prefix,
                lock,
                specs=specs,
                sources=sources or {},
                virtual_packages=to_generic(virtual),
                package_cache=self.cache,
                progress=SilentProgress(),
                replace=(lambda _change: True) if replace else None,
                look_up=look_up,
            )
        )


@pytest.fixture
def install(tmp_path: Path) -> Installer:
    return Installer(root=tmp_path)


def content(prefix: Path) -> dict[str, bytes]:
    """Every file of an environment but the clients' own."""
    own = {"conda-meta", "CACHEDIR.TAG"}
    files = [path for path in prefix.rglob("*") if path.is_file() and own.isdisjoint(path.parts)]
    return {str(path.relative_to(prefix)): path.read_bytes() for path in files}


def sha256_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def metadata(prefix: Path) -> dict[str, dict[str, object]]:
    records = (json.loads(path.read_text()) for path in (prefix / "conda-meta").glob("*.json"))
    return {record["name"]: record for record in records}


class TestEveryFormat:
    @pytest.mark.parametrize("name", LOCKS)
    def test_gives_what_the_solution_gives(self, install: Installer, channel: ToyChannel, name: str) -> None:
        lock = install.lock("tool", channel=channel)
        result = install(install.read(lock, name))
        solved = install.root / "solved"
        asyncio.run(
            create_environment(
                solved,
                ["tool"],
                [channel.address],
                package_cache=install.root / "other-pkgs",
                subdir=SUBDIR,
                progress=SilentProgress(),
            )
        )
        assert result.changed == 2
        replaced = {path: data.replace(bytes(solved), bytes(install.prefix)) for path, data in content(solved).items()}
        assert content(install.prefix) == replaced
        expected, found = metadata(solved), metadata(install.prefix)
        for key in ("version", "build", "sha256", "depends", "url", "channel", "fn", "subdir"):
            assert {one: row[key] for one, row in found.items()} == {one: row[key] for one, row in expected.items()}

    @pytest.mark.parametrize("name", LOCKS)
    @pytest.mark.parametrize("scheme", ["file", "http"])
    def test_is_installed_from_the_cache_when_the_channel_is_gone(
        self, install: Installer, channel: ToyChannel, name: str, scheme: str
    ) -> None:
        with served(channel.root) as address:
            lock = install.read(install.lock("tool", channel=address if scheme == "http" else channel), name)
            install(lock)
        shutil.rmtree(channel.root)
        result = install(lock, prefix=install.root / "second")
        assert [record.name for record in result.records] == ["library", "tool"]
        assert content(install.root / "second") == {
            path: data.replace(bytes(install.prefix), bytes(install.root / "second"))
            for path, data in content(install.prefix).items()
        }

    @pytest.mark.parametrize("name", LOCKS)
    @pytest.mark.parametrize("base_url", ["../files/SUBDIR/", "ORIGIN/channel/files/SUBDIR"])
    def test_packages_that_are_not_beside_their_index_are_found(
        self, install: Installer, channel: ToyChannel, name: str, base_url: str
    ) -> None:
        with served(install.root) as origin:
            files = channel.root / "files"
            move_packages(channel.root, base_url.replace("ORIGIN", origin), files)
            lock = install.read(install.lock("tool", channel=f"{origin}/channel"), name)
            result = install(lock, sources={package.channel: package.channel for package in lock.packages})
            assert [record.name for record in result.records] == ["library", "tool"]
            shutil.rmtree(install.cache)
            elsewhere = f"{origin}/channel/files"
            install(
                lock, prefix=install.root / "b", sources=dict.fromkeys((p.channel for p in lock.packages), elsewhere)
            )
        assert {row["url"] for row in metadata(install.root / "b").values()} == {
            f"{elsewhere}/linux-64/library-2.0-0.conda",
            f"{elsewhere}/linux-64/tool-1.0-0.conda",
        }

    @pytest.mark.parametrize("name", LOCKS)
    def test_yanked_packages_are_still_installed(self, install: Installer, channel: ToyChannel, name: str) -> None:
        lock = install.read(install.lock("tool", channel=channel), name)
        index = channel.root / SUBDIR / "repodata.json"
        document = json.loads(index.read_text())
        del document["packages.conda"]["library-2.0-0.conda"]
        index.write_text(json.dumps(document))
        assert [record.version for record in install(lock).records] == ["2.0", "1.0"]

    @pytest.mark.parametrize("name", LOCKS)
    @pytest.mark.parametrize("scheme", ["file", "http"])
    def test_other_bytes_are_refused_and_can_be_mended(
        self, install: Installer, channel: ToyChannel, name: str, scheme: str
    ) -> None:
        good = channel.archive("library", "2.0").read_bytes()
        with served(channel.root) as address:
            lock = install.read(install.lock("tool", channel=address if scheme == "http" else channel), name)
            channel.add("library", version="2.0", files={"lib/library": b"other"})
            found, locked = sha256_of(channel.archive("library", "2.0").read_bytes()), sha256_of(good)
            expected = rf"library-2\.0-0\.conda: cannot be installed as locked: .* has sha256 {found}, .* says {locked}"
            with pytest.raises(IntegrityError, match=expected) as caught:
                install(lock)
            assert "channel_tools pins" in str(caught.value.hint)
            channel.archive("library", "2.0").write_bytes(good)
            assert [record.name for record in install(lock).records] == ["library", "tool"]


def test_a_file_that_is_gone_is_named(install: Installer, channel: ToyChannel) -> None:
    lock = install.lock("tool", channel=channel).platforms[0]
    gone = channel.archive("library", "2.0")
    gone.unlink()
    with pytest.raises(IntegrityError, match=rf"the lock names it, but {gone} does not exist"):
        install(lock)


def test_a_package_that_is_gone_is_named(install: Installer, channel: ToyChannel) -> None:
    with served(channel.root) as address:
        lock = install.lock("tool", channel=address).platforms[0]
        channel.archive("library", "2.0").unlink()
        with pytest.raises(NetworkError, match=r"library-2\.0-0\.conda.*404"):
            install(lock)


def test_an_environment_is_brought_to_the_lock(install: Installer, channel: ToyChannel) -> None:
    install(install.lock("tool", channel=channel).platforms[0])
    older = install.lock("library ==1.0", channel=channel).platforms[0]
    with pytest.raises(UsageError, match=r"of 2 packages for library, tool; it lacks library-1\.0-0"):
        install(older)
    assert install(older, replace=True).changed == 2
    assert content(install.prefix) == {"lib/library": b"one"}
    assert install(older).changed == 0


def test_what_was_asked_for_is_noted(install: Installer, channel: ToyChannel) -> None:
    lock = install.lock("tool", channel=channel)
    install(lock.platforms[0], specs=lock.specs)
    assert {name: row.get("requested_specs", []) for name, row in metadata(install.prefix).items()} == {
        "tool": ["tool"],
        "library": [],
    }


def test_packages_can_be_taken_from_elsewhere_with_credentials(install: Installer, channel: ToyChannel) -> None:
    lock = install.lock("tool", channel=channel)
    with served(channel.root, authorization="Bearer secret") as address:
        install(lock.platforms[0], sources={channel.address: f"{address}/t/secret"})
    assert {row["channel"] for row in metadata(install.prefix).values()} == {address + "/"}
    assert "secret" not in "".join(path.read_text() for path in (install.prefix / "conda-meta").glob("*.json"))


@pytest.mark.parametrize(
    ("name", "version", "says"),
    [
        ("library", "3.0", r"library-3\.0-0\.conda.*says it is library 2\.0 0"),
        ("nothing", "2.0", r"nothing-2\.0-0\.conda.*says it is library 2\.0 0"),
    ],
)
def test_an_address_that_lies_about_its_package_is_known(
    install: Installer, channel: ToyChannel, name: str, version: str, says: str
) -> None:
    lock = install.read(install.lock("library", channel=channel), "explicit.txt")
    lying = channel.archive("library", "2.0").rename(channel.archive(name, version))
    package = dataclasses.replace(
        lock.packages[0], name=name, version=version, file_name=lying.name, url=lying.as_uri()
    )
    with pytest.raises(IntegrityError, match=says):
        install(dataclasses.replace(lock, packages=(package,)))


@pytest.mark.parametrize("subdir", ["noarch", SUBDIR])
def test_the_address_gives_the_subdir_that_an_old_package_does_not_state(
    install: Installer, channel: ToyChannel, subdir: str
) -> None:
    channel.add("old", subdir=subdir, without=["subdir"])
    result = install(install.read(install.lock("old", channel=channel), "explicit.txt"))
    assert [(package.name, package.subdir) for package in result.records] == [("old", subdir)]
    assert (install.prefix / "share/old").read_bytes() == b"old"


class TestVirtualPackages:
    @pytest.fixture
    def lock(self, install: Installer, channel: ToyChannel) -> Lock:
        channel.add("new", depends=["__glibc >=2.28,<3.0.a0"], constrains=["__cuda >=12"])
        return install.lock("new", channel=channel)

    @pytest.mark.parametrize("name", LOCKS)
    def test_a_machine_with_less_is_told(self, install: Installer, lock: Lock, name: str) -> None:
        with pytest.raises(
            SolveError, match=r"new needs __glibc >=2\.28,<3\.0\.a0 \(this machine has 2\.17\)"
        ) as caught:
            install(install.read(lock, name), virtual=["__glibc=2.17=0"])
        assert caught.value.hint is not None
        assert "--virtual-package" in caught.value.hint
        assert not install.prefix.exists()

    @pytest.mark.parametrize(
        ("virtual", "says"),
        [
            ((), "this machine has no __glibc"),
            (("__glibc=2.36=0", "__cuda=11.8=0"), r"__cuda >=12 \(this machine has 11"),
        ],
    )
    def test_what_is_missing_or_constrained(
        self, install: Installer, lock: Lock, virtual: Sequence[str], says: str
    ) -> None:
        with pytest.raises(SolveError, match=says):
            install(lock.platforms[0], virtual=virtual)

    @pytest.mark.parametrize(
        "spec", ["__glibc>=2.28", "__GLIBC >=2.28", "__glibc[version='>=2.28']", "__glibc 2.28.*", "__glibc~=2.28"]
    )
    def test_they_are_compared_in_every_form_of_a_requirement(
        self, install: Installer, channel: ToyChannel, spec: str
    ) -> None:
        channel.add("odd", depends=[spec])
        lock = install.lock("odd", channel=channel).platforms[0]
        with pytest.raises(SolveError, match=r"odd needs __(glibc|GLIBC).*\(this machine has 2\.17\)"):
            install(lock, virtual=["__glibc=2.17=0"])
        assert install(lock, virtual=["__glibc=2.28=0"]).changed == 1

    def test_a_machine_with_more_will_do(self, install: Installer, lock: Lock) -> None:
        assert install(lock.platforms[0], virtual=["__glibc=2.36=0"]).changed == 1


@pytest.mark.parametrize("make", [Path.touch, lambda path: (path / "mine").mkdir(parents=True)], ids=["file", "folder"])
def test_a_prefix_that_is_something_else_is_refused(
    install: Installer, channel: ToyChannel, make: Callable[[Path], None]
) -> None:
    make(install.prefix)
    with pytest.raises(UsageError, match="expected a new folder"):
        install(install.lock("tool", channel=channel).platforms[0])


def test_requirements_that_a_lock_lacks_and_a_package_has_wrong_are_looked_up(
    install: Installer, channel: ToyChannel
) -> None:
    archive = channel.add("fixed")
    lock = install.read(install.lock("fixed", channel=channel), "explicit.txt")
    archive = channel.add("fixed", constrains=["dsk[array] >=2"])
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    lock = dataclasses.replace(
        lock, packages=tuple(dataclasses.replace(package, sha256=sha256, md5=None) for package in lock.packages)
    )
    record: dict[str, object] = {"constrains": ["dsk >=2"], "depends": [], "sha256": sha256}
    with pytest.raises(IntegrityError, match=r"fixed-1\.0-0\.conda"):
        install(lock, look_up=lambda _packages: {f"{SUBDIR}/{archive.name}": [record | {"sha256": "0" * 64}]})
    install(lock, look_up=lambda _packages: {f"{SUBDIR}/{archive.name}": [record]})
    assert metadata(install.prefix)["fixed"]["constrains"] == ["dsk >=2"]
