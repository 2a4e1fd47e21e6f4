# SPDX-License-Identifier: BSD-3-Clause
"""Audits an installed environment: the files of its packages on disk, with the prefixes that clients wrote into them.

Every installed package counts as a dependency and may be linked to. conda-meta is not searched for build paths: by
conda's rules, it names the channels and the cache that packages came from.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from channel_tools.audit.model import AuditReport, Declared, Dependencies, FileFacts, PackageFacts
from channel_tools.audit.policy import INSTALLED_RULES, declared_by
from channel_tools.audit.run import audit_facts
from channel_tools.conda.compiled_in import RENDERED_RECIPE, read_rendered
from channel_tools.system.document import decode_json
from channel_tools.system.errors import IntegrityError
from channel_tools.system.workers import run_in_processes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from channel_tools.audit.reading import Reader
    from channel_tools.system.progress import Progress

META = "conda-meta"
_REST = "(files that belong to no package)"
_PLATFORM_FREE = "noarch"


def is_prefix(folder: Path) -> bool:
    """Whether a folder is a conda environment."""
    return (folder / META).is_dir()


def audit_prefix(prefix: Path, reader: Reader, *, jobs: int, progress: Progress) -> AuditReport:
    """Audit everything in an environment, package by package. Raises IntegrityError for damaged records."""
    prefix = prefix.absolute()
    spellings = {str(prefix), str(prefix.resolve())}
    reader = dataclasses.replace(reader, own_paths=tuple(sorted(spellings)), reads_code=False)
    records = [_record(file) for file in sorted((prefix / META).glob("*.json"))]
    records.append(_rest_of(prefix, records))
    read = functools.partial(_read_record, prefix=prefix, reader=reader)
    read_packages = []
    with progress.task("Auditing packages", total=len(records)) as task:
        indexed = list(enumerate(records))
        largest_first = sorted(indexed, key=lambda item: -len(item[1].get("files") or ()))
        work = [json.dumps(record) for _number, record in largest_first]
        for _text, facts in run_in_processes(read, work, processes=jobs, activity="read an installed package"):
            read_packages.append(facts)
            task.advance(detail=facts[0].name)
    dependencies = _dependencies([facts for facts, _seconds in read_packages])
    audits = [audit_facts(facts, dependencies, INSTALLED_RULES, seconds) for facts, seconds in read_packages]
    return AuditReport(kind="prefix", target=str(prefix), packages=sorted(audits, key=lambda audit: audit.package))


def _record(file: Path) -> dict[str, Any]:
    try:
        record = decode_json(file.read_bytes())
    except ValueError as err:
        raise IntegrityError(f"{file}: not valid JSON ({err})", hint="install the environment again") from None
    if not isinstance(record, dict):
        raise IntegrityError(f"{file}: not a record of a package", hint="install the environment again")
    return record


def _rest_of(prefix: Path, records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A record of the files that belong to no package, for example those of users and post-link scripts."""
    owned = {str(path) for record in records for path in record.get("files") or ()}
    unowned = []
    for folder, folders, names in os.walk(prefix):
        parent = Path(folder)
        if parent == prefix:
            folders[:] = [name for name in folders if name != META]
        links = [name for name in folders if (parent / name).is_symlink()]
        unowned += [(parent / name).relative_to(prefix).as_posix() for name in (*names, *links)]
    return {"name": _REST, "fn": _REST, "subdir": _PLATFORM_FREE, "files": sorted(set(unowned) - owned)}


def _read_record(text: str, *, prefix: Path, reader: Reader) -> tuple[PackageFacts, float]:
    started = time.monotonic()
    record = decode_json(text)
    files: dict[str, FileFacts] = {}
    missing = []
    for name in sorted(str(path) for path in record.get("files") or ()):
        facts = _read_file(prefix, name, reader)
        if facts is None:
            missing.append(f"{name} is missing")
        else:
            files[name] = facts
    package = PackageFacts(
        file_name=str(record.get("fn")),
        subdir=str(record.get("subdir")),
        name=str(record.get("name")),
        index=record,
        files=files,
        declared=_declared(record),
        damage=tuple(missing),
    )
    return package, time.monotonic() - started


def _read_file(prefix: Path, name: str, reader: Reader) -> FileFacts | None:
    path = prefix / name
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(status.st_mode):
        return FileFacts(path=name, kind="link", mode=status.st_mode, target=os.readlink(path))  # noqa: PTH115 - as text
    if not stat.S_ISREG(status.st_mode):
        return FileFacts(path=name, kind="special", mode=status.st_mode)
    with path.open("rb") as stream:
        return reader.read(name, stream, mode=stat.S_IMODE(status.st_mode), size_bytes=status.st_size, placeholder=None)


def _declared(record: Mapping[str, Any]) -> Declared:
    """What the recipe declares, if the client's cache still has the unpacked package."""
    info = Path(str(record.get("extracted_package_dir") or ""), "info")
    try:
        about = decode_json((info / "about.json").read_bytes())
        rendered = info / RENDERED_RECIPE
        recipe = rendered.read_bytes() if rendered.is_file() else None
        return declared_by(about, read_rendered(recipe), name=str(record.get("name")))
    except (OSError, ValueError):
        return Declared()


def _dependencies(packages: Sequence[PackageFacts]) -> Dependencies:
    links = {path: file.target for package in packages for path, file in package.files.items() if file.kind == "link"}
    files = {path for package in packages for path, file in package.files.items() if file.kind == "file"}
    return Dependencies(files=frozenset(files), links=links)
