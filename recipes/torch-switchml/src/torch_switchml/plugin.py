# SPDX-License-Identifier: BSD-3-Clause
"""The plugin's one object per process: it turns gloo backends into delegating ones.

It wraps ``ProcessGroup._register_backend`` because everything that makes a
group with gloo passes there with the real gloo in hand, after PyTorch's own
checks of its type, options and sequence numbers. Every registered gloo is
wrapped, so that allreduces of other groups are counted too, but only the
default group's opens a session: the switch serves one at a time.
"""

import atexit
import logging
import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

from torch_switchml import pytorch
from torch_switchml.agreement import Agreement, Report, Store
from torch_switchml.errors import SwitchMLError
from torch_switchml.report import build_report, write_report
from torch_switchml.settings import BACKEND_NAME, DEFAULT_SETTINGS, Settings, is_requested, read_settings
from torch_switchml.version import __version__

if TYPE_CHECKING:
    from torch_switchml import _C

logger = logging.getLogger(__name__)

# The bitmap of workers that the switch keeps per slot.
_MAX_WORKERS = 32
# What the library's configuration can hold.
_LONGEST_TIMEOUT_MS = 2**32 - 1
# Beyond the library's own limits: ranks come here out of gloo's rendezvous, so they are not far apart.
_MARGIN = timedelta(seconds=5)


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupPlace:
    """Where this process stands in a group, and the group's own time limit if it is known."""

    rank: int
    size: int
    timeout: timedelta | None


