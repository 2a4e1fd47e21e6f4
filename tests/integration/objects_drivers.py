# SPDX-License-Identifier: BSD-3-Clause
"""Programs that the tests of buckets run in processes of their own, since they use rattler's runtime.

``python -m tests.integration.objects_drivers install ADDRESS PREFIX SPEC HOW [ENDPOINT]`` prints one JSON value and
leaves through os._exit. With an endpoint the address is an s3:// one, read with the AWS credentials of the environment.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import rattler
from rattler.networking import AuthenticationMiddleware, Client, S3Middleware
from rattler.networking.middleware import S3Config
from rattler.repo_data import SourceConfig


def s3_client(bucket: str, endpoint: str) -> Client:
    config = {bucket: S3Config(endpoint, "us-east-1", "path")}
    return Client([AuthenticationMiddleware(), S3Middleware(config)])


async def install(address: str, prefix: Path, spec: str, *, sharded: bool, endpoint: str | None) -> list[str]:
    """Solve ``spec`` from the channel at ``address`` and install it; the file names of what was installed."""
    cache = prefix.with_name(prefix.name + "-cache")
    client = s3_client(address.split("/")[2], endpoint) if endpoint else Client()
    config = SourceConfig(sharded_enabled=sharded, cache_action="no-cache")
    records = await rattler.solve(
        [rattler.Channel(address)],
        [spec],
        rattler.Gateway(cache_dir=cache / "repodata", default_config=config, client=client),
        ["linux-64", "noarch"],
        virtual_packages=rattler.VirtualPackage.detect(),
    )
    await rattler.install(records, prefix, cache_dir=cache / "pkgs", client=client, show_progress=False)
    return sorted(record.file_name for record in records)


def main(arguments: list[str]) -> object:
    address, prefix, spec, how, *endpoint = arguments
    return asyncio.run(
        install(address, Path(prefix), spec, sharded=how == "sharded", endpoint=endpoint[0] if endpoint else None)
    )


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:])), flush=True)  # noqa: T201 - its result, read by the test
    os._exit(0)
