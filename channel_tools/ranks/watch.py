# SPDX-License-Identifier: BSD-3-Clause
"""``launch --watch``: notices that no rank moves any more, and says of each where it stands and whom it waits for.

Each rank runs under ``watch_rank.py``, which writes a file of its own anew while the rank moves. Those files are all
that this process looks at while the job moves. They are in a folder that all hosts share: a new one in the folder that
the script is run in. Once all stand still, ``look_at_ranks.py`` runs once on each host.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
from rattler import Version

from channel_tools.ranks.hosts import RankHosts
from channel_tools.ranks.look_at_ranks import boot_id, state_of
from channel_tools.system.counting import counted
from channel_tools.system.document import decode_json
from channel_tools.system.errors import FileAccessError, UsageError
from channel_tools.system.harmless import harmless_line
from channel_tools.system.remote import run_on_hosts, ssh_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from channel_tools.ranks.hosts import Host
    from channel_tools.ranks.plan import RankPlan

_Kind = TypeVar("_Kind")
_IN_RANK = Path(__file__).with_name("watch_rank.py")
_ON_HOST = Path(__file__).with_name("look_at_ranks.py")
_PREFIX = "channel_tools-watch-"
_LOOKS = 10
"""In the watch's seconds."""
_LONGEST_LOOK_S = 5.0
_START_S = 60.0
"""How long launchers may take until each rank has begun: on shared file systems, with many ranks, long."""
_SPY_S = 20.0
_HOSTS_S = 30.0
RECORDER, RECORDED_CALLS = "TORCH_NCCL_TRACE_BUFFER_SIZE", "2000"
"""Has a PyTorch before 2.10 keep its last collectives, as later ones do by themselves."""
_RECORDS_BY_ITSELF = Version("2.10")
_OF_THE_WATCH = "launch --watch"
"""The name of the watch's own thread in a rank."""
_OF_LIBRARIES = ("/torch/", "/torch_switchml/", "/torch_mpi/", "/lib/python3", "<frozen ")
_NO_DESCRIPTION = "undefined"
"""PyTorch's own word."""
_PEER = re.compile(r"(?:recv|send) \d+(?:<-|->)(\d+)")
"""How PyTorch calls a message, by the ranks' numbers in their group (ProcessGroupNCCL.cpp: ``nccl:recv 0<-1``)."""
_KILLED = "its process was killed, or ended without Python's ending it"
_STATES = {
    "T": "stopped by a signal (SIGSTOP)",
    "t": "stopped by a debugger",
    "D": "in the kernel, on a device or file",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class WatchOptions:
    """How long no rank may move until that is reported, and whether the job is ended then."""

    seconds: float
    ends: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Frame:
    """A place in a stack."""

    function: str
    file: str
    line: int

    @property
    def is_native(self) -> bool:
        """Whether it is of compiled code."""
        return not self.file.endswith(".py") and not self.file.startswith("<")

    @property
    def words(self) -> str:
        """For people: the function, and where it is."""
        return f"{self.function} ({self.file}{f':{self.line}' if self.line else ''})"


class Thread(msgspec.Struct, frozen=True):
    """A thread's name and its frames, each of function, file and line, the innermost first."""

    name: str
    frames: tuple[tuple[str, str, int], ...]


class Seen(msgspec.Struct, frozen=True):
    """What look_at_ranks.py found out about a rank."""

    state: str
    threads: tuple[Thread, ...] = ()
    by: str = ""
    error: str = ""


class Call(msgspec.Struct, frozen=True):
    """A collective, or a message to one rank, that has not ended."""

    number: int
    kind: str
    sizes: Any = ()
    dtypes: Any = ()
    is_message: bool = False

    @property
    def words(self) -> str:
        """For people: its kind and number."""
        return self.kind if self.is_message else f"{self.kind} number {self.number}"

    @property
    def size(self) -> str:
        """For people: the shapes and types of its tensors."""
        shapes = ", ".join("x".join(map(str, size)) or "1" for size in self.sizes if isinstance(size, list))
        types = ", ".join(sorted({str(dtype) for dtype in self.dtypes}))
        return " of ".join(filter(None, (shapes, types)))


class Group(msgspec.Struct, frozen=True):
    """A process group of a rank; ``entered`` is the number of the last collective that the rank has come to."""

    by: str
    group: str
    entered: int
    description: str = ""
    ranks: tuple[int, ...] = ()
    pending: tuple[Call, ...] = ()

    @property
    def words(self) -> str:
        """For people: what it is for, if the script has said so, else its name."""
        if self.description not in {"", _NO_DESCRIPTION}:
            return self.description
        return f"group {self.group}{f' of {in_words(self.ranks)}' if self.ranks else ''}"


class Placed(msgspec.Struct, frozen=True):
    """What a rank that stands still said about itself, after so many moves."""

    moved: int
    frames: tuple[tuple[str, str, int], ...]
    groups: tuple[Group, ...] = ()
    error: str = ""


class Registered(msgspec.Struct, frozen=True):
    """A rank's file: who it is, how often it has moved and where to, and whether its script is over, and has failed.

    ``worked`` counts those moves at which it had entered a collective, or its main thread was elsewhere with output.
    """

    rank: Annotated[int, msgspec.Meta(ge=0)]
    host: str
    boot: str
    pid: int
    started: int
    moved: int
    worked: int = 0
    over: bool = False
    failed: bool = False
    frames: tuple[tuple[str, str, int], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class RankStand:
    """Where a rank stands; ``registered`` is None for one that has not come so far as to run the script."""

    rank: int
    registered: Registered | None
    seen: Seen | None
    placed: Placed | None
    error: str = ""

    @property
    def threads(self) -> tuple[Thread, ...]:
        """Its stacks, the main thread's first."""
        if self.seen is not None and self.seen.threads:
            return tuple(thread for thread in self.seen.threads if thread.name != _OF_THE_WATCH)
        said = self.placed or self.registered
        return () if said is None else (Thread(name="MainThread", frames=said.frames),)

    @property
    def groups(self) -> tuple[Group, ...]:
        """Its process groups."""
        return () if self.placed is None else self.placed.groups

    @property
    def place(self) -> str:
        """The innermost line of the user's own code, and what that is in."""
        return place_of(_main_thread(self.threads))

    @property
    def is_gone(self) -> bool:
        """Whether its process has ended."""
        return self.seen is not None and not self.seen.state

    @property
    def state(self) -> str:
        """What is to be said first about it; "" for a rank that just stands at its place."""
        if self.registered is None:
            return "has not begun to run the script"
        if self.registered.over:
            return "its script is over" + (", its process has ended" if self.is_gone else "")
        if self.is_gone:
            return _KILLED
        return "" if self.seen is None else _STATES.get(self.seen.state, "")

    @property
    def summary(self) -> str:
        """State and place, for a sentence."""
        is_over = self.registered is not None and self.registered.over
        is_found = self.placed is not None or (self.seen is not None and bool(self.seen.threads))
        is_last = not is_over and (self.is_gone or not is_found)
        at = "" if not self.place else f"last seen at {self.place}" if is_last else f"at {self.place}"
        return "; ".join(filter(None, (self.state, at))) or "not known where"

    @property
    def messages(self) -> Iterator[tuple[Group, Call]]:
        """The messages that have not ended."""
        return ((group, call) for group in self.groups for call in group.pending if call.is_message)

    def call_in(self, by: str, group: str) -> Call | None:
        """The collective of a group that it is in, the first if it is in several."""
        calls = [call for one in self.groups if (one.by, one.group) == (by, group) for call in one.pending]
        return min((call for call in calls if not call.is_message), key=lambda call: call.number, default=None)

    def entered(self, by: str, group: str) -> int:
        """The number of the group's collective that it came to last."""
        return max((one.entered for one in self.groups if (one.by, one.group) == (by, group)), default=0)


def place_of(rows: Sequence[tuple[str, str, int]]) -> str:
    """The innermost line of the user's own code in a stack, and what that is in; "" for no stack."""
    frames = [Frame(function=name, file=file, line=line) for name, file, line in _of_the_script(rows)]
    if not frames:
        return ""
    python = [frame for frame in frames if not frame.is_native] or frames
    own = next((frame for frame in python if not any(part in frame.file for part in _OF_LIBRARIES)), python[0])
    inner = python[0] if python[0] != own else frames[0]
    return own.words + (f", in {inner.function}" if inner not in (own, *python[1:]) else "")


def _of_the_script(rows: Sequence[tuple[str, str, int]]) -> Sequence[tuple[str, str, int]]:
    """A stack without its outermost frames, which start the script."""
    if not any(_IN_RANK.name in file for _, file, _ in rows):
        return rows
    starts = (number for number, (_, file, _) in enumerate(rows) if file == "<frozen runpy>" or _IN_RANK.name in file)
    return rows[: next(starts)]


def _main_thread(threads: Sequence[Thread]) -> tuple[tuple[str, str, int], ...]:
    named = [thread for thread in threads if thread.name == "MainThread"]
    return next((thread.frames for thread in [*named, *threads]), ())


def check_watchable(words: Sequence[str]) -> None:
    """Raise UsageError for a command that --watch cannot start: it runs a script or ``-m MODULE`` itself."""
    if words[0].startswith("-") and not (words[0] == "-m" and len(words) > 1):
        message = f"--watch starts a script or -m MODULE, found {words[0]!r}"
        raise UsageError(
            message, hint="set Python's own options by its variables, as PYTHONWARNINGS, or leave --watch out"
        )


@contextlib.contextmanager
def watch_folder(parent: Path) -> Iterator[Path]:
    """A new folder for the watch of a run, in one that all hosts share; only a report is left in it.

    Raises FileAccessError if it cannot be made.
    """
    try:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        shutil.copyfile(_IN_RANK, folder / _IN_RANK.name)
    except OSError as err:
        message = f"{parent}: --watch cannot write here: {err.strerror}"
        raise FileAccessError(
            message, hint="start it in a folder that you may write to and that all hosts share"
        ) from None
    try:
        yield folder
    finally:
        for file in folder.iterdir():
            if not file.name.startswith("report-"):
                file.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # there is a report
            folder.rmdir()


def watched_words(folder: Path, seconds: float, words: Sequence[str]) -> tuple[str, ...]:
    """The words after Python's that run a script under the watch. Raises UsageError as check_watchable does."""
    check_watchable(words)
    return (str(folder / _IN_RANK.name), str(folder), f"{seconds:g}", *words)


@dataclass(kw_only=True, slots=True)
class Watch:
    """The watch of one run; ``say`` is given lines for people."""

    options: WatchOptions
    plan: RankPlan
    folder: Path
    say: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    _moves: dict[int, tuple[int, float]] = field(default_factory=dict)
    _works: dict[int, tuple[int, float]] = field(default_factory=dict)
    _begun: float | None = None
    _has_said_killed: bool = False
    _reported: dict[int, int] | None = None
    _reported_works: dict[int, int] | None = None
    _reports: int = 0
    _processes: dict[int, int] = field(default_factory=dict)

    @property
    def look_every_s(self) -> float:
        """How long to wait between two calls of look()."""
        return min(self.options.seconds / _LOOKS, _LONGEST_LOOK_S)

    def look(self) -> bool:
        """Report if no rank has moved for the watch's seconds; whether the job is to be ended for that."""
        now = self.clock()
        self._begun = now if self._begun is None else self._begun
        ranks = self._read()
        self._say_killed(ranks)
        self._follow(ranks)
        for rank, registered in ranks.items():
            for seen, count in ((self._moves, registered.moved), (self._works, registered.worked)):
                if seen.get(rank, (-1, 0.0))[0] != count:
                    seen[rank] = (count, now)
        moves = {rank: moved for rank, (moved, _) in self._moves.items()}
        last = max((when for _, when in self._moves.values()), default=self._begun)
        is_begun = len(moves) == self.plan.placement.ranks
        limit = self.options.seconds if is_begun else max(self.options.seconds, _START_S)
        if now - last < limit:
            if is_begun:
                self._look_for_circles(now)
            return False
        if moves == self._reported:
            return False
        self._reported = moves
        said = f"no rank has moved for {now - last:.0f} s: neither output nor a collective, and each at the same place"
        return self._report(said) and self.options.ends

    def _look_for_circles(self, now: float) -> None:
        """Report ranks that move, but do not work, while others wait for them in a collective. That ends no job.

        It may be what one rank has to do alone, like an evaluation; nobody but the user can tell.
        """
        works = {rank: worked for rank, (worked, _) in self._works.items()}
        idle_s = now - max(when for _, when in self._works.values())
        moving = [rank for rank, (_, when) in self._moves.items() if now - when < self.options.seconds]
        if idle_s < self.options.seconds or works == self._reported_works or len(moving) == len(self._moves):
            return
        still = {rank: moved for rank, (moved, _) in self._moves.items() if rank not in moving}
        placed = [(one, moved) for rank, moved in still.items() if (one := _read(self._file_of(rank, "place"), Placed))]
        if any(one.moved == moved and any(group.pending for group in one.groups) for one, moved in placed):
            self._reported_works = works
            have = "has" if len(moving) == 1 else "have"
            self._report(
                f"no collective has begun for {idle_s:.0f} s: the others stand still, and {in_words(moving)} {have} "
                "only got from place to place, or written something"
            )

    @property
    def deaths(self) -> tuple[int, ...]:
        """Descriptors of this host's ranks, each readable once its process has ended; then look() is to be called."""
        return tuple(self._processes.values())

    def _follow(self, ranks: Mapping[int, Registered]) -> None:
        """Open what ``deaths`` has of ranks that have begun, and close it of those that have ended."""
        here = boot_id()
        for rank, one in ranks.items():
            runs = one.boot == here and not one.over and state_of(one.pid, one.started)
            if runs and rank not in self._processes:
                with contextlib.suppress(OSError):  # it has ended meanwhile
                    self._processes[rank] = os.pidfd_open(one.pid)
            elif not runs and rank in self._processes:
                os.close(self._processes.pop(rank))

    def close(self) -> None:
        """Close the descriptors of ``deaths``."""
        for descriptor in self._processes.values():
            os.close(descriptor)
        self._processes.clear()

    def end(self, code: int) -> None:
        """Of a job that has failed, say where its ranks were seen last, unless that was said.

        Launchers end all ranks of a job if one is killed, often before that is seen here.
        """
        ranks = self._read()
        self._say_killed(ranks)
        if code and not self._has_said_killed:
            by_place: dict[str, list[int]] = {}
            for rank, one in ranks.items():
                if not one.over:
                    by_place.setdefault(place_of(one.frames), []).append(rank)
            for place, numbers in sorted(by_place.items(), key=lambda item: (len(item[1]), item[1])):
                at = f"; last seen at {place}" if place else ""
                self.say(f"{in_words(numbers)}: ended with the job{at}")

    def _file_of(self, rank: int, what: str) -> Path:
        return self.folder / f"rank-{rank}.{what}"

    def _read(self) -> dict[int, Registered]:
        return {one.rank: one for file in sorted(self.folder.glob("rank-*.json")) if (one := _read(file, Registered))}

    def _say_killed(self, ranks: Mapping[int, Registered]) -> None:
        """Name the ranks of this host that are found killed first: launchers then end the others.

        As they do if a script fails, which may be what a killed rank leads to: then end() says of all where they were.
        """
        if any(one.failed for one in ranks.values()):
            return
        here = boot_id()
        killed = [one for one in ranks.values() if one.boot == here and _was_killed(one)]
        if killed and not self._has_said_killed:
            self._has_said_killed = True
            for one in killed:
                at = place_of(one.frames)
                place = f"; last seen at {at}" if at else ""
                self.say(f"rank {one.rank} on {one.host}, pid {one.pid}: {_KILLED}{place}")

    def _report(self, said: str) -> bool:
        """Say and write where all stand; False if none of them runs any more, so that their launcher will end."""
        stands = self._stands()
        if all(stand.is_gone for stand in stands):
            return False
        lines = [said, *who_waits(stands), *_table(stands)]
        self._reports += 1
        file = self.folder / f"report-{self._reports}.txt"
        with open(file, "w", encoding="utf-8", opener=_opened_for_owner) as stream:
            stream.write("".join(f"{harmless_line(line)}\n" for line in [*lines, "", *_stacks(stands)]))
        for line in lines:
            self.say(line)
        self.say(f"all stacks: {file}")
        return True

    def _stands(self) -> list[RankStand]:
        registered = self._read()
        seen, errors = self._seen()
        stands = []
        for rank in range(self.plan.placement.ranks):
            one = registered.get(rank)
            placed = _read(self._file_of(rank, "place"), Placed)
            if one is None or (placed is not None and placed.moved != one.moved):
                placed = None  # of an earlier standstill
            error = "; ".join(errors) if one is not None and rank not in seen else ""
            stands.append(RankStand(rank=rank, registered=one, seen=seen.get(rank), placed=placed, error=error))
        return stands

    def _seen(self) -> tuple[dict[int, Seen], list[str]]:
        """What is seen of the ranks on all hosts, and the hosts that could not be asked."""
        py_spy = self.plan.placement.prefix / "bin" / "py-spy"
        request = {"folder": str(self.folder), "py_spy": str(py_spy), "limit_s": _SPY_S}
        words = ("-I", "-S", "-c", _ON_HOST.read_text(encoding="utf-8"), json.dumps(request))
        commands = {host.name: self._command(host, words) for host in self.plan.placement.hosts}
        outputs = run_on_hosts(commands, env=self.plan.variables, limit_s=_HOSTS_S)
        seen: dict[int, Seen] = {}
        errors = []
        for name, answer in outputs.items():
            try:
                found = {} if answer.error else decode_json(answer.output, dict[int, Seen])
            except msgspec.DecodeError as err:
                found, error = {}, f"{name}: {err}"
            else:
                error = f"{name}: {answer.error}" if answer.error else ""
            seen.update(found)
            errors += [error] if error else []
        return seen, errors

    def _command(self, host: Host, words: Sequence[str]) -> tuple[str, ...]:
        python = str(self.plan.placement.prefix / "bin" / "python")
        if host.is_local:
            return (sys.executable, *words)
        if self.plan.launcher == "srun":
            hosts = RankHosts(hosts=self.plan.placement.hosts, address="", variables={}, is_slurm=True)
            return hosts.shell_command(host.name, shlex.join((python, *words)))
        return (*ssh_command(host.name), shlex.join((python, *words)))


def _was_killed(registered: Registered) -> bool:
    """Whether the process of a rank of this host has ended, but not its script."""
    return not registered.over and not state_of(registered.pid, registered.started)


def _opened_for_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _read(file: Path, kind: type[_Kind]) -> _Kind | None:
    try:
        return decode_json(file.read_bytes(), kind)
    except (OSError, msgspec.DecodeError):  # not yet there, or not whole as a file system shows it
        return None


def in_words(ranks: Sequence[int]) -> str:
    """``rank 1``, ``ranks 0, 2 and 3``, with ranges from three on: ``ranks 0-7``."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and runs[-1][-1] == rank - 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    texts = [text for run in runs for text in (map(str, run) if len(run) < 3 else [f"{run[0]}-{run[-1]}"])]  # noqa: PLR2004
    shown = " and ".join(filter(None, (", ".join(texts[:-1]), texts[-1])))
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}"


def who_waits(stands: Sequence[RankStand]) -> Iterator[str]:
    """Which ranks wait in which collective, for whom, and where those are; then the ranks that cannot go on."""
    by_rank = {stand.rank: stand for stand in stands}
    missing: set[int] = set()
    keys = sorted({(group.by, group.group) for stand in stands for group in stand.groups if group.pending})
    for by, group in keys:
        calls = {stand.rank: call for stand in stands if (call := stand.call_in(by, group))}
        if not calls:  # messages alone
            continue
        number = min(call.number for call in calls.values())
        inside = {rank: call for rank, call in calls.items() if call.number == number}
        one = next(group_ for stand in stands for group_ in stand.groups if (group_.by, group_.group) == (by, group))
        members = one.ranks or tuple(by_rank)
        absent = [rank for rank in members if rank not in calls and by_rank[rank].entered(by, group) < number]
        missing.update(absent)
        named = one.words
        kinds = {(call.kind, call.size) for call in inside.values()}
        if len(kinds) > 1:
            yield f"{named}: the ranks do not make the same call, number {number}:"
            for kind, size in sorted(kinds):
                ranks = [rank for rank, call in inside.items() if (call.kind, call.size) == (kind, size)]
                yield f"  {in_words(ranks)}: {kind}{f' of {size}' if size else ''}"
            continue
        kind, size = next(iter(kinds))
        what = f"{kind} number {number} of {named}{f', {size}' if size else ''}"
        if absent:
            verb = "waits" if len(inside) == 1 else "wait"
            yield f"{in_words(list(inside))} {verb} in {what}, for {in_words(absent)}:"
            for rank in absent:
                yield f"  rank {rank}: {by_rank[rank].summary}"
        else:
            yield f"all {counted(len(members), 'rank')} of it are in {what}"
    for stand in stands:
        for of, call in stand.messages:
            peer = _peer(of, call)
            missing.update(() if peer not in by_rank else (peer,))
            yield f"rank {stand.rank} waits in {call.kind} of {of.words}{f', {call.size}' if call.size else ''}" + (
                "" if peer not in by_rank else f", for rank {peer}: {by_rank[peer].summary}"
            )
    unseen = [stand for stand in stands if stand.state and stand.rank not in missing]
    yield from (f"rank {stand.rank}: {stand.summary}" for stand in unseen)
    if not keys:
        yield from _by_place(stands)


def _peer(group: Group, call: Call) -> int:
    """The rank that a message is from or for; -1 if its words do not say it."""
    match = _PEER.match(call.kind)
    if match is None:
        return -1
    number = int(match[1])
    if not group.ranks:
        return number
    return group.ranks[number] if number < len(group.ranks) else -1


def _by_place(stands: Sequence[RankStand]) -> Iterator[str]:
    """Ranks by where they stand, for backends that record nothing: few ranks at another place are likely the cause."""
    by_place: dict[str, list[int]] = {}
    for stand in stands:
        if not stand.state:
            by_place.setdefault(stand.place or "not known where", []).append(stand.rank)
    for place, ranks in sorted(by_place.items(), key=lambda item: (len(item[1]), item[1])):
        yield f"{in_words(ranks)}: at {place}"


def _table(stands: Sequence[RankStand]) -> Iterator[str]:
    for stand in stands:
        who = f"rank {stand.rank}"
        if stand.registered is not None:
            who += f" on {stand.registered.host}, pid {stand.registered.pid}"
        calls = [call.words for group in stand.groups for call in group.pending]
        inside = f"; has not ended: {', '.join(calls)}" if calls else ""
        yield f"{who}: {stand.summary}{inside}"


def _stacks(stands: Sequence[RankStand]) -> Iterator[str]:
    for stand in stands:
        by = stand.seen.by if stand.seen is not None and stand.seen.by else "Python itself"
        yield f"==== rank {stand.rank}: {stand.summary}"
        if stand.placed is not None:
            for group in stand.groups:
                yield (
                    f"  {group.words} ({group.by}): came to collective number {group.entered}; "
                    f"ranks {', '.join(map(str, group.ranks)) or 'not known'}"
                )
                for call in group.pending:
                    yield f"    has not ended: {call.words}{f', {call.size}' if call.size else ''}"
        problems = (stand.error, stand.seen.error if stand.seen else "", stand.placed.error if stand.placed else "")
        yield from (f"  {problem}" for problem in problems if problem)
        for thread in stand.threads:
            yield f"  thread {thread.name or '(no name)'}, by {by}:"
            frames = [Frame(function=name, file=file, line=line) for name, file, line in _of_the_script(thread.frames)]
            yield from (f"    {frame.words}" for frame in frames if not frame.function.startswith("0x"))
        yield ""


def with_recorder(plan: RankPlan) -> RankPlan:
    """The plan with PyTorch's flight recorder on, where it is not by itself and the user has not set it."""
    version, *_ = plan.placement.installed.get("pytorch", str(_RECORDS_BY_ITSELF)).split()
    if RECORDER in plan.variables or Version(version) >= _RECORDS_BY_ITSELF:
        return plan
    more = {RECORDER: RECORDED_CALLS}
    return replace(plan, variables={**plan.variables, **more}, exported={**plan.exported, **more})


def watch_note(prefix: Path, *, seconds: float) -> str:
    """What is said at the beginning."""
    has = (prefix / "bin" / "py-spy").is_file()
    lacks = f"; without py-spy (conda install -p {shlex.quote(str(prefix))} py-spy) no native stacks"
    return f"watching: a report if no rank moves for {seconds:g} s{'' if has else lacks}"
