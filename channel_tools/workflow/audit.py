# SPDX-License-Identifier: BSD-3-Clause
"""Sets up audits: the gate of builds, and the audit of a package, a channel or an environment."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.audit.dependencies import Known, Neighbour, neighbours_in_cache, neighbours_in_files
from channel_tools.audit.model import AuditReport
from channel_tools.audit.prefix import audit_prefix, is_prefix
from channel_tools.audit.reading import Reader
from channel_tools.audit.run import (
    Gate,
    audit_channel,
    audit_package,
    audit_packages,
    channel_neighbours,
    channel_packages,
    describe_findings,
    distinctive_paths,
)
from channel_tools.channel import open_channel
from channel_tools.channel.records import CachedPackage, cached_package
from channel_tools.channel.state import CHANNEL_RECORD
from channel_tools.conda.package import OLD_SUFFIX, PACKAGE_SUFFIX, PackageKey
from channel_tools.system.counting import counted
from channel_tools.system.errors import UsageError, VerificationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from channel_tools.channel import Channel
    from channel_tools.conda.archive import PackageInfo
    from channel_tools.system.progress import Progress
    from channel_tools.system.settings import Settings

_REPODATA = "repodata.json"


def package_gate(
    settings: Settings, channel: Channel, *, cores: int, progress: Progress
) -> Callable[[Path], PackageInfo | None]:
    """The audit for packages that are added to ``channel``; it raises VerificationError with the findings."""
    remote = bool(channel.foundation.addresses)
    gate = Gate(
        channel=channel.path,
        build_paths=machine_paths(settings),
        processes=cores,
        cache=settings.package_cache if remote else None,
        glibc=channel.foundation.glibc,
    )

    def admit(package: Path) -> PackageInfo | None:
        audit = gate.admit(package)
        if audit.excused:
            progress.note(f"{package.name}: audited; its recipe declares {counted(len(audit.excused), 'finding')}")
        for finding in audit.findings:
            progress.note(f"{finding}; {finding.fix}")
        return audit.info

    return admit


def admit_foundation(
    settings: Settings, channel: Channel, files: Sequence[Path], *, jobs: int, progress: Progress
) -> dict[PackageKey, CachedPackage]:
    """Audit those of the foundation's package files that the channel does not have; returns their rows for its index.

    Raises VerificationError with the findings; then none of ``files`` may be added to the channel.
    """
    new = [path for path in files if not (channel.path / path.parent.name / path.name).exists()]
    if not new:
        return {}
    beside = list(neighbours_in_files(sorted(set(files) - set(new))))
    reader = Reader(build_paths=machine_paths(settings))
    promised = channel.foundation.glibc
    audits = audit_packages(new, beside, reader, jobs=jobs, progress=progress, to_enter=True, glibc=promised)
    findings = [finding for audit in audits for finding in audit.barring]
    if findings:
        message = (
            f"the audit of the foundation has {counted(len(findings), 'finding')}; it was not added to the channel\n"
        )
        hint = "correct the table's row or its repair step; declare intended findings in audit/data/foundation.yaml"
        raise VerificationError(message + describe_findings(findings), hint=hint)
    infos = {PackageKey(audit.subdir, audit.package): audit.info for audit in audits}
    return {
        PackageKey.of(path): cached_package(path, info, indexed_ms=0)
        for path in new
        if (info := infos.get(PackageKey.of(path))) is not None
    }


def run_audit(
    settings: Settings | None, target: Path, channels: Sequence[Path], *, jobs: int, progress: Progress
) -> AuditReport:
    """Audit a package, a channel or an environment; ``channels`` are further folders with its run dependencies.

    Raises UsageError if the target is none of these, for a channel that is no folder, and one beside an environment.
    """
    target = target.absolute()
    for folder in channels:
        if not folder.is_dir():
            message = f"{folder}: no such folder; expected a channel's folder that has run dependencies"
            raise UsageError(message, hint="correct or leave out --channel")
    reader = Reader(build_paths=machine_paths(settings), processes=jobs)
    if target.is_file() and target.name.endswith((PACKAGE_SUFFIX, OLD_SUFFIX)):
        # beside the packages of ``channels``, else of the channel that it is in, else of the local channel
        folders = list(channels)
        if not folders and (target.parent / _REPODATA).is_file():
            folders = [target.parents[1]]
        if not folders and settings is not None and settings.channel.is_dir():
            folders = [settings.channel]
        neighbours = [neighbour for folder in folders for neighbour in _packages_of(folder)]
        if settings is not None and not folders:
            neighbours += neighbours_in_cache(settings.package_cache)
        known = Known(neighbours, glibc=_promised_glibc(target.parents[1]))
        audit = audit_package(target, known, reader)
        return AuditReport(kind="package", target=str(target), packages=[audit])
    if is_prefix(target):
        if channels:
            message = (
                f"{target}: is an environment, which has its run dependencies; found --channel {channels[0]} as well"
            )
            raise UsageError(message, hint="leave out --channel")
        return audit_prefix(target, reader, jobs=jobs, progress=progress)
    if target.is_dir():
        beside = [neighbour for folder in channels for neighbour in _packages_of(folder)]
        promised = _promised_glibc(target)
        return audit_channel(target, reader, neighbours=beside, jobs=jobs, progress=progress, glibc=promised)
    raise UsageError(
        f"{target}: not a .conda file or a folder", hint="name a .conda file, a channel's folder or an environment"
    )


def _promised_glibc(folder: Path) -> str | None:
    """The oldest glibc that a channel of ours in the folder promises to run on; None for others."""
    return open_channel(folder).foundation.glibc if (folder / CHANNEL_RECORD).is_file() else None


def machine_paths(settings: Settings | None) -> tuple[str, ...]:
    """Folders of this machine that no package may name: the tree, results, builds, the cache, our environment."""
    folders = [Path(sys.prefix)]
    with contextlib.suppress(RuntimeError):  # the user has no home folder
        folders.append(Path.home())
    if settings is not None:
        folders += [settings.tree.root, settings.output, settings.cache, settings.work]
    return distinctive_paths(folders)


def _packages_of(folder: Path) -> Iterator[Neighbour]:
    """The packages of a channel's folder, in which others may write."""
    return channel_neighbours(folder, channel_packages(folder))
