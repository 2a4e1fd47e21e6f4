# SPDX-License-Identifier: BSD-3-Clause
"""Makes a prefix have the solution of a set of specs, or exactly the packages of a lock.

For a lock, no index is read and nothing is solved; every package is identified by its sha256. Some formats have only
addresses and hashes: then a package's requirements are read from the package itself, once it is in the package cache.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import rattler
from rattler.exceptions import ConvertSubdirError, IoError

from channel_tools.conda.addresses import channel_address
from channel_tools.conda.clients import make_client
from channel_tools.conda.contents import METADATA_BYTES
from channel_tools.conda.solving import make_gateway, parse_spec, solve_specs
from channel_tools.conda.specs import as_record, is_virtual, read_spec, spec_names
from channel_tools.environments.install_errors import damaged_package_error
from channel_tools.environments.package_cache import cached_name, fetch_packages
from channel_tools.environments.transaction import InstallTarget, apply_solution, usable_target
from channel_tools.pins.lock import in_installation_order, repodata_record
from channel_tools.system.document import decode_json
from channel_tools.system.errors import SolveError
from channel_tools.system.files import read_regular

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from channel_tools.environments.transaction import EnvironmentResult
    from channel_tools.pins import PlatformLock
    from channel_tools.system.progress import Progress


async def create_environment(
    prefix: Path,
    specs: Sequence[str],
    channels: Sequence[str],
    *,
    package_cache: Path,
    subdir: str,
    progress: Progress,
    virtual_packages: Sequence[rattler.GenericVirtualPackage | rattler.VirtualPackage] | None = None,
    check: Check | None = None,
) -> EnvironmentResult:
    """Install ``specs`` only from ``channels`` (in order of priority) into ``prefix``, or update it to the solution.

    ``channels`` are addresses (``file://``, ``http://``) or folders; credentials in them are used but not written.
    Does nothing if the prefix already has the solution. ``virtual_packages`` None means those of this machine.
    ``check`` gets the solution before anything is downloaded, and raises an error if it must not be installed; with
    it, cached files must be those of the packages, too.
    Raises UsageError (the prefix is something else or another program's, a spec does not parse), SolveError,
    NetworkError, ChannelError (no such channel; the prefix is in use by another run), IntegrityError (a damaged
    package, by name) and DiskFullError; the same call afterwards completes the environment.
    """
    started = time.monotonic()
    addresses, client = make_client([channel_address(channel) for channel in channels])
    target = InstallTarget(
        prefix=prefix.absolute(),
        specs={spec: parse_spec(spec) for spec in specs},
        package_cache=package_cache.absolute(),
        subdir=subdir,
        client=client,
        hash_cached=check is not None,
    )
    with usable_target(target):
        solution = await solve_specs(
            specs,
            addresses,
            subdir=subdir,
            gateway=make_gateway(target.package_cache, client),
            virtual_packages=rattler.VirtualPackage.detect() if virtual_packages is None else virtual_packages,
        )
        if check is not None:
            check(solution)
        return await apply_solution(target, solution, started=started, progress=progress)


_SHOWN = 5
Check = Callable[[Sequence[rattler.RepoDataRecord]], None]


async def create_locked_environment(
    prefix: Path,
    lock: PlatformLock,
    *,
    specs: Sequence[str],
    sources: Mapping[str, str],
    virtual_packages: Sequence[rattler.GenericVirtualPackage],
    package_cache: Path,
    progress: Progress,
    check: Check | None = None,
) -> EnvironmentResult:
    """Install the packages of ``lock`` into ``prefix``, or update it to have exactly these.

    ``specs`` are recorded as the requested ones. ``sources`` maps channels of the lock to addresses that replace them
    (credentials are used but not written). Packages in the package cache are not downloaded, wherever they come from.
    ``check`` is as for create_environment. Raises SolveError if the packages need virtual packages that are not among
    ``virtual_packages``, IntegrityError (a package that is missing or has other bytes), NetworkError, UsageError,
    ChannelError and DiskFullError as create_environment does.
    """
    started = time.monotonic()
    addresses, client = make_client(list(sources.values()))
    moved_to = dict(zip(sources, addresses, strict=True))
    target = InstallTarget(
        prefix=prefix.absolute(),
        specs={spec: parse_spec(spec) for spec in specs},
        package_cache=package_cache.absolute(),
        subdir=lock.platform,
        client=client,
        hash_cached=check is not None,
        locked=True,
    )
    records = [repodata_record(package.moved(moved_to)) for package in lock.packages]
    with usable_target(target):
        if check is not None:
            check(records)
        if any(record.size is None for record in records):
            records = await _completed(records, target, progress)
        _check_requirements(records, virtual_packages)
        return await apply_solution(target, in_installation_order(records), started=started, progress=progress)


async def _completed(
    records: list[rattler.RepoDataRecord], target: InstallTarget, progress: Progress
) -> list[rattler.RepoDataRecord]:
    """The records with the data of the packages' own index.json; downloads packages not in the package cache."""
    await fetch_packages(records, target.store, name=target.prefix.name, progress=progress)
    return [record if record.size is not None else _from_index(record, target.package_cache) for record in records]


def _from_index(record: rattler.RepoDataRecord, package_cache: Path) -> rattler.RepoDataRecord:
    index = package_cache / cached_name(record) / "info" / "index.json"
    try:
        package_record = _record_in(index, subdir=record.subdir)
    except (OSError, ValueError, IoError, ConvertSubdirError) as err:
        reason = f"its index.json cannot be read: {' '.join(str(err).split())}"
        raise damaged_package_error(record.file_name, reason) from None
    package_record.sha256, package_record.md5 = record.sha256, record.md5
    return rattler.RepoDataRecord(package_record, record.file_name, record.url, record.channel)


def _record_in(index: Path, *, subdir: str) -> rattler.PackageRecord:
    """The record in an unpacked index.json, which packages of 2013 to 2017 have without a subdir: then ``subdir``.

    Raises as py-rattler does, which reads only files, and ValueError for a file that is not a mapping.
    """
    document = decode_json(read_regular(index, limit_bytes=METADATA_BYTES["index.json"]))
    if not isinstance(document, dict):
        message = "it is not a mapping"
        raise ValueError(message)  # noqa: TRY004 - for the caller, a file with another value than expected
    if document.get("subdir"):
        return rattler.PackageRecord.from_index_json(index)
    with tempfile.TemporaryDirectory() as folder:
        completed = Path(folder, index.name)
        completed.write_text(json.dumps(document | {"subdir": subdir}), encoding="utf-8")
        return rattler.PackageRecord.from_index_json(completed)


def _check_requirements(
    records: Sequence[rattler.RepoDataRecord], virtual_packages: Sequence[rattler.GenericVirtualPackage]
) -> None:
    """Check the virtual packages, as the solver would have. Raises SolveError."""
    available = {str(package.name.normalized): package for package in virtual_packages}
    unmet = [text for record in records for text in _unmet(record, available)]
    if not unmet:
        return
    listed = "; ".join(unmet[:_SHOWN]) + (f"; and {len(unmet) - _SHOWN} more" if len(unmet) > _SHOWN else "")
    message = f"this machine does not have what the locked packages need: {listed}"
    hint = (
        "lock for such machines (channel_tools pins --virtual-package ...); if the environment is for another machine, "
        "give its virtual packages, for example: --virtual-package __glibc=2.36"
    )
    raise SolveError(message, hint=hint)


def _unmet(record: rattler.RepoDataRecord, available: Mapping[str, rattler.GenericVirtualPackage]) -> Iterator[str]:
    requirements = [(text, True) for text in record.depends] + [(text, False) for text in record.constrains]
    for text, required in requirements:
        (name,) = spec_names([text], record.file_name)
        if not is_virtual(name):
            continue
        package = available.get(name)
        if package is None:
            if required:
                yield f"{record.name.normalized} needs {text} (this machine has no {name})"
        elif not read_spec(text).matches(as_record(name, str(package.version), str(package.build_string))):
            yield f"{record.name.normalized} needs {text} (this machine has {package.version})"
