# SPDX-License-Identifier: BSD-3-Clause
"""Making packages: unpack, repair, prune, compile, pack; in parallel processes, from plain values, the largest first.

A package's tree grows in a temporary folder on the destination's file system; a killed worker leaves only that, and the
next run under the foundation's lock clears it.

A package requires the glibc that its files need: those of a Debian release may be newer than conda-forge's, and without
the requirement a solver would install them on a host where nothing starts.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import os
import re
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from debian.deb822 import Deb822

from channel_tools.conda.metadata import PackageMetadata
from channel_tools.conda.writer import write_conda_package
from channel_tools.foundation.bytecode import compile_modules
from channel_tools.foundation.model import RepairContext, deb_name
from channel_tools.foundation.record import recorded
from channel_tools.foundation.repairs import REPAIRS
from channel_tools.foundation.repairs.elf import dynamic_elf_files
from channel_tools.foundation.unpack import unpack_deb
from channel_tools.foundation.wheel import WheelContent, site_packages, unpack_wheel, write_record
from channel_tools.system.counting import counted
from channel_tools.system.elf import newest_glibc
from channel_tools.system.errors import ChannelToolsError, FoundationError
from channel_tools.system.files import TEMPORARY_PREFIX, disk_full_reported, tree_files
from channel_tools.system.workers import run_in_processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from channel_tools.foundation.plan import PackagePlan
    from channel_tools.foundation.record import RecordedPackage

CODE = 1
"""Raised with each change of what is made of the same sources, in this module, bytecode.py, unpack.py or wheel.py."""
MULTIARCH: Mapping[str, str] = {"linux-64": "x86_64-linux-gnu", "linux-aarch64": "aarch64-linux-gnu"}
_EPOCH_S = 1_577_836_800
"""2020-01-01: the time of packages that hold no file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageJob:
    """One package to make: plain values, which go to a worker process."""

    plan: PackagePlan
    sources: tuple[Path, ...]
    """The taken files' places in the store, in the plan's order."""
    destination: Path
    """The foundation's folder."""
    subdir: str
    """The platform's, also for a noarch package."""
    python: str
    """``3.11``: major and minor of the foundation's python."""
    compiler: Path
    """The prefix where that python lies, or what it needs while it is made itself; see compile_modules."""


@dataclass(kw_only=True, slots=True)
class _Unpacked:
    """What the .debs and wheels of one package state: times, licenses, and what the wheels do."""

    times_s: list[int] = field(default_factory=list)
    licenses: list[str] = field(default_factory=list)
    wheels: list[WheelContent] = field(default_factory=list)


def make_package(job: PackageJob) -> RecordedPackage:
    """Make the package into ``<destination>/<subdir>/``, where it appears atomically.

    Raises FoundationError or IntegrityError, naming the row, when a source is damaged or a repair step does not find
    what it expects; DiskFullError when space runs out.
    """
    plan = job.plan
    try:
        with (
            disk_full_reported(job.destination),
            tempfile.TemporaryDirectory(prefix=TEMPORARY_PREFIX, dir=job.destination) as work,
        ):
            tree, licenses = Path(work) / "prefix", Path(work) / "licenses"
            tree.mkdir()
            licenses.mkdir()
            unpacked = _unpack(job, tree, licenses)
            _repair(job, tree, unpacked)
            if plan.holds_bytecode:
                compile_modules(tree, job.compiler, python=job.python)
            written = write_conda_package(
                tree,
                _metadata(job, tree, unpacked),
                job.destination / plan.subdir / plan.file_name,
                license_files=licenses,
            )
    except ChannelToolsError as err:
        raise err.with_message(f"package {plan.entry.position}: {err.message}") from err
    return recorded(plan, size_bytes=written.size_bytes, unpacked_bytes=written.unpacked_bytes, sha256=written.sha256)


