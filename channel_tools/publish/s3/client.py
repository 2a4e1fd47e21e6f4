# SPDX-License-Identifier: BSD-3-Clause
"""The store interface for S3-compatible object stores, and the only module that sends requests to one.

Every write of an object that may change is conditional on what it replaces. Every body is sent with its MD5, which the
server checks, so it rejects bytes that changed on the way. A package object is only ever created, in parallel parts if
it is big, and has its sha256 in its metadata. An upload that was cut off continues with the missing parts; those that
arrived are recognised by their MD5, so no record of them is kept.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from itertools import groupby
from typing import TYPE_CHECKING

from channel_tools.channel.records import stamp_of
from channel_tools.publish.s3.errors import ConditionFailedError, NotThereError, reported
from channel_tools.publish.store import ObjectHead, in_parallel, require_bytes, served_package
from channel_tools.system.errors import ChannelError, IntegrityError, NetworkError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from types_boto3_s3.client import S3Client
    from types_boto3_s3.type_defs import (
        GetObjectOutputTypeDef,
        HeadObjectOutputTypeDef,
        ObjectIdentifierTypeDef,
        PutObjectRequestTypeDef,
    )

    from channel_tools.publish.store import Served, Upload
    from channel_tools.system.progress import Task


_DELETE_LIMIT = 1000
_READ_ATTEMPTS = 3
_COPY_SPAN_BYTES = 1 << 30
_CHUNK_BYTES = 1 << 20
PART_BYTES = 8 << 20
_PARTS_LIMIT = 10_000


class S3Store:
    """One bucket; see Store for what its methods guarantee, and errors.reported for what else they raise."""

    def __init__(self, client: S3Client, *, bucket: str) -> None:
        self._client = client
        self.bucket = bucket

    @property
    def name(self) -> str:
        """The bucket and its server."""
        return f"s3://{self.bucket} at {self._client.meta.endpoint_url}"

    def url(self, key: str) -> str:
        """An object's address, for messages."""
        return f"s3://{self.bucket}/{key}"

    def head(self, key: str) -> ObjectHead | None:
        """The object's metadata, None if there is no such object."""
        try:
            with self._reported(f"look at {key}"):
                return _head_of(self._client.head_object(Bucket=self.bucket, Key=key))
        except NotThereError:
            return None

    def get(self, key: str) -> tuple[bytes, ObjectHead] | None:
        """The whole object, None if there is no such object; only for objects that fit into memory."""
        for attempt in range(_READ_ATTEMPTS):
            try:
                with self._reported(f"read {key}"):
                    response = self._client.get_object(Bucket=self.bucket, Key=key)
                    return response["Body"].read(), _head_of(response)
            except NotThereError:
                return None
            except NetworkError:  # cut off during the body, which the library does not retry
                if attempt + 1 == _READ_ATTEMPTS:
                    raise
        return None

    def stream(self, key: str) -> Iterator[bytes]:
        """The bytes of an object of any size. Raises NetworkError if the transfer is cut off."""
        with self._reported(f"read {key}"):
            yield from self._client.get_object(Bucket=self.bucket, Key=key)["Body"].iter_chunks(_CHUNK_BYTES)

    def put(
        self, key: str, body: bytes, *, served: Served, replaces: str | None, conditional: bool = True
    ) -> str | None:
        """Write an object if the present one is the one that it ``replaces``; returns its new ETag, else None."""
        arguments: PutObjectRequestTypeDef = {
            "Bucket": self.bucket,
            "Key": key,
            "Body": body,
            "ContentMD5": _md5(body),
            "ContentType": served.content_type,
            "CacheControl": served.cache_control,
            "Metadata": served.metadata,
        }
        if conditional and replaces is None:
            arguments["IfNoneMatch"] = "*"
        elif conditional and replaces is not None:
            arguments["IfMatch"] = replaces
        try:
            with self._reported(f"write {key}"):
                return self._client.put_object(**arguments)["ETag"]
        except (ConditionFailedError, NotThereError):  # NotThere: the object to replace no longer exists
            return None

    def delete(self, keys: Sequence[str]) -> None:
        """Remove objects; missing ones are ignored."""
        for start in range(0, len(keys), _DELETE_LIMIT):
            chunk: list[ObjectIdentifierTypeDef] = [{"Key": key} for key in keys[start : start + _DELETE_LIMIT]]
            with self._reported(f"delete {keys[start]}"):
                response = self._client.delete_objects(Bucket=self.bucket, Delete={"Objects": chunk, "Quiet": True})
            if failed := response.get("Errors"):
                message = f"{self.url(str(failed[0].get('Key')))}: could not be deleted ({failed[0].get('Code')})"
                raise NetworkError(message, hint="allow these credentials to delete objects")

    def keys(self, prefix: str) -> Iterator[str]:
        """The keys that start with ``prefix``, sorted."""
        with self._reported(f"list {prefix}"):
            for page in self._client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix):
                yield from (str(row["Key"]) for row in page.get("Contents", ()))

    def folders(self, prefix: str) -> Sequence[str]:
        """The names directly below ``prefix`` (which ends with a slash) that have something below them."""
        pages = self._client.get_paginator("list_objects_v2")
        with self._reported(f"list {prefix}"):
            rows = [
                str(row["Prefix"])
                for page in pages.paginate(Bucket=self.bucket, Prefix=prefix, Delimiter="/")
                for row in page.get("CommonPrefixes", ())
            ]
        return [row.removeprefix(prefix).rstrip("/") for row in rows]

    def send(self, uploads: Sequence[Upload], task: Task, *, resume: Collection[str]) -> None:
        """Send package files, big ones in parts, and only the missing parts; memory is limited to a few parts."""
        resumed = [upload.key for upload in uploads if upload.key in resume]
        unfinished = dict(zip(resumed, in_parallel(self.uploads, resumed), strict=True))
        parts = [part for upload in uploads for part in self._begin(upload, unfinished.get(upload.key, ()))]
        etags = in_parallel(lambda part: self._send_part(part, task), parts)
        for (upload, upload_id), sent in groupby(zip(parts, etags, strict=True), key=lambda pair: pair[0].transfer):
            if upload_id is not None:
                self._finish(upload, upload_id, [etag for _part, etag in sent])

    def _begin(self, upload: Upload, unfinished: Sequence[str]) -> list[_Part]:
        """What must be sent of a package; of its ``unfinished`` uploads, the most advanced one is continued."""
        size_bytes = upload.stamp.size_bytes
        if size_bytes <= PART_BYTES:
            return [_Part(upload=upload, upload_id=None, number=1, size_bytes=size_bytes)]
        arrived = {upload_id: self.parts(upload.key, upload_id) for upload_id in unfinished}
        chosen = max(arrived, key=lambda upload_id: len(arrived[upload_id]), default=None)
        for upload_id in arrived:
            if upload_id != chosen:
                self.abort_upload(upload.key, upload_id)
        etags = {} if chosen is None else arrived[chosen]
        upload_id = chosen or self.begin_upload(upload.key, served=served_package(upload.sha256))
        part_bytes = max(PART_BYTES, -(-size_bytes // _PARTS_LIMIT))
        return [
            _Part(
                upload=upload, upload_id=upload_id, number=number, size_bytes=part_bytes, arrived=etags.get(number, "")
            )
            for number in range(1, -(-size_bytes // part_bytes) + 1)
        ]

    def _send_part(self, part: _Part, task: Task) -> str:
        """Send a part unless its bytes have arrived; returns its ETag."""
        upload, etag = part.upload, part.arrived
        with upload.path.open("rb") as stream:
            stream.seek((part.number - 1) * part.size_bytes)
            body = stream.read(part.size_bytes)
        if part.upload_id is None:
            _require_unchanged(upload)
            if self.put(upload.key, body, served=served_package(upload.sha256), replaces=None) is None:
                require_bytes(self, upload.key, upload.sha256)
        elif etag.strip('"') != hashlib.md5(body, usedforsecurity=False).hexdigest():
            try:
                etag = self.put_part(upload.key, part.upload_id, part.number, body)
            except NotThereError:
                message = f"{self.url(upload.key)}: another client ended its upload"
                raise ChannelError(message, hint="run the same command again") from None
        task.advance(len(body), detail=upload.path.name)
        return etag

    def _finish(self, upload: Upload, upload_id: str, etags: Sequence[str]) -> None:
        """Complete the upload, if the file is still the one that was checked."""
        _require_unchanged(upload)
        if not self.complete_upload(upload.key, upload_id, etags):
            self.abort_upload(upload.key, upload_id)
            require_bytes(self, upload.key, upload.sha256)

    def copy(self, source: tuple[str, ObjectHead], key: str, *, served: Served) -> bool:
        """Have the server copy another object to ``key``; False if ``key`` exists."""
        upload = self.begin_upload(key, served=served)
        try:
            starts = range(0, source[1].size_bytes, _COPY_SPAN_BYTES)
            spans = [(start, min(start + _COPY_SPAN_BYTES, source[1].size_bytes) - 1) for start in starts]
            etags = [
                self._copy_part(key, upload, number, (source[0], source[1].etag), span)
                for number, span in enumerate(spans, start=1)
            ]
        except (ConditionFailedError, NotThereError):
            message = f"{self.url(source[0])}: was changed or deleted while it was copied"
            raise IntegrityError(message, hint="run the same command again") from None
        if self.complete_upload(key, upload, etags):
            return True
        self.abort_upload(key, upload)
        return False

    def abandon(self, keys: Iterable[str]) -> None:
        """Abort the unfinished uploads of these keys."""
        keys = list(keys)
        for key, uploads in zip(keys, in_parallel(self.uploads, keys), strict=True):
            for upload in uploads:
                self.abort_upload(key, upload)

    def begin_upload(self, key: str, *, served: Served) -> str:
        """Start a multipart upload; returns its id. ``key`` does not exist until it is completed."""
        with self._reported(f"write {key}"):
            response = self._client.create_multipart_upload(
                Bucket=self.bucket,
                Key=key,
                ContentType=served.content_type,
                CacheControl=served.cache_control,
                Metadata=dict(served.metadata),
            )
        return response["UploadId"]

    def uploads(self, key: str) -> list[str]:
        """The ids of unfinished uploads of an object."""
        pages = self._client.get_paginator("list_multipart_uploads")
        with self._reported(f"list the uploads of {key}"):
            return [
                str(row["UploadId"])
                for page in pages.paginate(Bucket=self.bucket, Prefix=key)
                for row in page.get("Uploads", ())
                if row["Key"] == key
            ]

    def parts(self, key: str, upload: str) -> dict[int, str]:
        """The ETags of an unfinished upload's parts, by number; empty if the upload no longer exists.

        An ETag is the MD5 of the part's bytes unless the store encrypts.
        """
        try:
            with self._reported(f"list the parts of {key}"):
                pages = self._client.get_paginator("list_parts").paginate(Bucket=self.bucket, Key=key, UploadId=upload)
                return {row["PartNumber"]: row["ETag"] for page in pages for row in page.get("Parts", ())}
        except NotThereError:
            return {}

    def put_part(self, key: str, upload: str, number: int, body: bytes) -> str:
        """Send one part (numbers start at 1); returns its ETag.

        Raises NotThereError if another client has ended the upload.
        """
        with self._reported(f"write part {number} of {key}"):
            response = self._client.upload_part(
                Bucket=self.bucket, Key=key, UploadId=upload, PartNumber=number, Body=body, ContentMD5=_md5(body)
            )
        return response["ETag"]

    def _copy_part(self, key: str, upload: str, number: int, source: tuple[str, str], span: tuple[int, int]) -> str:
        """Copy bytes ``span`` (first, last) of another object (``source``: key and ETag) to a part; returns its ETag.

        The server copies; nothing is sent. Raises ConditionFailedError if the source has changed.
        """
        with self._reported(f"copy {source[0]}"):
            response = self._client.upload_part_copy(
                Bucket=self.bucket,
                Key=key,
                UploadId=upload,
                PartNumber=number,
                CopySource={"Bucket": self.bucket, "Key": source[0]},
                CopySourceIfMatch=source[1],
                CopySourceRange=f"bytes={span[0]}-{span[1]}",
            )
        return str(response["CopyPartResult"]["ETag"])

    def complete_upload(self, key: str, upload: str, etags: Sequence[str]) -> bool:
        """Join the parts, in order, to the object ``key`` unless it exists; returns whether it was made."""
        parts = [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(etags, start=1)]
        try:
            with self._reported(f"complete {key}"):
                self._client.complete_multipart_upload(
                    Bucket=self.bucket,
                    Key=key,
                    UploadId=upload,
                    MultipartUpload={"Parts": parts},  # type: ignore[typeddict-item]
                    IfNoneMatch="*",
                )
        except (ConditionFailedError, NotThereError):
            return False
        return True

    def abort_upload(self, key: str, upload: str) -> None:
        """Abort an unfinished upload and delete its parts."""
        try:
            with self._reported(f"abort the upload of {key}"):
                self._client.abort_multipart_upload(Bucket=self.bucket, Key=key, UploadId=upload)
        except NotThereError:
            return

    def _reported(self, action: str) -> AbstractContextManager[None]:
        return reported(action, where=self.name)


def _md5(body: bytes) -> str:
    return base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode("ascii")


def _head_of(response: HeadObjectOutputTypeDef | GetObjectOutputTypeDef) -> ObjectHead:
    modified = response["LastModified"]
    headers = response["ResponseMetadata"]["HTTPHeaders"]
    now = parsedate_to_datetime(headers["date"]) if "date" in headers else modified
    return ObjectHead(
        size_bytes=response["ContentLength"],
        etag=response["ETag"],
        metadata=response["Metadata"],
        age_s=(now - modified).total_seconds(),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Part:
    """A part of a package; without ``upload_id`` all of it. ``arrived`` is the ETag if its bytes are already there."""

    upload: Upload
    upload_id: str | None
    number: int
    size_bytes: int
    arrived: str = ""

    @property
    def transfer(self) -> tuple[Upload, str | None]:
        """The upload that it is a part of."""
        return self.upload, self.upload_id


def _require_unchanged(upload: Upload) -> None:
    if stamp_of(upload.path) != upload.stamp:
        raise IntegrityError(f"{upload.path}: changed while it was being published", hint="run the same command again")