class Plugin:
    """What this process delegates. Made by :func:`torch_switchml.install`."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._settings: Settings | None = None
        self._counters: _C.Counters | None = None
        self._library: _C.Library | None = None
        self._session: _C.Session | None = None
        self._place: GroupPlace | None = None
        self._adopted: WeakKeyDictionary[object, _C.SwitchMLBackend] = WeakKeyDictionary()

    def install(self) -> None:
        """Hook into PyTorch, and close the session at exit; AttributeError where that cannot be done."""
        pytorch.hook_into_groups(self.adopt)
        pytorch.register_backend_name(BACKEND_NAME, self.create)
        atexit.register(self.close)

    def adopt(self, group: object, backend: object) -> "_C.SwitchMLBackend | None":
        """The delegating backend to stand before `backend` if that is gloo.

        Raises SwitchMLError on all ranks if the default group's session cannot be had on one.
        """
        if not is_requested(self._environ) or not pytorch.is_gloo(backend):
            return None
        if backend not in self._adopted:  # one gloo may be registered for several devices
            self._adopted[backend] = self._wrap(pytorch.store_of(group), backend, named=False)
        return self._adopted[backend]

    def create(self, store: object, rank: int, size: int, timeout: timedelta) -> "_C.SwitchMLBackend":
        """The backend of a group that is asked for by name, over a gloo of its own; raises as `adopt`."""
        if not is_requested(self._environ):
            raise SwitchMLError(
                f"the backend {BACKEND_NAME!r} needs SWITCHML_CONTROLLER, host[:port] of the controller, in the "
                "environment of every rank, and SWITCHML_ENABLE not 0"
            )
        gloo = pytorch.make_gloo(store, rank, size, timeout)
        return self._wrap(cast("Store", store), gloo, named=True)

    def close(self) -> None:
        """End the session, once what is pending is done, and write the report."""
        if self._session is not None:
            self._session.close()

    def report(self) -> dict[str, Any]:
        """What was delegated so far; see :func:`torch_switchml.stats`."""
        return build_report(
            settings=self._settings,
            place=self._place,
            counters=self._counters,
            library=self._library,
            session=self._session,
        )

    def _wrap(self, store: Store, backend: object, *, named: bool) -> "_C.SwitchMLBackend":
        from torch_switchml import _C

        session = None
        if not pytorch.has_default_group():  # else this is another group than the default one
            self.close()  # the one before, if PyTorch 2.5 or 2.6 left that to us
            self._place = place = _place_in(cast("pytorch.Backend", backend))
            self._session = session = self._open_together(store, place)
        return _C.SwitchMLBackend(
            inner=backend,
            counters=self._get_counters(),
            session=session,
            named=named,
            required=self._settings is not None and self._settings.require,
        )

    def _get_counters(self) -> "_C.Counters":
        from torch_switchml import _C

        if self._counters is None:
            self._counters = _C.Counters(on_first_collective=_say_left_to_gloo)
        return self._counters

    def _open_together(self, store: Store, place: GroupPlace) -> "_C.Session":
        agreement = Agreement.begin(store=store, rank=place.rank, size=place.size)
        report = self._try_load(place)
        settings = self._settings or DEFAULT_SETTINGS
        limit = timedelta(milliseconds=settings.connect_timeout_ms + settings.job_timeout_ms) + _MARGIN
        agreement.settle(stage="load", report=report, timeout=limit)
        job_name = agreement.share("job", _make_job_name(self._environ))
        session, report = self._try_open(settings, place, job_name)
        try:
            agreement.settle(stage="open", report=report, timeout=limit)
        except SwitchMLError:
            if session is not None:
                session.close()
            raise
        if session is None:
            raise AssertionError("settled although this rank has no session")
        return session

    def _try_load(self, place: GroupPlace) -> Report:
        if place.size > _MAX_WORKERS:
            return Report(error=f"the group has {place.size} ranks, a switch serves {_MAX_WORKERS}")
        try:
            from torch_switchml import _C

            self._settings = read_settings(self._environ)
            self._library = _C.Library.load(self._settings.library)
        except (ImportError, RuntimeError) as err:
            return Report(error=str(err))
        facts = {
            "the transport of libswitchml": self._library.transport,
            "the version of torch-switchml": __version__,
            **self._settings.common,
        }
        return Report(facts=facts)

    def _try_open(self, settings: Settings, place: GroupPlace, job_name: str) -> tuple["_C.Session | None", Report]:
        from torch_switchml import _C

        if self._library is None:
            raise AssertionError("settled although this rank has no library")
        try:
            session = _C.Session.open(
                library=self._library,
                counters=self._get_counters(),
                rank=place.rank,
                size=place.size,
                job_timeout_ms=_job_timeout_ms(settings, place),
                job_name=job_name,
                on_closed=self._write_report,
            )
        except RuntimeError as err:
            return None, Report(error=str(err))
        logger.info(
            "allreduces of the default group go through %s (%s, controller %s)",
            self._library.path,
            self._library.transport,
            settings.controller,
        )
        return session, Report()

    def _write_report(self) -> None:
        if self._settings is None or self._place is None:
            return
        path = self._settings.stats_path(self._place.rank)
        if path is None:
            return
        try:
            write_report(path, self.report())
        except OSError:  # the job's work is done: losing its report must not fail it
            logger.exception("cannot write SWITCHML_STATS_FILE %s", path)


def _say_left_to_gloo(collective: str) -> None:
    logger.info("SwitchML carries allreduces only: every %s of the default group is gloo's", collective)


def _place_in(backend: pytorch.Backend) -> GroupPlace:
    return GroupPlace(rank=backend.rank(), size=backend.size(), timeout=pytorch.group_timeout(backend))


def _make_job_name(environ: Mapping[str, str]) -> str:
    """What no other group's ranks take for their own, and people recognise in the switch's messages."""
    readable = environ.get("SWITCHML_JOB_NAME") or Path(sys.argv[0]).name or "python"
    return f"{readable}-{secrets.token_hex(4)}"


def _job_timeout_ms(settings: Settings, place: GroupPlace) -> int:
    """The environment's limit, else the group's own, else the library's default."""
    if settings.job_timeout_set or place.timeout is None:
        return settings.job_timeout_ms
    return min(max(1, round(place.timeout.total_seconds() * 1000)), _LONGEST_TIMEOUT_MS)
