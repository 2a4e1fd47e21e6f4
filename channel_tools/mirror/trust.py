# SPDX-License-Identifier: BSD-3-Clause
"""The far side's half of trust: python-tuf's client, fed from the bundle instead of a network.

The client decides; what it refuses is then looked at again, only to say what kind of fault it is. It works on a copy of
what the far side trusts, so that a refused bundle changes nothing there.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tuf.api.exceptions import (
    BadVersionNumberError,
    DownloadError,
    DownloadHTTPError,
    DownloadLengthMismatchError,
    ExpiredMetadataError,
    LengthOrHashMismatchError,
    RepositoryError,
    UnsignedMetadataError,
)
from tuf.api.metadata import Metadata, Root, Targets
from tuf.api.serialization import DeserializationError
from tuf.ngclient import FetcherInterface, Updater, UpdaterConfig

from channel_tools.errors import UsageError
from channel_tools.mirror.model import (
    COPY_AGAIN,
    METADATA_FOLDER,
    TRUSTED_FILES,
    BundleFile,
    BundleRefusedError,
    TrustedBundle,
    is_safe_path,
)
from channel_tools.mirror.reading import read_some

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from channel_tools.mirror.model import Fault
    from channel_tools.mirror.reading import BundleReader

_BASE = "bundle:"
_CHUNK_BYTES = 1 << 16
_ROOT_LIMIT_BYTES = 512_000
_TARGETS_LIMIT_BYTES = 256 << 20
_NOT_FOUND = 404
_UPDATE_HINT = "make a newer bundle where this one was made: channel_tools mirror update"


class _BundleFetcher(FetcherInterface):
    """Hands the client the bundle's metadata files; ``last`` is the one it asked for last."""

    def __init__(self, reader: BundleReader) -> None:
        self._reader = reader
        self.last = ""

    def _fetch(self, url: str) -> Iterator[bytes]:
        name = f"{METADATA_FOLDER}/{url.rpartition('/')[2]}"
        if name not in self._reader.sizes:
            if not name.endswith(".root.json"):
                self.last = name
            raise DownloadHTTPError(f"{name} is not in the bundle", _NOT_FOUND)
        self.last = name
        return self._chunks(name)

    def _chunks(self, name: str) -> Iterator[bytes]:
        with self._reader.open(name) as stream:
            while chunk := read_some(self._reader, stream, _CHUNK_BYTES):
                yield chunk


@dataclass(frozen=True, kw_only=True, slots=True)
class _Anchor:
    """What trust starts from."""

    root: bytes
    known: Mapping[str, bytes]


def verify_metadata(reader: BundleReader, *, trusted: Mapping[str, bytes], root_sha256: str | None) -> TrustedBundle:
    """What the bundle's metadata says, once the TUF client has found all of it right.

    ``trusted`` are the far side's metadata files by name (empty at the first time); then ``root_sha256`` must be the
    fingerprint of root metadata in the bundle. Raises BundleRefusedError that says the fault, UsageError when there is
    nothing to trust.
    """
    anchor = _Anchor(root=_first_root(reader, trusted, root_sha256), known=trusted)
    fetcher = _BundleFetcher(reader)
    with tempfile.TemporaryDirectory(prefix="channel-tools-trust-") as temporary:
        folder = Path(temporary)
        for name, content in trusted.items():
            (folder / name).write_bytes(content)
        try:
            updater = Updater(temporary, _BASE, fetcher=fetcher, config=_config(), bootstrap=anchor.root)
            updater.refresh()
        except (RepositoryError, DownloadError) as err:
            raise _refusal(err, reader, fetcher.last, folder) from None
        found = {name: (folder / name).read_bytes() for name in TRUSTED_FILES}
    _check_same(reader, found)
    return _trusted(reader.path, found)


def _config() -> UpdaterConfig:
    return UpdaterConfig(
        root_max_length=_ROOT_LIMIT_BYTES,
        snapshot_max_length=_ROOT_LIMIT_BYTES,
        targets_max_length=_TARGETS_LIMIT_BYTES,
    )


def _first_root(reader: BundleReader, trusted: Mapping[str, bytes], root_sha256: str | None) -> bytes:
    roots = dict(_roots(reader))
    if root_sha256 is None:
        if "root.json" in trusted:
            return trusted["root.json"]
        message = f"{reader.path}: nothing says yet which keys to trust"
        hint = "give --root-sha256 with the fingerprint that mirror create printed, received by another way"
        raise UsageError(message, hint=hint)
    wanted = root_sha256.lower().replace(":", "")
    known = {hashlib.sha256(content).hexdigest(): content for content in (*roots.values(), *_known_root(trusted))}
    if wanted not in known:
        # its own fingerprint is not told: somebody would copy it
        message = f"{reader.path}: the bundle's root metadata has another fingerprint than {wanted}"
        raise BundleRefusedError("wrong keys", message, hint="compare the fingerprint with those who made the bundle")
    return trusted.get("root.json", known[wanted])


def _known_root(trusted: Mapping[str, bytes]) -> list[bytes]:
    return [trusted["root.json"]] if "root.json" in trusted else []


def _roots(reader: BundleReader) -> Iterator[tuple[str, bytes]]:
    for name, size_bytes in reader.sizes.items():
        if name.startswith(f"{METADATA_FOLDER}/") and name.endswith(".root.json") and size_bytes <= _ROOT_LIMIT_BYTES:
            with reader.open(name) as stream:
                yield name, read_some(reader, stream, _ROOT_LIMIT_BYTES)


