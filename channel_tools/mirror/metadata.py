# SPDX-License-Identifier: BSD-3-Clause
"""The signed metadata of a bundle (The Update Framework): writing it when exporting, verifying it when importing.

All bundles of a key folder are versions of one TUF repository. python-tuf's client verifies, reading from the bundle
instead of a network. The client decides; what it rejects is examined again only to report the kind of fault. It works
on a copy of the metadata that the importing site trusts, so that a rejected bundle changes nothing there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
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
from tuf.api.metadata import Metadata, MetaFile, Root, Snapshot, TargetFile, Targets, Timestamp
from tuf.api.serialization import DeserializationError
from tuf.api.serialization.json import JSONSerializer
from tuf.ngclient import FetcherInterface, Updater, UpdaterConfig

from channel_tools.conda.fetch import HashedFile
from channel_tools.mirror.format import (
    COPY_AGAIN,
    METADATA_FOLDER,
    TRUSTED_FILES,
    BundleRejectedError,
    is_safe_path,
    sha256_of,
)
from channel_tools.system.errors import IntegrityError, UsageError
from channel_tools.system.work_folder import temporary_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from channel_tools.mirror.files import BundleReader
    from channel_tools.mirror.format import Fault
    from channel_tools.mirror.keys import Role, Signing

_BASE = "bundle:"
_CHUNK_BYTES = 1 << 16
_ROOT_LIMIT_BYTES = 512_000
_TARGETS_LIMIT_BYTES = 256 << 20
_NOT_FOUND = 404
_UPDATE_HINT = "make a newer bundle where this one was made: channel_tools mirror update"


@dataclass(frozen=True, kw_only=True, slots=True)
class TrustedBundle:
    """The content of a bundle's signed metadata, verified."""

    version: int
    root_version: int
    root_sha256: str
    expires: str
    targets: dict[str, HashedFile]
    metadata: dict[str, bytes]
    """The client's metadata files after this bundle, by name; they are kept to detect older bundles."""


def sign_bundle(signing: Signing, files: Iterable[HashedFile], *, version: int) -> dict[str, bytes]:
    """The metadata files of a bundle, by path in it: the root chain, then targets, snapshot and timestamp."""
    metadata = {f"{METADATA_FOLDER}/{path.name}": path.read_bytes() for path in signing.folder.root_files()}
    listed = {
        file.path: TargetFile(length=file.size_bytes, hashes={"sha256": file.sha256}, path=file.path)
        for file in sorted(files, key=lambda file: file.path)
    }
    targets = _signed(Targets(version=version, expires=signing.expires("targets"), targets=listed), signing, "targets")
    meta = {"targets.json": _meta(version, targets)}
    snapshot = _signed(Snapshot(version=version, expires=signing.expires("snapshot"), meta=meta), signing, "snapshot")
    snapshot_meta = _meta(version, snapshot)
    timestamp = _signed(
        Timestamp(version=version, expires=signing.expires("timestamp"), snapshot_meta=snapshot_meta),
        signing,
        "timestamp",
    )
    metadata[f"{METADATA_FOLDER}/{version}.targets.json"] = targets
    metadata[f"{METADATA_FOLDER}/{version}.snapshot.json"] = snapshot
    metadata[f"{METADATA_FOLDER}/timestamp.json"] = timestamp
    return metadata


def _signed(signed: Targets | Snapshot | Timestamp, signing: Signing, role: Role) -> bytes:
    metadata: Metadata[Targets] = Metadata(signed)  # type: ignore[arg-type]  # one of the three types
    for key in signing.keys[role]:
        metadata.sign(key, append=True)
    return metadata.to_bytes(JSONSerializer(compact=True))


def _meta(version: int, content: bytes) -> MetaFile:
    return MetaFile(version=version, length=len(content), hashes={"sha256": sha256_of(content)})


class _BundleFetcher(FetcherInterface):
    """Gives the client the bundle's metadata files; ``last`` is the one that it last requested."""

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
            while chunk := self._reader.read(stream, _CHUNK_BYTES):
                yield chunk


