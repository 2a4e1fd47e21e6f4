# SPDX-License-Identifier: BSD-3-Clause
"""Collects the packages for a bill of materials or a list of licences: of a file, a lock, or a stack."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from channel_tools.conda.addresses import channel_address, local_path
from channel_tools.conda.package import OLD_SUFFIX, PACKAGE_SUFFIX
from channel_tools.conda.platforms import current_platform
from channel_tools.conda.specs import spec_names, text_or_none
from channel_tools.pins.resolve import index_look_up, read_or_solve
from channel_tools.provenance.components import Component, Inventory, read_component
from channel_tools.requests.names import FormatName
from channel_tools.requests.pins import PinRequest
from channel_tools.system.counting import counted
from channel_tools.system.errors import IntegrityError, UsageError
from channel_tools.system.extras import needs_extra
from channel_tools.system.files import sha256_of_file
from channel_tools.workflow.pins import pin_stack

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from channel_tools.pins import Lock, LockedPackage
    from channel_tools.pins.md5 import LookUp
    from channel_tools.requests.inventory import InventoryRequest
    from channel_tools.system.progress import Note
    from channel_tools.system.settings import Settings


def take_inventory(
    settings: Settings | None,
    request: InventoryRequest,
    *,
    package_cache: Path,
    environ: Mapping[str, str],
    note: Note,
) -> Inventory:
    """The packages of the request. For packages that are not local, uses only the lock.

    Of a lock for several platforms, that for this machine's is meant unless the request says which. An environment.yml
    is solved with ``package_cache``; ``environ`` is as in read_or_solve. ``note`` gets a line for what is left out.
    Raises UsageError for a target that is neither a package nor a lock or has another platform, the errors of
    read_or_solve, and IntegrityError for a package that is not the locked one.
    """
    choice, target, channels = request.choice, request.target, request.install.channels
    choice = choice if choice.platforms else replace(choice, platforms=(current_platform(),))
    if target is not None and target.name.endswith((PACKAGE_SUFFIX, OLD_SUFFIX)):
        component = read_component(target)
        return Inventory(name=component.name, platform=None, components=(component,))
    if target is not None:
        lock = asyncio.run(
            read_or_solve(target, choice, channels=channels, package_cache=package_cache, environ=environ, note=note)
        )
        lock = _with_licences(lock, index_look_up(channels, environ), note)
        name = lock.stack or target.name
    else:
        if settings is None:
            raise UsageError(
                "no package, lock or stack given", hint="give the path of a package or a lock, or --root for a stack"
            )
        pins = PinRequest(
            install=request.install,
            formats=(FormatName.CONDA_LOCK,),
            platforms=choice.platforms,
            update=True,
            offline=True,
            dry_run=True,
        )
        lock = pin_stack(settings, pins).lock
        name = lock.stack
    (chosen,) = lock.platforms
    folders = [path for channel in channels if (path := local_path(channel_address(channel))) is not None]
    components = (component_of(package, folders) for package in chosen.packages)
    in_order = tuple(sorted(components, key=lambda component: component.name))
    return Inventory(name=name, platform=chosen.platform, components=in_order)


def _with_licences(lock: Lock, look_up: LookUp, note: Note) -> Lock:
    """The lock with the licences that the packages' channels list, where its format has none.

    Packages in folders are read themselves. ``note`` is told of packages that no index lists.
    """
    platform = lock.platforms[0]
    unknown = [
        package
        for package in platform.packages
        if package.license is None and not package.size_bytes and local_path(package.url) is None
    ]
    records = look_up(unknown) if unknown else {}
    licences = {
        package.sha256: text_or_none(row.get("license"))
        for package in unknown
        for row in records.get(str(package.ref.key), ())
        if row.get("sha256") == package.sha256
    }
    if unlisted := [package.file_name for package in unknown if package.sha256 not in licences]:
        files = counted(len(unlisted), "package is", "packages are")
        note(f"note: {files} in no index of the lock's channels, so nothing is known of the licence: {unlisted[0]} ...")
    packages = tuple(
        replace(package, license=licences.get(package.sha256, package.license)) for package in platform.packages
    )
    return replace(lock, platforms=(replace(platform, packages=packages), *lock.platforms[1:]))


def component_of(package: LockedPackage, folders: Sequence[Path]) -> Component:
    """A package of a lock as it is in one of the folders of channels, else as the lock describes it.

    Raises IntegrityError for a package that is not the locked one.
    """
    own = local_path(package.url)
    for path in [*(package.ref.key.path_in(folder) for folder in folders), *([own] if own is not None else [])]:
        if path.is_file():
            if (sha256 := sha256_of_file(path)) != package.sha256:
                message = f"{path}: has sha256 {sha256}; the lock has {package.sha256}"
                raise IntegrityError(message, hint="lock again, or find out who changed the package")
            return read_component(path, sha256=sha256)
    return Component(
        name=package.name,
        version=package.version,
        build=package.build,
        subdir=package.subdir,
        file_name=package.file_name,
        sha256=package.sha256,
        license=package.license,
        depends=tuple(sorted(spec_names(package.depends, package.file_name))),
    )


def make_document(inventory: Inventory, *, created_at: datetime) -> str:
    """The bill of materials, as CycloneDX. Raises CommandError if its library is not installed."""
    with needs_extra("sbom", "bills of materials"):
        from channel_tools.provenance.cyclonedx import cyclonedx_document  # noqa: PLC0415
    return cyclonedx_document(inventory, created_at=created_at)
