# SPDX-License-Identifier: BSD-3-Clause
"""The plugin's one object per process: it turns gloo backends into delegating ones.

It wraps ``ProcessGroup._register_backend`` because everything that makes a
group with gloo passes there with the real gloo in hand, after PyTorch's own
checks of its type, options and sequence numbers. Every registered gloo is
wrapped, so that allreduces of other groups are counted too. The default group
has a session; other groups of all ranks have one each where that is asked for.
"""

import atexit
import json
import logging
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

from torch_switchml import pytorch
from torch_switchml.agreement import Agreement, Report, Store, Vote
from torch_switchml.errors import MissingControllerError, SwitchMLError
from torch_switchml.hosts import Hosts, settle_hosts
from torch_switchml.membership import GroupMembership
from torch_switchml.report import build_report, write_report
from torch_switchml.settings import (
    BACKEND_NAMES,
    DEFAULT_SETTINGS,
    UNNAMED_CONTROLLER,
    Settings,
    Transport,
    is_enabled,
    is_requested,
    library_name,
    read_settings,
)
from torch_switchml.unused import left_to_gloo_line, unused_line
from torch_switchml.version import __version__
from torch_switchml.watch import Watch, watch_session

if TYPE_CHECKING:
    from torch_switchml import _C

logger = logging.getLogger(__name__)

# The bitmap of workers that the switch keeps per slot.
_MAX_WORKERS = 32
# A switch serves as many at most (`--max-sessions` of switchml-switch).
_MOST_SESSIONS = 64
# The longest that libswitchml takes.
_LONGEST_TIMEOUT_MS = 24 * 3600 * 1000
# Beyond the library's own limits: ranks come here out of gloo's rendezvous, so they are not far apart.
_MARGIN = timedelta(seconds=5)


