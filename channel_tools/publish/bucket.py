# SPDX-License-Identifier: BSD-3-Clause
"""Copies a channel's folder into a bucket of an S3-compatible object store, for clients to read there.

The folder is the channel; nothing is decided in the bucket. Files that never change under their name (packages, shards)
are sent first, then the indexes that name them; what an earlier copy sent and the folder no longer has is removed last,
a grace time after a copy found it missing, since clients may still have an index that names it.

``.channel_tools/replica.json`` in the bucket says which folder this is a copy of, and what was sent. It is written
before the first object and after the last one: a copy that was cut off is completed by the next.
"""

from __future__ import annotations

import contextlib
import hashlib
import posixpath
import re
import stat
import time
import uuid
from dataclasses import dataclass
from itertools import groupby
from typing import IO, TYPE_CHECKING, Final, TypedDict, cast
from urllib.parse import parse_qs, unquote

import boto3
import msgspec
from boto3.s3.transfer import TransferConfig
from botocore import exceptions as aws
from botocore.config import Config

from channel_tools.channel import channel_writer, indexed_files, open_channel
from channel_tools.channel.content import INDEX_FILES
from channel_tools.channel.model import RECORD_FOLDER
from channel_tools.channel.state import LISTING, STATE_BYTES
from channel_tools.conda.addresses import parse_address
from channel_tools.conda.package import HASHED_NAME, NOARCH, PACKAGE_SUFFIXES, subdirs_of
from channel_tools.conda.repodata import (
    CHANNELDATA,
    REPODATA,
    REPODATA_FROM_PACKAGES,
    SHARD_SUFFIX,
    SHARDS_FOLDER,
    encode_json,
)
from channel_tools.publish.folder import FolderTarget
from channel_tools.publish.model import LABEL_FOLDER, NEVER_CHANGE_HINT, label_path
from channel_tools.system.counting import counted
from channel_tools.system.document import decode_json
from channel_tools.system.errors import ChannelError, ChannelToolsError, IntegrityError, NetworkError, UsageError
from channel_tools.system.files import read_at_most
from channel_tools.system.workers import run_in_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from types_boto3_s3.client import S3Client
    from types_boto3_s3.type_defs import ObjectIdentifierTypeDef

    from channel_tools.channel import Channel
    from channel_tools.system.beneath import Beneath
    from channel_tools.system.progress import Progress

_FORM: Final = "s3://BUCKET/PREFIX, or s3://BUCKET/PREFIX?endpoint=https://HOST&region=NAME for a server other than AWS"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIX = re.compile(r"[A-Za-z0-9!_.*'()+=@~-]+(/[A-Za-z0-9!_.*'()+=@~-]+)*")
_SETTINGS = ("endpoint", "region")
_DEFAULT_REGION = "us-east-1"
_FILES_AT_ONCE = 8
_PARTS_AT_ONCE = 4
_DELETED_AT_ONCE = 1000
_OBJECTS = 5_000_000
_SMALL_BYTES = 64 << 20
_WRITER_WAIT_S = 60.0
GRACE_S = 24 * 3600.0
_SCHEMA = 1
_RECORD = f"{RECORD_FOLDER}/replica.json"
_IDENTITY = f"{RECORD_FOLDER}/identity"
_INDEX_PAGE = "index.html"
_FOREVER = "public, max-age=31536000, immutable"
_ASK_AGAIN = "public, no-cache, max-age=0"
"""Caches keep the object and ask each time whether it is still the same."""
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".xml": "application/atom+xml; charset=utf-8",
    ".zst": "application/zstd",
}
"""By a name's suffix. No object has a Content-Encoding: clients unpack by the name, and some would do so twice."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BucketAddress:
    """The place of a channel in a bucket; ``prefix`` has no slash at either end and may be empty."""

    bucket: str
    prefix: str = ""
    endpoint: str | None = None
    region: str | None = None

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")


def parse_bucket_address(text: str) -> BucketAddress:
    """Parse an ``s3://`` address. Raises UsageError, which shows the expected form, if it is invalid."""
    parts = parse_address(text, forms=_FORM)
    if "@" in parts.netloc:
        raise UsageError(
            "an s3:// address must not contain credentials",
            hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile with AWS_PROFILE",
        )
    prefix = unquote(parts.path).strip("/")
    if parts.scheme != "s3" or not _BUCKET.fullmatch(parts.netloc) or parts.fragment:
        raise UsageError(f"{text}: not a valid bucket address; expected {_FORM}")
    if prefix and (not _PREFIX.fullmatch(prefix) or any(part in {".", ".."} for part in prefix.split("/"))):
        raise UsageError(f"{text}: the prefix {prefix!r} cannot be part of a channel's address; expected {_FORM}")
    options = parse_qs(parts.query, keep_blank_values=True)
    if unknown := sorted(options.keys() - set(_SETTINGS)):
        raise UsageError(f"{text}: unknown setting {unknown[0]!r}; expected {_FORM}")
    endpoint, region = (options[key][-1] if options.get(key) else None for key in _SETTINGS)
    return BucketAddress(
        bucket=parts.netloc, prefix=prefix, endpoint=None if endpoint is None else _endpoint(endpoint), region=region
    )


