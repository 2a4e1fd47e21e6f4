# SPDX-License-Identifier: BSD-3-Clause
"""An S3 server on loopback, moto's, and a bucket of it that is a copy of a channel's folder."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import boto3
import msgspec
import zstandard
from botocore.config import Config
from moto.moto_server.werkzeug_app import create_backend_app
from types_boto3_s3.client import S3Client
from werkzeug.serving import WSGIRequestHandler, make_server

from channel_tools.publish.bucket import Replica, replicate
from channel_tools.system.progress import SilentProgress
from tests.support.server_thread import in_thread

ACCESS_KEY = "AKIATOYTOYTOYTOYTOY"
SECRET_KEY = "toy-secret-that-must-be-seen-nowhere"  # noqa: S105 - of a server on loopback
REFUSED = b"<?xml version='1.0'?><Error><Code>%s</Code><Message>refused</Message></Error>"

Answer = tuple[str, bytes]
Watch = Callable[[str, str], Answer | None]


class WatchedS3:
    """The application, and what was ``asked`` of it. ``watch`` sees method and path, and may answer in its place."""

    def __init__(self) -> None:
        self._app: WSGIApplication = create_backend_app("s3")
        self._one_request = threading.Lock()  # an object's reads share a file that a write closes
        self.asked: list[tuple[str, str]] = []
        self.watch: Watch | None = None

    def __call__(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        method, query = environ["REQUEST_METHOD"], environ.get("QUERY_STRING", "")
        path = environ["PATH_INFO"] + (f"?{query}" if query else "")
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        with self._one_request:
            self.asked.append(("COPY" if "HTTP_X_AMZ_COPY_SOURCE" in environ else method, path))
            if self.watch is not None and (answer := self.watch(method, path)) is not None:
                start(answer[0], [("Content-Type", "application/xml"), ("Content-Length", str(len(answer[1])))])
                return [answer[1]]
            environ["wsgi.input"] = io.BytesIO(body)
            return list(self._app(environ, start))

    @contextlib.contextmanager
    def watched(self, watch: Watch) -> Iterator[None]:
        """Let ``watch`` see the requests of the block."""
        self.watch = watch
        try:
            yield
        finally:
            self.watch = None

    def written(self) -> list[str]:
        """What was written, copied or deleted since the last time that this was asked: METHOD NAME."""
        asked, self.asked[:] = list(self.asked), []
        return [f"{method} {path.partition('/chan/')[2]}" for method, path in asked if method not in {"GET", "HEAD"}]


class _Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, type: str, message: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Not on the terminal."""


@dataclass(frozen=True, kw_only=True)
class Server:
    """The S3 server of the tests; its client is the tests' own."""

    endpoint: str
    app: WatchedS3
    client: S3Client

    def make_bucket(self) -> Bucket:
        name = f"toys-{uuid.uuid4().hex}"
        self.client.create_bucket(Bucket=name)
        self.app.asked.clear()
        return Bucket(server=self, name=name)


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """A bucket of the server; channels of the tests lie below ``chan``."""

    server: Server
    name: str

    @property
    def address(self) -> str:
        return f"s3://{self.name}/chan?endpoint={self.server.endpoint}"

    def copy(self, root: Path, **settings: Any) -> Replica:  # noqa: ANN401 - as of replicate
        """Make it a copy of a channel's folder."""
        settings = {"dry_run": False} | settings
        return replicate(root, self.address, environ=os.environ, progress=SilentProgress(), **settings)

    def get(self, name: str) -> bytes:
        return self.server.client.get_object(Bucket=self.name, Key=f"chan/{name}")["Body"].read()

    def put(self, name: str, body: bytes, **metadata: str) -> None:
        self.server.client.put_object(Bucket=self.name, Key=f"chan/{name}", Body=body, Metadata=metadata)

    def delete(self, name: str) -> None:
        self.server.client.delete_object(Bucket=self.name, Key=f"chan/{name}")

    def names(self) -> set[str]:
        pages = self.server.client.get_paginator("list_objects_v2").paginate(Bucket=self.name)
        return {row["Key"].removeprefix("chan/") for page in pages for row in page.get("Contents", ())}

    def headers(self, name: str) -> dict[str, str]:
        head = self.server.client.head_object(Bucket=self.name, Key=f"chan/{name}")
        return dict(head["ResponseMetadata"]["HTTPHeaders"])

    def make_public(self) -> None:
        """Let everybody read, as docs/how-to/publish-to-s3.md says."""
        statement = {
            "Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": f"arn:aws:s3:::{self.name}/*"
        }  # fmt: skip
        policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        self.server.client.put_bucket_policy(Bucket=self.name, Policy=policy)

    def listed(self, base: str = "") -> set[str]:
        """What the indexes of a label name (packages as ``subdir/file name``), each of which must be there."""
        names, listed = self.names(), set()
        for index in sorted(name for name in names if name.startswith(base) and name.count("/") == base.count("/") + 1):
            folder, _slash, kind = index.rpartition("/")
            if kind == "repodata.json":
                rows = msgspec.json.decode(self.get(index))["packages.conda"]
            elif kind == "repodata_shards.msgpack.zst":
                rows = self._sharded(folder)
            else:
                continue
            for name, row in rows.items():
                sha256 = row["sha256"] if isinstance(row["sha256"], str) else row["sha256"].hex()
                assert f"{folder}/{name}" in names, f"{index} names {name}, which is not there"
                assert hashlib.sha256(self.get(f"{folder}/{name}")).hexdigest() == sha256
                listed.add(f"{folder}/{name}")
        return listed

    def _sharded(self, folder: str) -> dict[str, dict[str, Any]]:
        rows: dict[str, dict[str, Any]] = {}
        for sha256 in msgspec.msgpack.decode(_unpack(self.get(f"{folder}/repodata_shards.msgpack.zst")))[
            "shards"
        ].values():
            rows |= msgspec.msgpack.decode(_unpack(self.get(f"{folder}/shards/{sha256.hex()}.msgpack.zst")))[
                "packages.conda"
            ]
        return rows


def _unpack(body: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompressobj().decompress(body)


@contextlib.contextmanager
def running_server() -> Iterator[Server]:
    app = WatchedS3()
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=_Quiet)
    with in_thread(server) as endpoint:
        config = Config(request_checksum_calculation="when_required", retries={"total_max_attempts": 1})
        client = boto3.session.Session().client(
            "s3",
            endpoint_url=endpoint,
            region_name="us-east-1",
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            config=config,
        )
        yield Server(endpoint=endpoint, app=app, client=client)
