# SPDX-License-Identifier: BSD-3-Clause
"""Channels in buckets of the test server, and what their readers see."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import msgspec
import zstandard
from types_boto3_s3.client import S3Client

from channel_tools.progress import SilentProgress
from channel_tools.publish import PackageSet, PublishReport
from channel_tools.publish.objects import BucketTarget, open_bucket
from channel_tools.publish.objects_connect import Patience, connect
from tests.integration.s3 import StrictS3, parse_models_once, s3_client, serve_s3


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
        self, *, endpoint: str | None = None, patience: Patience | None = None, **settings: float
    ) -> BucketTarget:
        """The channel; ``settings`` are those of the publish stage's bucket (``lease_s``, ``wait_s``, ``grace_s``)."""
        target = open_bucket(f"s3://{self.name}/chan?endpoint={endpoint or self.server.endpoint}", os.environ)
        if patience is not None:
            store = connect(target.bucket.where, patience=patience)
            target = dataclasses.replace(target, bucket=dataclasses.replace(target.bucket, store=store))
        return dataclasses.replace(target, bucket=dataclasses.replace(target.bucket, **settings))  # type: ignore[arg-type]

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
        if key not in etags:
            raise AssertionError(f"{key}: an index names it, but it is not there")
        if (key, etags[key]) not in self.seen:
            self.seen[key, etags[key]] = self.get(key)
        return self.seen[key, etags[key]]


def _unpack(body: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompressobj().decompress(body)


def publish(target: BucketTarget, packages: PackageSet, label: str = "main") -> PublishReport:
    return target.publish(target.plan(packages, label=label), progress=SilentProgress())


@contextlib.contextmanager
def running_server() -> Iterator[Server]:
    parse_models_once()
    with serve_s3() as (endpoint, app):
        yield Server(endpoint=endpoint, app=app, client=s3_client(endpoint))
