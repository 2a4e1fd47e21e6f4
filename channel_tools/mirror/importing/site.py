# SPDX-License-Identifier: BSD-3-Clause
"""The importing site: where a bundle is imported to, what is recorded there, and verifying a bundle against that.

A folder gets everything. A server gets only the channels; the rest of a bundle goes to a folder on the importing
machine. ``.mirror`` in either folder has the trusted metadata, by which older bundles are detected, and the list of
what the site has. Metadata is replaced file by file in the order in which the TUF client reads it, so that a killed
import leaves a state that the client accepts and from which no version goes back.

A bundle's sizes and names are checked before any target is read, so one with extra files is rejected at once. A bundle
of what is new relies on what earlier ones brought, and a complete one is not copied over that. So the bundle's files
that the importing site already has are read as well, unless the user trusts the disk.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from channel_tools.conda.addresses import (
    is_web,
    last_part,
    normal_address,
    parse_address,
    scheme_of,
    without_credentials,
)
from channel_tools.mirror.format import (
    CHANNELS_FOLDER,
    COPY_AGAIN,
    LOCKS_FOLDER,
    MANIFEST,
    METADATA_FOLDER,
    RECEIVED,
    RECORD_BYTES,
    STATE_FOLDER,
    TRUSTED_FILES,
    BundleRejectedError,
    Manifest,
    Received,
    decode_manifest,
    decode_received,
    encode_received,
    package_at,
    sha256_of,
)
from channel_tools.mirror.metadata import TrustedBundle, check_trusted, verify_metadata
from channel_tools.system.beneath import Beneath
from channel_tools.system.errors import IntegrityError, UsageError
from channel_tools.system.files import absolute_path
from channel_tools.system.locks import exclusive_lock
from channel_tools.system.workers import run_in_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from channel_tools.conda.fetch import HashedFile
    from channel_tools.mirror.files import BundleReader
    from channel_tools.mirror.format import BundleChannel, Fault
    from channel_tools.system.progress import Progress


_SHORT = 12
INCOMING = "incoming"
_CHUNK_BYTES = 1 << 20
VERIFY_THREADS = 4
_SMALL_LIMIT_BYTES = 256 << 20
_NAMED_FILES = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportTarget:
    """The destination of an import.

    ``files`` is the folder for locks, sources and the tool, and for the channels, too, unless ``server`` is the address
    (with any credentials) of our channel on a server; third-party channels are put beside it, under their own names.
    """

    files: Path
    server: str | None = None

    @property
    def state(self) -> ImportState:
        """The record of earlier imports."""
        return import_state(self.files)

    def folder(self, channel: BundleChannel) -> Path | None:
        """The channel's folder, None if it is on a server."""
        return None if self.server is not None else absolute_path(self.files) / CHANNELS_FOLDER / channel.name

    def address(self, channel: BundleChannel) -> str:
        """The address to publish the channel to: its folder, or its URL with any credentials."""
        if self.server is None:
            return str(self.folder(channel))
        return self.server if channel.own else f"{self.server.rpartition('/')[0]}/{channel.name}"


def import_target(to: str, *, state: Path, cwd: Path) -> ImportTarget:
    """The target for ``to``: a folder, or ``https://HOST/CHANNEL``, for which ``state`` has a folder per server.

    Raises UsageError for any other address.
    """
    if not scheme_of(to):
        return ImportTarget(files=cwd / to)
    parse_address(to)
    channel = last_part(without_credentials(to))
    if not is_web(to) or not channel:
        message = f"{without_credentials(to)}: bundles can be imported only into a folder or into https://HOST/CHANNEL"
        raise UsageError(message, hint="import into a folder, then publish from there")
    address = normal_address(to).rstrip("/")
    name = hashlib.sha256(without_credentials(address).encode()).hexdigest()[:_SHORT]
    return ImportTarget(files=state / f"{channel}-{name}", server=address)


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportState:
    """The trusted metadata and the list of files of an importing site, stored in ``folder``."""

    folder: Path

    @property
    def files(self) -> Beneath:
        """The folder, to name files in it; links in it stay in what was imported."""
        return Beneath(root=self.folder.parent).at(self.folder.name)

    @property
    def incoming(self) -> Path:
        """The folder for files that were verified and are not in place yet."""
        return self.folder / INCOMING

    @property
    def received_file(self) -> Path:
        """The list of what the site has; this file may be brought back to the exporting site."""
        return self.folder / RECEIVED

    def locked(self) -> AbstractContextManager[None]:
        """Lock it against other imports."""
        resource = f"the mirror {self.folder.parent}"
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        return exclusive_lock(self.folder / "lock", resource=resource, folder=self.files.folder(make=True))

    def trusted(self) -> dict[str, bytes]:
        """The metadata files that were last trusted; empty before the first import.

        Raises IntegrityError for damaged ones.
        """
        trusted = {name: content for name in TRUSTED_FILES if (content := self._read(f"trusted/{name}")) is not None}
        check_trusted(trusted, self.folder / "trusted")
        return trusted

    def put_trusted(self, metadata: Mapping[str, bytes]) -> None:
        """Replace the trusted metadata; nothing older is accepted from now on."""
        for name in TRUSTED_FILES:
            if self._read(f"trusted/{name}") != metadata[name]:
                self.files.write(f"trusted/{name}", metadata[name])

    def received(self) -> dict[str, str] | None:
        """The sha256 of what the site has, by path; None before the first import. Raises as read_received."""
        content = self._read(RECEIVED)
        return None if content is None else decode_received(content, self.received_file).files

    def put_received(self, received: Received) -> None:
        """Replace the list of what the site has."""
        self.files.write(RECEIVED, encode_received(received))

    def _read(self, name: str) -> bytes | None:
        """A record's content; None if there is none."""
        if not self.folder.is_dir():
            return None
        try:
            return self.files.read(name, limit_bytes=RECORD_BYTES)
        except FileNotFoundError:
            return None


