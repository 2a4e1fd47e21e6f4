# SPDX-License-Identifier: BSD-3-Clause
"""A channel in an OCI registry as a target of publishing.

Packages are sent first, then the index of each subdir is replaced, so readers of a subdir see all of a set or nothing.
A registry has no conditional writes: a tag goes to the last who writes it. So the index is read again right before and
after it is written, and written anew with what another publisher added in between.
"""

from __future__ import annotations

import gzip
import io
import tarfile
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import zstandard

from channel_tools.channel.model import Foundation
from channel_tools.conda.archive import stream_component
from channel_tools.conda.package import RECORD_FIELD, by_format
from channel_tools.conda.repodata import REPODATA, encode_repodata
from channel_tools.publish.bucket.records import ALWAYS_SERVED
from channel_tools.publish.channels import checked_row, other_bytes
from channel_tools.publish.model import Comparison, PublishPlan, PublishReport
from channel_tools.publish.oci.layout import (
    CONFIG,
    CONFIG_TYPE,
    INDEX_JSON_TYPE,
    INFO_TYPE,
    LATEST,
    REPODATA_GZ_TYPE,
    REPODATA_TYPE,
    REPODATA_ZST_TYPE,
    TITLE,
    Descriptor,
    manifest_of,
    package_type,
    parse_registry_address,
    required_layer,
)
from channel_tools.publish.oci.reading import RegistryIndex, index_name, read_index
from channel_tools.publish.oci.registry import Registry
from channel_tools.system.counting import counted
from channel_tools.system.errors import ChannelError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from channel_tools.channel.records import CachedPackage
    from channel_tools.conda.contents import JsonObject
    from channel_tools.publish.model import PackageFile, PackageSet
    from channel_tools.publish.oci.layout import RegistryAddress
    from channel_tools.publish.oci.registry import Repository
    from channel_tools.system.progress import Progress

_ATTEMPTS = 10
_GZIP_LEVEL = 6
_MS = 1000


def open_registry(address: str, environ: Mapping[str, str]) -> RegistryTarget:
    """The target for an ``oci://`` address; nothing is contacted. Raises UsageError."""
    return RegistryTarget(registry=Registry(address=parse_registry_address(address), environ=environ))


@dataclass(frozen=True, kw_only=True, slots=True)
class RegistryTarget:
    """A channel in an OCI registry; like Target, but the subdirs of a set appear one after the other."""

    registry: Registry

    @property
    def _registry_address(self) -> RegistryAddress:
        return self.registry.address

    @property
    def address(self) -> str:
        """The address of label ``main`` for clients."""
        return str(self._registry_address)

    def foundation(self) -> Foundation | None:
        """conda-forge, for all: the layout has no place for it."""
        return Foundation(kind="conda-forge")

    def plan(self, packages: PackageSet, *, label: str) -> PublishPlan:
        """Compare with the indexes. Raises UsageError (a label or name that no registry can hold), ChannelError."""
        files = packages.by_name()
        for file in files.values():
            self._registry_address.place_of(file.key, label=label)
        indexes = {
            subdir: self._read_index(label, subdir) for subdir in sorted({file.subdir for file in files.values()})
        }
        missing = []
        for key, file in files.items():
            sha256 = indexes[file.subdir].sha256_of(file.file_name)
            if sha256 is None:
                missing.append(key)
            elif sha256 != file.sha256:
                raise self._other_bytes(file, label, sha256)
        present = tuple(key for key in files if key not in missing)
        comparison = Comparison(upload=tuple(missing), link=(), present=present)
        return PublishPlan(packages=packages, label=label, comparison=comparison)

    def publish(self, plan: PublishPlan, *, progress: Progress) -> PublishReport:
        """Send the packages, then write the indexes; what was sent before an error is skipped the next time."""
        started = time.monotonic()
        if not self._registry_address.readable:
            progress.note(
                f"{self.address}: clients read oci:// addresses over https without a port; others they cannot"
            )
        rows: dict[str, dict[str, CachedPackage]] = {subdir: {} for subdir in ALWAYS_SERVED}
        with progress.task("uploading packages", total=plan.upload_bytes, unit="bytes") as task:
            for file in sorted(plan.upload):
                row = checked_row(file, indexed_ms=int(time.time() * _MS))
                self._send(file, row, plan.label)
                rows.setdefault(file.subdir, {})[file.file_name] = row
                task.advance(file.size_bytes, detail=file.file_name)
        for subdir in sorted(rows, reverse=True):  # noarch before the platform's packages, which need it more often
            self._write_index(plan.label, subdir, rows[subdir])
        return PublishReport(
            address=self._registry_address.label_address(plan.label),
            label=plan.label,
            uploaded=tuple(sorted(str(file.key) for file in plan.upload)),
            linked=(),
            seconds=time.monotonic() - started,
        )

    def promote(self, keys: tuple[str, ...], *, source: str, label: str, progress: Progress) -> PublishReport:
        """Not supported: raises UsageError."""
        del keys, progress
        message = f"{self.address}: channel_tools cannot promote packages in an OCI registry from {source} to {label}"
        raise UsageError(message, hint=f"publish them to it: channel_tools publish --to {self.address} --label {label}")

    def _send(self, file: PackageFile, row: CachedPackage, label: str) -> None:
        """Send a package, unless its tag has it. Raises ChannelError if the tag has another."""
        name, tag = self._registry_address.place_of(file.key, label=label)
        package = Descriptor(
            media_type=package_type(file.key),
            digest=f"sha256:{file.sha256}",
            size=file.size_bytes,
            annotations={TITLE: file.file_name},
        )
        with self.registry.repository(name) as repository:
            stored = repository.manifest(tag)
            if stored is not None:
                layer = required_layer(stored.manifest, (package.media_type,), where=f"{repository.where}:{tag}")
                if layer.digest != package.digest:
                    raise self._other_bytes(file, label, layer.digest.removeprefix("sha256:"))
                return
            info, index_json = _metadata_of(file.path)
            described = Descriptor.of(info, INFO_TYPE, title="info.tar.gz")
            listed = Descriptor.of(index_json, INDEX_JSON_TYPE, title="info/index.json")
            repository.send_file(file.path, file.sha256)
            repository.send(described, info)
            repository.send(listed, index_json)
            record = row.record
            annotations = {f"org.conda.package.{field}": str(record[field]) for field in ("name", "version", "build")}
            _put(repository, tag, manifest_of([package, described, listed], annotations))

    def _read_index(self, label: str, subdir: str) -> RegistryIndex:
        """As _index_to_extend."""
        with self.registry.repository(self._index_name(label, subdir)) as repository:
            return _index_to_extend(repository)

    def _write_index(self, label: str, subdir: str, rows: Mapping[str, CachedPackage]) -> None:
        """List the packages, beside all that are listed by then.

        Raises ChannelError if one is listed with other bytes, or if other publishers keep replacing the index.
        """
        with self.registry.repository(self._index_name(label, subdir)) as repository:
            for _attempt in range(_ATTEMPTS):
                index = _index_to_extend(repository)
                if index.digest is not None and self._lists_all(index, label, subdir, rows):
                    return
                records = index.records | {name: _record_of(row) for name, row in rows.items()}
                manifest = _send_index(repository, subdir, records, index.removed)
                if _digest_of(repository) == index.digest:  # else another publisher was faster
                    _put(repository, LATEST, manifest)
        message = f"{repository.where}:{LATEST}: other publishers replaced the index {_ATTEMPTS} times in a row"
        raise ChannelError(message, hint="run the same command again, while nobody else publishes there")

    def _lists_all(self, index: RegistryIndex, label: str, subdir: str, rows: Mapping[str, CachedPackage]) -> bool:
        for name, row in rows.items():
            sha256 = index.sha256_of(name)
            if sha256 is not None and sha256 != row.sha256:
                raise other_bytes(f"{self._registry_address.label_address(label)}/{subdir}/{name}", sha256, row.sha256)
        return rows.keys() <= index.records.keys()

    def _index_name(self, label: str, subdir: str) -> str:
        return index_name(self._registry_address, subdir, label=label)

    def _other_bytes(self, file: PackageFile, label: str, sha256: str) -> ChannelError:
        return other_bytes(f"{self._registry_address.label_address(label)}/{file.key}", sha256, file.sha256)


