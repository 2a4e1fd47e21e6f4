# SPDX-License-Identifier: BSD-3-Clause
"""Conda clients that the tests run in processes of their own, since rattler's runtime may crash at the end of one.

``python -m tests.integration.conda.clients WHAT ARGUMENTS`` prints one JSON value and leaves through os._exit:

- ``install ADDRESS PREFIX SPEC sharded|plain [ENDPOINT]``: by rattler alone; with an endpoint the address is an s3://
  one, read with the AWS credentials of the environment;
- ``create CHANNEL CACHE PREFIX SPEC...``: by our own code;
- ``visible ADDRESS sharded|plain NAME...``: what a solve would see;
- ``index FOLDER [PATCH]``: rattler's own index;
- ``exports ADDRESS FOLDER``: the run_exports of its toy-1.0-0.conda by our own code, as if no index had them;
- ``upload quetz|artifactory ADDRESS CHANNEL PACKAGE``: by rattler-build, with the token in the variable TOKEN;
- ``read FOLDER``: reads a channel while it is written.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import rattler
import rattler_build
from rattler.index import index_fs
from rattler.networking import AuthenticationMiddleware, Client, S3Middleware
from rattler.networking.middleware import S3Config
from rattler.repo_data import SourceConfig

from channel_tools.channel import Channel, add_set, channel_writer, published_packages
from channel_tools.environments import create_environment
from channel_tools.plan.remote_run_exports import RemoteRunExports
from channel_tools.system.progress import SilentProgress
from tests.support.packages import make_conda, new_channel, own
from tests.support.readers import reader_faults


def install(address: str, prefix: Path, spec: str, *, sharded: bool, endpoint: str | None) -> list[str]:
    """Solve ``spec`` from the channel at ``address`` and install it; the file names of what was installed."""
    cache = prefix.with_name(prefix.name + "-cache")
    config = SourceConfig(sharded_enabled=sharded, cache_action="no-cache")
    client = Client.default_client()  # as pixi's
    if endpoint is not None:
        bucket = address.split("/")[2]
        client = Client([AuthenticationMiddleware(), S3Middleware({bucket: S3Config(endpoint, "us-east-1", "path")})])
    records = asyncio.run(_install(address, prefix, spec, cache, config, client))
    return sorted(record.file_name for record in records)


async def _install(
    address: str, prefix: Path, spec: str, cache: Path, config: SourceConfig, client: Client
) -> list[rattler.RepoDataRecord]:
    records = await rattler.solve(
        [rattler.Channel(address)],
        [spec],
        rattler.Gateway(cache_dir=cache / "repodata", default_config=config, client=client),
        ["linux-64", "noarch"],
        virtual_packages=rattler.VirtualPackage.detect(),
    )
    await rattler.install(records, prefix, cache_dir=cache / "pkgs", show_progress=False, client=client)
    return records


def create(channel: str, cache: Path, prefix: Path, specs: list[str]) -> list[str]:
    made = asyncio.run(
        create_environment(prefix, specs, [channel], package_cache=cache, subdir="linux-64", progress=SilentProgress())
    )
    return [f"{package.name}-{package.version}-{package.build}" for package in made.records]


def exports(address: str, folder: Path) -> str:
    record = {"name": "toy", "version": "1.0", "build": "0", "build_number": 0, "depends": [], "subdir": "linux-64"}
    index = folder / "repodata.json"
    folder.mkdir()
    index.write_text(json.dumps({"info": {}, "packages": {}, "packages.conda": {"toy-1.0-0.conda": record}}))
    [found] = rattler.SparseRepoData(rattler.Channel(address), "linux-64", index).load_records("toy")
    return str(asyncio.run(RemoteRunExports(address, os.environ).of(found)))


def upload(kind: str, address: str, channel: str, package: str) -> object:
    if kind == "quetz":
        rattler_build.upload_package_to_quetz([package], address, channel, api_key=os.environ["TOKEN"])
    else:
        rattler_build.upload_package_to_artifactory([package], address, channel, token=os.environ["TOKEN"])
    return None


def visible(address: str, names: list[str], *, sharded: bool) -> dict[str, list[str]]:
    """What rattler's gateway, and for a folder its sparse reader, let a solve see of these packages."""
    config = SourceConfig(sharded_enabled=sharded, cache_action="no-cache")
    records = asyncio.run(rattler.Gateway(default_config=config).query([rattler.Channel(address)], ["linux-64"], names))
    seen = {"gateway": sorted(record.file_name for source in records for record in source)}
    if address.startswith("file://"):
        path = Path(address.removeprefix("file://")) / "linux-64" / "repodata.json"
        sparse = rattler.SparseRepoData(rattler.Channel(address), "linux-64", path)
        seen["sparse"] = sorted(record.file_name for name in names for record in sparse.load_records(name))
    return seen


def read_while_written(root: Path, channel: Channel, rounds: int) -> dict[str, object]:
    """Read the channel without pause in one process while another publishes ``rounds`` packages, one by one."""
    packages = [make_conda(root / "made", f"p{number}", about=own(f"d{number}")) for number in range(rounds)]
    writer = os.fork()
    if writer == 0:
        status = 1
        try:
            for package in packages:
                with channel_writer(channel) as held:
                    add_set(held, [package])
            status = 0
        finally:
            os._exit(status)
    reads, faults = 0, []
    while (ended := os.waitpid(writer, os.WNOHANG))[0] == 0:
        faults += reader_faults(channel.path)
        reads += 1
    return {"reads": reads, "faults": faults, "status": ended[1], "published": len(published_packages(channel))}


def main(arguments: list[str]) -> object:
    what, *rest = arguments
    if what == "install":
        address, prefix, spec, how, *endpoint = rest
        return install(
            address, Path(prefix), spec, sharded=how == "sharded", endpoint=endpoint[0] if endpoint else None
        )
    if what == "create":
        return create(rest[0], Path(rest[1]), Path(rest[2]), rest[3:])
    if what == "visible":
        return visible(rest[0], rest[2:], sharded=rest[1] == "sharded")
    if what == "index":
        return asyncio.run(index_fs(Path(rest[0]), repodata_patch=rest[1] if rest[1:] else None))
    if what == "read":
        return read_while_written(Path(rest[0]), new_channel(Path(rest[0])), rounds=40)
    if what == "exports":
        answer: object = exports(rest[0], Path(rest[1]))
    elif what == "upload":
        answer = upload(*rest)
    else:
        raise ValueError(what)
    return answer


if __name__ == "__main__":
    status = 0
    try:
        print(json.dumps(main(sys.argv[1:])), flush=True)  # noqa: T201 - its result, read by the test
    except Exception as err:  # noqa: BLE001 - its words are what the test reads
        sys.stderr.write(f"{type(err).__name__}: {err}\n")
        status = 1
    sys.stderr.flush()
    os._exit(status)
