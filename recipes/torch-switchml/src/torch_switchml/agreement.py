# SPDX-License-Identifier: BSD-3-Clause
"""All ranks or none: what each rank could set up, settled through the group's store.

The store, not a gloo collective: a rank without the plugin would answer a
collective with its next one of its own, while its missing key says plainly
which rank it is. Keys carry a generation, since a store may outlive a group.
What the ranks say is compared by libswitchml, for all integrations alike. A
rank that ends without a word is found by the rank that watches its process,
which announces it to the others.
"""

import logging
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

from torch_switchml.errors import ASKED, SwitchMLError

logger = logging.getLogger(__name__)

# Between two looks into the store: short at first, for the ranks come together; Python handles signals in between.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.001, 0.05
# How long the ranks wait, once something failed, for the slowest to have read why.
_FAREWELL_TIMEOUT = timedelta(seconds=5)
# Ranks come to the settling out of gloo's rendezvous, which ends on all of them together, and begin before they load
# anything: one that has not begun by then has no plugin, or nothing that asks for it. All are to know within 5 s.
_BEGINNING_TIMEOUT = timedelta(seconds=3)

# How long ranks that nothing asked to use SwitchML look whether all of them have begun a vote. They do before gloo's
# rendezvous, which ends on none of them before that: only where gloo meets later (TORCH_GLOO_LAZY_INIT) may one come.
_UNASKED_TIMEOUT = timedelta(seconds=1)
# How long they then wait for each other in a group that does not tell its own limit, which is PyTorch's.
_GROUP_TIMEOUT = timedelta(minutes=30)

# The same once one is found to have ended: those that settled before that do not read it.
_FAREWELL_OF_ENDED_TIMEOUT = timedelta(seconds=2)
# How long the watch is asked who has gone where the store has, or where a rank does not begin: a connection may be
# found closed before another is, and a rank whose first seconds were slow has only just begun to watch.
_NAMING_TIMEOUT = timedelta(seconds=0.5)


Compare = Callable[[list[str | None], int], str]
"""Why ranks with these reports (None: none within so many milliseconds) cannot go on together; "" where they can."""


Find = Callable[[], tuple[int, str] | None]
"""The rank whose process is found to have ended, and by what; None while none is."""


def _find_none() -> None:
    """Of ranks that nobody watches."""


class Store(Protocol):
    """The part of torch.distributed.Store that is used here."""

    def set(self, key: str, value: str, /) -> None:
        """Set a key."""

    def get(self, key: str, /) -> bytes:
        """The value of a key, once it has one."""

    def add(self, key: str, amount: int, /) -> int:
        """Add to a number, 0 at first; its new value."""

    def check(self, keys: list[str], /) -> bool:
        """Whether all the keys have a value."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Vote:
    """Whether all ranks of a group do something, for which each has to be ready: yes or no, the same on all of them.

    Unlike an Agreement, it waits for nobody who has not begun it: the first rank to know the answer gives it, a rank
    that waited in vain with no. What comes later finds the answer there.
    """

    store: Store
    rank: int
    size: int
    generation: int

    @classmethod
    def begin(cls, *, store: Store, rank: int, size: int) -> "Vote":
        """For the group made next, before its gloo. RuntimeError where the store has ended, as from all functions."""
        generation = store.add(f"switchml/unasked/{rank}", 1)
        store.add(f"switchml/unasked/{generation}/begun", 1)
        return cls(store=store, rank=rank, size=size, generation=generation)

    def limit(self, group_limit: timedelta | None, *, brief: timedelta = _UNASKED_TIMEOUT) -> timedelta:
        """How long to wait for the others: as long as their group does, and not at all if one has not begun to vote.

        That one has no plugin, or nothing for which it would vote, and never comes.
        """
        begun = f"switchml/unasked/{self.generation}/begun"
        if _wait_briefly(lambda: self.store.add(begun, 0) >= self.size, brief):
            return group_limit or _GROUP_TIMEOUT
        return timedelta(0)

    def is_unanimous(self, stage: str, *, ready: bool, timeout: timedelta) -> bool:
        """Whether every rank has come to the stage and is ready; a rank that has not come by `timeout` is not."""
        prefix = f"switchml/unasked/{self.generation}/{stage}"
        answer = f"{prefix}/answer"
        if not ready:
            self._give(prefix, answer, "no")
        elif self.store.add(f"{prefix}/ready", 1) == self.size:
            self._give(prefix, answer, "yes")
        elif not _wait_briefly(lambda: self.store.check([answer]), timeout):
            self._give(prefix, answer, "no")
        return self.store.get(answer) == b"yes"

    def _give(self, prefix: str, answer: str, value: str) -> None:
        if self.store.add(f"{prefix}/answers", 1) == 1:
            self.store.set(answer, value)


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What one rank came to: its error if any, and what must be the same everywhere."""

    error: str | None = None
    facts: dict[str, str] = field(default_factory=dict)

    def text(self) -> str:
        """As switchml_compare_reports takes it."""
        lines = [
            _on_one_line(self.error or ""),
            *(f"{name}\t{_on_one_line(value)}" for name, value in self.facts.items()),
        ]
        return "\n".join(lines)


