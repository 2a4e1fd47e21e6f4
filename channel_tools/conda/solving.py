# SPDX-License-Identifier: BSD-3-Clause
"""Solves with py-rattler, for environments and locks, and converts its errors to ours.

py-rattler has one error class per stage, with the cause only in the text, so the text is parsed: the phrases below are
those of py-rattler 0.28 (tests cause each with real channels). An unknown text is kept in a general error.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import rattler
from rattler.exceptions import DetectVirtualPackageError, FetchRepoDataError, GatewayError, SolverError
from rattler.repo_data import SourceConfig

from channel_tools.conda.addresses import (
    NOT_SENT,
    is_confidential,
    is_downgraded,
    is_web,
    local_path,
    scheme_of,
    text_without_credentials,
    without_credentials,
)
from channel_tools.conda.answers import index_addresses, while_answered
from channel_tools.conda.package import NOARCH, OLD_SUFFIX, PACKAGE_SUFFIX
from channel_tools.conda.relay import text_without_relay
from channel_tools.conda.repodata import INDEX_LIMIT_BYTES, REPODATA, REPODATA_ZST, SHARD_INDEX
from channel_tools.conda.specs import InvalidSpecError, read_spec
from channel_tools.system.errors import (
    ChannelError,
    ChannelToolsError,
    DiskFullError,
    IntegrityError,
    NetworkError,
    SolveError,
    UsageError,
)
from channel_tools.system.files import kind_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from rattler.networking import Client

REPODATA_CACHE = ".repodata"
_MAX_EXPLANATION_LINES = 15
_INDEX_AGAIN = "remove it, and index the channel again"
_MAX_BUILDS = 4
_FILE = "give a package's file by its absolute path, .../NAME-VERSION-BUILD.conda, or by its address"
_NO_CANDIDATE = re.compile(r"No candidates were found for ([^\s.]\S*)")
_SOLVER_HEADER = "Cannot solve the request because of: "
DISK_FULL = re.compile(r"os error (28|122)\b|no space left on device", re.IGNORECASE)
_REFUSED = re.compile(r"HTTP status client error \((401|403)\b")
UNREACHABLE = re.compile(
    r"error sending request|dns error|HTTP status|timed out|connection (closed|reset)", re.IGNORECASE
)


def detect_virtual_packages() -> list[rattler.GenericVirtualPackage]:
    """This machine's virtual packages (``__glibc``, ``__cuda`` ...), with CONDA_OVERRIDE_CUDA and the like (CEP 30).

    Raises UsageError for an override that is not a version.
    """
    try:
        detected = rattler.VirtualPackage.detect(rattler.VirtualPackageOverrides.from_env())
    except DetectVirtualPackageError as err:
        message = f"a variable CONDA_OVERRIDE_... does not say a version: {one_line(err)}"
        raise UsageError(message, hint="set it to a version, such as CONDA_OVERRIDE_CUDA=12.4, or unset it") from None
    return [package.into_generic() for package in detected]


def parse_spec(spec: str) -> rattler.MatchSpec:
    """The MatchSpec that a user gave. Raises UsageError."""
    try:
        return read_spec(spec)
    except InvalidSpecError as err:
        is_path = spec.endswith((PACKAGE_SUFFIX, OLD_SUFFIX)) and not scheme_of(spec)
        message = f"{text_without_credentials(spec)}: not a MatchSpec: {err.reason}"
        raise UsageError(message, hint=_FILE if is_path else err.hint) from None


@dataclass(frozen=True, kw_only=True, slots=True)
class AddressedPackages:
    """The packages that MatchSpecs ask for by their addresses, as they were read (``addressed.py``).

    Is a source of records for the solver: py-rattler 0.28 would read such packages again, and in its own way.
    """

    records: Mapping[str, rattler.RepoDataRecord] = field(default_factory=dict)
    """By the text of the MatchSpec."""
    archives: Mapping[str, Path] = field(default_factory=dict)
    """Where the archives are for now that were fetched, by the addresses in the records."""

    async def fetch_package_records(
        self, platform: rattler.Subdir, name: rattler.PackageName
    ) -> list[rattler.RepoDataRecord]:
        """Those of a name, for rattler."""
        mine = self.records.values()
        return [record for record in mine if record.subdir == str(platform) and record.name == name]

    def package_names(self, platform: rattler.Subdir) -> list[str]:
        """Their names, for rattler."""
        return [record.name.normalized for record in self.records.values() if record.subdir == str(platform)]

    def spec_of(self, text: str, subdir: str) -> rattler.MatchSpec:
        """What the solver is asked for. Raises UsageError for a package that is for another platform."""
        record = self.records.get(text)
        if record is None:
            return parse_spec(text)
        if record.subdir not in {subdir, NOARCH}:
            message = f"{record.url}: is a package for {record.subdir}; expected one for {subdir}"
            raise UsageError(message, hint=f"give the address of a package for {subdir} or {NOARCH}")
        return read_spec(f"{record.name.normalized}[sha256={(record.sha256 or b'').hex()}]")


def make_gateway(package_cache: Path, client: Client | None = None, *, fresh: bool = False) -> rattler.Gateway:
    """A gateway that reads channels' indexes through ``client``, with its cache below the package cache.

    ``fresh`` requests the current indexes, even if the server allows using a cached one for a while.
    """
    config = SourceConfig(cache_action="no-cache") if fresh else None
    return rattler.Gateway(cache_dir=package_cache.absolute() / REPODATA_CACHE, client=client, default_config=config)


def memory_index(
    channel: str, subdir: str, records: Mapping[str, Mapping[str, object]], *, base_url: str | None = None
) -> rattler.SparseRepoData:
    """An index of a subdir of ``channel`` with these records by file name, without a file on disk.

    ``base_url`` is where it has the packages, by default below the channel (CEP 15).
    """
    old = {name: record for name, record in records.items() if not name.endswith(".conda")}
    conda = {name: record for name, record in records.items() if name not in old}
    info = {"subdir": subdir} | ({} if base_url is None else {"base_url": base_url})
    content = json.dumps({"info": info, "packages": old, "packages.conda": conda})
    with os.fdopen(os.memfd_create("repodata.json"), "w", encoding="utf-8") as file:
        file.write(content)
        file.flush()
        # the solver maps the file, so the descriptor may be closed
        return rattler.SparseRepoData(rattler.Channel(channel), subdir, f"/proc/self/fd/{file.fileno()}")


def check_indexes(folder: Path, subdirs: Iterable[str]) -> None:
    """Raise ChannelError if something else than a file, or one that is too large, has the name of a channel's index.

    Libraries open these by path, wait for ever for the other end of a pipe, and read them whole.
    """
    for path in (folder / subdir / name for subdir in subdirs for name in (REPODATA, REPODATA_ZST, SHARD_INDEX)):
        try:
            status = path.stat()
        except OSError:
            if path.is_symlink():
                raise ChannelError(f"{path}: is a symbolic link that leads nowhere", hint=_INDEX_AGAIN) from None
            continue
        if (kind := kind_of(status.st_mode)) is not None:
            message = f"{path}: is {kind}; expected a channel's index, which is a regular file"
        elif status.st_size > INDEX_LIMIT_BYTES:
            message = f"{path}: has {status.st_size} bytes; at most {INDEX_LIMIT_BYTES} are read"
        else:
            continue
        raise ChannelError(message, hint=_INDEX_AGAIN)


def check_local_indexes(channels: Sequence[str], subdirs: Iterable[str]) -> None:
    """Raise ChannelError as check_indexes does, for those of the channels that are folders of this machine.

    A gateway opens their indexes by path, and waits for ever for the other end of a pipe.
    """
    subdirs = tuple(subdirs)
    for folder in filter(None, map(local_path, channels)):
        check_indexes(folder, subdirs)


_NONE_ADDRESSED = AddressedPackages()


async def solve_specs(
    specs: Sequence[str],
    channels: Sequence[str],
    *,
    subdir: str,
    gateway: rattler.Gateway,
    virtual_packages: Sequence[rattler.GenericVirtualPackage | rattler.VirtualPackage],
    preferred: Sequence[rattler.RepoDataRecord] = (),
    constraints: Sequence[str] = (),
    addressed: AddressedPackages = _NONE_ADDRESSED,
) -> list[rattler.RepoDataRecord]:
    """The packages of an environment for ``subdir``, only from ``channels`` (addresses, in order of priority).

    ``addressed`` are those that the specs ask for by their addresses.
    ``preferred`` records are chosen if the specs allow it; a package of a name in ``constraints`` has to meet these
    MatchSpecs if it is needed. Raises UsageError, SolveError, NetworkError and
    ChannelError (an index that is missing or not an index).
    """
    parsed = [addressed.spec_of(spec, subdir) for spec in specs]
    check_local_indexes(channels, [subdir, NOARCH])
    try:
        solved = await while_answered(
            rattler.solve(
                sources=[addressed, *channels] if addressed.records else channels,
                specs=parsed,
                gateway=gateway,
                platforms=[rattler.Subdir(subdir), rattler.Subdir(NOARCH)],
                locked_packages=preferred,
                virtual_packages=virtual_packages,
                constraints=[parse_spec(spec) for spec in constraints],
                channel_relations="disabled",
            ),
            index_addresses(channels),
        )
    except (GatewayError, FetchRepoDataError) as err:
        raise gateway_error(err, channels=channels) from err
    except SolverError as err:
        offered = await _offered(gateway, channels, subdir, str(err))
        raise solve_error(err, specs=specs, channels=channels, offered=offered) from err
    check_not_downgraded(solved)
    return solved


async def _offered(gateway: rattler.Gateway, channels: Sequence[str], subdir: str, explanation: str) -> str:
    """What the channels have of the package of which the solver found no candidate; "" if it is not about one."""
    if (match := _NO_CANDIDATE.search(explanation)) is None:
        return ""
    name = match[1]
    subdirs = [rattler.Subdir(subdir), rattler.Subdir(NOARCH)]
    query = gateway.query(list(channels), subdirs, [name], recursive=False, channel_relations="disabled")
    groups = await while_answered(query, index_addresses(channels))
    records = [record for group in groups for record in group]
    records.sort(key=lambda record: (record.version, str(record.build)), reverse=True)
    builds = list(dict.fromkeys(f"{record.version} {record.build}" for record in records))
    if not builds:
        return f"No channel has a package {name}."
    more = f" and {len(builds) - _MAX_BUILDS} more" if len(builds) > _MAX_BUILDS else ""
    return f"The channels have {name} {', '.join(builds[:_MAX_BUILDS])}{more}."


def check_not_downgraded(records: Iterable[rattler.RepoDataRecord]) -> None:
    """Raise IntegrityError for a package at plain http of an https channel: rattler would send the host's password."""
    for record in records:
        if is_downgraded(record.channel or "", record.url):
            where, url = shown_channels([record.channel or ""]), without_credentials(record.url)
            message = f"{where}: its index has {record.file_name} at the plain http address {url}"
            raise IntegrityError(message, hint="correct base_url in the channel's index; expected one of https")


