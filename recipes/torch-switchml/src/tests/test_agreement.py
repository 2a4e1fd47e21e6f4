# SPDX-License-Identifier: BSD-3-Clause
"""All ranks or none, over a store in memory and ranks that are threads."""

import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from torch_switchml.agreement import Agreement, Report, Vote
from torch_switchml.errors import SwitchMLError

SOON = timedelta(seconds=0.2)
LATE = timedelta(seconds=20)
FAREWELL_S = 5.0


class MemoryStore:
    """As torch.distributed.HashStore."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._changed = threading.Condition()

    def set(self, key: str, value: str, /) -> None:
        with self._changed:
            self._values[key] = value.encode()
            self._changed.notify_all()

    def get(self, key: str, /) -> bytes:
        self.wait([key], LATE)
        return self._values[key]

    def add(self, key: str, amount: int, /) -> int:
        with self._changed:
            result = int(self._values.get(key, b"0")) + amount
            self._values[key] = str(result).encode()
            self._changed.notify_all()
            return result

    def check(self, keys: list[str], /) -> bool:
        return all(key in self._values for key in keys)

    def wait(self, keys: list[str], timeout: timedelta, /) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: self.check(keys), timeout.total_seconds()):
                raise RuntimeError("wait timeout")


def compare(reports: list[str | None], timeout_ms: int) -> str:
    """As the library's, in fewer words."""
    lines = [f"no report within {timeout_ms} ms" if report is None else report.split("\n")[0] for report in reports]
    errors = [f"rank {rank}: {line}" for rank, line in enumerate(lines) if line]
    return "; ".join(errors) or (f"differ: {reports}" if len(set(reports)) > 1 else "")


def settle_all(
    store: MemoryStore, reports: list[Report | None], *, timeout: timedelta = LATE, size: int | None = None
) -> list[str | None]:
    """What settling raised for each rank with a report; a rank without one does not take part."""

    def settle(rank: int, report: Report) -> str | None:
        agreement = Agreement.begin(store=store, rank=rank, size=size or len(reports))
        try:
            agreement.settle(stage="load", report=report, timeout=timeout, compare=compare)
        except SwitchMLError as err:
            return str(err)
        return None

    with ThreadPoolExecutor(len(reports)) as pool:
        tasks = [pool.submit(settle, rank, report) for rank, report in enumerate(reports) if report is not None]
        return [task.result() for task in tasks]


def test_all_well() -> None:
    assert settle_all(MemoryStore(), [Report(facts={"a": "1"})] * 3) == [None] * 3


def test_one_error_is_everybodys() -> None:
    texts = settle_all(MemoryStore(), [Report(), Report(error="no library"), Report(error="no memory")])
    assert texts == ["SwitchML was asked for but cannot be used: rank 1: no library; rank 2: no memory"] * 3


def test_an_error_of_several_lines_is_one_of_them() -> None:
    texts = settle_all(MemoryStore(), [Report(error="no\nlibrary\tthere"), Report()])
    assert texts == ["SwitchML was asked for but cannot be used: rank 0: no library there"] * 2


def test_a_rank_without_a_library_says_its_own_error() -> None:
    store = MemoryStore()
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(settle_all, store, [None, Report()])
        agreement = Agreement.begin(store=store, rank=0, size=2)
        with pytest.raises(SwitchMLError, match=r"cannot be used: rank 0: no library$") as caught:
            agreement.settle(stage="load", report=Report(error="no library"), timeout=LATE, compare=None)
        assert other.result() == [str(caught.value)]


def test_facts_that_differ_are_everybodys_error() -> None:
    reports: list[Report | None] = [Report(facts={"speed": "1", "same": "x"}) for _ in range(2)]
    reports.append(Report(facts={"speed": "2", "same": "x"}))
    (text, *others) = settle_all(MemoryStore(), reports)
    assert text is not None
    reported = ["\nspeed\t1\nsame\tx", "\nspeed\t1\nsame\tx", "\nspeed\t2\nsame\tx"]
    assert text == f"SwitchML was asked for but cannot be used: differ: {reported}"
    assert others == [text] * 2


def test_ranks_that_do_not_report_are_named() -> None:
    texts = settle_all(MemoryStore(), [Report(), None, None], timeout=SOON)
    assert len(texts) == 1
    assert texts[0] is not None
    assert texts[0].endswith("rank 1: no report within 200 ms; rank 2: no report within 200 ms")


def test_a_rank_that_does_not_begin_is_named_before_one_that_is_slow() -> None:
    """The first has no plugin, or nothing that asks for it; the second may still be loading the library."""
    store = MemoryStore()
    Agreement.begin(store=store, rank=1, size=3)
    agreement = Agreement.begin(store=store, rank=0, size=3, beginning_timeout=SOON)
    with pytest.raises(SwitchMLError, match=r"cannot be used: rank 2: no report within 200 ms$"):
        agreement.settle(stage="load", report=Report(), timeout=LATE, compare=compare)
    with pytest.raises(SwitchMLError, match=r"ranks 1, 2 did not answer within 0\.2 s"):
        agreement.exchange(stage="host", value="mine", timeout=LATE)


