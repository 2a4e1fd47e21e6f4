# SPDX-License-Identifier: BSD-3-Clause
"""Checks package archives of ``file://`` channels against the channel's index before they are installed.

py-rattler 0.28 compares an archive's sha256 only when it downloads it; from a folder it unpacks whatever file stands
under the name. A folder is how this project's channels are mostly read, so the comparison is made here.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from channel_tools.addresses import local_path
from channel_tools.environments.failures import damaged_package_error
from channel_tools.files import sha256_of_file

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rattler import RepoDataRecord

_THREADS = 4


def check_local_archives(records: Iterable[RepoDataRecord]) -> None:
    """Raise IntegrityError for the first record (by file name) whose local archive is absent or of other bytes."""
    local = sorted((record for record in records if local_path(record.url)), key=lambda record: record.file_name)
    with ThreadPoolExecutor(_THREADS) as threads:
        for record, fault in zip(local, threads.map(_fault, local), strict=True):
            if fault is not None:
                raise damaged_package_error(record.file_name, fault)


def _fault(record: RepoDataRecord) -> str | None:
    path = local_path(record.url)
    if path is None:
        return None
    if not path.is_file():
        return f"the channel's index names it, but {path} does not exist"
    size = path.stat().st_size
    if record.size is not None and size != record.size:
        return f"{path} has {size} bytes, the channel's index says {record.size}"
    if record.sha256 is None:
        return None
    found = sha256_of_file(path)
    if found != record.sha256.hex():
        return f"{path} has sha256 {found}, the channel's index says {record.sha256.hex()}"
    return None
