# SPDX-License-Identifier: BSD-3-Clause
"""`foundation verify`: proves that a channel folder keeps its promises without installing anything.

Packages are read in parallel, each once; the rules about several packages work on what was read. "Installed together"
is taken strictly: any two packages of different names are, whatever their constraints say.
"""

from __future__ import annotations

import functools
import sys
from collections import defaultdict
from multiprocessing import cpu_count
from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.elf import GLIBC_LIBRARIES, newest_glibc
from channel_tools.errors import FoundationError
from channel_tools.foundation.verify_model import Finding, Rule
from channel_tools.foundation.verify_scan import PackageScan, scan_package
from channel_tools.packages.closure import Closures
from channel_tools.packages.layout import join_path, place_installed, python_minor, resolve
from channel_tools.pool import run_in_processes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from channel_tools.foundation.verify_scan import ElfFile
    from channel_tools.progress import Progress

__all__ = ["Finding", "Rule", "verify_foundation"]

# what the site's driver installation brings, by design
_SITE_LIBRARIES = frozenset({"libcuda.so.1", "libnvidia-ml.so.1"})
_COMMON_PARTS = 3
_COMMON = frozenset({"usr", "opt", "var", "etc"})


def verify_foundation(
    channel_folder: Path,
    *,
    progress: Progress,
    jobs: int | None = None,
    build_folders: Sequence[Path] = (),
) -> list[Finding]:
    """Read every package below ``channel_folder`` and return what is wrong, sorted; an empty list proves the channel.

    ``jobs`` processes read (None: one per core). No package may name ``build_folders``, the channel folder or the
    environment this program runs in. Raises FoundationError when there is no package at all.
    """
    packages = sorted(channel_folder.glob("*/*.conda"))
    if not packages:
        hint = "make it with: channel_tools foundation build"
        raise FoundationError(f"{channel_folder}: no package in any subdir", hint=hint)
    scans = _scan_all(packages, progress, jobs, _machine_paths([channel_folder, Path(sys.prefix), *build_folders]))
    findings = [finding for scan in scans for finding in scan.findings]
    sound = [scan for scan in scans if scan.index]
    findings += check_together(sound)
    return sorted(set(findings))


def check_together(scans: Sequence[PackageScan]) -> list[Finding]:
    """The rules that need more than one package: depends, needed, glibc, link and owner."""
    _place_noarch(scans)
    closures = Closures(scans)
    findings = list(_owner_findings(scans))
    for scan in scans:
        together = closures.of(scan)
        files = set[str]().union(*(one.files for one in together))
        links = {path: target for one in together for path, target in one.links.items()}
        findings += _link_findings(scan, files, links)
        findings += _needed_findings(scan, files, links)
        findings += _glibc_findings(scan, together)
    for scan, message in closures.problems:
        findings.append(Finding(package=scan.file_name, file="info/index.json", rule=Rule.DEPENDS, message=message))
    return findings


def _scan_all(
    packages: Sequence[Path], progress: Progress, jobs: int | None, build_paths: Sequence[str]
) -> list[PackageScan]:
    # the largest first, so that the last one does not run alone at the end
    sizes = {path: path.stat().st_size for path in packages}
    largest_first = sorted(packages, key=lambda path: (-sizes[path], path))
    scan = functools.partial(scan_package, build_paths=tuple(build_paths))
    scans = []
    with progress.task("Verifying packages", total=sum(sizes.values()), unit="bytes") as task:
        for path, found in run_in_processes(
            scan, largest_first, processes=jobs or cpu_count(), what="read a package", error=FoundationError
        ):
            scans.append(found)
            task.advance(sizes[path], detail=path.name)
    return sorted(scans, key=lambda scan: (scan.subdir, scan.file_name))


def _machine_paths(folders: Iterable[Path]) -> list[str]:
    """Folders as text; those that files may well mention (``/usr/local``, ``/opt/x``) are left out."""
    return sorted({str(folder.resolve()) for folder in folders if _is_telling(folder.resolve())})