def _unpack(job: PackageJob, tree: Path, licenses: Path) -> _Unpacked:
    entry = job.plan.entry
    unpacked = _Unpacked()
    for artifact, source in zip(job.plan.taken, job.sources, strict=True):
        if artifact.kind == "deb":
            unpacked.times_s.append(unpack_deb(source, tree, skip=entry.skip))
            continue
        content = unpack_wheel(source, tree, python=job.python, skip=entry.skip)
        unpacked.wheels.append(content)
        unpacked.licenses.append(wheel_licenses(tree, content.dist_info, dict(content.metadata), licenses))
        unpacked.times_s.append(content.newest_s)
    if entry.debs:
        unpacked.licenses.append(deb_licenses(tree, tuple(map(deb_name, entry.debs)), licenses))
    return unpacked


def _repair(job: PackageJob, tree: Path, unpacked: _Unpacked) -> None:
    entry = job.plan.entry
    context = RepairContext(
        entry=entry,
        version=job.plan.version,
        subdir=job.subdir,
        multiarch=MULTIARCH[job.subdir],
        python_version=job.python,
    )
    for step in entry.repairs:
        try:
            REPAIRS[step](tree, context)
        except FoundationError as err:
            raise FoundationError(f"repair step {step}: {err.message}", hint=err.hint) from err
    prune(tree, keep=entry.keep, drop=entry.drop)
    for content in unpacked.wheels:
        write_record(tree, content.dist_info)
    if job.plan.taken and next(tree_files(tree), None) is None:
        raise FoundationError("nothing is left of its files after the repair steps, keep and drop")


def _metadata(job: PackageJob, tree: Path, unpacked: _Unpacked) -> PackageMetadata:
    plan, entry = job.plan, job.plan.entry
    return PackageMetadata(
        name=entry.name,
        version=plan.version,
        build=plan.build,
        subdir=plan.subdir,
        depends=tuple(sorted({*_depends(job, tree, unpacked), *glibc_requirements(tree)})),
        constrains=plan.constrains,
        license=" AND ".join(dict.fromkeys(unpacked.licenses)) or None,
        timestamp_ms=max(unpacked.times_s, default=_EPOCH_S) * 1000,
        noarch=_noarch(plan),
        python_site_packages_path=site_packages(job.python, is_pure=False) if entry.name == "python" else None,
        run_exports=dataclasses.asdict(plan.run_exports),
        entry_points=tuple(point for content in unpacked.wheels for point in content.entry_points),
        about=_about(plan, unpacked),
    )


def _noarch(plan: PackagePlan) -> Literal["python", "generic"] | None:
    if plan.is_noarch_python:
        return "python"
    return "generic" if plan.subdir == "noarch" else None


def _depends(job: PackageJob, tree: Path, unpacked: _Unpacked) -> tuple[str, ...]:
    has_modules = any((tree / site_packages(job.python, is_pure=is_pure)).is_dir() for is_pure in (True, False))
    if not has_modules:
        return job.plan.depends
    depends = {*job.plan.depends, *job.plan.python_depends}
    if job.plan.is_noarch_python:
        stated = [str(content.metadata.get("requires_python") or "") for content in unpacked.wheels]
        depends |= {f"python {','.join(sorted(text.replace(' ', '').split(',')))}".strip() for text in stated}
    return tuple(sorted(depends))


def _about(plan: PackagePlan, unpacked: _Unpacked) -> dict[str, Any]:
    about: dict[str, Any] = {
        "extra": {
            "channel_tools": {
                "schema": 1,
                "digest": plan.digest,
                "taken": [
                    {
                        "kind": artifact.kind,
                        "name": artifact.name,
                        "version": artifact.version,
                        "sha256": artifact.sha256,
                    }
                    for artifact in plan.taken
                ],
            }
        }
    }
    if unpacked.licenses:
        about["license"] = " AND ".join(dict.fromkeys(unpacked.licenses))
    summaries = [content.metadata.get("summary") for content in unpacked.wheels]
    if summaries and summaries[0]:
        about["summary"] = summaries[0]
    return about


def make_packages(jobs: Sequence[PackageJob], *, processes: int) -> Iterator[RecordedPackage]:
    """Make all packages and yield each as it is done.

    The first error ends the others and is raised; what was made before it stays. The same holds for an interrupt.
    """
    largest_first = sorted(jobs, key=lambda job: -sum(source.stat().st_size for source in job.sources))
    for _job, made in run_in_processes(
        make_package, largest_first, processes=processes, activity="made a package", error=FoundationError
    ):
        yield made