@dataclass(frozen=True, kw_only=True, slots=True)
class Agreement:
    """One rank's part in settling the stages of one group's set-up."""

    store: Store
    rank: int
    size: int
    generation: int
    beginning_timeout: timedelta = _BEGINNING_TIMEOUT
    find_ended: Find = _find_none
    began: float = field(default_factory=time.monotonic)

    @classmethod
    def begin(
        cls,
        *,
        store: Store,
        rank: int,
        size: int,
        beginning_timeout: timedelta = _BEGINNING_TIMEOUT,
        find_ended: Find = _find_none,
    ) -> "Agreement":
        """Join the settling of the group made next; each rank's count of them is its generation.

        A rank that has not joined within `beginning_timeout` is not waited for any longer, nor one that `find_ended`
        names. SwitchMLError where the store has ended.
        """
        with _ends_of_the_store(find_ended):
            generation = store.add(_generation_key(rank), 1)
        return cls(
            store=store,
            rank=rank,
            size=size,
            generation=generation,
            beginning_timeout=beginning_timeout,
            find_ended=find_ended,
        )

    @contextmanager
    def announced(self) -> Iterator[None]:
        """Within it, whatever ends this rank's set-up ends the other ranks' too, with its reason.

        So no rank waits for one that will not come: out of memory, interrupted, or ended by SystemExit. Not for
        SwitchMLErrors, which say what the ranks have settled.
        """
        try:
            yield
        except SwitchMLError:
            raise
        except BaseException as err:
            self._announce(err)
            raise

    def share(self, name: str, value: str, *, timeout: timedelta) -> str:
        """Rank 0's value, on every rank. SwitchMLError where rank 0 gives none within `timeout`, or another failed."""
        key = f"switchml/{self.generation}/{name}"
        with _ends_of_the_store(self.find_ended, self.generation):
            if self.rank == 0:
                self.store.set(key, value)
                return value
            if self._missing([key], timeout):
                raise _silence([0], self._limit_of([0], timeout))
            return self.store.get(key).decode()

    def exchange(self, *, stage: str, value: str, timeout: timedelta) -> list[str]:
        """Every rank's value, by rank. SwitchMLError names the ranks that gave none within `timeout`, or failed."""
        keys = [f"switchml/{self.generation}/{stage}/{rank}" for rank in range(self.size)]
        with _ends_of_the_store(self.find_ended, self.generation):
            self.store.set(keys[self.rank], value)
            missing = self._missing(keys, timeout)
            if missing:
                raise _silence(missing, self._limit_of(missing, timeout))
            return [self.store.get(key).decode() for key in keys]

    def settle(self, *, stage: str, report: Report, timeout: timedelta, compare: Compare | None) -> None:
        """Return if every rank reported success and the same facts, else raise on every rank.

        The SwitchMLError names each rank that failed with its reason, the ranks that did not begin to settle or did
        not report within `timeout` or ended otherwise, or the facts that differ. It is unanimous where all reported. A
        rank that has no `compare`, for want of a library, reports an error and knows its own only.
        """
        prefix = f"switchml/{self.generation}/{stage}"
        keys = [f"{prefix}/{rank}" for rank in range(self.size)]
        with _ends_of_the_store(self.find_ended, self.generation):
            if report.error:
                self.store.set(f"{prefix}/failed", "1")
            self.store.set(keys[self.rank], report.text())
            absent: list[int] = []
            if compare is None:
                missing, complaint = [], f"{name_ranks([self.rank])}: {report.error}"
            else:
                missing = self._missing(keys, timeout)
                limit = self._limit_of(missing, timeout)
                absent = self._absent() if missing else []
                missing = absent or missing  # the others may only be slow
                reports = [None if rank in missing else self._report_in(key) for rank, key in enumerate(keys)]
                complaint = compare(reports, round(limit.total_seconds() * 1000))
        if complaint:
            self._say_farewell(prefix, num_absent=len(absent))
            raise SwitchMLError(f"{ASKED}{complaint}", unanimous=not missing)

    def has_failed(self, stage: str) -> bool:
        """Whether a rank has already reported that it failed in the stage, or ended otherwise in any.

        RuntimeError where the store has ended.
        """
        return self.store.check([f"switchml/{self.generation}/{stage}/failed"]) or self._has_announced()

    def _report_in(self, key: str) -> str:
        """What a rank reported, "" where that is still to come."""
        return self.store.get(key).decode() if self.store.check([key]) else ""

    def _absent(self) -> list[int]:
        """The ranks that have not begun to settle this group."""
        begun = [self.store.add(_generation_key(rank), 0) for rank in range(self.size)]
        return [rank for rank, generation in enumerate(begun) if generation < self.generation]

    def _has_waited_for_the_absent(self) -> bool:
        has_passed = time.monotonic() - self.began > self.beginning_timeout.total_seconds()
        return has_passed and bool(self._absent())

    def _limit_of(self, missing: list[int], timeout: timedelta) -> timedelta:
        """How long these ranks were waited for, as messages say it."""
        return min(timeout, self.beginning_timeout) if missing and self._absent() else timeout

    @property
    def _announcement(self) -> str:
        return f"switchml/{self.generation}/announcement"

    def _has_announced(self) -> bool:
        """Whether a rank's end was announced, also by this rank if it has just found one ended."""
        if self.store.check([self._announcement]):
            return True
        ended = self.find_ended()
        if ended is None or self.store.check([self._announcement]):  # its last word may have come meanwhile
            return ended is not None
        self.store.set(f"{self._announcement}/of the ended", "1")
        self.store.set(self._announcement, _ending(*ended, self.generation))
        return True

    def _announce(self, err: BaseException) -> None:
        reason = _on_one_line(f"{type(err).__name__}: {err}".removesuffix(": "))
        try:
            self.store.set(self._announcement, f"{name_ranks([self.rank])}: {reason}")
        except RuntimeError as unheard:  # what ended this rank is what its user is to see
            logger.debug("the store ended before the other ranks could be told: %s", unheard)
            return
        # whoever pressed Ctrl-C waits for nobody
        self._say_farewell(
            self._announcement, timeout=timedelta(0) if isinstance(err, KeyboardInterrupt) else _FAREWELL_TIMEOUT
        )

    def _missing(self, keys: list[str], timeout: timedelta) -> list[int]:
        """The indices of the keys that had no value in time; SwitchMLError where a rank announced that it failed."""
        if self._wait(keys, timeout, unless=lambda: self._has_announced() or self._has_waited_for_the_absent()):
            return []
        missing = [index for index, key in enumerate(keys) if not self.store.check([key])]
        if missing:
            if self._absent():  # or killed before it began, which the watch may be about to find
                _wait_briefly(self._has_announced)
            self.raise_announced()
        return missing

    def raise_announced(self) -> None:
        """SwitchMLError where the end of a rank was announced; a rank that stopped for it has nothing to settle."""
        with _ends_of_the_store(self.find_ended, self.generation):
            if not self._has_announced():
                return
            announced = self.store.get(self._announcement).decode()
        self._say_farewell(self._announcement)
        raise SwitchMLError(f"{ASKED}{announced}")

    def _wait(self, keys: list[str], timeout: timedelta, *, unless: Callable[[], bool] = lambda: False) -> bool:
        """Whether all the keys had a value in time, and before `unless`. The stores' own wait would not hear Ctrl-C."""
        until = time.monotonic() + timeout.total_seconds()
        pause_s = _FIRST_PAUSE_S
        while not self.store.check(keys):
            if time.monotonic() >= until or unless():
                return False
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        return True

    def _say_farewell(self, prefix: str, *, timeout: timedelta = _FAREWELL_TIMEOUT, num_absent: int = 0) -> None:
        """Keep the rank that serves the store until the others have read the reports, but for the absent ones."""
        try:
            has_ended = self.store.check([f"{prefix}/of the ended"])
            if self.store.add(f"{prefix}/read", 1) >= self.size - max(has_ended, num_absent):
                self.store.set(f"{prefix}/all_read", "1")
            self._wait([f"{prefix}/all_read"], min(timeout, _FAREWELL_OF_ENDED_TIMEOUT) if has_ended else timeout)
        except RuntimeError as err:  # it has gone: this rank knows what it needs to
            logger.debug("the store ended before all ranks said that they had read it: %s", err)


