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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from torch_switchml.agreement import Agreement, Report
from torch_switchml.errors import SwitchMLError
from torch_switchml.report import build_report, write_report
from torch_switchml.settings import Settings, read_settings
from torch_switchml.version import __version__

if TYPE_CHECKING:
    from torch_switchml import _C

logger = logging.getLogger(__name__)

# The bitmap of workers that the switch keeps per slot.
_MAX_WORKERS = 32
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
        self._adopted: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    def install(self) -> None:
        """Wrap ``ProcessGroup._register_backend`` and close the session at exit."""
        from torch._C._distributed_c10d import ProcessGroup

        original: Callable[..., None] = ProcessGroup._register_backend

        def _register_backend(
            group: Any, device: Any, backend_type: Any, backend: Any = None
        ) -> None:
            original(group, device, backend_type, self.adopt(group, backend))

        ProcessGroup._register_backend = _register_backend
        atexit.register(self.close)

    def adopt(self, group: Any, backend: Any) -> Any:
        """The backend to register in place of `backend`: a delegating one for gloo.

        Raises SwitchMLError on all ranks if the default group's session cannot be had on one.
        """
        if not _is_gloo(backend):
            return backend
        settings = read_settings(self._environ)
        if not settings.active:
            return backend
        if backend not in self._adopted:  # one gloo may be registered for several devices
            self._adopted[backend] = self._wrap(group, backend, settings)
        return self._adopted[backend]

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

    def _wrap(self, group: Any, backend: Any, settings: Settings) -> Any:
        import torch.distributed

        if torch.distributed.is_initialized():  # the default group exists: this is another
            return self._make_backend(backend, session=None)
        self.close()  # of the default group before, if PyTorch 2.5 or 2.6 left it to us
        self._settings = settings
        self._place = GroupPlace(
            rank=backend.rank(), size=backend.size(), timeout=_group_timeout(backend)
        )
        self._session = self._open_together(group, settings, self._place)
        return self._make_backend(backend, session=self._session)

    def _make_backend(self, backend: Any, *, session: "_C.Session | None") -> Any:
        from torch_switchml import _C

        if self._counters is None:
            self._counters = _C.Counters()
        return _C.SwitchMLBackend(inner=backend, counters=self._counters, session=session)

    def _open_together(self, group: Any, settings: Settings, place: GroupPlace) -> "_C.Session":
        agreement = Agreement.begin(store=_store_of(group), rank=place.rank, size=place.size)
        limit = timedelta(milliseconds=settings.connect_timeout_ms + settings.job_timeout_ms) + _MARGIN
        agreement.settle(stage="load", report=self._try_load(settings, place), timeout=limit)
        session, report = self._try_open(settings, place)
        try:
            agreement.settle(stage="open", report=report, timeout=limit)
        except SwitchMLError:
            if session is not None:
                session.close()
            raise
        if session is None:
            raise AssertionError("settled although this rank has no session")
        return session

    def _try_load(self, settings: Settings, place: GroupPlace) -> Report:
        if place.size > _MAX_WORKERS:
            return Report(error=f"the group has {place.size} ranks, a switch serves {_MAX_WORKERS}")
        try:
            from torch_switchml import _C

            self._library = _C.Library.load(settings.library)
        except (ImportError, RuntimeError) as err:
            return Report(error=str(err))
        facts = {
            "the transport of libswitchml": self._library.transport,
            "the version of torch-switchml": __version__,
            **settings.common,
        }
        return Report(facts=facts)

    def _try_open(
        self, settings: Settings, place: GroupPlace
    ) -> tuple["_C.Session | None", Report]:
        from torch_switchml import _C

        if self._library is None:
            raise AssertionError("settled although this rank has no library")
        self._counters = self._counters or _C.Counters()
        try:
            session = _C.Session.open(
                library=self._library,
                counters=self._counters,
                rank=place.rank,
                size=place.size,
                job_timeout_ms=_job_timeout_ms(settings, place),
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
        except OSError as err:  # the job's work is done: losing its report must not fail it
            logger.error("cannot write SWITCHML_STATS_FILE %s: %s", path, err)


def _is_gloo(backend: Any) -> bool:
    from torch._C import _distributed_c10d as c10d

    if isinstance(backend, c10d._ProcessGroupWrapper):  # TORCH_DISTRIBUTED_DEBUG=DETAIL
        backend = backend.wrapped_pg
    return isinstance(backend, c10d.ProcessGroupGloo)


def _store_of(group: Any) -> Any:
    if hasattr(group, "get_group_store"):
        return group.get_group_store()
    from torch_switchml import _C  # PyTorch 2.5 to 2.8

    return _C.group_store(group)


def _group_timeout(backend: Any) -> timedelta | None:
    timeout = getattr(getattr(backend, "options", None), "_timeout", None)
    return timeout if isinstance(timeout, timedelta) else None


def _job_timeout_ms(settings: Settings, place: GroupPlace) -> int:
    """The environment's limit, else the library's default or the group's own if that is shorter."""
    if settings.job_timeout_set or place.timeout is None:
        return settings.job_timeout_ms
    return max(1, min(settings.job_timeout_ms, round(place.timeout.total_seconds() * 1000)))