class Plugin:
    """What this process delegates. Made by :func:`torch_switchml.install`."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._settings: Settings | None = None
        self._transport = Transport()
        self._counters: _C.Counters | None = None
        self._library: _C.Library | None = None
        self._membership: GroupMembership | None = None  # in the default group, as those below
        self._hosts: Hosts | None = None
        self._sessions: list[_C.Session] = []  # its own, and those of groups made beside it
        self._watches: list[Watch] = []
        self._groups_beside = 0
        self._refused_groups = 0
        self._names_in_use = False
        self._serves_unasked = False  # the default group's ranks reduce in memory though nothing asks for it
        self._session_of: WeakKeyDictionary[object, _C.Session | None] = WeakKeyDictionary()
        self._votes: WeakKeyDictionary[object, Vote] = WeakKeyDictionary()
        self._adopted: WeakKeyDictionary[object, _C.SwitchMLBackend] = WeakKeyDictionary()

    def install(self) -> None:
        """Hook into PyTorch, and close the session at exit; AttributeError where that cannot be done."""
        pytorch.hook_into_groups(self.begin, self.adopt)
        for name in BACKEND_NAMES:
            pytorch.register_backend_name(name, self.create)
        atexit.register(self.close)

    def begin(self, group: pytorch.Group) -> None:
        """Let the other ranks know, before any of them has its gloo, that this one votes on what nothing asks for."""
        if group.size() == 1 or not is_enabled(self._environ) or is_requested(self._environ):
            return
        if not pytorch.has_default_group():
            with suppress(ImportError, RuntimeError):  # no store, as in a group over MPI, or no compiled part to get it
                self._votes[group] = Vote.begin(store=pytorch.store_of(group), rank=group.rank(), size=group.size())

    def adopt(self, group: object, backend: object) -> "_C.SwitchMLBackend | None":
        """The delegating backend to stand before `backend` if that is gloo.

        Raises SwitchMLError on all ranks if the default group's session cannot be had on one. Where nothing asks for
        SwitchML, it is None on all ranks then.
        """
        if not is_enabled(self._environ):
            return None
        if self._is_named(pytorch.unwrapped(backend)):
            self._attach(group, cast("_C.SwitchMLBackend", pytorch.unwrapped(backend)))
            return None
        if not pytorch.is_gloo(backend):
            return None
        is_unasked = not is_requested(self._environ)
        if is_unasked and pytorch.has_default_group() and not self._serves_unasked:
            return None
        if backend not in self._adopted:  # one gloo may be registered for several devices
            # before the compiled part is loaded, whose absence on this rank all ranks are to hear of
            self._give_session(group, cast("pytorch.Backend", pytorch.unwrapped(backend)), is_unasked=is_unasked)
            if is_unasked and not self._serves_unasked:
                return None
            self._adopted[backend] = self._wrap(backend, named=False)
            self._attach(group, self._adopted[backend])
        return self._adopted[backend]

    def create(self, store: object, rank: int, size: int, timeout: timedelta) -> "_C.SwitchMLBackend":
        """The backend of a group that is asked for by name, over a gloo of its own; SwitchMLError where none can be.

        It gets its session when it is registered with the group.
        """
        if not is_enabled(self._environ):
            raise SwitchMLError("SWITCHML_ENABLE is 0, and the script asks for the backend of SwitchML: unset it")
        gloo = pytorch.make_gloo(store, rank, size, timeout)
        self._names_in_use = True
        return self._wrap(gloo, named=True)

    def close(self) -> None:
        """End the sessions, once what is pending is done, and write the report; warn where nothing was carried.

        That is, where something asked for SwitchML.
        """
        for session in self._sessions:
            session.close()
        for watch in self._watches:
            watch.end()
        self._watches.clear()
        is_asked = bool(self._sessions) and not self._serves_unasked  # without a session, an error said why
        if is_asked and (line := unused_line(self.report())) is not None:
            logger.warning("%s", line)

    def report(self) -> dict[str, Any]:
        """What was delegated so far; see :func:`torch_switchml.stats`."""
        return build_report(
            settings=self._settings,
            membership=self._membership,
            hosts=self._hosts,
            counters=self._counters,
            library=self._library,
            sessions=self._sessions,
            refused_groups=self._refused_groups,
        )

    def collectives(self) -> list[dict[str, Any]]:
        """See :func:`torch_switchml.collectives`."""
        sessions = [(group, session) for group, session in list(self._session_of.items()) if session is not None]
        return [{"by": "SwitchML", "group": pytorch.name_of(group), **session.calls()} for group, session in sessions]

    def _wrap(self, gloo: object, *, named: bool) -> "_C.SwitchMLBackend":
        from torch_switchml import _C

        return _C.SwitchMLBackend(inner=gloo, counters=self._get_counters(), named=named)

    def _is_named(self, backend: object) -> bool:
        if not self._names_in_use:  # the compiled part need not be there yet
            return False
        from torch_switchml import _C

        return isinstance(backend, _C.SwitchMLBackend)

    def _attach(self, group: object, backend: "_C.SwitchMLBackend") -> None:
        """Give it the session of its group."""
        self._give_session(group, cast("pytorch.Backend", backend))
        required = self._settings is not None and self._settings.require
        backend.attach(session=self._session_of[group], required=required)

    def _give_session(self, group: object, backend: pytorch.Backend, *, is_unasked: bool = False) -> None:
        """Have the group a session, or none, which its backends of several devices share."""
        if group not in self._session_of:
            self._session_of[group] = self._open_session(group, backend, is_unasked=is_unasked)

    def _open_session(self, group: object, backend: pytorch.Backend, *, is_unasked: bool) -> "_C.Session | None":
        """The default group's, or where that is asked for one of another group's own; None for other groups."""
        session: _C.Session | None
        membership = _membership_in(backend)
        if not pytorch.has_default_group():
            self.close()  # those before, if PyTorch 2.5 or 2.6 left that to us
            self._sessions, self._groups_beside, self._refused_groups = [], 0, 0
            self._membership = membership
            if is_unasked:
                session = self._open_unasked(group, membership, self._watch(backend, survives=True))
            else:
                watch = self._watch(backend, survives=False)
                session = self._open_together(pytorch.store_of(group), membership, watch)
            self._serves_unasked = is_unasked and session is not None
        elif self._serves_beside(membership):
            watch = self._watch(backend, survives=True)
            session = self._open_beside(pytorch.store_of(group), membership, watch)
        else:
            return None
        if session is not None:
            self._sessions.append(session)
        return session

    def _serves_beside(self, membership: GroupMembership) -> bool:
        """Whether it is a group of all ranks, and such groups are to have sessions; the same on all ranks."""
        return (
            self._settings is not None
            and self._settings.new_groups
            and self._membership is not None
            and self._membership.size == membership.size
        )

    def _get_counters(self) -> "_C.Counters":
        from torch_switchml import _C

        if self._counters is None:
            self._counters = _C.Counters(on_first_collective=_say_left_to_gloo)
        return self._counters

    def _watch(self, gloo: pytorch.Backend, *, survives: bool) -> Watch:
        """Of the ranks of its group; kept, since a rank that is slow says last that it has come to the end."""
        watch = Watch(gloo, survives=survives)
        self._watches.append(watch)
        return watch

    def _open_together(self, store: Store, membership: GroupMembership, watch: Watch) -> "_C.Session":
        with watch, self._join(store, membership, watch) as agreement:
            report = self._try_load()
            self._settle(agreement, stage="load", report=report, timeout=_opening_limit(self._transport))
            return self._open(agreement, membership, worker_port=0)

    def _open_unasked(self, group: object, membership: GroupMembership, watch: Watch) -> "_C.Session | None":
        """That of ranks of one host, which need no switch; None on all ranks where one of them cannot have it.

        Nothing asks for it, so it may not fail, and a rank without the plugin is not waited for. Rank 0 says why there
        is none.
        """
        if membership.size == 1:
            return None
        session, reason = None, "a rank has no torch-switchml that could share memory with it, or did not come"
        vote = self._votes.pop(group, None)
        try:
            store = pytorch.store_of(group)  # which may load the compiled part; a group of one rank does without
            if vote is None:
                vote = Vote.begin(store=store, rank=membership.rank, size=membership.size)
            if vote.is_unanimous("come", ready=True, timeout=vote.limit(membership.timeout)):
                try:
                    session = self._open_together(store, membership, watch)
                except SwitchMLError as err:
                    reason = err.reason
                else:
                    reason = "a rank could not open its session"
                if not vote.is_unanimous(
                    "opened", ready=session is not None, timeout=_opening_limit(self._transport)
                ) and (session is not None):
                    session.close()
                    session = None
        except (ImportError, RuntimeError) as err:  # no compiled part, or the store has ended, and with it the group
            reason = str(err)
        if session is None and membership.rank == 0:
            logger.warning("%s", left_to_gloo_line(membership.size, reason))
        return session

    @contextmanager
    def _join(self, store: Store, membership: GroupMembership, watch: Watch) -> Iterator[Agreement]:
        """The agreement of the group's ranks, which hear from it what else ends this rank's part in it."""
        agreement = Agreement.begin(
            store=store, rank=membership.rank, size=membership.size, find_ended=watch.find_ended
        )
        with agreement.announced():
            watch.begin()  # loads the compiled part, which may take longer than others wait for a rank to begin
            yield agreement

    def _open_beside(self, store: Store, membership: GroupMembership, watch: Watch) -> "_C.Session | None":
        """A session of the group's own; None on all ranks where one was refused it, unless that is an error."""
        self._groups_beside += 1
        settings = self._settings or DEFAULT_SETTINGS
        number = 1 + (self._groups_beside - 1) % (_MOST_SESSIONS - 1)
        try:
            # the switch knows a worker by its address and port
            first = self._transport.worker_port
            with watch, self._join(store, membership, watch) as agreement:
                return self._open(agreement, membership, worker_port=first + number * self._transport.num_threads)
        except SwitchMLError as err:
            if settings.require or not err.unanimous:
                raise
            self._refused_groups += 1
            logger.log(
                logging.WARNING if membership.rank == 0 else logging.INFO,
                "allreduces of a group of all ranks stay with gloo: %s",
                err,
            )
            return None

    def _open(self, agreement: Agreement, membership: GroupMembership, *, worker_port: int) -> "_C.Session":
        limit = _opening_limit(self._transport)
        settings = self._settings or DEFAULT_SETTINGS
        hosts = _settle_workers(settings, agreement, limit)
        if not settings.controller and not hosts.hold_all_in_memory:
            raise MissingControllerError(_why_not_in_memory(settings, hosts))
        for refusal in hosts.refusals:
            logger.warning("%s", refusal)
        if worker_port == 0:
            self._hosts = hosts
        job_name = agreement.share("job", _make_job_name(self._environ), timeout=limit)
        deadline = time.monotonic() + limit.total_seconds()
        ending = ExitStack()  # what is to be done once the session has closed
        ending.callback(self._write_report)
        has_failed = partial(_ends_wait, agreement, deadline)
        session, report = self._try_open(membership, hosts, job_name, worker_port, has_failed, ending.close)
        if session is None and report.error is None:
            agreement.raise_announced()
        if session is None and report.error is None and time.monotonic() > deadline:
            reason = "a rank did not come to open it, or this process has too little memory for it (ulimit -v)"
            report = Report(error=f"the session did not open within {limit.total_seconds():g} s: {reason}")
        try:
            # a rank that fails has the others end their wait at once
            self._settle(agreement, stage="open", report=report, timeout=limit if session is not None else _MARGIN)
            # in memory, the ranks of a host tell each other which of them live
            watch = None
            if not hosts.hold_all_in_memory and not self._sends_nothing():
                watch = watch_session(agreement, settings.controller, timeout=limit)
        except SwitchMLError:
            if session is not None:
                session.close()
            raise
        if session is None:
            raise AssertionError("settled although this rank has no session")
        if watch is not None:
            ending.callback(watch.close)
            watch.start(session.end_for_lost_rank)
        return session

    def _sends_nothing(self) -> bool:
        """Whether the transport is the one that multiplies instead: no rank waits for another."""
        return self._library is not None and json.loads(self._library.describe())["transport"] == "dummy"

    def _settle(self, agreement: Agreement, *, stage: str, report: Report, timeout: timedelta) -> None:
        compare = self._library.compare_reports if self._library is not None else None
        agreement.settle(stage=stage, report=report, timeout=timeout, compare=compare)

    def _try_load(self) -> Report:
        try:
            from torch_switchml import _C

            self._library = _C.Library.load(library_name(self._environ))  # first: it compares what the ranks say
            self._settings = read_settings(self._environ)
            self._transport = Transport(**self._library.resolve(self._settings.controller or UNNAMED_CONTROLLER))
        except (ImportError, RuntimeError) as err:
            return Report(error=str(err))
        facts = {
            "the version of torch-switchml": __version__,
            **self._settings.common,
            **self._transport.common,
        }
        return Report(facts=facts)

    def _try_open(
        self,
        membership: GroupMembership,
        hosts: Hosts,
        job_name: str,
        worker_port: int,
        has_failed: Callable[[], bool],
        on_closed: Callable[[], None],
    ) -> tuple["_C.Session | None", Report]:
        from torch_switchml import _C

        settings = self._settings or DEFAULT_SETTINGS
        if self._library is None:
            raise AssertionError("settled although this rank has no library")
        try:
            session = _C.Session.open(
                library=self._library,
                counters=self._get_counters(),
                rank=membership.rank,
                size=membership.size,
                job_timeout_ms=_job_timeout_ms(settings, self._transport, membership),
                job_name=job_name,
                worker_port=worker_port,
                worker=hosts.worker_led_by(membership.rank),
                num_workers=len(hosts.workers),
                board=hosts.board_of(membership.rank),
                wire_ranks=hosts.wire_ranks(),
                has_failed=has_failed,
                on_closed=on_closed,
            )
        except RuntimeError as err:
            return None, Report(error=str(err))
        if session is None:  # another rank failed, and says why, or does not come
            return None, Report()
        group = "the default group" if worker_port == 0 else "a group of all ranks"
        if hosts.hold_all_in_memory:
            logger.info("allreduces of %s stay in the memory of this host, where all its ranks are", group)
        else:
            library = json.loads(self._library.describe())
            logger.info(
                "allreduces of %s go through %s (%s, controller %s), its ranks as %d workers",
                group,
                library["path"],
                library["transport"],
                settings.controller,
                hosts.num_on_wire,
            )
        return session, Report()

    def _write_report(self) -> None:
        if self._settings is None or self._membership is None:
            return
        path = self._settings.stats_path(self._membership.rank)
        if path is None:
            return
        try:
            write_report(path, self.report())
        except OSError:  # the job's work is done: losing its report must not fail it
            logger.exception("cannot write SWITCHML_STATS_FILE %s", path)