def check_trusted(trusted: Mapping[str, bytes], folder: Path) -> None:
    """Raise IntegrityError, naming the file in ``folder``, if the metadata that an importing site trusts is damaged.

    The client ignores damaged metadata other than the root, and would then no longer detect an older bundle. Metadata
    whose keys the root does not name is intact: a killed import replaced only the root.
    """
    root: Root | None = None
    for name, content in trusted.items():
        try:
            metadata: Metadata[Targets] = Metadata.from_bytes(content)
            if metadata.signed.type != name.removesuffix(".json"):
                raise _trusted_damaged(folder / name, f"its type is {metadata.signed.type}")
            root = root or Metadata[Root].from_bytes(trusted["root.json"]).signed
            role = root.roles[metadata.signed.type]
            good = root.get_verification_result(metadata.signed.type, metadata.signed_bytes, metadata.signatures).signed
        except (DeserializationError, ValueError, KeyError) as err:
            raise _trusted_damaged(folder / name, str(err) or type(err).__name__) from None
        bad = [key for key in metadata.signatures if key in role.keyids and key not in good]
        if bad or (name == "root.json" and len(good) < role.threshold):
            raise _trusted_damaged(folder / name, "its signatures do not fit its content")


def _trusted_damaged(file: Path, reason: str) -> IntegrityError:
    message = f"{file}: this site's trusted metadata is damaged ({reason}); the bundle was not read"
    hint = (
        f"restore {file} from a backup, or delete {file.parent} and import with --root-sha256, as the first time; "
        "a bundle older than the last one will then not be detected"
    )
    return IntegrityError(message, hint=hint)


def verify_metadata(reader: BundleReader, *, trusted: Mapping[str, bytes], root_sha256: str | None) -> TrustedBundle:
    """The content of the bundle's metadata, after the TUF client has verified all of it.

    ``trusted`` are the importing site's metadata files by name; if it is empty, as the first time, ``root_sha256`` must
    be the fingerprint of root metadata in the bundle. Raises BundleRejectedError with the fault, UsageError if there is
    neither.
    """
    root = _first_root(reader, trusted, root_sha256)
    fetcher = _BundleFetcher(reader)
    with temporary_folder() as folder:
        for name, content in trusted.items():
            (folder / name).write_bytes(content)
        try:
            updater = Updater(
                str(folder),
                _BASE,
                fetcher=fetcher,
                config=UpdaterConfig(
                    root_max_length=_ROOT_LIMIT_BYTES,
                    snapshot_max_length=_ROOT_LIMIT_BYTES,
                    targets_max_length=_TARGETS_LIMIT_BYTES,
                ),
                bootstrap=root,
            )
            updater.refresh()
        except (RepositoryError, DownloadError) as err:
            raise _rejection(err, reader, fetcher.last, folder) from None
        stored = {name: (folder / name).read_bytes() for name in TRUSTED_FILES}
    _check_same(reader, stored)
    return _trusted(reader.path, stored)


def _first_root(reader: BundleReader, trusted: Mapping[str, bytes], root_sha256: str | None) -> bytes:
    if root_sha256 is None:
        if "root.json" in trusted:
            return trusted["root.json"]
        message = f"{reader.path}: there is neither an earlier import nor a fingerprint to say which keys to trust"
        hint = "give --root-sha256 with the fingerprint that mirror create printed; get it separately from the bundle"
        raise UsageError(message, hint=hint)
    fingerprint = root_sha256.lower().replace(":", "")
    known = {sha256_of(content): content for content in _roots(reader)}
    if "root.json" in trusted:
        known[sha256_of(trusted["root.json"])] = trusted["root.json"]
    if fingerprint not in known:
        # the found fingerprint is not shown: users would copy it
        message = f"{reader.path}: the fingerprint of the bundle's root metadata is not {fingerprint}"
        raise BundleRejectedError("wrong keys", message, hint="check the fingerprint with those who made the bundle")
    return trusted.get("root.json", known[fingerprint])


def _roots(reader: BundleReader) -> Iterator[bytes]:
    for name, size_bytes in reader.sizes.items():
        if name.startswith(f"{METADATA_FOLDER}/") and name.endswith(".root.json") and size_bytes <= _ROOT_LIMIT_BYTES:
            with reader.open(name) as stream:
                yield reader.read(stream, _ROOT_LIMIT_BYTES)


def _check_same(reader: BundleReader, stored: Mapping[str, bytes]) -> None:
    """Check that files of a version that the client already has are the same bytes, since it keeps what it has."""
    for name in TRUSTED_FILES[1:]:
        version = "" if name == "timestamp.json" else f"{json.loads(stored[name])['signed']['version']}."
        path = f"{METADATA_FOLDER}/{version}{name}"
        content = _read(reader, path, limit=len(stored[name]) + 1)
        if content != stored[name]:
            fault: Fault = "missing" if content is None else "changed"
            message = f"{reader.path}: {path} differs from the one that was imported before with the same version"
            raise BundleRejectedError(fault, message, hint=COPY_AGAIN)