def test_a_rank_that_ended_before_it_began_is_told_from_one_without_the_plugin() -> None:
    """Where loading the plugin took this rank as long as others may take to begin, its watch has only just begun."""
    asked: list[float] = []

    def find_ended() -> tuple[int, str] | None:
        asked.append(time.monotonic())
        return (1, "closed") if asked[-1] - asked[0] > SOON.total_seconds() else None

    agreement = Agreement.begin(
        store=MemoryStore(), rank=0, size=2, beginning_timeout=timedelta(0), find_ended=find_ended
    )
    with pytest.raises(SwitchMLError, match=r"cannot be used: rank 1: its process ended while the ranks set"):
        agreement.settle(stage="load", report=Report(), timeout=LATE, compare=compare)


def test_nobody_waits_for_an_absent_rank_to_have_read_why() -> None:
    store = MemoryStore()

    def settle(rank: int) -> None:
        agreement = Agreement.begin(store=store, rank=rank, size=3, beginning_timeout=SOON)
        with pytest.raises(SwitchMLError, match=r"cannot be used: rank 2: no report within 200 ms$"):
            agreement.settle(stage="load", report=Report(), timeout=LATE, compare=compare)

    started = time.monotonic()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(settle, range(2)))
    assert time.monotonic() - started < FAREWELL_S


def test_what_all_ranks_reported_is_told_from_what_one_may_miss() -> None:
    """All decide alike on the first; a rank that comes late would see other reports than the one that gave up."""
    store = MemoryStore()
    agreement = Agreement.begin(store=store, rank=0, size=1)
    assert not agreement.has_failed("open")
    with pytest.raises(SwitchMLError) as caught:
        agreement.settle(stage="open", report=Report(error="x"), timeout=LATE, compare=compare)
    assert caught.value.unanimous
    assert agreement.has_failed("open")
    alone = Agreement.begin(store=store, rank=0, size=2)
    with pytest.raises(SwitchMLError) as caught:
        alone.settle(stage="open", report=Report(error="x"), timeout=SOON, compare=compare)
    assert not caught.value.unanimous


def test_an_earlier_group_on_the_same_store_does_not_answer_for_this_one() -> None:
    store = MemoryStore()
    assert settle_all(store, [Report()] * 2) == [None] * 2
    texts = settle_all(store, [Report(), None], timeout=SOON)
    assert texts[0] is not None
    assert "rank 1: no report" in texts[0]


def test_a_later_group_on_the_same_store_is_named_as_the_likely_reason() -> None:
    """Of a connection that has closed: ranks find each other by what the group before left in the store."""
    store = MemoryStore()
    assert settle_all(store, [Report()] * 2) == [None] * 2
    agreement = Agreement.begin(store=store, rank=0, size=2, find_ended=lambda: (1, "closed"))
    with pytest.raises(SwitchMLError) as caught:
        agreement.settle(stage="load", report=Report(), timeout=LATE, compare=compare)
    assert re.search(
        r"rank 1: its process ended .*, or it is still in the group before \(.*number 2", str(caught.value)
    )
    assert str(caught.value) == f"SwitchML was asked for but cannot be used: {caught.value.reason}"


def test_a_store_that_ends_with_its_rank_hides_no_reason() -> None:
    class Ending(MemoryStore):
        """Fails whoever comes back to it after the reports are in."""

        def add(self, key: str, amount: int, /) -> int:
            if key.endswith("/read"):
                raise RuntimeError("connection closed")
            return super().add(key, amount)

    texts = settle_all(Ending(), [Report(), Report(error="no library")])
    assert all(text is not None and "rank 1: no library" in text for text in texts)


@pytest.mark.parametrize(
    ("ended_by", "told"),
    [
        (MemoryError(), "MemoryError"),
        (OSError(13, "no\nentry"), r"PermissionError: \[Errno 13\] no entry"),
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
    ],
    ids=["memory", "permission", "exit", "interrupt"],
)
@pytest.mark.parametrize("stage", ["share", "exchange", "settle"])
def test_what_ends_one_rank_ends_the_wait_of_the_others(ended_by: BaseException, told: str, stage: str) -> None:
    store = MemoryStore()

    def wait() -> None:
        agreement = Agreement.begin(store=store, rank=1, size=2)
        if stage == "share":
            agreement.share("job", "mine", timeout=LATE)
        elif stage == "exchange":
            agreement.exchange(stage="host", value="mine", timeout=LATE)
        else:
            agreement.settle(stage="open", report=Report(), timeout=LATE, compare=compare)

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait)
        agreement = Agreement.begin(store=store, rank=0, size=2)
        with pytest.raises(type(ended_by)), agreement.announced():
            raise ended_by
        with pytest.raises(SwitchMLError, match=rf"cannot be used: rank 0: {told}$") as caught:
            waiting.result()
    assert not caught.value.unanimous
    assert agreement.has_failed("open")


