# SPDX-License-Identifier: BSD-3-Clause
"""The errors of packages that cannot be installed.

py-rattler has one error class per stage, with the cause only in the text, so the text is parsed: the phrases below are
those of py-rattler 0.28 (tests cause each with real channels). An unknown text is kept in a general error.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from typing import TYPE_CHECKING

from channel_tools.conda.addresses import local_path, without_credentials
from channel_tools.conda.solving import DISK_FULL, UNREACHABLE, one_line
from channel_tools.system.errors import (
    ChannelError,
    ChannelToolsError,
    DiskFullError,
    IntegrityError,
    NetworkError,
    UsageError,
)
from channel_tools.system.files import kind_of, sha256_of_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from rattler import RepoDataRecord

_CUT_OFF = re.compile(r"EOF while parsing")
_ROOM_BYTES = 64 * 1024
"""A disk with less is full for the records of an environment, which have a few KiB each or more."""
_DENIED = re.compile(r"os error (1|13|30)\b")
_DAMAGED = re.compile(
    r"checksum|hash mismatch|unexpected (eof|end of file)|failed to unpack|invalid (zip|gzip)|archive|"
    r"could not find (the )?(end of central directory|central directory)|zstd|paths\.json|index\.json",
    re.IGNORECASE,
)
_OTHER_BYTES = re.compile(r"hash mismatch when extracting (\S+) to .*: expected ([0-9a-f]{64}), got ([0-9a-f]{64})")
_PACKAGE = re.compile(r"failed to (?:fetch|link|unlink) ([^\s:]+)")


def install_error(err: Exception, *, prefix: Path, package_cache: Path, locked: bool = False) -> ChannelToolsError:
    """The error for a package that could not be downloaded, unpacked or linked; ``locked``: it is from a lock."""
    reason = one_line(err)
    match = _PACKAGE.search(reason)
    package = match.group(1) if match else "a package"
    retry = "run the same command again: complete packages are kept"
    if DISK_FULL.search(reason) or (_CUT_OFF.search(reason) and shutil.disk_usage(prefix).free < _ROOM_BYTES):
        message = f"{package}: no space left on the device of {package_cache} or {prefix}: {reason}"
        return DiskFullError(message, hint=f"free space there, then {retry}")
    if _DENIED.search(reason):
        message = f"{prefix}: {package} cannot be installed there: {reason}"
        return UsageError(message, hint="choose a prefix and a cache that you can write to")
    if UNREACHABLE.search(reason):
        message = f"{package}: cannot be downloaded: {reason}"
        return NetworkError(message, hint=f"check the network and the channel's address, then {retry}")
    if locked and (other := _OTHER_BYTES.search(reason)):
        address, expected, sha256 = other.groups()
        return other_package_error(package, f"{address} has sha256 {sha256}, the lock says {expected}")
    if _DAMAGED.search(reason):
        return damaged_package_error(package, reason)
    return ChannelError(f"{package}: cannot be installed into {prefix}: {reason}", hint=retry)


def damaged_package_error(package: str, reason: str) -> IntegrityError:
    """The error for a package whose bytes do not match the channel's index, or whose metadata cannot be read."""
    message = f"{package}: cannot be used: {reason}"
    hint = (
        "if the channel's file is the intended one, index the channel again (channel_tools channel index for one of "
        "ours); else build or mirror it again"
    )
    return IntegrityError(message, hint=hint)


def other_package_error(package: str, reason: str) -> IntegrityError:
    """The error for a locked package that does not exist at its address, or has other bytes there."""
    message = f"{package}: cannot be installed as locked: {reason}"
    hint = (
        "give --channel with a channel that has the locked file, or restore the file at the lock's address; "
        "to install the current package, lock again: channel_tools pins"
    )
    return IntegrityError(message, hint=hint)


def unsafe_package_error(package: str, reason: str) -> IntegrityError:
    """The error for a package that is what the channel or lock says, and must not be installed."""
    message = f"{package}: was not installed: {reason}"
    hint = "whoever makes the package has to correct it; choose another build of it, or another channel"
    return IntegrityError(message, hint=hint)


def difference_error(record: RepoDataRecord, hashes: tuple[str, str], *, locked: bool) -> IntegrityError | None:
    """The error if an archive with these hashes (sha256, md5) is not that of a record; None if it is."""
    for name, expected, actual in zip(("sha256", "md5"), (record.sha256, record.md5), hashes, strict=True):
        if expected is not None and expected.hex() != actual:
            says, error = _source(locked=locked)
            where = local_path(record.url) or without_credentials(record.url)
            return error(record.file_name, f"{where} has {name} {actual}, {says} says {expected.hex()}")
    return None


def _source(*, locked: bool) -> tuple[str, Callable[[str, str], IntegrityError]]:
    return ("the lock", other_package_error) if locked else ("the channel's index", damaged_package_error)


def irregular_archive_error(record: RepoDataRecord, *, locked: bool) -> IntegrityError | None:
    """The error if something else than a file is where a record's archive is, such as a pipe; else None.

    rattler opens it by its path, and waits for the other end of a pipe for ever. ``locked`` is as for
    local_archive_error.
    """
    path = local_path(record.url)
    with contextlib.suppress(OSError):
        if path is not None and (kind := kind_of(path.stat().st_mode)) is not None:
            says, error = _source(locked=locked)
            return error(record.file_name, f"{says} names it, but {path} is {kind}; expected a regular file")
    return None


def local_archive_error(record: RepoDataRecord, *, locked: bool) -> IntegrityError | None:
    """The error if a record's archive is a local file that is missing or has other bytes; else None.

    ``locked``: the record is from a lock, else from a channel's index.
    """
    path = local_path(record.url)
    if path is None:
        return None
    says, error = _source(locked=locked)
    if not path.is_file():
        return error(record.file_name, f"{says} names it, but {path} does not exist")
    if record.sha256 is not None and (sha256 := sha256_of_file(path)) != record.sha256.hex():
        return error(record.file_name, f"{path} has sha256 {sha256}, {says} says {record.sha256.hex()}")
    if record.size not in {None, size := path.stat().st_size}:
        return error(record.file_name, f"{path} has {size} bytes, {says} says {record.size}")
    return None


@contextlib.contextmanager
def panics_reported(where: str) -> Iterator[None]:
    """Turn a failure inside rattler, which has no class that can be imported, into an IntegrityError."""
    try:
        yield
    except Exception as err:
        if type(err).__name__ != "RustPanic":  # its module cannot be imported
            raise
        message = f"{where}: rattler failed on these packages: {err}"
        hint = "one of them is not the package that its file name says; rattler's own message is above"
        raise IntegrityError(message, hint=hint) from err