def _read(reader: BundleReader, path: str, *, limit: int) -> bytes | None:
    if path not in reader.sizes:
        return None
    with reader.open(path) as stream:
        return reader.read(stream, limit)


def _trusted(bundle: Path, stored: Mapping[str, bytes]) -> TrustedBundle:
    targets = Metadata[Targets].from_bytes(stored["targets.json"]).signed
    root = Metadata[Root].from_bytes(stored["root.json"]).signed
    files = {}
    for path, target in targets.targets.items():
        sha256 = target.hashes.get("sha256", "")
        if not is_safe_path(path) or path.startswith(f"{METADATA_FOLDER}/") or not sha256:
            raise BundleRejectedError(
                "unsafe", f"{bundle}: the signed list names {path!r}, which is not allowed in a bundle"
            )
        files[path] = HashedFile(path=path, size_bytes=target.length, sha256=sha256)
    expires = min(json.loads(stored[name])["signed"]["expires"] for name in TRUSTED_FILES)
    return TrustedBundle(
        version=targets.version,
        root_version=root.version,
        root_sha256=sha256_of(stored["root.json"]),
        expires=expires,
        targets=files,
        metadata=dict(stored),
    )


def _rejection(err: Exception, reader: BundleReader, name: str, folder: Path) -> BundleRejectedError:
    """The error for what the client rejected; ``name`` is the metadata file that it was reading."""
    where = f"{reader.path}: {name}"
    match err:
        case DownloadLengthMismatchError():
            rejection = BundleRejectedError("too long", f"{where} is longer than allowed ({err})", hint=COPY_AGAIN)
        case DownloadError():
            rejection = BundleRejectedError("missing", f"{where} is not in the bundle", hint=COPY_AGAIN)
        case ExpiredMetadataError():
            message = f"{where} has expired ({err}): someone may be withholding newer bundles"
            rejection = BundleRejectedError("frozen", message, hint=f"check this machine's clock, or {_UPDATE_HINT}")
        case UnsignedMetadataError():
            rejection = _signature_fault(where, reader, name, folder)
        case LengthOrHashMismatchError():
            rejection = _content_fault(where, reader, name, folder)
        case BadVersionNumberError():
            rejection = _version_fault(where, name, err)
        case _:
            rejection = BundleRejectedError("damaged", f"{where}: {err}", hint=COPY_AGAIN)
    return rejection


def _version_fault(where: str, name: str, err: Exception) -> BundleRejectedError:
    if name.endswith("timestamp.json"):
        message = f"{where} is from an older bundle than the last one imported here ({err})"
        return BundleRejectedError("older", message, hint="import the newest bundle")
    message = f"{where} is from another bundle than the files beside it ({err})"
    return BundleRejectedError("mixed", message, hint=COPY_AGAIN)


def _content_fault(where: str, reader: BundleReader, name: str, folder: Path) -> BundleRejectedError:
    """The error for bytes that differ from the signed ones: an intact file of another bundle, or a changed one."""
    if _valid_signatures(reader, name, folder):
        message = f"{where} is from another bundle than the files beside it"
        return BundleRejectedError("mixed", message, hint=COPY_AGAIN)
    return BundleRejectedError("changed", f"{where} differs from what was signed", hint=COPY_AGAIN)


def _signature_fault(where: str, reader: BundleReader, name: str, folder: Path) -> BundleRejectedError:
    valid = _valid_signatures(reader, name, folder)
    role, root = _role_of(name), _root_in(folder)
    threshold = root.roles[role].threshold
    content = _read(reader, name, limit=_TARGETS_LIMIT_BYTES) or b""
    signed_by = {signature["keyid"] for signature in json.loads(content)["signatures"]}
    if valid or not signed_by:
        message = f"{where} has {valid} of the {threshold} required signatures"
        return BundleRejectedError("too few signatures", message, hint=COPY_AGAIN)
    if signed_by & set(root.roles[role].keyids):
        return BundleRejectedError("changed", f"{where} differs from what was signed", hint=COPY_AGAIN)
    message = f"{where} is signed by keys that are not trusted here for the role {role}"
    return BundleRejectedError("wrong keys", message, hint="ask those who made the bundle whether keys have changed")


def _valid_signatures(reader: BundleReader, name: str, folder: Path) -> int:
    """How many of the keys trusted for its role have validly signed the file."""
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
