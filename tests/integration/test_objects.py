# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from types_boto3_s3.client import S3Client

from channel_tools.progress import SilentProgress
from channel_tools.publish import PackageSet, PublishReport
from channel_tools.publish.objects import BucketTarget, open_bucket
from tests.s3 import ACCESS_KEY, SECRET_KEY, StrictS3, s3_client, serve_s3
from tests.unit.channel.toys import make_conda
from tests.unit.publish.sets import make_set

pytestmark = pytest.mark.integration

_ROOT = Path(__file__).parents[2]
_PATIENCE_S = 240


@dataclass(frozen=True, kw_only=True)
class Server:
    """The S3 server of the test run."""

    endpoint: str
    app: StrictS3
    client: S3Client

    def target(self, bucket: str, prefix: str = "chan") -> BucketTarget:
        return open_bucket(f"s3://{bucket}/{prefix}?endpoint={self.endpoint}", os.environ)

    def read(self, bucket: str, key: str) -> bytes:
        return self.client.get_object(Bucket=bucket, Key=key)["Body"].read()

    def keys(self, bucket: str) -> list[str]:
        return [row["Key"] for row in self.client.list_objects_v2(Bucket=bucket).get("Contents", ())]

    def make_public(self, bucket: str) -> None:
        """Let everybody read, as docs/how-to/publish-to-s3.md says."""
        statement = {
            "Effect": "Allow",
            "Principal": "*",
            "Action": "s3:GetObject",
            "Resource": f"arn:aws:s3:::{bucket}/*",
        }
        self.client.put_bucket_policy(
            Bucket=bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        )


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serve_s3() as (endpoint, app):
        yield Server(endpoint=endpoint, app=app, client=s3_client(endpoint))


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)


@pytest.fixture
def bucket(server: Server, request: pytest.FixtureRequest) -> str:
    name = f"toys-{abs(hash(request.node.nodeid)) % 10**12}"
    server.client.create_bucket(Bucket=name)
    return name


@pytest.fixture
def made(tmp_path: Path) -> Path:
    return tmp_path / "made"


def publish(target: BucketTarget, packages: PackageSet, label: str = "main") -> PublishReport:
    return target.publish(target.plan(packages, label=label), progress=SilentProgress())


@pytest.mark.parametrize("how", ["sharded", "plain"])
@pytest.mark.parametrize("scheme", ["http", "s3"])
def test_a_client_installs_from_the_bucket(
    server: Server, bucket: str, made: Path, tmp_path: Path, scheme: str, how: str
) -> None:
    libtoy = make_conda(made, "libtoy", files={"lib/libtoy.txt": b"lib"})
    toy = make_conda(
        made, "toy", subdir="noarch", index={"depends": ["libtoy"], "noarch": "generic"}, files={"share/toy.txt": b"t"}
    )
    publish(server.target(bucket), make_set([toy], [libtoy]), label="testing")
    address = f"s3://{bucket}/chan/label/testing"
    extra = [server.endpoint]
    if scheme == "http":
        server.make_public(bucket)
        address, extra = f"{server.endpoint}/{bucket}/chan/label/testing", []
    driver = [sys.executable, "-m", "tests.integration.objects_drivers"]
    done = subprocess.run(
        [*driver, address, str(tmp_path / "env"), "toy", how, *extra],
        cwd=_ROOT, capture_output=True, text=True, timeout=_PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["libtoy-1.0-0.conda", "toy-1.0-0.conda"]
    assert (tmp_path / "env" / "lib" / "libtoy.txt").read_bytes() == b"lib"