def import_state(folder: Path) -> ImportState:
    """The state that is stored beside the files that were imported into ``folder``."""
    return ImportState(folder=folder / STATE_FOLDER)


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyReport:
    """A verified bundle, and how much of it was read."""

    bundle: TrustedBundle
    manifest: Manifest
    files: int
    size_bytes: int


def open_trusted(
    reader: BundleReader, *, trusted: Mapping[str, bytes], root_sha256: str | None, received: Mapping[str, str] | None
) -> tuple[TrustedBundle, Manifest]:
    """The bundle with its metadata verified and its list of files compared; no package is read yet.

    ``received`` has the sha256 of the files that the importing site has, by path; if it is None, what a bundle of what
    is new leaves out is not checked. Raises BundleRejectedError, and UsageError as verify_metadata.
    """
    bundle = verify_metadata(reader, trusted=trusted, root_sha256=root_sha256)
    manifest = decode_manifest(read_target(reader, bundle, MANIFEST), where=f"{reader.path}: {MANIFEST}")
    if manifest.version != bundle.version:
        message = (
            f"{reader.path}: {MANIFEST} is from bundle {manifest.version}, the metadata from bundle {bundle.version}"
        )
        raise BundleRejectedError("mixed", message, hint=COPY_AGAIN)
    _check_names(reader, bundle, frozenset(manifest.omitted), received)
    return bundle, manifest


def verify_bundle(
    reader: BundleReader,
    *,
    trusted: Mapping[str, bytes],
    root_sha256: str | None,
    received: Mapping[str, str] | None = None,
    progress: Progress,
) -> VerifyReport:
    """Read and hash every file of the bundle. Raises as open_trusted, for the first incorrect file."""
    bundle, manifest = open_trusted(reader, trusted=trusted, root_sha256=root_sha256, received=received)
    files = present_files(reader, bundle)
    total = sum(file.size_bytes for file in files)
    with progress.task("verifying", total=total, unit="bytes") as task:
        run_in_threads(lambda file: check_content(reader, file, on_bytes=task.advance), files, threads=VERIFY_THREADS)
    return VerifyReport(bundle=bundle, manifest=manifest, files=len(files), size_bytes=total)


def present_files(reader: BundleReader, bundle: TrustedBundle) -> list[HashedFile]:
    """The targets that are in the bundle itself, sorted by path."""
    return [file for path, file in sorted(bundle.targets.items()) if path in reader.sizes]


def check_content(
    reader: BundleReader, file: HashedFile, *, on_bytes: Callable[[int], None], writing: IO[bytes] | None = None
) -> None:
    """Hash a file of the bundle while copying it to ``writing``. Raises BundleRejectedError if it is incorrect."""
    digest = hashlib.sha256()
    remaining = file.size_bytes
    with reader.open(file.path) as stream:
        while remaining > 0 and (chunk := reader.read(stream, min(_CHUNK_BYTES, remaining))):
            digest.update(chunk)
            if writing is not None:
                writing.write(chunk)
            remaining -= len(chunk)
            on_bytes(len(chunk))
        more = bool(reader.read(stream, 1))
    if remaining or more or digest.hexdigest() != file.sha256:
        message = f"{reader.path}: {file.path} has sha256 {digest.hexdigest()}, but {file.sha256} was signed"
        raise BundleRejectedError("changed", message, hint=COPY_AGAIN)


def read_target(reader: BundleReader, bundle: TrustedBundle, path: str) -> bytes:
    """A small file of the bundle, verified. Raises BundleRejectedError."""
    file = bundle.targets.get(path)
    if file is None or path not in reader.sizes:
        raise BundleRejectedError("missing", f"{reader.path}: {path} is not in the bundle", hint=COPY_AGAIN)
    if file.size_bytes > _SMALL_LIMIT_BYTES:
        raise BundleRejectedError(
            "too long", f"{reader.path}: {path} has {file.size_bytes} bytes, which is too many", hint=COPY_AGAIN
        )
    with reader.open(path) as stream:
        content = reader.read(stream, file.size_bytes + 1)
    if sha256_of(content) != file.sha256:
        raise BundleRejectedError("changed", f"{reader.path}: {path} differs from what was signed", hint=COPY_AGAIN)
    return content


