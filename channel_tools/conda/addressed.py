# SPDX-License-Identifier: BSD-3-Clause
"""Reads the packages that MatchSpecs ask for by their addresses, before anything is solved.

py-rattler 0.28 reads such a package itself, and keeps it by its name alone: two addresses with one file name are one
for it, its record has no hashes and no channel, and has a token or password that is in the address. Here the file is
fetched, hashed and compared with a hash that was asked for; what its own index.json says is its record, and from that
file it is unpacked.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from typing import TYPE_CHECKING

import rattler
from rattler.exceptions import ConvertSubdirError, IoError

from channel_tools.conda.addresses import is_web, local_path, scheme_of, split_last, without_credentials
from channel_tools.conda.archive import read_index_json
from channel_tools.conda.clients import make_http_client
from channel_tools.conda.contents import damaged_package
from channel_tools.conda.metadata import subdir_of
from channel_tools.conda.package import split_file_name
from channel_tools.conda.solving import AddressedPackages, parse_spec
from channel_tools.conda.specs import address_in
from channel_tools.system.beneath import Beneath
from channel_tools.system.errors import ChannelError, IntegrityError, UsageError
from channel_tools.system.files import open_regular
from channel_tools.system.http.download import Download, download
from channel_tools.system.progress import SilentProgress
from channel_tools.system.work_folder import temporary_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from channel_tools.system.progress import Progress

_CHUNK_BYTES = 1 << 20
_FORM = "expected the address of a package, .../NAME-VERSION-BUILD.conda or .tar.bz2"


@contextlib.contextmanager
def addressed_packages(
    specs: Sequence[str],
    folder: Path,
    *,
    known: Iterable[rattler.RepoDataRecord] = (),
    progress: Progress | None = None,
) -> Iterator[AddressedPackages]:
    """The packages that ``specs`` ask for by their addresses; what is fetched is below ``folder`` until the block ends.

    Of ``known`` records, one with a sha256 says what is at its address. Raises UsageError (not the address of a
    package, or of one for another platform), IntegrityError (a damaged package, or another than the one whose hash was
    asked for), ChannelError (no such file), NetworkError and DiskFullError.
    """
    wanted = {text: address for text in specs if (address := address_in(parse_spec(text))) is not None}
    places = {record.url: record for record in known if record.sha256}
    records: dict[str, rattler.RepoDataRecord] = {}
    for text, address in wanted.items():
        record = places.get(without_credentials(address))
        if record is not None and parse_spec(text).matches(record):
            records[text] = record
    if records.keys() == wanted.keys():
        yield AddressedPackages(records=records)
        return
    archives: dict[str, Path] = {}
    folder.mkdir(parents=True, exist_ok=True)
    unread = wanted.keys() - records.keys()
    with temporary_folder(folder) as fetched:
        with (progress or SilentProgress()).task("read packages by address", total=len(unread)) as task:
            for number, text in enumerate(sorted(unread)):
                plain = without_credentials(wanted[text])
                archive = _archive(wanted[text], fetched / str(number))
                try:
                    records[text] = _read(archive, plain, text, fetched / "index.json")
                except IntegrityError as err:
                    raise IntegrityError(err.message.replace(str(archive), _shown(plain)), hint=err.hint) from None
                archives[plain] = archive
                task.advance(detail=archive.name)
        yield AddressedPackages(records=records, archives=archives)


def _archive(address: str, folder: Path) -> Path:
    """The file at an address, fetched into a new folder if it is of the web."""
    plain, local = without_credentials(address), local_path(address)
    _folder, file_name = split_last(plain)
    if split_file_name(file_name, old_format=True) is None:
        raise UsageError(f"{plain}: not the address of a package", hint=_FORM)
    if local is not None:
        return local
    if not is_web(address):
        message = f"{plain}: no package is read from addresses that start with {scheme_of(address)}://"
        raise UsageError(message, hint="ask for it by its name, from its channel: --channel")
    folder.mkdir()
    request = Download(
        url=address, folder=Beneath(root=folder), part=file_name, sha256=None, on_bytes=lambda _count: None
    )
    download(make_http_client(dict(os.environ)), request)
    return folder / file_name


def _read(archive: Path, plain: str, text: str, work: Path) -> rattler.RepoDataRecord:
    """The record of the package in a file that was at an address without credentials, for the MatchSpec ``text``.

    ``work`` is a file that is written on the way.
    """
    where = _shown(plain)
    try:
        sha256, md5, size_bytes = _hashes(archive)
    except FileNotFoundError:
        raise ChannelError(f"{where}: does not exist", hint="correct the address of the package") from None
    spec = parse_spec(text)
    for kind, expected, actual in (("sha256", spec.sha256, sha256), ("md5", spec.md5, md5)):
        if expected is not None and expected != actual:
            message = f"{where}: has {kind} {actual.hex()}; expected {expected.hex()}, which was asked for"
            raise IntegrityError(message, hint="correct the hash; or whoever has the file there has changed it")
    index = read_index_json(archive)
    folder, file_name = split_last(plain)
    named = "-".join(str(index.get(key)) for key in ("name", "version", "build"))
    if split_file_name(file_name, old_format=True) != split_file_name(f"{named}.conda"):
        raise damaged_package(archive, f"its index.json says it is {named}")
    channel, last = split_last(folder)
    # py-rattler reads it only from files
    content = {key: value for key, value in index.items() if value is not None}
    work.write_text(json.dumps({**content, "subdir": subdir_of(index) or last}), encoding="utf-8")
    try:
        record = rattler.PackageRecord.from_index_json(work)
    except (ValueError, IoError, ConvertSubdirError) as err:
        reason = f"its index.json cannot be read: {' '.join(str(err).split())}"
        raise damaged_package(archive, reason) from None
    record.sha256, record.md5, record.size = sha256, md5, size_bytes
    return rattler.RepoDataRecord(record, file_name, plain, channel)


def _shown(plain: str) -> str:
    return str(local_path(plain) or plain)


def _hashes(archive: Path) -> tuple[bytes, bytes, int]:
    """The sha256, the md5 and the size of a file."""
    sha256, md5, size_bytes = hashlib.sha256(), hashlib.md5(usedforsecurity=False), 0
    with open_regular(archive) as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            sha256.update(chunk)
            md5.update(chunk)
            size_bytes += len(chunk)
    return sha256.digest(), md5.digest(), size_bytes
