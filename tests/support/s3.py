# SPDX-License-Identifier: BSD-3-Clause
"""An S3 server on loopback: moto's, made as strict as the real one where moto is not.

Conditional writes are decided and done in one step, and a body that is not what its MD5 or signature says is refused.
``Bucket`` is a channel in a bucket of it, and what the channel's readers see.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import hashlib
import io
import json
import os
import socket
import sys
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import botocore.config
import botocore.session
import msgspec
import zstandard
from moto.moto_server.werkzeug_app import create_backend_app
from types_boto3_s3.client import S3Client
from werkzeug.serving import WSGIRequestHandler, make_server

from channel_tools.publish.bucket.target import BucketTarget
from channel_tools.publish.model import PackageSet, PublishReport
from channel_tools.publish.s3.address import connect, open_s3, parse_bucket_address
from channel_tools.system.http.pace import Timeouts
from channel_tools.system.progress import SilentProgress
from tests.support.server_thread import in_thread

ACCESS_KEY = "AKIATOYTOYTOYTOYTOY"
SECRET_KEY = "toy-secret-that-must-be-seen-nowhere"  # noqa: S105 - of a server on loopback
ERROR = b"<?xml version='1.0'?><Error><Code>%s</Code><Message>refused</Message></Error>"

Answer = tuple[str, bytes]


@dataclass(kw_only=True)
class Request:
    """A request before it is served; what ``watch`` changes in it has happened on the way."""

    method: str
    path: str
    environ: WSGIEnvironment
    body: bytes

    def drop(self) -> None:
        """Cut the connection."""
        self.environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)


Watch = Callable[[Request], Answer | None]
After = Callable[[Request, list[bytes]], list[bytes]]

_ONE_REQUEST = threading.Lock()
"""moto's buckets belong to the process, whichever server they are reached through, and an object's reads share a file
that a write closes."""


class StrictS3:
    """The application, and what was asked of it: (method, path with query).

    ``watch`` sees each request before it is served and may answer in the server's place, ``after`` sees each answer and
    gives what is sent of it. ``conditional`` off makes a server that does not know conditional writes.
    """

    def __init__(self) -> None:
        self._app: WSGIApplication = create_backend_app("s3")
        self.asked: list[tuple[str, str]] = []
        self.watch: Watch | None = None
        self.after: After | None = None
        self.conditional = True

    def __call__(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        query = environ.get("QUERY_STRING", "")
        request = Request(
            method=environ["REQUEST_METHOD"],
            path=environ["PATH_INFO"] + (f"?{query}" if query else ""),
            environ=environ,
            body=environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)),
        )
        self.asked.append((request.method, request.path))
        after = self.after
        answer = self.watch(request) if self.watch is not None else None
        if answer is None and (code := _refusal(request)) is not None:
            answer = ("400 Bad Request", ERROR % code)
        if answer is not None:
            start(answer[0], [("Content-Type", "application/xml"), ("Content-Length", str(len(answer[1])))])
            return [answer[1]]
        served = self._serve(request, start)
        return served if after is None else after(request, served)

    def _serve(self, request: Request, start: StartResponse) -> list[bytes]:
        request.environ["wsgi.input"] = io.BytesIO(request.body)
        if not self.conditional:
            request.environ.pop("HTTP_IF_NONE_MATCH", None)
            request.environ.pop("HTTP_IF_MATCH", None)
        with _ONE_REQUEST:
            return list(self._app(request.environ, start))

    @contextlib.contextmanager
    def watched(self, watch: Watch | None = None, after: After | None = None) -> Iterator[None]:
        """Let ``watch`` and ``after`` see the requests of the block."""
        self.watch, self.after = watch, after
        try:
            yield
        finally:
            self.watch = self.after = None


def _refusal(request: Request) -> bytes | None:
    md5 = request.environ.get("HTTP_CONTENT_MD5")
    if md5 and base64.b64decode(md5) != hashlib.md5(request.body, usedforsecurity=False).digest():
        return b"BadDigest"
    said = request.environ.get("HTTP_X_AMZ_CONTENT_SHA256", "UNSIGNED-PAYLOAD")
    if len(said) == 64 and said != hashlib.sha256(request.body).hexdigest():
        return b"XAmzContentSHA256Mismatch"
    return None


class _Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, type: str, message: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Not on the terminal."""


@contextlib.contextmanager
def serve_s3() -> Iterator[tuple[str, StrictS3]]:
    """Serve on loopback for as long as the block runs; gives the endpoint and the application."""
    app = StrictS3()
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=_Quiet)
    with in_thread(server) as address:
        yield address, app


def s3_client(endpoint: str) -> S3Client:
    """A client of the test's own, beside the code under test."""
    client: Any = botocore.session.Session().create_client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
        config=botocore.config.Config(request_checksum_calculation="when_required", retries={"total_max_attempts": 1}),
    )
    found: S3Client = client
    return found


