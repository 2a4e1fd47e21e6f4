# SPDX-License-Identifier: BSD-3-Clause
"""An environment as it is: its packages, what it was asked for, and whether a run that changed it was interrupted."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import rattler
from rattler.exceptions import IoError

from channel_tools.conda.addresses import channel_address, without_credentials
from channel_tools.conda.package import split_package_address
from channel_tools.conda.specs import InvalidSpecError, address_in, is_virtual, matches, read_spec, spec_name
from channel_tools.environments.history import (
    CHANNEL_ALIAS,
    History,
    Requested,
    by_name,
    parse_specs,
    read_history,
    requested_specs,
    specs_line,
)
from channel_tools.system.errors import IntegrityError, UsageError
from channel_tools.system.files import write_text_atomically
from channel_tools.system.settings import STACKS_PACKAGE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

META = "conda-meta"
_MARKER = ".channel_tools-unfinished"
_MARKED_SPECS = "# update specs: "

Identity = tuple[str, str, str, str]
"""Name, version, build string, and the sha256 (the address, if the channel's index names none) of a package."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Unfinished:
    """An interrupted run: the packages that it was linking (by cached_name), and what it was to have as asked for.

    ``requested`` is None for a run of version 0.2.0 or earlier, which did not note it.
    """

    packages: tuple[str, ...]
    requested: Requested | None


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvironmentState:
    """An environment's packages, history and interrupted run; ``damaged`` are records that this has cut off."""

    prefix: Path
    records: tuple[rattler.PrefixRecord, ...]
    history: History
    unfinished: Unfinished | None
    damaged: tuple[Path, ...] = ()

    @property
    def requested(self) -> Requested:
        """The MatchSpecs that the environment is there for: no change may leave one of them out.

        After an interrupted run, they are those that it was to have.
        """
        if self.unfinished is None:
            return requested_specs(self.history, self.records)
        if self.unfinished.requested is not None:
            return self.unfinished.requested
        return requested_specs(self.history, self.records, of_unknown=False)

    @property
    def names(self) -> frozenset[str]:
        """The names of the packages."""
        return frozenset(record.name.normalized for record in self.records)

    @property
    def identities(self) -> frozenset[Identity]:
        """The packages, to be compared with others."""
        return frozenset(map(identity, self.records))

    def is_as(self, other: EnvironmentState) -> bool:
        """Whether nothing has changed between the two readings."""
        mine, others = ((state.identities, state.unfinished, state.requested) for state in (self, other))
        return mine == others

    def unmet(self, specs: Iterable[str], channels: Sequence[str]) -> list[str]:
        """What the environment lacks of the MatchSpecs, and of what they need, in words.

        A package that one names has to be from one of ``channels``, which may have credentials.
        """
        addresses = tuple(f"{without_credentials(channel_address(channel))}/" for channel in channels)
        installed = {record.name.normalized: record for record in self.records}
        collected: dict[str, None] = {}
        waiting, seen = [(spec, "") for spec in specs], set[str]()
        while waiting:
            spec, wanted_by = waiting.pop(0)
            name = spec_name(spec)
            # whether a condition holds is the solver's matter
            if is_virtual(name) or (wanted_by and read_spec(spec).condition is not None):
                continue
            record = installed.get(name)
            needed = f"{spec} (for {wanted_by})" if wanted_by else spec
            if record is None:
                collected[needed] = None
                continue
            here = f"{record.version} {record.build}"
            if not is_for(record, spec):
                collected[f"{needed}: it has {name} {here}"] = None
            elif (
                not wanted_by
                and address_in(read_spec(spec)) is None
                and not without_credentials(record.url).startswith(addresses)
            ):
                collected[f"{needed} from {', '.join(addresses)}: it has that of {channel_of(record)}"] = None
            if name not in seen:
                seen.add(name)
                waiting += [(dependency, name) for dependency in record.depends]
        return list(collected)

    @property
    def channels(self) -> tuple[str, ...]:
        """The addresses of the channels that the packages are from, in the order in which commands named them.

        Those without such a command come last; of these, the one with the package of the stacks is the first. What was
        asked for by its address need not be in a channel, so it counts only where nothing else does.
        """
        records = sorted(self.records, key=lambda record: record.name.normalized != STACKS_PACKAGE)
        by_channel = {channel_of(record): record for record in records}
        sought = dict.fromkeys(channel_of(record) for record in records if not self._is_addressed(record))
        named = (name for word in self.history.channels for name in (word.rstrip("/"), f"{CHANNEL_ALIAS}{word}"))
        return tuple(dict.fromkeys((*(name for name in named if name in by_channel), *(sought or by_channel))))

    def _is_addressed(self, record: rattler.PrefixRecord) -> bool:
        specs = self.requested.get(record.name.normalized, ())
        return any(address_in(read_spec(spec)) is not None for spec in specs)


def identity(record: rattler.RepoDataRecord) -> Identity:
    """What tells a package from others."""
    sha256 = record.sha256.hex() if record.sha256 else record.url
    return record.name.normalized, str(record.version), str(record.build), sha256


def channel_of(record: rattler.RepoDataRecord) -> str:
    """The address of the channel that a package is from, without credentials."""
    try:
        return without_credentials(split_package_address(record.url)[0])
    except UsageError:
        return without_credentials(record.channel or "").rstrip("/")


def is_for(record: rattler.PrefixRecord, spec: str) -> bool:
    """Whether the installed package is what a MatchSpec asks for, its channel and address included."""
    try:
        parsed = read_spec(spec)
    except InvalidSpecError:
        return False
    if not matches(parsed, record, file_name=record.file_name):
        return False
    address = address_in(parsed)
    if address is not None and without_credentials(address) != without_credentials(record.url):
        return False
    channel = parsed.channel
    return channel is None or channel_of(record) == without_credentials(str(channel.base_url)).rstrip("/")


def read_state(prefix: Path) -> EnvironmentState:
    """Read an environment; nothing is in it if there is none.

    Raises IntegrityError for a record or a request that cannot be read; records that an interrupted run has cut off are
    only named.
    """
    unfinished = _read_marker(prefix)
    records, damaged = [], []
    for path in sorted((prefix / META).glob("*.json")):
        try:
            records.append(rattler.PrefixRecord.from_path(path))
        except (OSError, IoError) as err:
            if unfinished is None:
                message = f"{path}: the record of an installed package cannot be read: {err}"
                raise IntegrityError(message, hint=f"delete {prefix} and create the environment again") from None
            damaged.append(path)
    return EnvironmentState(
        prefix=prefix,
        records=tuple(records),
        history=read_history(prefix),
        unfinished=unfinished,
        damaged=tuple(damaged),
    )


def mark_unfinished(prefix: Path, unfinished: Unfinished) -> None:
    """Note in the environment that a run has begun to link packages."""
    specs = [spec for texts in (unfinished.requested or {}).values() for spec in texts]
    lines = [specs_line("update", specs), *unfinished.packages]
    write_text_atomically(prefix / META / _MARKER, "".join(f"{line}\n" for line in lines))


def unmark(prefix: Path) -> None:
    """Remove the note, after the run's last change."""
    (prefix / META / _MARKER).unlink()


def _read_marker(prefix: Path) -> Unfinished | None:
    marker = prefix / META / _MARKER
    if not marker.is_file():
        return None
    lines = marker.read_text(encoding="utf-8", errors="replace").splitlines()
    requested = None
    for line in lines:
        if line.startswith(_MARKED_SPECS):
            with contextlib.suppress(ValueError, InvalidSpecError):
                requested = by_name(parse_specs(line.removeprefix(_MARKED_SPECS)))
    return Unfinished(packages=tuple(line for line in lines if not line.startswith("#")), requested=requested)