def _record_of(row: CachedPackage) -> JsonObject:
    """The record of a package, without its attestations, which the layout has no place for."""
    return {name: value for name, value in row.record.items() if name != RECORD_FIELD}


def _index_to_extend(repository: Repository) -> RegistryIndex:
    """The index that a repository has; an empty one if it has none.

    Raises ChannelError for one that cannot be read, or has entries that would be missing when it is written again.
    """
    index = read_index(repository)
    for key, count in index.unread.items():
        entries = counted(count, "entry", "entries")
        message = f"{repository.where}:{LATEST}: lists {entries} under {key!r}, which this program would leave out"
        raise ChannelError(message, hint="publish to another path, or with the program that made this index")
    return index


def _digest_of(repository: Repository) -> str | None:
    stored = repository.manifest(LATEST)
    return None if stored is None else stored.digest


def _send_index(
    repository: Repository, subdir: str, records: Mapping[str, JsonObject], removed: tuple[str, ...]
) -> bytes:
    """Send the index in its three forms; returns the manifest that names them."""
    conda, old = by_format(records)
    plain = encode_repodata(subdir, conda, old=old, removed=removed)
    layers = []
    for media_type, content in (
        (REPODATA_TYPE, plain),
        (REPODATA_GZ_TYPE, gzip.compress(plain, _GZIP_LEVEL, mtime=0)),
        (REPODATA_ZST_TYPE, zstandard.compress(plain)),
    ):
        blob = Descriptor.of(content, media_type, title=REPODATA)
        repository.send(blob, content)
        layers.append(blob)
    return manifest_of(layers, {})


def _put(repository: Repository, tag: str, manifest: bytes) -> None:
    repository.send(Descriptor.of(CONFIG, CONFIG_TYPE), CONFIG)
    repository.put_manifest(tag, manifest)


def _metadata_of(path: Path) -> tuple[bytes, bytes]:
    """The package's info folder as tar.gz, the same bytes each time, and its index.json. Raises IntegrityError."""
    packed, index_json = io.BytesIO(), b""
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=_GZIP_LEVEL, mtime=0, filename="") as compressed,
        tarfile.TarFile(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for member, stream in stream_component(path, "info"):
            if stream is None:
                continue  # a link, which no client reads there
            content = stream.read()
            entry = tarfile.TarInfo(member.name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
            if member.name == "info/index.json":
                index_json = content
    return packed.getvalue(), index_json
