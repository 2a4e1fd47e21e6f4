# SPDX-License-Identifier: BSD-3-Clause
"""The foundation, or a further channel, as one build sees it: the locked packages of its environments alone.

It has an index in a folder, whose ``base_url`` (CEP 15) is where the foundation has the packages, so the engine solves
for exactly what was planned and downloads from the foundation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from rattler import Gateway
from rattler.exceptions import FetchRepoDataError, GatewayError

from channel_tools.conda.addresses import with_credentials_of, without_credentials
from channel_tools.conda.package import NOARCH
from channel_tools.conda.repodata import REPODATA, encode_json
from channel_tools.system.errors import FoundationError, NetworkError
from channel_tools.system.files import write_bytes_atomically

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from rattler import Channel, RepoDataRecord

    from channel_tools.plan.foundation import FoundationIndex
    from channel_tools.plan.lock import FoundationLock

_SHOWN = 10


async def find_locked(
    foundation: FoundationIndex, lock: FoundationLock, keys: Collection[str], platform: str
) -> dict[str, str]:
    """Where the channels have these locked packages now: the folder of each subdir, as an address with a final slash.

    A subdir of a further channel is named by ``NAME/subdir``. Raises FoundationError that names the packages that it no
    longer has with the same bytes, NetworkError if its index cannot be read.
    """
    records = await find_records(foundation, {str(lock.records[key]["name"]) for key in keys}, platform)
    problems = []
    for key in sorted(keys):
        sha256 = records[key].sha256 if key in records else None
        if key not in records:
            problems.append(f"{key} is no longer there")
        elif sha256 is not None and sha256.hex() != lock.records[key]["sha256"]:
            problems.append(
                f"{key} has other bytes: sha256 {sha256.hex()[:12]} instead of {lock.records[key]['sha256'][:12]}"
            )
    if problems:
        names = sorted({str(lock.records[line.split(" ")[0]]["name"]) for line in problems})
        more = [f"and {len(problems) - _SHOWN} more"] if len(problems) > _SHOWN else []
        lines = "\n".join([*problems[:_SHOWN], *more])
        message = f"{foundation.label} no longer has what the foundation lock names:\n{lines}"
        hint = (
            f"move the lock, which rebuilds what was made with them: channel_tools foundation update {' '.join(names)}"
        )
        raise FoundationError(
            message, hint=f"{hint}; or build from a mirror that still has them (--foundation-channel)"
        )
    return {key.rpartition("/")[0]: records[key].url.removesuffix(records[key].file_name) for key in keys}


async def find_records(foundation: FoundationIndex, names: Collection[str], platform: str) -> dict[str, RepoDataRecord]:
    """All records of these names that the foundation and further channels have now, by their keys in a lock.

    Raises NetworkError if its index cannot be read.
    """
    try:
        gateway = Gateway(cache_dir=foundation.cache, client=foundation.client)
        sources = cast("list[Channel]", list(foundation.all_sources))
        platforms = [platform, NOARCH]
        groups = await gateway.query(sources, platforms, sorted(names), recursive=False)  # type: ignore[arg-type]
    except (GatewayError, FetchRepoDataError, OSError) as err:
        message = f"the index of {foundation.label} cannot be read: {' '.join(str(err).split())}"
        raise NetworkError(message, hint="check the address and the network, then run it again") from None
    return {foundation.key_of(record): record for group in groups for record in group}


def write_view(
    folder: Path,
    lock: FoundationLock,
    keys: Collection[str],
    *,
    places: Mapping[str, str],
    address: str,
    platform: str,
    further: str = "",
) -> Path:
    """Write the channel with these packages to ``folder`` and return it; ``places`` are those of find_locked.

    Of the keys, those of the further channel of that name count, or without a name those of the foundation. ``address``
    is the channel's as it was given: credentials in it are needed for what is below it.
    """
    plain = without_credentials(address).rstrip("/")
    for subdir in (platform, NOARCH):
        prefix = f"{further}/{subdir}" if further else subdir
        records = {
            key.removeprefix(f"{prefix}/"): lock.records[key] for key in sorted(keys) if key.startswith(f"{prefix}/")
        }
        base = with_credentials_of(address, places.get(prefix, f"{plain}/{subdir}/"))
        old = {name: record for name, record in records.items() if not name.endswith(".conda")}
        index = {
            "info": {"subdir": subdir, "base_url": base},
            "packages": old,
            "packages.conda": {name: record for name, record in records.items() if name not in old},
            "repodata_version": 2,
        }
        (folder / subdir).mkdir(parents=True, exist_ok=True)
        # each run writes it again
        write_bytes_atomically(folder / subdir / REPODATA, encode_json(index), durable=False)
    return folder
