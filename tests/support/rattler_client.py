# SPDX-License-Identifier: BSD-3-Clause
"""``python rattler_client.py ADDRESS PREFIX sharded|plain SPEC``: install with py-rattler, which need not be ours.

It imports nothing of ours. Prints the records as JSON and leaves through os._exit, since rattler's threads may crash
the interpreter at its end.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import rattler
from rattler.networking import AuthenticationMiddleware, Client
from rattler.repo_data import SourceConfig


async def install(address: str, prefix: Path, how: str, spec: str) -> list[rattler.RepoDataRecord]:
    cache = prefix.with_name(f"{prefix.name}-cache")
    client = Client([AuthenticationMiddleware()])
    config = SourceConfig(sharded_enabled=how == "sharded", cache_action="no-cache")
    gateway = rattler.Gateway(cache_dir=cache / "repodata", default_config=config, client=client)
    records = await rattler.solve([rattler.Channel(address)], [spec], gateway, ["linux-64", "noarch"])
    await rattler.install(records, prefix, cache_dir=cache / "pkgs", show_progress=False, client=client)
    return records


def main() -> None:
    address, prefix, how, spec = sys.argv[1:]
    records = asyncio.run(install(address, Path(prefix), how, spec))
    rows = {
        record.file_name: {
            "url": record.url,
            "attestations_sha256": (record.attestations_sha256 or b"").hex()
            if hasattr(record, "attestations_sha256")
            else None,
        }
        for record in records
    }
    sys.stdout.write(json.dumps(rows) + "\n")
    sys.stdout.flush()
    os._exit(0)


main()
