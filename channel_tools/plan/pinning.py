# SPDX-License-Identifier: BSD-3-Clause
"""conda-forge's pinning by a named version: fetched from the foundation's channel into the tree, and moved on purpose.

The version is in stacks.yaml, where people read and write it; its files are below locks/. Only an update that names
the package changes the version.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from rattler import Version

from channel_tools.conda.addresses import with_credentials_of, without_credentials
from channel_tools.conda.archive import read_package
from channel_tools.conda.clients import make_http_client
from channel_tools.conda.contents import damaged_package
from channel_tools.conda.fetch import FetchOptions, RemoteFile, fetch_files
from channel_tools.conda.package import PACKAGE_SUFFIX, PackageKey, split_file_name
from channel_tools.conda.platforms import current_platform
from channel_tools.conda.solving import parse_spec, shown_channels
from channel_tools.conda.specs import matches
from channel_tools.matrix.pinning import PINNING_KEY
from channel_tools.matrix.pinning_lock import (
    PINNING_PACKAGE,
    PinnedPackage,
    PinningFilesError,
    is_kept,
    is_pinning_version,
    read_pinned,
    recorded_package,
    remove_other_versions,
    write_pinned,
)
from channel_tools.matrix.stacks import read_stacks
from channel_tools.matrix.variants import CONDA_BUILD_CONFIG
from channel_tools.plan.view import find_records
from channel_tools.system.errors import FoundationError, IntegrityError, UsageError
from channel_tools.system.files import write_text_atomically
from channel_tools.system.work_folder import temporary_folder
from channel_tools.system.yamlfile import parse_yaml

if TYPE_CHECKING:
    import tarfile
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from rattler import RepoDataRecord

    from channel_tools.channel import Foundation
    from channel_tools.conda.package import PackageRef
    from channel_tools.matrix.model import StacksFile
    from channel_tools.plan.foundation import FoundationIndex
    from channel_tools.system.progress import Progress
    from channel_tools.system.settings import Settings

_PACKAGE_BYTES = 64 << 20
"""The largest package that is fetched, and the most that is kept of one; the real ones have 60 kB."""
_FILE_BYTES = 4 << 20
_SHOWN = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class PinningChange:
    """The pinning that a tree names by version: the one that it has, None if not as recorded, and the one to have.

    ``stacks_text`` is the new content of stacks.yaml, None if the version stays.
    """

    before: PinnedPackage | None
    after: PinnedPackage
    stacks_text: str | None = None

    @property
    def is_new(self) -> bool:
        """Whether the tree has to be changed."""
        return self.before is None or self.before.ref != self.after.ref


async def change_pinning(
    settings: Settings,
    foundation: Foundation,
    *,
    asked: str | None,
    open_index: Callable[[], FoundationIndex],
    progress: Progress,
) -> PinningChange | None:
    """The pinning that the tree is to have; None for a tree that names none by version. Nothing is written.

    ``open_index`` opens the foundation's index, which is read only if a package is looked for.

    It is the named version, which is fetched if the tree does not have it; or, if ``asked`` is a MatchSpec of
    conda-forge-pinning, the newest one in the foundation that it takes. Raises UsageError (no named version to move),
    ConfigError (files other than recorded), FoundationError (no such package in the foundation), NetworkError and
    IntegrityError (a package that is not what the foundation's index says, or not such a package).
    """
    file = read_stacks(settings.tree.stacks_file)
    root, version = settings.tree.root, file.pinning
    if version is None or not is_pinning_version(version):
        if asked is None:
            return None
        message = f"{file.document.path}: names no version of {PINNING_PACKAGE} that could be moved"
        raise UsageError(message, hint="name one there (pinning: VERSION), then run: channel_tools foundation lock")
    if asked is None:
        try:
            current = read_pinned(root, version)
            return PinningChange(before=current, after=current)
        except PinningFilesError:
            known = recorded_package(root, version)
        record = _choose(await _find(open_index()), version=version, known=known, foundation=foundation)
        return PinningChange(before=None, after=_fetch(settings, foundation, record, progress))
    current = read_pinned(root, version)
    record = _choose_newest(await _find(open_index()), asked, version, foundation)
    if str(record.version) == version and record.sha256 and record.sha256.hex() == current.ref.sha256:
        return PinningChange(before=current, after=current)
    after = _fetch(settings, foundation, record, progress)
    text = None if after.version == version else _text_with_version(file, version, after.version)
    return PinningChange(before=current, after=after, stacks_text=text)


def write_pinning(settings: Settings, change: PinningChange) -> None:
    """Write the pinning into the tree, then its version into stacks.yaml, and remove what was there of other versions.

    Raises FileAccessError if the tree cannot be written.
    """
    write_pinned(settings.tree.root, change.after)
    if change.stacks_text is not None:
        write_text_atomically(settings.tree.stacks_file.resolve(), change.stacks_text)
    remove_other_versions(settings.tree.root, change.after.version)


async def _find(index: FoundationIndex) -> list[RepoDataRecord]:
    records = await find_records(index, [PINNING_PACKAGE], current_platform())
    return [record for record in records.values() if split_file_name(record.file_name, old_format=True) == _id(record)]


def _id(record: RepoDataRecord) -> tuple[str, str, str]:
    return record.name.normalized, str(record.version), str(record.build)


def _choose(
    records: Sequence[RepoDataRecord], *, version: str, known: PackageRef | None, foundation: Foundation
) -> RepoDataRecord:
    """The named version: the build that the tree's record names, if it has one, else the latest."""
    same = [record for record in records if str(record.version) == version]
    if known is not None:
        same = [
            record
            for record in same
            if _key(record) == known.key and record.sha256 and record.sha256.hex() == known.sha256
        ]
        if not same:
            message = (
                f"{_shown(foundation)} no longer has {known.key} with sha256 {known.sha256}, which the tree records"
            )
            raise FoundationError(
                message, hint=f"restore locks/{PINNING_PACKAGE} from version control, or name another"
            )
    if not same:
        raise _absent(records, f"{PINNING_PACKAGE} {version}", foundation)
    return max(same, key=_age)


def _choose_newest(
    records: Sequence[RepoDataRecord], asked: str, version: str, foundation: Foundation
) -> RepoDataRecord:
    """The newest that ``asked`` takes; without a version there, never one older than the tree's."""
    spec = parse_spec(asked)
    matching = [record for record in records if matches(spec, record)]
    if not matching:
        raise _absent(records, asked, foundation)
    newest = max(matching, key=_age)
    if spec.version is None and newest.version < Version(version):
        message = (
            f"{_shown(foundation)} has nothing newer than {PINNING_PACKAGE} {newest.version}; the tree has {version}"
        )
        hint = f"to go back: channel_tools foundation update {PINNING_PACKAGE}=={newest.version}"
        raise FoundationError(message, hint=hint)
    return newest


def _age(record: RepoDataRecord) -> tuple[Version, int, bool]:
    return record.version, record.build_number, record.file_name.endswith(PACKAGE_SUFFIX)


def _absent(records: Sequence[RepoDataRecord], wanted: str, foundation: Foundation) -> FoundationError:
    newest = sorted({record.version for record in records}, reverse=True)[:_SHOWN]
    message = f"{_shown(foundation)} has no {wanted}"
    reason = f"its newest are {', '.join(map(str, newest))}" if newest else f"it has no {PINNING_PACKAGE} at all"
    return FoundationError(message, hint=f"{reason}; name another version, or another --foundation-channel")


def _shown(foundation: Foundation) -> str:
    return shown_channels([foundation.address]) if foundation.address else "the foundation"


def _key(record: RepoDataRecord) -> PackageKey:
    return PackageKey(record.subdir, record.file_name)


def _fetch(settings: Settings, foundation: Foundation, record: RepoDataRecord, progress: Progress) -> PinnedPackage:
    """Download the package, check it as any foreign one, and take from it what is kept."""
    key = _key(record)
    if record.sha256 is None or record.size is None or record.size > _PACKAGE_BYTES:
        message = f"{_shown(foundation)}: its index has no sha256 of {key}, or no size up to {_PACKAGE_BYTES} bytes"
        raise FoundationError(message, hint="index the channel again, or name another --foundation-channel")
    url = record.url if foundation.address is None else with_credentials_of(foundation.address, record.url)
    ref = key.ref(record.sha256.hex(), record.size, foundation=True)
    remote = RemoteFile(path=str(key), size_bytes=record.size, sha256=ref.sha256, url=url)
    options = FetchOptions(client=make_http_client(settings.environ), jobs=1)
    with temporary_folder() as folder:
        fetch_files([remote], folder, options=options, progress=progress)
        path = key.path_in(folder)
        try:
            return PinnedPackage(ref=ref, files=_kept_files(path, record))
        except IntegrityError as err:
            message = f"{without_credentials(url)}: {str(err).removeprefix(f'{path}: ')}"
            raise IntegrityError(message, hint="name another version, or another --foundation-channel") from None


def _kept_files(path: Path, record: RepoDataRecord) -> dict[str, bytes]:
    visitor = _KeptFiles(path)
    index = read_package(path, contents=True, visitor=visitor).index
    if (index.get("name"), index.get("version")) != (PINNING_PACKAGE, str(record.version)):
        raise damaged_package(path, f"is {index.get('name')} {index.get('version')}, not what the index says")
    if CONDA_BUILD_CONFIG not in visitor.files:
        raise damaged_package(path, f"has no {CONDA_BUILD_CONFIG}; expected conda-forge's pinning")
    return dict(sorted(visitor.files.items()))


class _KeptFiles:
    """Collects the files of a package that variants are read from; a PackageVisitor."""

    def __init__(self, path: Path) -> None:
        self.files: dict[str, bytes] = {}
        self._path = path
        self._left = _PACKAGE_BYTES

    def visit_info(self, files: Mapping[str, bytes]) -> None:
        """Nothing of the metadata is kept."""

    def visit_member(self, member: tarfile.TarInfo, stream: IO[bytes] | None) -> None:
        """Keep a variant file. Raises IntegrityError for one that is a link, or far too large."""
        if not is_kept(member.name):
            return
        self._left -= member.size
        if stream is None or member.size > _FILE_BYTES or self._left < 0:
            message = f"{member.name} is a link, or larger than any variant file; expected at most {_FILE_BYTES} bytes"
            raise damaged_package(self._path, message)
        self.files[member.name] = stream.read()


def _text_with_version(file: StacksFile, old: str, new: str) -> str:
    """stacks.yaml with another version in the line of ``pinning``, and everything else as it was written."""
    path, number = file.document.path, file.document.line_of(PINNING_KEY) - 1
    lines = path.read_bytes().decode().split("\n")
    written = re.compile(rf"""({PINNING_KEY}\s*:\s*)(["']?){re.escape(old)}\2(?=\s|$)""")
    lines[number] = written.sub(rf'\g<1>"{new}"', lines[number], count=1)
    text, before = "\n".join(lines), file.document.value
    expected = {**before, PINNING_KEY: new} if isinstance(before, dict) else None
    if parse_yaml(text, path).value != expected:
        message = f"the version cannot be replaced here; expected  {PINNING_KEY}: {old}  on one line"
        raise file.document.error(message, PINNING_KEY, hint=f"write it so, or write {new} yourself and run lock")
    return text