def _is_telling(folder: Path) -> bool:
    return len(folder.parts) > _COMMON_PARTS or (len(folder.parts) == _COMMON_PARTS and folder.parts[1] not in _COMMON)


def _place_noarch(scans: Sequence[PackageScan]) -> None:
    """Bring noarch python packages into the shape they have when installed."""
    short = python_minor(str(scan.index.get("version")) for scan in scans if scan.name == "python")
    for scan in scans:
        if scan.index.get("noarch") != "python":
            continue
        scan.files = {place_installed(path, short) for path in scan.files}
        scan.links = {place_installed(path, short): target for path, target in scan.links.items()}
        scan.files |= {f"bin/{line.partition('=')[0].strip()}" for line in scan.entry_points}


def _owner_findings(scans: Sequence[PackageScan]) -> Iterator[Finding]:
    owners: dict[str, list[PackageScan]] = defaultdict(list)
    for scan in scans:
        for path in scan.paths:
            owners[path].append(scan)
    for path, several in owners.items():
        first = several[0]
        for other in several[1:]:
            if other.name != first.name and _may_meet(first.subdir, other.subdir):
                message = f"belongs to {first.file_name} too"
                yield Finding(package=other.file_name, file=path, rule=Rule.OWNER, message=message)


def _may_meet(subdir: str, other: str) -> bool:
    return subdir == other or "noarch" in {subdir, other}


def _link_findings(scan: PackageScan, files: set[str], links: dict[str, str]) -> Iterator[Finding]:
    folders: set[str] | None = None
    for path, target in scan.links.items():
        if target.startswith("/"):
            continue
        led = resolve(path, links)
        if led in files:
            continue
        if folders is None:
            folders = {str(parent) for file in files for parent in Path(file).parents}
        if led is None or led not in folders:
            message = f"leads to {target}, which neither the package nor what it depends on has"
            yield Finding(package=scan.file_name, file=path, rule=Rule.LINK, message=message)


def _needed_findings(scan: PackageScan, files: set[str], links: dict[str, str]) -> Iterator[Finding]:
    for elf in scan.elf:
        for library in elf.needed:
            if library not in GLIBC_LIBRARIES | _SITE_LIBRARIES and not _is_found(library, elf, files, links):
                message = f"needs {library}, which {_why_not(library, elf, files, links)}"
                yield Finding(package=scan.file_name, file=elf.path, rule=Rule.NEEDED, message=message)


def _is_found(library: str, elf: ElfFile, files: set[str], links: dict[str, str]) -> bool:
    return any(resolve(join_path(folder, library), links) in files for folder in elf.folders)


def _why_not(library: str, elf: ElfFile, files: set[str], links: dict[str, str]) -> str:
    somewhere = sorted(path for path in files | links.keys() if path.rpartition("/")[2] == library)
    if somewhere:
        return f"is at {somewhere[0]} while the rpath leads to {', '.join(elf.folders) or 'no folder'}"
    return "neither the package nor what it depends on has"


def _glibc_findings(scan: PackageScan, together: Sequence[PackageScan]) -> Iterator[Finding]:
    versions = frozenset(version for elf in scan.elf if "/sysroot/" not in elf.path for version in elf.symbol_versions)
    wanted = newest_glibc(versions)
    if wanted is None:
        return
    stated = [spec for one in together for spec in one.index.get("depends", ()) if spec.split()[0] == "__glibc"]
    if not any(_least_glibc(spec) >= wanted for spec in stated):
        text = ".".join(str(part) for part in wanted)
        message = f"its files want glibc {text}; neither it nor what it depends on requires __glibc >={text}"
        yield Finding(package=scan.file_name, file="", rule=Rule.GLIBC, message=message)


def _least_glibc(spec: str) -> tuple[int, ...]:
    bounds = [part[2:] for part in spec.partition(" ")[2].split(",") if part.startswith(">=")]
    return max((tuple(int(part) for part in bound.split(".") if part.isdigit()) for bound in bounds), default=())