def test_what_the_ranks_settled_is_not_announced_again() -> None:
    agreement = Agreement.begin(store=MemoryStore(), rank=0, size=1)
    with pytest.raises(SwitchMLError), agreement.announced():
        agreement.settle(stage="load", report=Report(error="x"), timeout=LATE, compare=compare)
    assert not agreement.has_failed("open")


def test_a_rank_without_word_of_rank_0_names_it() -> None:
    agreement = Agreement.begin(store=MemoryStore(), rank=1, size=2)
    with pytest.raises(SwitchMLError, match=r"rank 0 did not answer within 0\.2 s"):
        agreement.share("job", "mine", timeout=SOON)


def test_waits_for_the_slowest_to_have_read_why() -> None:
    """Rank 0 serves the store: it must not leave with the reasons before the other has them."""
    store = MemoryStore()
    left: list[int] = []

    def settle(rank: int, before_reading: Callable[[], object]) -> None:
        agreement = Agreement.begin(store=store, rank=rank, size=2)
        before_reading()
        with pytest.raises(SwitchMLError):
            agreement.settle(stage="load", report=Report(error="x"), timeout=LATE, compare=compare)
        left.append(rank)

    held = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(settle, 0, lambda: None)
        second = pool.submit(settle, 1, held.wait)
        assert not left
        held.set()
        first.result()
        second.result()
    assert store.check(["switchml/1/load/all_read"])


@pytest.mark.parametrize("stage", ["share", "exchange", "settle"])
def test_who_finds_a_rank_ended_tells_the_others(stage: str) -> None:
    """The others wait for their limit otherwise; nobody waits for the ended rank to have read why."""
    store = MemoryStore()
    ended: list[tuple[int, str]] = []

    def wait(rank: int) -> None:
        watches = rank == 1
        agreement = Agreement.begin(
            store=store, rank=rank, size=3, find_ended=lambda: ended[0] if ended and watches else None
        )
        if stage == "share":
            agreement.share("job", "mine", timeout=LATE)
        elif stage == "exchange":
            agreement.exchange(stage="host", value="mine", timeout=LATE)
        else:
            agreement.settle(stage="open", report=Report(), timeout=LATE, compare=compare)

    Agreement.begin(store=store, rank=0, size=3)
    started = time.monotonic()
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(wait, rank) for rank in (1, 2)]
        ended.append((0, "closed by\npeer"))
        for one in waiting:
            with pytest.raises(SwitchMLError) as caught:
                one.result()
            expected = r"cannot be used: rank 0: its process ended while the ranks set SwitchML up \(closed by peer\)$"
            assert re.search(expected, str(caught.value))
            assert not caught.value.unanimous
    assert time.monotonic() - started < FAREWELL_S


def test_a_store_that_ends_with_a_rank_names_it() -> None:
    class EndedStore(MemoryStore):
        def check(self, keys: list[str], /) -> bool:
            raise RuntimeError(f"connection reset, asked for {len(keys)}")

    agreement = Agreement.begin(store=EndedStore(), rank=1, size=2, find_ended=lambda: (0, "closed"))
    for act in (
        lambda: agreement.share("job", "mine", timeout=LATE),
        lambda: agreement.exchange(stage="host", value="mine", timeout=LATE),
        lambda: agreement.settle(stage="open", report=Report(), timeout=LATE, compare=compare),
    ):
        with pytest.raises(SwitchMLError, match=r"rank 0: its process ended .*; the group's store ended"):
            act()
    unwatched = Agreement.begin(store=EndedStore(), rank=1, size=2)
    with pytest.raises(SwitchMLError, match=r"cannot be used: the group's store ended, which rank 0 or the launcher"):
        unwatched.share("job", "mine", timeout=LATE)


def test_ranks_that_have_begun_to_vote_are_waited_for_as_long_as_their_group_waits() -> None:
    """However late one is then; nobody looks for them for longer than no time at all."""
    store = MemoryStore()
    votes = [Vote.begin(store=store, rank=rank, size=3) for rank in range(3)]

    def vote(rank: int) -> bool:
        limit = votes[rank].limit(LATE, brief=timedelta(0))
        return votes[rank].is_unanimous("come", ready=True, timeout=limit)

    with ThreadPoolExecutor(2) as pool:
        early = [pool.submit(vote, rank) for rank in (0, 1)]
        store.wait(["switchml/unasked/1/come/ready"], LATE)
        assert vote(2)
        assert all(task.result() for task in early)


def test_a_rank_that_has_not_begun_to_vote_is_not_waited_for() -> None:
    """Of three ranks one has no plugin; the next group of these ranks is another matter."""
    store = MemoryStore()
    votes = [Vote.begin(store=store, rank=rank, size=3) for rank in (0, 1)]
    for vote in votes:
        assert vote.limit(LATE, brief=timedelta(0)) == timedelta(0)
        assert not vote.is_unanimous("come", ready=True, timeout=timedelta(0))
    again = [Vote.begin(store=store, rank=rank, size=3) for rank in range(3)]
    assert again[0].limit(LATE, brief=timedelta(0)) == timedelta(0)  # the third's first is not of these
    assert [Vote.begin(store=store, rank=2, size=3), *again[:2]][1].limit(LATE, brief=timedelta(0)) == LATE