def _check_same(reader: BundleReader, found: Mapping[str, bytes]) -> None:
    """The client keeps what it has when a version comes again; then the bundle's files must be those very bytes."""
    for name in TRUSTED_FILES[1:]:
        version = "" if name == "timestamp.json" else f"{_version_of(found[name])}."
        path = f"{METADATA_FOLDER}/{version}{name}"
        content = _read(reader, path, limit=len(found[name]) + 1)
        if content != found[name]:
            fault: Fault = "missing" if content is None else "changed"
            message = f"{reader.path}: {path} is not the one that was seen before under the same version"
            raise BundleRefusedError(fault, message, hint=COPY_AGAIN)


def _read(reader: BundleReader, path: str, *, limit: int) -> bytes | None:
    if path not in reader.sizes:
        return None
    with reader.open(path) as stream:
        return read_some(reader, stream, limit)


def _version_of(content: bytes) -> int:
    return int(json.loads(content)["signed"]["version"])


def _trusted(bundle: Path, found: Mapping[str, bytes]) -> TrustedBundle:
    targets = Metadata[Targets].from_bytes(found["targets.json"]).signed
    root = Metadata[Root].from_bytes(found["root.json"]).signed
    files = {}
    for path, target in targets.targets.items():
        sha256 = target.hashes.get("sha256", "")
        if not is_safe_path(path) or path.startswith(f"{METADATA_FOLDER}/") or not sha256:
            raise BundleRefusedError("unsafe", f"{bundle}: the signed list names {path!r}, which no bundle may hold")
        files[path] = BundleFile(path=path, size_bytes=target.length, sha256=sha256)
    expires = min(json.loads(found[name])["signed"]["expires"] for name in TRUSTED_FILES)
    return TrustedBundle(
        version=targets.version,
        root_version=root.version,
        root_sha256=hashlib.sha256(found["root.json"]).hexdigest(),
        expires=expires,
        targets=files,
        metadata=dict(found),
    )


def _refusal(err: Exception, reader: BundleReader, name: str, folder: Path) -> BundleRefusedError:
    """The client's refusal in our words; ``name`` is the metadata file that it was at."""
    where = f"{reader.path}: {name}"
    match err:
        case DownloadLengthMismatchError():
            refusal = BundleRefusedError("too long", f"{where} is longer than it may be ({err})", hint=COPY_AGAIN)
        case DownloadError():
            refusal = BundleRefusedError("missing", f"{where} is not in the bundle", hint=COPY_AGAIN)
        case ExpiredMetadataError():
            message = f"{where} has expired ({err}): somebody may be holding newer bundles back"
            refusal = BundleRefusedError("frozen", message, hint=f"check this machine's clock, or {_UPDATE_HINT}")
        case UnsignedMetadataError():
            refusal = _signature_fault(where, reader, name, folder)
        case LengthOrHashMismatchError():
            refusal = _content_fault(where, reader, name, folder)
        case BadVersionNumberError():
            refusal = _version_fault(where, name, err)
        case _:
            refusal = BundleRefusedError("damaged", f"{where}: {err}", hint=COPY_AGAIN)
    return refusal


def _version_fault(where: str, name: str, err: Exception) -> BundleRefusedError:
    if name.endswith("timestamp.json"):
        message = f"{where} is of an earlier bundle than the last one taken in here ({err})"
        return BundleRefusedError("older", message, hint="import the newest bundle")
    message = f"{where} is of another bundle than the files beside it ({err})"
    return BundleRefusedError("mixed", message, hint=COPY_AGAIN)


def _content_fault(where: str, reader: BundleReader, name: str, folder: Path) -> BundleRefusedError:
    """Other bytes than were signed for: a sound file of another bundle, or a changed one."""
    if _valid_signatures(reader, name, folder):
        message = f"{where} is of another bundle than the files beside it"
        return BundleRefusedError("mixed", message, hint=COPY_AGAIN)
    return BundleRefusedError("changed", f"{where} is not what was signed", hint=COPY_AGAIN)


def _signature_fault(where: str, reader: BundleReader, name: str, folder: Path) -> BundleRefusedError:
    valid = _valid_signatures(reader, name, folder)
    role, root = _role_of(name), _root_in(folder)
    threshold = root.roles[role].threshold
    content = _read(reader, name, limit=_TARGETS_LIMIT_BYTES) or b""
    signed_by = {signature["keyid"] for signature in json.loads(content)["signatures"]}
    if valid or not signed_by:
        message = f"{where} has {valid} of the {threshold} signatures that it needs"
        return BundleRefusedError("too few signatures", message, hint=COPY_AGAIN)
    if signed_by & set(root.roles[role].keyids):
        return BundleRefusedError("changed", f"{where} is not what was signed", hint=COPY_AGAIN)
    message = f"{where} is signed by keys that are not trusted here for the role {role}"
    return BundleRefusedError("wrong keys", message, hint="ask those who made the bundle whether keys were changed")


def _valid_signatures(reader: BundleReader, name: str, folder: Path) -> int:
    """By how many of the keys trusted for its role the file is rightly signed."""
    content = _read(reader, name, limit=_TARGETS_LIMIT_BYTES) or b""
    try:
        metadata: Metadata[Targets] = Metadata.from_bytes(content)
    except DeserializationError:
        return 0
    result = _root_in(folder).get_verification_result(_role_of(name), metadata.signed_bytes, metadata.signatures)
    return len(result.signed)


def _role_of(name: str) -> str:
    return name.removesuffix(".json").rpartition("/")[2].rpartition(".")[2]


def _root_in(folder: Path) -> Root:
    return Metadata[Root].from_bytes((folder / "root.json").read_bytes()).signed
