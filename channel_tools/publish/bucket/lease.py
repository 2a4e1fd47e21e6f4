# SPDX-License-Identifier: BSD-3-Clause
"""One writer at a time in a store without locks: a small object that is only changed by conditional writes.

Its holder renews it. Another writer takes it over if it was not renewed for the time that its holder announced, by the
store's clock, or if its holder was a process of this machine that has ended. That keeps writers out of each other's
way; the channel's integrity does not depend on it: whatever matters is written only if nobody else has written it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
import threading
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from channel_tools.conda.repodata import encode_json
from channel_tools.publish.store import NO_CONDITIONS_HINT, Served
from channel_tools.system.document import decode_json
from channel_tools.system.errors import ChannelError, ChannelToolsError
from channel_tools.system.kernel import stat_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from channel_tools.publish.store import Store
    from channel_tools.system.progress import Progress

LEASE_SCHEMA = 1
DEFAULT_LEASE_S = 60.0
DEFAULT_WAIT_S = 90.0
_RENEWALS_PER_LEASE = 4
_FIRST_POLL_S, _LAST_POLL_S = 0.05, 1.0
_ATTEMPTS = 10
_CLOCK_STEP_S = 1.0
"""HTTP dates are in whole seconds."""
_SERVED = Served(content_type="application/json")


@dataclass(frozen=True, kw_only=True, slots=True)
class Owner:
    """The holder of the lease; ``machine`` identifies this boot of this system, empty if unknown."""

    token: str
    host: str
    process: int
    machine: str = ""
    started: str = ""

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}"

    def has_ended(self) -> bool:
        """Whether this was a process of this machine that has ended; False if that is unknown."""
        return bool(self.machine) and self.machine == _machine() and _start_of(self.process) != self.started


@dataclass(frozen=True, kw_only=True, slots=True)
class Incoming:
    """A package that a writer started to publish: its sha256, and when (epoch seconds)."""

    sha256: str
    since_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseRecord:
    """The object's content; ``beat`` changes with every renewal.

    ``incoming`` are the packages, by key, that were started and are not committed, ``unfinished`` the labels whose
    indexes may differ from what was committed.
    """

    schema: int = LEASE_SCHEMA
    owner: Owner | None = None
    lease_s: float = DEFAULT_LEASE_S
    beat: int = 0
    incoming: dict[str, Incoming] = field(default_factory=dict)
    unfinished: tuple[str, ...] = ()


class Lease:
    """The lease, while this process holds it."""

    def __init__(self, store: Store, key: str, record: LeaseRecord, etag: str) -> None:
        self._store, self._key = store, key
        self._record, self._etag = record, etag
        self._renewed_s = _now_s()
        self._lost = False
        self._mutex = threading.Lock()
        self._ended = threading.Event()

    @property
    def incoming(self) -> Mapping[str, Incoming]:
        """The packages that were started and are not committed, by key."""
        return self._record.incoming

    @property
    def unfinished(self) -> tuple[str, ...]:
        """The labels that a writer started to change and did not finish."""
        return self._record.unfinished

    @property
    def token(self) -> str:
        """An identifier of this holding of the lease."""
        return "" if self._record.owner is None else self._record.owner.token

    def check(self) -> None:
        """Raise ChannelError if another writer may have taken the lease over."""
        if self._lost or _now_s() - self._renewed_s >= self._record.lease_s:
            message = f"{self._store.url(self._key)}: another writer took over while this one was delayed"
            raise ChannelError(message, hint="run the same command again: what was sent is kept")

    def announce(self, *, incoming: Mapping[str, Incoming], unfinished: Iterable[str]) -> None:
        """Record what is about to be changed or still has to be finished, for the next writer."""
        self._write(incoming=dict(incoming), unfinished=tuple(sorted(unfinished)))
        self.check()

    def keep(self) -> None:
        """Renew until released; runs in its own thread."""
        while not self._ended.wait(self._record.lease_s / _RENEWALS_PER_LEASE):
            # an unreachable server is tried again at the next beat; check() reports if that lasts too long
            with contextlib.suppress(ChannelToolsError):
                self._write()

    def release(self) -> None:
        """Let the next writer start at once; if the server cannot be reached, the lease expires by itself.

        Threads that an interrupt left behind fail at their next check.
        """
        self._ended.set()
        with contextlib.suppress(ChannelToolsError):
            self._write(owner=None)
        self._lost = True

    def require_conditions(self) -> None:
        """Raise ChannelError if the server accepts writes whose condition is not met."""
        body = encode_json(self._record)
        for replaces in (None, '"00000000000000000000000000000000"'):
            if self._store.put(self._key, body, served=_SERVED, replaces=replaces) is not None:
                message = f"{self._store.name}: the server ignores the conditions of conditional writes"
                raise ChannelError(message, hint=NO_CONDITIONS_HINT)

    def _write(self, **changes: dict[str, Incoming] | tuple[str, ...] | None) -> None:
        with self._mutex:
            if self._lost:
                return
            record = dataclasses.replace(self._record, **changes, beat=self._record.beat + 1)  # type: ignore[arg-type]
            asked_s = _now_s()
            etag = _put(self._store, self._key, record, self._etag)
            if etag is None:
                self._lost = True
                return
            self._record, self._etag, self._renewed_s = record, etag, asked_s


@contextlib.contextmanager
def hold_lease(
    store: Store,
    key: str,
    *,
    progress: Progress,
    lease_s: float = DEFAULT_LEASE_S,
    wait_s: float = DEFAULT_WAIT_S,
) -> Iterator[Lease]:
    """Hold the lease ``key`` while the block runs, after waiting at most ``wait_s`` for another writer to finish.

    Raises ChannelError if another writer holds it for longer, and if the store ignores the conditions of writes or
    rejects every write.
    """
    lease = _acquire(store, key, progress=progress, lease_s=lease_s, wait_s=wait_s)
    renewing = threading.Thread(target=lease.keep, name="lease", daemon=True)
    try:
        lease.require_conditions()
        renewing.start()
        yield lease
    finally:
        lease.release()


def _acquire(store: Store, key: str, *, progress: Progress, lease_s: float, wait_s: float) -> Lease:
    give_up_s = _now_s() + wait_s
    poll_s = 0.0
    rejected = 0
    while True:
        stored = read_lease(store, key)
        holder = None if stored is None else stored[0].owner
        if stored is None or holder is None or holder.has_ended() or stored[2] > stored[0].lease_s + _CLOCK_STEP_S:
            before = LeaseRecord() if stored is None else stored[0]
            record = dataclasses.replace(before, owner=_myself(), lease_s=lease_s, beat=before.beat + 1)
            etag = _put(store, key, record, None if stored is None else stored[1])
            if etag is not None:
                return Lease(store, key, record, etag)
            rejected += 1
            if rejected == _ATTEMPTS:
                message = f"{store.url(key)}: {rejected} writes in a row were rejected, though nobody else is writing"
                raise ChannelError(message, hint=NO_CONDITIONS_HINT)
        elif _now_s() >= give_up_s:
            message = f"{store.url(key)}: {holder} is writing to this channel; only one writer at a time is allowed"
            raise ChannelError(message, hint="wait until it has finished, then run the same command again")
        else:
            if not poll_s:
                progress.note(f"waiting for {holder}, which is writing to this channel")
            poll_s = min(max(2 * poll_s, _FIRST_POLL_S), _LAST_POLL_S)
            time.sleep(poll_s)
            rejected = 0


def read_lease(store: Store, key: str) -> tuple[LeaseRecord, str, float] | None:
    """The record, its ETag and its age by the server's clock; None before the first writer."""
    stored = store.get(key)
    if stored is None:
        return None
    body, head = stored
    try:
        record = decode_json(body, LeaseRecord)
    except msgspec.DecodeError:
        record = LeaseRecord()
    if record.schema != LEASE_SCHEMA:
        message = (
            f"{store.url(key)}: has schema {record.schema}; this version of channel_tools reads schema {LEASE_SCHEMA}"
        )
        raise ChannelError(message, hint="use the version of channel_tools that last wrote to the channel")
    return record, head.etag, head.age_s


def _put(store: Store, key: str, record: LeaseRecord, replaces: str | None) -> str | None:
    """Write the record; a write whose response was lost is recognised when it is tried again."""
    etag = store.put(key, encode_json(record), served=_SERVED, replaces=replaces)
    if etag is not None:
        return etag
    stored = read_lease(store, key)
    mine = stored is not None and record.owner is not None and stored[0] == record
    return stored[1] if stored is not None and mine else None


def _now_s() -> float:
    """A clock that also runs while the machine sleeps, if the system has one."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def _myself() -> Owner:
    process = os.getpid()
    return Owner(
        token=uuid.uuid4().hex,
        host=socket.gethostname(),
        process=process,
        machine=_machine(),
        started=_start_of(process),
    )


def _machine() -> str:
    """Identifies this boot and process namespace, within which process numbers are comparable; empty if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _start_of(process: int) -> str:
    """When a process started, as the kernel gives it; empty if there is no such process."""
    try:
        fields = stat_fields(process)
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]