def solve_error(err: Exception, *, specs: Sequence[str], channels: Sequence[str], offered: str = "") -> SolveError:
    """The error for no solution: the solver's explanation, cut to what fits on a screen, and what is ``offered``."""
    lines = str(err).removeprefix(_SOLVER_HEADER).strip().splitlines()
    if len(lines) > _MAX_EXPLANATION_LINES:
        omitted = len(lines) - _MAX_EXPLANATION_LINES
        lines = [*lines[:_MAX_EXPLANATION_LINES], f"({omitted} more lines)"]
    lines += [offered] if offered else []
    wanted = ", ".join(map(text_without_credentials, specs))
    message = f"no set of packages in {shown_channels(channels)} satisfies {wanted}:\n" + "\n".join(lines)
    if any(local_path(channel) is not None for channel in channels):
        return SolveError(message, hint="build what is missing (channel_tools build), or relax the specs")
    return SolveError(message, hint="relax the specs, or name a channel that has what is missing, too: --channel")


def gateway_error(err: Exception, *, channels: Sequence[str]) -> ChannelToolsError:
    """The error for a channel's index that cannot be reached, does not exist, or is not an index."""
    reason = one_line(err)
    where = shown_channels(channels)
    if DISK_FULL.search(reason):
        message = f"{where}: no space left on the device of the cache for its index: {reason}"
        return DiskFullError(message, hint="free space there (CHANNEL_TOOLS_CACHE names it), then run it again")
    if UNREACHABLE.search(reason):
        message = f"{where}: the channel's index cannot be reached: {reason}"
        retry = "then run the same command again"
        if _REFUSED.search(reason):
            if not all(map(is_confidential, filter(is_web, channels))):
                return NetworkError(message, hint=NOT_SENT)
            hint = (
                "put a token into .netrc, or into the address, https://HOST/t/TOKEN/CHANNEL; one that is there already "
                f"is wrong, expired or for another channel: {retry}"
            )
            if any(channel != without_credentials(channel) for channel in channels):
                hint = f"the token or password in the address is not accepted: correct it, or ask for another, {retry}"
            return NetworkError(message, hint=hint)
        return NetworkError(message, hint=f"check the address and the network, {retry}")
    message = f"{where}: the channel's index cannot be read: {reason}"
    return ChannelError(message, hint="make the channel first (channel_tools build) or give another address")


def shown_channels(channels: Sequence[str]) -> str:
    """Channels for a message, without credentials."""
    return ", ".join(without_credentials(channel) for channel in channels)


def one_line(err: Exception) -> str:
    """The chain of causes on one line, without the repetitions of wrapped errors and without credentials."""
    parts: list[str] = []
    for line in str(err).splitlines():
        part = line.strip().removeprefix("Caused by: ")
        if part and not any(part in earlier for earlier in parts):
            parts.append(part)
    return text_without_credentials(text_without_relay(": ".join(parts)))