UNKNOWN_LICENSE = "LicenseRef-see-license-files"
_LICENSE_FILE = re.compile(r"(?:licen[cs]es?/.+|(?:licen[cs]e|copying|notice|copyright)[^/]*)", re.IGNORECASE)
_SYSROOT = "sysroot"


def prune(tree: Path, *, keep: Sequence[str], drop: Sequence[str]) -> None:
    """Remove what ``keep`` (unless empty) does not match and what ``drop`` matches, then folders left empty.

    A glob matches a path or any folder above it. Raises FoundationError for a ``keep`` glob that matches nothing: the
    file it was written for is gone.
    """
    files = list(tree_files(tree))
    for glob in keep:
        if not any(map(_matcher([glob]), files)):
            raise FoundationError(f"keep glob {glob!r} matches none of {counted(len(files), 'file')}")
    is_kept, is_dropped = _matcher(keep), _matcher(drop)
    for name in files:
        if (keep and not is_kept(name)) or (drop and is_dropped(name)):
            (tree / name).unlink()
    for folder, _, _ in os.walk(tree, topdown=False):
        if folder != os.fspath(tree) and not os.listdir(folder):  # noqa: PTH208 - os.walk gives text
            Path(folder).rmdir()


def _matcher(globs: Sequence[str]) -> Callable[[str], object]:
    return re.compile("|".join(f"(?:{fnmatch.translate(glob)[:-2]}(?:/.*)?\\Z)" for glob in globs) or r"(?!)").match


def deb_licenses(tree: Path, debs: Sequence[str], destination: Path) -> str:
    """Copy the debs' copyright files out of the tree and say which license the first machine-readable one states.

    Some packages share their documentation folder with another through a link; those bring no file of their own.
    """
    stated: list[str] = []
    for deb in debs:
        source = tree / "usr" / "share" / "doc" / deb / "copyright"
        if source.is_file() and not source.is_symlink():
            target = destination / deb / "copyright"
            target.parent.mkdir(parents=True)
            shutil.copyfile(source, target)
            stated += _stated_license(source)
    return stated[0] if stated else UNKNOWN_LICENSE


def _stated_license(source: Path) -> list[str]:
    """The license of the files in general, where the copyright file is of Debian's machine-readable form.

    python-debian's own reader of that form is not asked: it compiles every glob of files that have thousands.
    """
    with source.open("rb") as stream:
        try:
            for paragraph in Deb822.iter_paragraphs(stream, use_apt_pkg=False, encoding="utf-8"):
                if "*" in paragraph.get("Files", "").split() and (stated := paragraph.get("License", "").strip()):
                    return [" ".join(stated.splitlines()[0].split())]
        except ValueError:  # not of that form: no fields, or no UTF-8
            return []
    return []


def wheel_licenses(tree: Path, dist_info: str, metadata: Mapping[str, object], destination: Path) -> str:
    """Copy a wheel's license files and say what its metadata states."""
    folder = tree / dist_info
    for name in tree_files(folder):
        if _LICENSE_FILE.fullmatch(name):
            target = destination / folder.name / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / name, target)
    stated = metadata.get("license_expression") or metadata.get("license")
    return stated if isinstance(stated, str) and len(stated.splitlines()) == 1 else _from_classifiers(metadata)


def _from_classifiers(metadata: Mapping[str, object]) -> str:
    classifiers = metadata.get("classifiers")
    texts = [str(text) for text in classifiers] if isinstance(classifiers, list) else []
    names = [text.rpartition(" :: ")[2] for text in texts if text.startswith("License :: OSI Approved :: ")]
    return names[0] if names else UNKNOWN_LICENSE


def glibc_requirements(tree: Path) -> list[str]:
    """``__glibc >=2.34,<3.0.a0`` for the newest symbol version in ``tree``; none when nothing asks for glibc.

    The sysroot's own libraries do not count: they are linked against, never loaded.
    """
    versions = [
        newest
        for path, info in dynamic_elf_files(tree)
        if _SYSROOT not in path.relative_to(tree).parts and (newest := newest_glibc(info.symbol_versions))
    ]
    return [f"__glibc >={'.'.join(map(str, max(versions)))},<3.0.a0"] if versions else []