def _generation_key(rank: int) -> str:
    return f"switchml/generation/{rank}"


def _on_one_line(text: str) -> str:
    return re.sub(r"[\x00-\x1f]", " ", text)


@contextmanager
def _ends_of_the_store(find_ended: Find, generation: int = 1) -> Iterator[None]:
    """SwitchMLError for RuntimeError, the stores' only type for it, where the peer that serves them is gone."""
    try:
        yield
    except SwitchMLError:
        raise
    except RuntimeError as err:
        _wait_briefly(lambda: find_ended() is not None)
        ended = find_ended()
        reason = f"{_ending(*ended, generation)}; " if ended is not None else ""
        raise SwitchMLError(
            f"{ASKED}{reason}the group's store ended, which rank 0 or the launcher serves: {err}"
        ) from err


def _wait_briefly(has_come: Callable[[], bool], limit: timedelta = _NAMING_TIMEOUT) -> bool:
    """Until it has, at most for so long, by default the time in which the watch names a rank; whether it has."""
    until, pause_s = time.monotonic() + limit.total_seconds(), _FIRST_PAUSE_S
    while not (come := has_come()) and time.monotonic() < until:
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
    return come


def _ending(rank: int, reason: str, generation: int) -> str:
    """The words for a rank whose connection has closed.

    In a later group on the same store, that may be one of the group before: ranks find each other by what that left.
    """
    what = "its process ended while the ranks set SwitchML up"
    if generation > 1:
        what += (
            f", or it is still in the group before (this is number {generation} on one store: give each a store of its "
            "own, such as dist.PrefixStore(NEW_NAME, store))"
        )
    return f"{name_ranks([rank])}: {what} ({_on_one_line(reason)})"


def _silence(ranks: list[int], timeout: timedelta) -> SwitchMLError:
    return SwitchMLError(f"{ASKED}{name_ranks(ranks)} did not answer within {timeout.total_seconds():g} s")


def name_ranks(ranks: list[int]) -> str:
    """Them in words: "rank 1", "ranks 1, 2"."""
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))