def _say_left_to_gloo(collective: str) -> None:
    logger.info("SwitchML carries allreduces only: every %s of the default group is gloo's", collective)


def _membership_in(backend: pytorch.Backend) -> GroupMembership:
    return GroupMembership(rank=backend.rank(), size=backend.size(), timeout=pytorch.group_timeout(backend))


def _ends_wait(agreement: Agreement, deadline: float) -> bool:
    """Whether to wait no longer in the library: a rank failed, or one that ended without a word does not come."""
    return time.monotonic() > deadline or agreement.has_failed("open")


def _opening_limit(transport: Transport) -> timedelta:
    """How long the ranks wait for each other while they open a session."""
    return timedelta(milliseconds=transport.connect_timeout_ms + transport.job_timeout_ms) + _MARGIN


def _settle_workers(settings: Settings, agreement: Agreement, timeout: timedelta) -> Hosts:
    """How the group's ranks stand on the wire; SwitchMLError, on all ranks, where those are too many."""
    if settings.host_reduction and agreement.size > 1:
        hosts = settle_hosts(agreement, name=settings.host, timeout=timeout)
    else:
        hosts = Hosts.of_single_ranks(agreement.size)
    if hosts.num_on_wire > _MAX_WORKERS:
        raise SwitchMLError(
            f"the group's {agreement.size} ranks would be {hosts.num_on_wire} workers, a switch serves {_MAX_WORKERS}",
            unanimous=True,
        )
    return hosts


def _why_not_in_memory(settings: Settings, hosts: Hosts) -> str:
    num_ranks = sum(map(len, hosts.workers))
    if num_ranks == 1:
        return "the group has one rank"
    if not settings.host_reduction:
        return "SWITCHML_HOST_REDUCTION is off"
    if hosts.refusals:
        return "its ranks cannot share the memory of their host: " + "; ".join(hosts.refusals)
    return f"its {num_ranks} ranks are on {len(hosts.workers)} hosts, or in as many containers that share no memory"


def _make_job_name(environ: Mapping[str, str]) -> str:
    """What no other group's ranks take for their own, and people recognise in the switch's messages."""
    readable = environ.get("SWITCHML_JOB_NAME") or Path(sys.argv[0]).name or "python"
    return f"{readable}-{secrets.token_hex(4)}"


def _job_timeout_ms(settings: Settings, transport: Transport, membership: GroupMembership) -> int:
    """The environment's limit, else the group's own, else the library's default."""
    if settings.job_timeout_set or membership.timeout is None:
        return transport.job_timeout_ms
    return min(max(1, round(membership.timeout.total_seconds() * 1000)), _LONGEST_TIMEOUT_MS)