def _check_names(
    reader: BundleReader, bundle: TrustedBundle, omitted: frozenset[str], received: Mapping[str, str] | None
) -> None:
    present = {name for name in reader.sizes if not name.startswith(f"{METADATA_FOLDER}/")}
    if added := sorted(present - bundle.targets.keys()) or _added_metadata(reader, bundle):
        message = f"{reader.path}: contains {_listed(added)}, which is not in the signed list"
        raise BundleRejectedError("added", message, hint="remove it, or copy the bundle again")
    absent = sorted(bundle.targets.keys() - present)
    if missing := [path for path in absent if path not in omitted]:
        message = f"{reader.path}: {_listed(missing)} is in the signed list, but missing"
        raise BundleRejectedError("missing", message, hint=COPY_AGAIN)
    if received is not None:
        check_received(reader, bundle, received)
    for file in present_files(reader, bundle):
        size_bytes = reader.sizes[file.path]
        if size_bytes != file.size_bytes:
            fault: Fault = "too long" if size_bytes > file.size_bytes else "changed"
            message = f"{reader.path}: {file.path} has {size_bytes} bytes, but the signed list says {file.size_bytes}"
            raise BundleRejectedError(fault, message, hint=COPY_AGAIN)


def check_received(reader: BundleReader, bundle: TrustedBundle, received: Mapping[str, str]) -> None:
    """Raise BundleRejectedError unless the site has all that the bundle leaves out (``received``: sha256 by path)."""
    absent = sorted(bundle.targets.keys() - reader.sizes.keys())
    if lacking := [path for path in absent if received.get(path) != bundle.targets[path].sha256]:
        message = f"{reader.path}: has only what is new, but {_listed(lacking)} from earlier bundles is missing here"
        hint = "import the earlier bundles first, or have a complete bundle made with channel_tools mirror create"
        raise BundleRejectedError("missing", message, hint=hint)


def _added_metadata(reader: BundleReader, bundle: TrustedBundle) -> list[str]:
    known = {f"{version}.root.json" for version in range(1, bundle.root_version + 1)}
    known |= {"timestamp.json", f"{bundle.version}.snapshot.json", f"{bundle.version}.targets.json"}
    present = {name for name in reader.sizes if name.startswith(f"{METADATA_FOLDER}/")}
    return sorted(present - {f"{METADATA_FOLDER}/{name}" for name in known})


def _listed(paths: list[str]) -> str:
    listed = ", ".join(paths[:_NAMED_FILES])
    return listed if len(paths) <= _NAMED_FILES else f"{listed} and {len(paths) - _NAMED_FILES} more"


def check_held(
    target: ImportTarget, bundle: TrustedBundle, received: Mapping[str, str], *, trust: bool, progress: Progress
) -> tuple[int, int]:
    """Read the bundle's files that the site has, and check that they are as signed; with ``trust`` none is read.

    Returns how many it has, and how many of these were read and found correct. Indexes and locks are not among them,
    since they are written again here. Packages on a server cannot be read from here: their bytes are compared whenever
    they are published. Raises IntegrityError for a file that has changed.
    """
    known = [file for path, file in sorted(bundle.targets.items()) if received.get(path) == file.sha256]
    signed = [file for file in known if _stays_as_signed(file.path)]
    readable = [file for file in signed if target.server is None or not file.path.startswith(f"{CHANNELS_FOLDER}/")]
    if trust or not readable:
        return len(signed), 0

    with progress.task(
        "checking files that are already here", total=sum(file.size_bytes for file in readable), unit="bytes"
    ) as task:

        def check(file: HashedFile) -> None:
            if found := _change_of(target, file):
                message = f"{target.files / file.path}: {found} imported here"
                hint = (
                    "delete it, then import a bundle that brings it: channel_tools mirror create makes a complete one"
                )
                raise IntegrityError(message, hint=hint)
            task.advance(file.size_bytes)

        run_in_threads(check, readable, threads=VERIFY_THREADS)
    return len(signed), len(readable)


def _change_of(target: ImportTarget, file: HashedFile) -> str:
    """How a file that the site has differs from the signed one, "" if it does not; one of another size is not read.

    Raises ChannelError if it is not a regular file.
    """
    files = Beneath(root=target.files)
    try:
        if (status := files.file_stat(file.path)) is not None and status.st_size != file.size_bytes:
            return f"it has {status.st_size} bytes, but {file.size_bytes} were"
        sha256 = files.sha256(file.path)
    except FileNotFoundError:
        hint = "run the same command again"
        raise IntegrityError(f"{target.files / file.path}: was removed while it was checked", hint=hint) from None
    return "" if sha256 == file.sha256 else f"its sha256 is {sha256}, but {file.sha256} was"


def _stays_as_signed(path: str) -> bool:
    if path.startswith(f"{CHANNELS_FOLDER}/"):
        return package_at(path) is not None
    return not path.startswith(f"{LOCKS_FOLDER}/")