def _endpoint(text: str) -> str:
    parts = parse_address(text, forms="http://HOST:PORT or https://HOST")
    if parts.scheme not in {"http", "https"} or not parts.netloc or parts.path.strip("/") or parts.query:
        raise UsageError(f"endpoint {text!r}: expected http://HOST:PORT or https://HOST", hint=f"the form is {_FORM}")
    if "@" in parts.netloc:
        raise UsageError(
            "an endpoint must not contain credentials", hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    return f"{parts.scheme}://{parts.netloc}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Replica:
    """What a copy did, or would do: names of files below ``address``.

    ``waiting`` are those that the folder no longer has and that the first copy after the grace time removes.
    """

    address: str
    sent: tuple[str, ...]
    removed: tuple[str, ...]
    waiting: tuple[str, ...]
    sent_bytes: int


def replicate(
    root: Path,
    address: str,
    *,
    environ: Mapping[str, str],
    progress: Progress,
    dry_run: bool,
    clock: Callable[[], float] = time.time,
) -> Replica:
    """Make the bucket a copy of the channel in ``root``, with its labels; with ``dry_run`` only say what would be done.

    The channel's writer's lock is held meanwhile. Running it again completes a copy that was cut off. Raises UsageError
    (an invalid address, no such bucket), ChannelError (``root`` is no channel; the bucket is another folder's, or has
    what the folder lacks, or other bytes under a name), IntegrityError (a package is damaged), NetworkError.
    """
    bucket = _connect(parse_bucket_address(address), environ)
    channel = open_channel(root)
    with contextlib.nullcontext() if dry_run else channel_writer(channel, clock=clock, wait_s=_WRITER_WAIT_S):
        folder = FolderTarget(root=root)
        labels = {f"{label_path(label)}/".lstrip("/"): folder.open_label(label) for label in folder.labels()}
        files = {file.name: file for base, own in labels.items() for file in _label_files(base, own)}
        copy = _Copy(bucket=bucket, channel=channel, labels=labels, files=files, now_s=clock())
        return copy.run(_identity(channel, make=not dry_run), progress, dry_run=dry_run)


def _identity(channel: Channel, *, make: bool) -> str:
    """What tells the folder from others, wherever it is mounted or moved to; empty before its first copy."""
    with contextlib.suppress(FileNotFoundError):
        return channel.files.read(_IDENTITY, limit_bytes=1 << 10).decode().strip()
    identity = uuid.uuid4().hex if make else ""
    if make:
        channel.files.write(_IDENTITY, f"{identity}\n".encode())
    return identity


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    """replica.json: the folder's identity, what was sent with its sha256 (empty: perhaps not sent), and since when the
    folder has lacked what is still there.
    """

    schema: int = _SCHEMA
    folder: str
    files: dict[str, str] = {}
    waiting: dict[str, float] = {}


@dataclass(frozen=True, kw_only=True, slots=True)
class _File:
    """A file of the folder, by its name below the root. Stages are sent one after the other."""

    name: str
    sha256: str
    size_bytes: int
    stage: tuple[int, str, bool, str]

    @property
    def never_changes(self) -> bool:
        return self.stage == _FIRST


_FIRST, _BESIDE = (0, "", False, ""), (1, "", False, "")
"""What never changes under its name; what no index is about: attestations, pages, files of others."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Copy:
    """One copy: ``labels`` are the channels in the folder by what the names of their files begin with."""

    bucket: _Bucket
    channel: Channel
    labels: Mapping[str, Channel]
    files: Mapping[str, _File]
    now_s: float

    def run(self, identity: str, progress: Progress, *, dry_run: bool) -> Replica:
        files, stored = self.files, self.bucket.listed()
        record = self._record(identity, stored)
        self._require_same_bytes(stored, record)
        missing = [
            file
            for file in sorted(files.values(), key=_order)
            if file.size_bytes != stored.get(file.name)
            or not (file.never_changes or record.files.get(file.name) == file.sha256)
        ]
        gone = {*record.files, *record.waiting} & stored.keys() - files.keys()
        since = {name: record.waiting.get(name, self.now_s) for name in sorted(gone)}
        removed = [name for name, since_s in since.items() if self.now_s - since_s >= GRACE_S]
        waiting = {name: since_s for name, since_s in since.items() if name not in removed}
        done = _Record(folder=identity, files={name: file.sha256 for name, file in files.items()}, waiting=waiting)
        if not dry_run and done != record:
            begun = record.files | {file.name: "" for file in missing} | dict.fromkeys(gone, "")
            self.bucket.put_record(_Record(folder=identity, files=begun, waiting=waiting))
            self._send(missing, stored, progress)
            self.bucket.delete(removed)
            self.bucket.put_record(done)
        return Replica(
            address=str(self.bucket.address),
            sent=tuple(file.name for file in missing),
            removed=tuple(removed),
            waiting=tuple(waiting),
            sent_bytes=sum(file.size_bytes for file in missing),
        )

    def _record(self, identity: str, stored: Mapping[str, int]) -> _Record:
        """What earlier copies sent. Raises ChannelError if the bucket is no copy of this folder, nor can become one."""
        record = self.bucket.read_record() if _RECORD in stored else None
        if record is None:
            self._require_no_other_channel(stored)
            return _Record(folder=identity)
        if record.folder != identity:
            message = f"{self.bucket.address}: is a copy of another folder, not of {self.channel.path}"
            hint = f"copy to another prefix; if this folder takes the place of that one, delete {_RECORD} there first"
            raise ChannelError(message, hint=hint)
        return record

    def _require_no_other_channel(self, stored: Mapping[str, int]) -> None:
        """Raise ChannelError if the bucket has a channel of its own, of which people would lose something."""
        address, folder = self.bucket.address, self.channel.path
        if any(base + LISTING in stored for base in self.labels):
            message = f"{address}: version 0.2 wrote a channel there, which is no copy of a folder"
            hint = (
                f"publish its packages into {folder}, with its yanks, patches and page; then delete {RECORD_FOLDER}/ "
                "in the bucket, and copy again"
            )
            raise ChannelError(message, hint=hint)
        lacking = sorted(name for name in stored if name.endswith(PACKAGE_SUFFIXES) and name not in self.files)
        if lacking:
            label = lacking[0].split("/")[1] if lacking[0].startswith(f"{LABEL_FOLDER}/") else None
            message = f"{address}: has {counted(len(lacking), 'package')} that {folder} lacks, such as {lacking[0]}"
            words = f"channel_tools publish FILE --to {folder}{'' if label is None else f' --label {label}'}"
            raise ChannelError(message, hint=f"publish them into the folder first ({words}), or copy to another prefix")

    def _require_same_bytes(self, stored: Mapping[str, int], record: _Record) -> None:
        """Raise ChannelError for a package that the bucket has with other bytes, before anything is sent."""
        packages = [
            file for file in self.files.values() if file.name.endswith(PACKAGE_SUFFIXES) and file.name in stored
        ]
        unknown = [file.name for file in packages if not record.files.get(file.name)]
        stated = dict(run_in_threads(self.bucket.stated_sha256, unknown, threads=_FILES_AT_ONCE))
        for file in packages:
            sha256 = record.files.get(file.name) or stated[file.name]
            if file.size_bytes == stored[file.name] and sha256 == file.sha256:
                continue
            where = f"{self.bucket.address}/{file.name}"
            if not sha256:
                message = f"{where}: was not sent by channel_tools (its metadata has no sha256)"
                raise ChannelError(message, hint="delete it if it is not needed, or copy to another prefix")
            found = f"{stored[file.name]} bytes, sha256 {sha256}"
            message = f"{where}: the bucket has other bytes under this name ({found}) than {self.channel.path}"
            raise ChannelError(message, hint=NEVER_CHANGE_HINT)

    def _send(self, missing: Sequence[_File], stored: Mapping[str, int], progress: Progress) -> None:
        """Send the files by their stages; what the bucket has under another label's name, it copies itself."""
        held = {file.sha256: file.name for file in self.files.values() if file.never_changes and file.name in stored}
        total = sum(file.size_bytes for file in missing)
        with progress.task("sending files", total=total, unit="bytes") as task, self.channel.files.held() as folder:

            def send(file: _File) -> None:
                self.bucket.send(folder, file, task.advance)

            def copy(file: _File) -> None:
                self.bucket.copy(held[file.sha256], file)
                task.advance(file.size_bytes, detail=file.name)

            for _stage, stage in groupby(sorted(missing, key=_order), key=lambda file: file.stage):
                files: list[_File] = []
                copies: list[_File] = []
                for file in stage:
                    other = held.setdefault(file.sha256, file.name) if file.never_changes else file.name
                    (files if other == file.name else copies).append(file)
                run_in_threads(send, files, threads=_FILES_AT_ONCE)
                run_in_threads(copy, copies, threads=_FILES_AT_ONCE)


def _order(file: _File) -> tuple[tuple[int, str, bool, str], str]:
    return file.stage, file.name


def _label_files(base: str, channel: Channel) -> Iterator[_File]:
    """The files of a label that clients read. Raises ChannelError if its index names a package that is not there."""
    subdirs = subdirs_of(channel.files)
    packages = indexed_files(channel, subdirs)
    for key, package in packages.items():
        yield _File(name=f"{base}{key}", sha256=package.ref.sha256, size_bytes=package.ref.size_bytes, stage=_FIRST)
    for subdir in subdirs:
        present = {key.file_name for key in packages if key.subdir == subdir}
        if unknown := sorted(_listed(channel, subdir) - present):
            message = f"{channel.path / subdir / REPODATA}: names {unknown[0]}, which is not there as it was indexed"
            raise ChannelError(message, hint=f"channel_tools channel index --at {channel.path}, then copy again")
    for name, size_bytes in _other_files(channel.files):
        folder, _slash, last = name.rpartition("/")
        stage = _BESIDE
        if (match := HASHED_NAME.fullmatch(last)) is not None:
            sha256, stage = match["sha256"], _FIRST
        elif posixpath.basename(folder) == SHARDS_FOLDER and last.endswith(SHARD_SUFFIX):
            sha256, stage = last.removesuffix(SHARD_SUFFIX), _FIRST
        else:
            sha256 = channel.files.sha256(name)
        if folder in subdirs and last in {*INDEX_FILES, REPODATA_FROM_PACKAGES}:
            stage = (2, base, folder != NOARCH, folder)  # packages of other subdirs need those of noarch
        elif name in {CHANNELDATA, _INDEX_PAGE}:
            stage = (3, base, name == _INDEX_PAGE, "")
        yield _File(name=base + name, sha256=sha256, size_bytes=size_bytes, stage=stage)


class _Index(msgspec.Struct):
    """repodata.json, by its names alone."""

    packages: dict[str, msgspec.Raw] = {}
    packages_conda: dict[str, msgspec.Raw] = msgspec.field(default_factory=dict, name="packages.conda")


def _listed(channel: Channel, subdir: str) -> set[str]:
    """The packages that a subdir's index names. Raises ChannelError if it cannot be read."""
    try:
        index = decode_json(channel.files.read(f"{subdir}/{REPODATA}", limit_bytes=STATE_BYTES), _Index)
    except FileNotFoundError:
        return set()
    except msgspec.DecodeError as err:
        message = f"{channel.path / subdir / REPODATA}: not a valid index ({err})"
        raise ChannelError(message, hint=f"channel_tools channel index --at {channel.path}, then copy again") from None
    return {*index.packages, *index.packages_conda}


def _other_files(files: Beneath) -> Iterator[tuple[str, int]]:
    """What is no package and not hidden, with its size; other labels and what links lead to out of it are left out."""
    for top in files.names():
        status = files.stat(top)
        if top.startswith(".") or top == LABEL_FOLDER or status is None:
            continue
        names = [name for name, _status in files.walk(top)] if stat.S_ISDIR(status.st_mode) else [top]
        for name in names:
            if name.endswith(PACKAGE_SUFFIXES) or any(part.startswith(".") for part in name.split("/")):
                continue
            status = files.stat(name)
            if status is None or not stat.S_ISREG(status.st_mode):
                continue
            try:
                name.encode()
            except UnicodeEncodeError:
                message = f"{files.path}: the name {name!r} is no UTF-8, which an object's name must be"
                raise ChannelError(message, hint="rename or remove the file") from None
            yield name, status.st_size


class _Bucket:
    """The objects below an address; all methods raise as ``_reported`` does, and may be called by several threads."""

    def __init__(self, address: BucketAddress, client: S3Client) -> None:
        self.address = address
        self._client = client
        self._where = f"s3://{address.bucket} at {client.meta.endpoint_url}"
        self._before = f"{address.prefix}/" if address.prefix else ""
        self._transfer = TransferConfig(max_concurrency=_PARTS_AT_ONCE)

    def listed(self) -> dict[str, int]:
        """The names of all objects below the address, with their sizes."""
        pages = self._client.get_paginator("list_objects_v2")
        with _reported("list objects", self._where):
            sizes: dict[str, int] = {}
            for page in pages.paginate(Bucket=self.address.bucket, Prefix=self._before):
                sizes |= {row["Key"].removeprefix(self._before): row["Size"] for row in page.get("Contents", ())}
                if len(sizes) > _OBJECTS:
                    message = f"{self._where}: more than {_OBJECTS:,} objects below {self.address}"
                    raise ChannelError(message, hint="give a channel's own address, or ask the service's operator")
            return sizes

    def get(self, name: str) -> bytes:
        """A small object that exists. Raises ChannelError if it is not small."""
        with _reported(f"read {name}", self._where):
            body = self._client.get_object(Bucket=self.address.bucket, Key=self._before + name)["Body"]
            content = read_at_most(cast("IO[bytes]", body), _SMALL_BYTES + 1)
        if len(content) > _SMALL_BYTES:
            message = f"{self._where}: {name} has more than {_SMALL_BYTES} bytes; at most that many are read"
            raise ChannelError(message, hint="ask the service's operator what is there")
        return content

    def read_record(self) -> _Record:
        """replica.json. Raises ChannelError if it is damaged or of a newer version."""
        where = f"{self.address}/{_RECORD}"
        try:
            record = decode_json(self.get(_RECORD), _Record)
        except msgspec.DecodeError as err:
            message = f"{where}: not a valid record of a copy ({err})"
            raise ChannelError(message, hint="delete it, then copy again: what is there is compared anew") from None
        if record.schema != _SCHEMA:
            message = f"{where}: has schema {record.schema}; this version of channel_tools reads schema {_SCHEMA}"
            raise ChannelError(message, hint="use the version of channel_tools that last copied there")
        return record

    def put_record(self, record: _Record) -> None:
        """Replace replica.json."""
        with _reported(f"write {_RECORD}", self._where):
            self._client.put_object(
                Bucket=self.address.bucket,
                Key=self._before + _RECORD,
                Body=encode_json(record) + b"\n",
                **_served(_RECORD, cache_control=_ASK_AGAIN),
            )

    def stated_sha256(self, name: str) -> str | None:
        """The sha256 in an object's metadata."""
        with _reported(f"look at {name}", self._where):
            found = self._client.head_object(Bucket=self.address.bucket, Key=self._before + name)
        return found["Metadata"].get("sha256")

    def send(self, folder: Beneath, file: _File, on_bytes: Callable[[int], None]) -> None:
        """Send a file of the folder, in parts if it is large. Raises IntegrityError if it has other bytes by now."""
        with folder.opened(file.name) as stream:
            if hashlib.file_digest(stream, "sha256").hexdigest() != file.sha256:
                hint = "run the same command again; channel_tools channel verify says whether a package is damaged"
                raise IntegrityError(f"{folder.path / file.name}: has other bytes than sha256 {file.sha256}", hint=hint)
            stream.seek(0)
            with _reported(f"write {file.name}", self._where):
                self._client.upload_fileobj(
                    stream,
                    self.address.bucket,
                    self._before + file.name,
                    ExtraArgs=_served_file(file),
                    Callback=on_bytes,
                    Config=self._transfer,
                )

    def copy(self, source: str, file: _File) -> None:
        """Have the store copy the object ``source``, which has the file's bytes."""
        with _reported(f"copy {source}", self._where):
            self._client.copy(
                {"Bucket": self.address.bucket, "Key": self._before + source},
                self.address.bucket,
                self._before + file.name,
                ExtraArgs=_served_file(file) | {"MetadataDirective": "REPLACE"},
                Config=self._transfer,
            )

    def delete(self, names: Sequence[str]) -> None:
        """Remove objects; missing ones are ignored."""
        for start in range(0, len(names), _DELETED_AT_ONCE):
            keys: list[ObjectIdentifierTypeDef] = [
                {"Key": self._before + name} for name in names[start : start + _DELETED_AT_ONCE]
            ]
            with _reported(f"delete {names[start]}", self._where):
                found = self._client.delete_objects(Bucket=self.address.bucket, Delete={"Objects": keys, "Quiet": True})
            if failed := found.get("Errors"):
                message = f"{self._where}: {failed[0].get('Key')} could not be deleted ({failed[0].get('Code')})"
                raise NetworkError(message, hint=_ALLOW_HINT)


class _Headers(TypedDict):
    ContentType: str
    CacheControl: str


def _served(name: str, *, cache_control: str) -> _Headers:
    kind = _TYPES.get(posixpath.splitext(name)[1], "application/octet-stream")
    return {"ContentType": kind, "CacheControl": cache_control}


def _served_file(file: _File) -> dict[str, object]:
    served = _served(file.name, cache_control=_FOREVER if file.never_changes else _ASK_AGAIN)
    return {**served, "Metadata": {"sha256": file.sha256}}


def _connect(address: BucketAddress, environ: Mapping[str, str]) -> _Bucket:
    """A client for the bucket; credentials, endpoint and region are looked up where AWS's own tools do.

    Nothing is sent yet. Raises UsageError for a profile or a setting that does not exist.
    """
    config = Config(
        connect_timeout=10.0,
        read_timeout=60.0,
        retries={"mode": "standard", "total_max_attempts": 5},
        max_pool_connections=_FILES_AT_ONCE * _PARTS_AT_ONCE,
        # by default checksums are added that many S3-compatible servers do not support; a body's sha256 is signed
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    try:
        session = boto3.session.Session()
        # boto3 reads AWS_DEFAULT_REGION alone, AWS's other tools AWS_REGION, too
        region = address.region or environ.get("AWS_REGION") or session.region_name or _DEFAULT_REGION
        client = session.client("s3", region_name=region, endpoint_url=address.endpoint, config=config)
    except (aws.BotoCoreError, ValueError) as err:
        message = f"{address}: the AWS settings of this machine cannot be used ({type(err).__name__})"
        raise UsageError(message, hint="check AWS_PROFILE, AWS_ENDPOINT_URL and the files in ~/.aws") from None
    return _Bucket(address, client)


_CREDENTIALS_HINT = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN for temporary ones), or AWS_PROFILE"
)
_ALLOW_HINT = "grant them permission to get, put, delete and list objects below the prefix"
_AGAIN_HINT = "run the same command again: what was sent is kept"
_REPORTED: tuple[tuple[frozenset[str], type[ChannelToolsError], str, str], ...] = (
    (
        frozenset({"NoSuchBucket", "InvalidBucketName"}),
        UsageError,
        "there is no such bucket",
        "create the bucket first, or correct its name, the endpoint (AWS_ENDPOINT_URL) or the region",
    ),
    (
        frozenset({"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "301"}),
        UsageError,
        "the bucket is in another region",
        "set the bucket's region with AWS_REGION, or with ?region=NAME in the address",
    ),
    (
        frozenset({"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "ExpiredToken", "401"})
        | {"TokenRefreshRequired", "InvalidClientTokenId", "AuthFailure", "InvalidSecurity", "Unauthorized"},
        NetworkError,
        "the credentials are not accepted",
        _CREDENTIALS_HINT,
    ),
    (
        frozenset({"AccessDenied", "AllAccessDisabled", "AccountProblem", "Forbidden", "403"}),
        NetworkError,
        "these credentials are not allowed to {action}",
        _ALLOW_HINT,
    ),
    (
        frozenset({"RequestTimeTooSkewed"}),
        NetworkError,
        "this machine's clock is wrong",
        "set the clock",
    ),
    (
        frozenset({"BadDigest", "XAmzContentSHA256Mismatch", "XAmzContentChecksumMismatch", "InvalidDigest"}),
        IntegrityError,
        "the server received other bytes than were sent to {action}",
        "run the same command again; if that fails too, something on the way changes the bytes",
    ),
)
"""By the codes of servers' answers: the error, its message and hint."""


@contextlib.contextmanager
def _reported(action: str, where: str) -> Iterator[None]:
    """Turn what the library raises in the block into a ChannelToolsError.

    Of an answer only the code is shown: messages of servers and of the library can have access keys and signed
    addresses in them.
    """
    try:
        yield
    except aws.ClientError as err:
        code = str(err.response.get("Error", {}).get("Code", "unknown"))  # the status if there was no body
        for codes, error, message, hint in _REPORTED:
            if code in codes:
                raise error(f"{where}: {message.format(action=action)} ({code})", hint=hint) from None
        raise NetworkError(f"{where}: failed to {action} ({code})", hint=_AGAIN_HINT) from None
    except (aws.NoCredentialsError, aws.PartialCredentialsError, aws.CredentialRetrievalError):
        message = f"{where}: no credentials found; they are required to {action}"
        raise NetworkError(message, hint=_CREDENTIALS_HINT) from None
    except (aws.BotoCoreError, aws.HTTPClientError, OSError) as err:
        message = f"{where}: could not be reached to {action} ({type(err).__name__})"
        raise NetworkError(message, hint=f"check the endpoint and the network, then {_AGAIN_HINT}") from None