@dataclass(frozen=True, kw_only=True)
class Server:
    """The S3 server of the tests; its client is the tests' own."""

    endpoint: str
    app: StrictS3
    client: S3Client

    def make_bucket(self) -> Bucket:
        name = f"toys-{uuid.uuid4().hex}"
        self.client.create_bucket(Bucket=name)
        return Bucket(server=self, name=name)


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """A bucket of the server; channels of the tests lie below ``chan``."""

    server: Server
    name: str
    seen: dict[tuple[str, str], bytes] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return f"s3://{self.name}/chan?endpoint={self.server.endpoint}"

    def target(
        self, *, endpoint: str | None = None, timeouts: Timeouts | None = None, **settings: float
    ) -> BucketTarget:
        """The channel; ``settings`` are the target's (``lease_s``, ``wait_s``, ``grace_s``)."""
        address = f"s3://{self.name}/chan?endpoint={endpoint or self.server.endpoint}"
        target = open_s3(address, os.environ)
        if timeouts is not None:
            target = dataclasses.replace(
                target, store=connect(parse_bucket_address(address), timeouts=timeouts, attempts=1)
            )
        return dataclasses.replace(target, **settings)  # type: ignore[arg-type]

    def get(self, key: str) -> bytes:
        return self.server.client.get_object(Bucket=self.name, Key=key)["Body"].read()

    def put(self, key: str, body: bytes) -> None:
        self.server.client.put_object(Bucket=self.name, Key=key, Body=body)

    def keys(self, prefix: str = "") -> list[str]:
        rows = self.server.client.list_objects_v2(Bucket=self.name, Prefix=prefix).get("Contents", ())
        return [row["Key"] for row in rows]

    def uploads(self) -> list[str]:
        """The keys of unfinished uploads."""
        rows = self.server.client.list_multipart_uploads(Bucket=self.name).get("Uploads", ())
        return sorted(row["Key"] for row in rows)

    def all_keys(self, prefix: str) -> Iterator[str]:
        for page in self.server.client.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=prefix):
            yield from (row["Key"] for row in page.get("Contents", ()))

    def headers(self, key: str) -> dict[str, str]:
        head = self.server.client.head_object(Bucket=self.name, Key=key)
        return dict(head["ResponseMetadata"]["HTTPHeaders"])

    def make_public(self) -> None:
        """Let everybody read, as docs/how-to/publish-to-s3.md says."""
        statement = {
            "Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": f"arn:aws:s3:::{self.name}/*"
        }  # fmt: skip
        policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        self.server.client.put_bucket_policy(Bucket=self.name, Policy=policy)

    def listed(self, label: str = "") -> list[str]:
        """The packages that readers of a label see; every view of them must be the same."""
        views = self.views(label)
        assert views[0:1] * 3 + views[3:4] * 3 == views
        return sorted(views[0] | views[3])

    def views(self, label: str = "") -> list[frozenset[str]]:
        """The packages that each index names: plain, compressed, sharded of linux-64, then of noarch.

        Raises AssertionError when one names a package or a shard that is not there with those bytes.
        """
        base = f"chan/label/{label}" if label else "chan"
        etags = {
            row["Key"]: row["ETag"]
            for page in self.server.client.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=base)
            for row in page.get("Contents", ())
        }
        found = []
        for subdir in ("linux-64", "noarch"):
            for rows in self._indexes(f"{base}/{subdir}", etags):
                for name, sha256 in rows.items():
                    if hashlib.sha256(self._read(f"{base}/{subdir}/{name}", etags)).hexdigest() != sha256:
                        raise AssertionError(f"{subdir}/{name}: other bytes than the index says")
                found.append(frozenset(rows))
        return found

    def _indexes(self, folder: str, etags: Mapping[str, str]) -> Iterator[dict[str, str]]:
        plain = msgspec.json.decode(self.get(f"{folder}/repodata.json"))["packages.conda"]
        packed = msgspec.json.decode(_unpack(self.get(f"{folder}/repodata.json.zst")))["packages.conda"]
        yield {name: row["sha256"] for name, row in plain.items()}
        yield {name: row["sha256"] for name, row in packed.items()}
        sharded: dict[str, str] = {}
        index = msgspec.msgpack.decode(_unpack(self.get(f"{folder}/repodata_shards.msgpack.zst")))
        for sha256 in index["shards"].values():
            body = self._read(f"{folder}/shards/{sha256.hex()}.msgpack.zst", etags)
            if hashlib.sha256(body).digest() != sha256:
                raise AssertionError(f"{folder}: a shard has other bytes than its name says")
            rows = msgspec.msgpack.decode(_unpack(body))["packages.conda"]
            sharded |= {name: row["sha256"].hex() for name, row in rows.items()}
        yield sharded

    def _read(self, key: str, etags: Mapping[str, str]) -> bytes:
        """What should never change, read once for each version that there is."""
        if key not in etags:  # it may be younger than what was listed
            try:
                return self.get(key)
            except self.server.client.exceptions.NoSuchKey:
                raise AssertionError(f"{key}: an index names it, but it is not there") from None
        if (key, etags[key]) not in self.seen:
            self.seen[key, etags[key]] = self.get(key)
        return self.seen[key, etags[key]]


def _unpack(body: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompressobj().decompress(body)


def publish(target: BucketTarget, packages: PackageSet, label: str = "main") -> PublishReport:
    return target.publish(target.plan(packages, label=label), progress=SilentProgress())


@contextlib.contextmanager
def running_server() -> Iterator[Server]:
    with serve_s3() as (endpoint, app):
        yield Server(endpoint=endpoint, app=app, client=s3_client(endpoint))


if __name__ == "__main__":  # for programs that fork, which a server's threads would disturb; ends with its input
    with serve_s3() as (address, _):
        print(address, flush=True)  # noqa: T201 - read by who started it
        sys.stdin.read()
