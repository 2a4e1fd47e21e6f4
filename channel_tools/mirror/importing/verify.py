# SPDX-License-Identifier: BSD-3-Clause
"""Verifying a bundle: signed metadata first, then the list of what is there against the list of what was signed for.

Sizes and names are judged before a byte of a target is read, so a bundle with too much in it costs no time.

A bundle of what is new relies on what earlier ones brought, and a complete one is not copied over it. So what the
importing site holds of a bundle already is read as well, unless the user knows that its disk keeps what it is given.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from channel_tools.mirror.bundle.format import (
    CHANNELS_FOLDER,
    COPY_AGAIN,
    LOCKS_FOLDER,
    MANIFEST,
    METADATA_FOLDER,
    BundleFile,
    BundleRejectedError,
    Manifest,
    decode_manifest,
    package_at,
    sha256_of,
)
from channel_tools.mirror.trust.metadata import TrustedBundle, verify_metadata
from channel_tools.system.errors import IntegrityError
from channel_tools.system.files import sha256_of_file
from channel_tools.system.workers import run_in_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from channel_tools.mirror.bundle.files import BundleReader
    from channel_tools.mirror.bundle.format import Fault
    from channel_tools.mirror.importing.target import ImportTarget
    from channel_tools.system.progress import Progress

_CHUNK_BYTES = 1 << 20
VERIFY_THREADS = 4
_SMALL_LIMIT_BYTES = 256 << 20
_NAMED_FILES = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyReport:
    """A bundle found right: what it is, and how much of it was read."""

    bundle: TrustedBundle
    manifest: Manifest
    files: int
    size_bytes: int


def open_trusted(
    reader: BundleReader, *, trusted: Mapping[str, bytes], root_sha256: str | None, received: Mapping[str, str] | None
) -> tuple[TrustedBundle, Manifest]:
    """What the bundle says, with its metadata verified and its list of files compared; no package is read yet.

    ``received`` are the files that the importing site has, path to sha256; None where that is not known: then a bundle
    of what is new is believed about what it leaves out. Raises BundleRejectedError, and UsageError as verify_metadata.
    """
    bundle = verify_metadata(reader, trusted=trusted, root_sha256=root_sha256)
    manifest = _read_manifest(reader, bundle)
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
    """Read and hash every file of the bundle. Raises as open_trusted, for the first file that is wrong."""
    bundle, manifest = open_trusted(reader, trusted=trusted, root_sha256=root_sha256, received=received)
    files = present_files(reader, bundle)
    total = sum(file.size_bytes for file in files)
    with progress.task("verifying", total=total, unit="bytes") as task:
        run_in_threads(lambda file: check_content(reader, file, on_bytes=task.advance), files, threads=VERIFY_THREADS)
    return VerifyReport(bundle=bundle, manifest=manifest, files=len(files), size_bytes=total)


def present_files(reader: BundleReader, bundle: TrustedBundle) -> list[BundleFile]:
    """The targets that are in the bundle itself, in order of path."""
    return [file for path, file in sorted(bundle.targets.items()) if path in reader.sizes]


def check_content(
    reader: BundleReader, file: BundleFile, *, on_bytes: Callable[[int], None], writing: IO[bytes] | None = None
) -> None:
    """Hash a file of the bundle, copying it to ``writing`` meanwhile. Raises BundleRejectedError unless it is right."""
    digest = hashlib.sha256()
    left = file.size_bytes
    with reader.open(file.path) as stream:
        while left > 0 and (chunk := reader.read(stream, min(_CHUNK_BYTES, left))):
            digest.update(chunk)
            if writing is not None:
                writing.write(chunk)
            left -= len(chunk)
            on_bytes(len(chunk))
        more = bool(reader.read(stream, 1))
    if left or more or digest.hexdigest() != file.sha256:
        message = f"{reader.path}: {file.path} is not what was signed (sha256 {digest.hexdigest()}, not {file.sha256})"
        raise BundleRejectedError("changed", message, hint=COPY_AGAIN)


def read_target(reader: BundleReader, bundle: TrustedBundle, path: str) -> bytes:
    """A small file of the bundle, verified. Raises BundleRejectedError."""
    file = bundle.targets.get(path)
    if file is None or path not in reader.sizes:
        raise BundleRejectedError("missing", f"{reader.path}: {path} is not in the bundle", hint=COPY_AGAIN)
    if file.size_bytes > _SMALL_LIMIT_BYTES:
        raise BundleRejectedError("too long", f"{reader.path}: {path} has {file.size_bytes} bytes", hint=COPY_AGAIN)
    with reader.open(path) as stream:
        content = reader.read(stream, file.size_bytes + 1)
    if sha256_of(content) != file.sha256:
        raise BundleRejectedError("changed", f"{reader.path}: {path} is not what was signed", hint=COPY_AGAIN)
    return content


def _read_manifest(reader: BundleReader, bundle: TrustedBundle) -> Manifest:
    manifest = decode_manifest(read_target(reader, bundle, MANIFEST), where=f"{reader.path}: {MANIFEST}")
    if manifest.version != bundle.version:
        message = f"{reader.path}: {MANIFEST} is of bundle {manifest.version}, the metadata of {bundle.version}"
        raise BundleRejectedError("mixed", message, hint=COPY_AGAIN)
    return manifest


def _check_names(
    reader: BundleReader, bundle: TrustedBundle, omitted: frozenset[str], received: Mapping[str, str] | None
) -> None:
    found = {name for name in reader.sizes if not name.startswith(f"{METADATA_FOLDER}/")}
    if added := sorted(found - bundle.targets.keys()) or _added_metadata(reader, bundle):
        message = f"{reader.path}: holds {_listed(added)}, which nobody signed for"
        raise BundleRejectedError("added", message, hint="remove it, or copy the bundle again")
    absent = sorted(bundle.targets.keys() - found)
    if missing := [path for path in absent if path not in omitted]:
        message = f"{reader.path}: {_listed(missing)} was signed for but is not there"
        raise BundleRejectedError("missing", message, hint=COPY_AGAIN)
    if received is not None:
        check_received(reader, bundle, received)
    for file in present_files(reader, bundle):
        size_bytes = reader.sizes[file.path]
        if size_bytes != file.size_bytes:
            fault: Fault = "too long" if size_bytes > file.size_bytes else "changed"
            message = f"{reader.path}: {file.path} has {size_bytes} bytes; signed for are {file.size_bytes}"
            raise BundleRejectedError(fault, message, hint=COPY_AGAIN)


def check_received(reader: BundleReader, bundle: TrustedBundle, received: Mapping[str, str]) -> None:
    """Raise BundleRejectedError unless the site has all that the bundle leaves out (``received``: path to sha256)."""
    absent = sorted(bundle.targets.keys() - reader.sizes.keys())
    if lacking := [path for path in absent if received.get(path) != bundle.targets[path].sha256]:
        message = f"{reader.path}: brings only what is new, and {_listed(lacking)} of earlier bundles is not here"
        hint = "import the earlier bundles first, or have a complete one made: channel_tools mirror create"
        raise BundleRejectedError("missing", message, hint=hint)


def _added_metadata(reader: BundleReader, bundle: TrustedBundle) -> list[str]:
    known = {f"{METADATA_FOLDER}/{name}" for name in _metadata_names(bundle)}
    names = [name for name in reader.sizes if name.startswith(f"{METADATA_FOLDER}/")]
    return sorted(name for name in names if name not in known)


def _metadata_names(bundle: TrustedBundle) -> set[str]:
    roots = {f"{version}.root.json" for version in range(1, bundle.root_version + 1)}
    return roots | {"timestamp.json", f"{bundle.version}.snapshot.json", f"{bundle.version}.targets.json"}


def _listed(paths: list[str]) -> str:
    shown = ", ".join(paths[:_NAMED_FILES])
    return shown if len(paths) <= _NAMED_FILES else f"{shown} and {len(paths) - _NAMED_FILES} more"


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldReport:
    """How many files of the bundle the site holds already, and how many of these were read and found right."""

    files: int = 0
    verified: int = 0


def check_held(
    target: ImportTarget, bundle: TrustedBundle, received: Mapping[str, str], *, trust: bool, progress: Progress
) -> HeldReport:
    """Read the files of the bundle that the site holds as they were signed; none of them with ``trust``.

    Indexes and locks, which are written anew here, are none of these, and packages on a server cannot be read from
    here: their bytes are compared whenever they are published. Raises IntegrityError for a file that has changed.
    """
    known = [file for path, file in sorted(bundle.targets.items()) if received.get(path) == file.sha256]
    held = [file for file in known if _stays_as_signed(file.path)]
    here = [file for file in held if target.server is None or not file.path.startswith(f"{CHANNELS_FOLDER}/")]
    if trust or not here:
        return HeldReport(files=len(held))

    with progress.task("reading what is here", total=sum(file.size_bytes for file in here), unit="bytes") as task:

        def check(file: BundleFile) -> None:
            path = target.files / file.path
            if (found := sha256_of_file(path)) != file.sha256:
                message = f"{path}: its sha256 is {found}, but {file.sha256} was imported here"
                hint = (
                    "delete it, then import a bundle that brings it: channel_tools mirror create makes a complete one"
                )
                raise IntegrityError(message, hint=hint)
            task.advance(file.size_bytes)

        run_in_threads(check, here, threads=VERIFY_THREADS)
    return HeldReport(files=len(held), verified=len(here))


def _stays_as_signed(path: str) -> bool:
    if path.startswith(f"{CHANNELS_FOLDER}/"):
        return package_at(path) is not None
    return not path.startswith(f"{LOCKS_FOLDER}/")
