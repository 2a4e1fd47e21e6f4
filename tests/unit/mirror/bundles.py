# SPDX-License-Identifier: BSD-3-Clause
"""Toy channels, keys and bundles: small, real, signed."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from channel_tools.channel import Channel, add_set, channel_writer
from channel_tools.conda.clients import make_http_client
from channel_tools.conda.fetch import FetchOptions
from channel_tools.mirror.exporting.create import CreateReport, create_bundle
from channel_tools.mirror.exporting.plan import (
    BundlePlan,
    SourceChannel,
    attestation_files,
    index_files,
    locked_packages,
    plan_packages,
)
from channel_tools.mirror.files import open_bundle
from channel_tools.mirror.format import Received
from channel_tools.mirror.importing.importer import ImportOptions, ImportReport, import_bundle
from channel_tools.mirror.importing.site import ImportTarget, VerifyReport, verify_bundle
from channel_tools.mirror.keys import KeyFolder, Signing, create_keys, fingerprint, open_signing
from channel_tools.pins import Lock, LockedPackage, PlatformLock
from channel_tools.system.files import sha256_of_file
from channel_tools.system.http.client import HttpClient
from channel_tools.system.http.pace import Retry, Timeouts
from channel_tools.system.progress import SilentProgress
from tests.support.packages import make_conda, new_channel, own

PLATFORM = "linux-64"
DAYS = {"root": 365, "targets": 90, "snapshot": 90, "timestamp": 90}


def new_keys(folder: Path, *, root_keys: int = 1, threshold: int = 1, passphrase: bytes | None = None) -> KeyFolder:
    return create_keys(
        folder,
        root_keys=root_keys,
        threshold=threshold,
        expiry_days={},
        passphrase=passphrase,
        now=datetime.now(UTC),
    )


def toy_channel(
    folder: Path, names: Sequence[str] = ("toy",), foundation: Sequence[str] = ("zlib",), *, build: str = "0"
) -> Channel:
    """A channel with own packages (each needs all foundation packages) and foundation packages."""
    channel = new_channel(folder)
    add_toys(channel, names, foundation, build=build)
    return channel


def add_toys(
    channel: Channel, names: Sequence[str], foundation: Sequence[str] = (), *, version: str = "1.0", build: str = "0"
) -> None:
    """A build ``hDIGEST_0`` is one that a plan with that digest gives, and that a server takes."""
    made = channel.path.parent / "made"
    linked = [make_conda(made, name) for name in foundation]
    ours = [
        make_conda(
            made,
            name,
            version=version,
            build=build,
            index={"depends": list(foundation)},
            about=own(f"digest of {name} {version}" if build == "0" else build[1:].partition("_")[0]),
            variant={"of": name},
        )
        for name in names
    ]
    with channel_writer(channel) as writer:
        if linked:
            add_set(writer, (), linked)
        add_set(writer, ours)


def foreign_channel(folder: Path, names: Sequence[str], *, old: Sequence[str] = ()) -> ForeignChannel:
    """A channel that is none of ours, with more packages each time: no record folder, packages of both formats."""
    for name in names:
        make_conda(folder, name, files={f"share/{name}.txt": b"foreign\n"})
    for name in old:
        make_old_package(folder / PLATFORM / f"{name}-1.0-0.tar.bz2", name)
    records = {}
    for path in sorted((folder / PLATFORM).glob("*-*")):
        name, version, build = path.name.removesuffix(".conda").removesuffix(".tar.bz2").rsplit("-", 2)
        row: dict[str, object] = {"name": name, "version": version, "build": build, "build_number": 0}
        row |= {"depends": [], "subdir": PLATFORM, "size": path.stat().st_size, "sha256": sha256_of_file(path)}
        records[path.name] = row
    write_index(folder / PLATFORM, records)
    write_index(folder / "noarch", {})
    return ForeignChannel(path=folder)


def write_index(folder: Path, records: Mapping[str, Mapping[str, object]]) -> None:
    """repodata.json in its plain form, as any indexer writes it."""
    folder.mkdir(parents=True, exist_ok=True)
    index = {
        "info": {"subdir": folder.name},
        "packages": {name: row for name, row in records.items() if name.endswith(".tar.bz2")},
        "packages.conda": {name: row for name, row in records.items() if name.endswith(".conda")},
        "repodata_version": 1,
    }
    (folder / "repodata.json").write_text(json.dumps(index))


def make_old_package(path: Path, name: str) -> None:
    """A package in the format before .conda."""
    path.parent.mkdir(parents=True, exist_ok=True)
    index = {"name": name, "version": "1.0", "build": "0", "build_number": 0, "depends": [], "subdir": PLATFORM}
    paths = {"paths": [{"_path": "share/old.txt", "path_type": "hardlink", "size_in_bytes": 4}], "paths_version": 1}
    members = {"info/index.json": json.dumps(index), "info/paths.json": json.dumps(paths), "share/old.txt": "old\n"}
    with tarfile.open(path, "w:bz2") as tar:
        for member, content in members.items():
            header = tarfile.TarInfo(member)
            header.size = len(content)
            tar.addfile(header, io.BytesIO(content.encode()))


@dataclass(frozen=True, kw_only=True, slots=True)
class ForeignChannel:
    path: Path

    @property
    def address(self) -> str:
        return self.path.as_uri()


def lock_of(*addresses: str, names: Sequence[str] | None = None, stack: str = "toy") -> Lock:
    """A lock of the packages (None: all) that the channels list."""
    packages = [package for address in addresses for package in _listed(address, names)]
    platform = PlatformLock(platform=PLATFORM, virtual_packages=(), packages=tuple(packages))
    return Lock(stack=stack, specs=("toy",), channels=addresses, platforms=(platform,))


def _listed(address: str, names: Sequence[str] | None) -> list[LockedPackage]:
    found = {}
    for subdir in (PLATFORM, "noarch"):
        index = json.loads((Path(address.removeprefix("file://")) / subdir / "repodata.json").read_bytes())
        for file_name, row in {**index["packages"], **index["packages.conda"]}.items():
            if names is None or row["name"] in names:
                found[row["name"]] = _locked(address, subdir, file_name, row)  # the newest of a name comes last
    return list(found.values())


def _locked(address: str, subdir: str, file_name: str, row: Mapping[str, object]) -> LockedPackage:
    return LockedPackage(
        name=str(row["name"]),
        version=str(row["version"]),
        build=str(row["build"]),
        build_number=0,
        subdir=subdir,
        file_name=file_name,
        channel=address,
        url=f"{address}/{subdir}/{file_name}",
        sha256=str(row["sha256"]),
        md5=None,
        size_bytes=int(str(row["size"])),
        depends=(),
        constrains=(),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportingSite:
    """Where bundles are made: a key folder and channels, ours first."""

    keys: KeyFolder
    channels: tuple[SourceChannel, ...]

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.keys.root_files()[0])

    def plan(self, locks: Sequence[Lock] | None = None, *, since: Received | None = None) -> BundlePlan:
        locks = [lock_of(*(channel.address for channel in self.channels))] if locks is None else locks
        needed = locked_packages(locks)
        parts = plan_packages(needed, self.channels, platforms=[PLATFORM], client=http_client(), since=since)
        small = index_files(locks, parts, complete=since is None, now=datetime.now(UTC))
        small |= attestation_files(parts, http_client())
        return BundlePlan(locks=locks, parts=parts, small=small, since=since)

    def signing(self, *, now: datetime | None = None, passphrase: bytes | None = None) -> Signing:
        return open_signing(self.keys, passphrase=passphrase, expires_days=None, now=now or datetime.now(UTC))

    def bundle(self, destination: Path, *, plan: BundlePlan | None = None, now: datetime | None = None) -> CreateReport:
        return create_bundle(
            plan or self.plan(),
            destination,
            signing=self.signing(now=now),
            options=FetchOptions(client=http_client()),
            progress=SilentProgress(),
        )


def http_client(*, timeouts: Timeouts = Timeouts(read_s=5.0)) -> HttpClient:  # noqa: B008 - frozen
    """Without proxies and credentials, and hardly waiting between attempts."""
    return make_http_client({}, timeouts=timeouts, retry=Retry(first_wait_s=0.001))


def exporting_site(folder: Path, *channels: Channel | ForeignChannel, keys: KeyFolder | None = None) -> ExportingSite:
    """Keys, and one channel with toys unless others are given."""
    used = channels or (toy_channel(folder),)
    named = [
        SourceChannel(name=channel.path.name, address=channel.address, own=number == 0)
        for number, channel in enumerate(used)
    ]
    return ExportingSite(keys=keys or new_keys(folder / "keys"), channels=tuple(named))


def verify(bundle: Path, root_sha256: str | None) -> VerifyReport:
    return verify_bundle(open_bundle(bundle), trusted={}, root_sha256=root_sha256, progress=SilentProgress())


def import_to(
    bundle: Path, folder: Path, root_sha256: str | None = None, *, trust_existing: bool = False
) -> ImportReport:
    options = ImportOptions(root_sha256=root_sha256, environ={}, client=http_client(), trust_existing=trust_existing)
    return import_bundle(open_bundle(bundle), ImportTarget(files=folder), options, progress=SilentProgress())


def listed(channel: Path, subdir: str = PLATFORM) -> list[str]:
    index = json.loads((channel / subdir / "repodata.json").read_bytes())
    return sorted({**index["packages"], **index["packages.conda"]})


def copied(bundle: Path, destination: Path) -> Path:
    shutil.copytree(bundle, destination)
    return destination
