# SPDX-License-Identifier: BSD-3-Clause
"""``launch --watch``: what it says of ranks that stand still, under stand-ins for launchers and from made-up words."""

from __future__ import annotations

import json
import os
import re
import socket
import stat
import sys
from pathlib import Path

import pytest

from channel_tools.ranks import look_at_ranks, watch_rank
from channel_tools.ranks.watch import (
    Call,
    Group,
    Placed,
    RankStand,
    Registered,
    Seen,
    Thread,
    check_watchable,
    in_words,
    who_waits,
)
from channel_tools.system.errors import UsageError
from tests.unit.ranks.conftest import Site

HERE = socket.gethostname()
# what each rank does is its first argument's: the second names the rank that does otherwise than to wait
STANDS = """\
import glob, os, signal, sys, threading
def waits():
    threading.Event().wait()
def stops():
    os.kill(os.getpid(), signal.SIGSTOP)
def dies():
    os._exit(0)
def ends():
    sys.exit()
def is_killed():
    while not any("is_killed" in open(file).read() for file in glob.glob("channel_tools-watch-*/rank-1.json")):
        threading.Event().wait(0.05)
    os.kill(os.getpid(), signal.SIGKILL)
def fails():
    raise RuntimeError
def exits():
    sys.exit(1)
secret = "a value that no report may have"
if os.environ["RANK"] == sys.argv[2]:
    globals()[sys.argv[1]]()
waits()
"""
SPY = """\
#!{python}
import json, sys
if "{refused}":
    sys.exit("Permission Denied: Try running again with elevated permissions")
frame = {{"name": "poll", "filename": "/lib/libc.so.6", "line": 0}}
print(json.dumps([{{"thread_name": "MainThread", "os_thread_id": int(sys.argv[-1]), "frames": [frame]}}]))
"""


def report_of(site: Site) -> Path:
    (report,) = site.folder.glob("channel_tools-watch-*/report-1.txt")
    return report


def watched(site: Site, *words: str, launcher: str = "mpiexec", more: tuple[str, ...] = ()) -> tuple[int, str]:
    (site.folder / "stands.py").write_text(STANDS)
    options = ("--ranks", "3", "--launcher", launcher, "--watch", "1", "--watch-end", *more)
    result = site.launch(*options, str(site.folder / "stands.py"), *words)
    return result.returncode, result.stderr


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("stops", r"rank 1: stopped by a signal \(SIGSTOP\)"),
        ("dies", r"rank 1: its process was killed, or ended without Python's ending it"),
        ("ends", r"rank 1: its script is over, its process has ended"),
    ],
)
def test_the_rank_that_cannot_go_on_is_named(site: Site, how: str, says: str) -> None:
    code, said = watched(site, how, "1")
    assert code == 10, said
    assert re.search(f"^{says}", said, re.MULTILINE), said
    assert re.search(r"^ranks 0 and 2: at waits \(.*stands.py:3\)", said, re.MULTILINE), said


@pytest.mark.slow
def test_a_rank_that_is_killed_is_named_with_its_place(site: Site) -> None:
    code, said = watched(site, "is_killed", "1", more=("--watch", "60"))
    assert code not in {0, 10}, said
    assert re.search(r"^rank 1 on \S+, pid \d+: its process was killed, .* at is_killed \(", said, re.MULTILINE), said


@pytest.mark.slow
@pytest.mark.parametrize("how", ["fails", "exits"])
def test_ranks_that_are_ended_because_another_has_failed_are_not_said_to_be_killed(site: Site, how: str) -> None:
    code, said = watched(site, how, "1", more=("--watch", "60"))
    assert code == 1, said
    assert "was killed" not in said
    assert re.search(r"^ranks? [02].*: ended with the job", said, re.MULTILINE), said


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["torchrun", "mpiexec", "srun"])
def test_each_launchers_ranks_are_seen(site: Site, launcher: str) -> None:
    more = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1"} if launcher == "srun" else {}
    site = Site(folder=site.folder, environ={**site.environ, **more})
    code, said = watched(site, "waits", "1", launcher=launcher)
    assert code == 10, said
    assert re.search(r"^ranks 0-2: at waits \(.*stands.py:3\)", said, re.MULTILINE), said
    pids = re.findall(r"^rank \d on \S+, pid (\d+): ", said, re.MULTILINE)
    assert len(set(pids)) == 3


def test_the_report_is_the_users_alone_and_has_no_values(site: Site) -> None:
    watched(site, "waits", "1")
    report = report_of(site)
    assert stat.S_IMODE(report.stat().st_mode) == 0o600
    assert stat.S_IMODE(report.parent.stat().st_mode) == 0o700
    assert [path.name for path in report.parent.iterdir()] == [report.name]
    text = report.read_text()
    assert "waits (" in text
    assert "a value that" not in text
    assert "watch_rank.py" not in text  # frames of ours


@pytest.mark.slow
def test_ranks_on_other_hosts_are_asked_there(site: Site) -> None:
    (site.folder / "hosts").write_text(f"{HERE}:1\nother:2\n")
    code, said = watched(
        site, "stops", "2", launcher="torchrun", more=("--hosts", str(site.folder / "hosts"), "--ranks", "2")
    )
    assert code == 10, said
    assert re.search(r"^ranks 0 and 1: at waits", said, re.MULTILINE), said
    assert "other" in (site.folder / "reached").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("refused", ["", "yes"])
def test_stacks_are_py_spys_or_pythons_own(site: Site, refused: str) -> None:
    spy = site.folder / "env/bin/py-spy"
    spy.write_text(SPY.format(python=sys.executable, refused=refused))
    spy.chmod(0o755)
    watched(site, "waits", "1")
    text = report_of(site).read_text()
    assert ("py-spy: Permission Denied" in text) == bool(refused)
    assert text.count("by faulthandler" if refused else "by py-spy") >= 3
    assert ("poll (/lib/libc.so.6)" in text) == (not refused)


@pytest.mark.slow
def test_a_job_that_moves_is_left_alone_and_nothing_is_left(site: Site) -> None:
    (site.folder / "moves.py").write_text(
        "import os, sys, time\nuntil = time.monotonic() + 2\nwhile time.monotonic() < until:\n    os.write(1, b'.')\n"
    )
    result = site.launch("--ranks", "2", "--watch", "1", "--watch-end", "moves.py")
    assert result.returncode == 0, result.stderr
    assert "no rank has moved" not in result.stderr
    assert not list(site.folder.glob("channel_tools-watch-*"))


@pytest.mark.slow
def test_a_script_runs_under_it_as_without(site: Site) -> None:
    code = (
        "import __main__, os, sys; os.write(1, f'{sys.argv} {sys.path[0]} {__main__.__file__} {__name__}\\n'.encode())"
    )
    (site.folder / "says.py").write_text(code)
    (site.folder / "package").mkdir()
    (site.folder / "package/__main__.py").write_text(code)
    for words in ((str(site.folder / "says.py"), "a b"), ("-m", "package", "-x")):
        plain = site.launch("--ranks", "1", "--launcher", "mpiexec", "--", *words)
        under = site.launch("--ranks", "1", "--launcher", "mpiexec", "--watch", "9", "--", *words)
        assert plain.stdout == under.stdout != ""


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--watch", "0", "train.py"), "--watch"),
        (("--watch", "-1", "train.py"), "--watch"),
        (("--watch", "soon", "train.py"), "--watch"),
        (("--watch-end", "train.py"), "--watch-end without --watch"),
        (("--watch", "9", "--dry-run", "train.py"), "--watch and --dry-run together"),
        (("--watch", "9", "--", "-c", "pass"), "--watch starts a script or -m MODULE, found '-c'"),
    ],
    ids=["0", "negative", "text", "end alone", "dry run", "not a script"],
)
def test_bad_input_is_one_error(site: Site, words: tuple[str, ...], says: str) -> None:
    result = site.launch(*words)
    assert result.returncode == 2
    assert says in result.stderr
    assert "Traceback" not in result.stderr
    assert not list(site.folder.glob("channel_tools-watch-*"))


def test_options_of_python_are_refused() -> None:
    with pytest.raises(UsageError, match="found '-W'"):
        check_watchable(["-W", "error", "train.py"])


def test_the_job_script_has_the_watch(site: Site) -> None:
    result = site.launch("--emit", "slurm", "--watch", "30", "--watch-end", "train.py")
    assert " --watch 30 --watch-end train.py" in result.stdout


# ---- who waits for whom, from what the ranks said ----


def stand(rank: int, *groups: Group, state: str = "S", at: str = "step") -> RankStand:
    frames = ((at, "/home/user/train.py", 7),)
    one = Registered(rank=rank, host="n", boot="b", pid=100 + rank, started=1, moved=1)
    return RankStand(
        rank=rank,
        registered=one,
        seen=Seen(state=state, threads=(Thread(name="MainThread", frames=frames),) if state else ()),
        placed=Placed(moved=1, frames=frames, groups=groups),
    )


def group(entered: int, *pending: Call, name: str = "0", ranks: tuple[int, ...] = (0, 1, 2)) -> Group:
    return Group(by="it", group=name, entered=entered, description=f"pg {name}", ranks=ranks, pending=pending)


SUM = Call(number=4, kind="all_reduce", sizes=[[10, 2]], dtypes=["Float"])


def test_ranks_in_a_collective_wait_for_those_that_did_not_come() -> None:
    stands = [stand(0, group(4, SUM)), stand(1, group(4, SUM)), stand(2, group(3), at="load")]
    assert list(who_waits(stands)) == [
        "ranks 0 and 1 wait in all_reduce number 4 of pg 0, 10x2 of Float, for rank 2:",
        "  rank 2: at load (/home/user/train.py:7)",
    ]


def test_ranks_that_do_not_make_the_same_call_are_named_with_theirs() -> None:
    other = Call(number=4, kind="broadcast", sizes=[[3]], dtypes=["Float"])
    stands = [stand(0, group(4, SUM)), stand(1, group(4, other)), stand(2, group(4, SUM))]
    assert list(who_waits(stands)) == [
        "pg 0: the ranks do not make the same call, number 4:",
        "  ranks 0 and 2: all_reduce of 10x2 of Float",
        "  rank 1: broadcast of 3 of Float",
    ]


def test_groups_are_told_apart() -> None:
    mine, theirs = group(4, SUM, name="1", ranks=(0, 1)), group(2, name="1", ranks=(0, 1))
    last = Call(number=9, kind="barrier")
    stands = [stand(0, mine), stand(1, theirs, group(9, last)), stand(2, group(8))]
    said = list(who_waits(stands))
    assert said[0] == "rank 1 waits in barrier number 9 of pg 0, for ranks 0 and 2:"
    assert said[3] == "rank 0 waits in all_reduce number 4 of pg 1, 10x2 of Float, for rank 1:"


def test_a_group_is_named_by_its_ranks_if_the_script_has_not_said_what_it_is_for() -> None:
    mine = Group(by="it", group="7", entered=4, description="undefined", ranks=(0, 1), pending=(SUM,))
    theirs = Group(by="it", group="7", entered=3, description="undefined", ranks=(0, 1))
    said = list(who_waits([stand(0, mine), stand(1, theirs)]))
    assert said[0] == "rank 0 waits in all_reduce number 4 of group 7 of ranks 0 and 1, 10x2 of Float, for rank 1:"


@pytest.mark.parametrize(
    ("kind", "peer"),
    [
        pytest.param("recv 0<-1", ", for rank 6: at load (/home/user/train.py:7)", id="from"),
        pytest.param("send 0->1", ", for rank 6: at load (/home/user/train.py:7)", id="to"),
        pytest.param("recv 0<-9", "", id="no such rank"),
        pytest.param("recv", "", id="unknown"),
    ],
)
def test_a_message_is_said_with_the_rank_that_it_waits_for(kind: str, peer: str) -> None:
    call = Call(number=1, kind=kind, sizes=[[3]], dtypes=["Float"], is_message=True)
    stands = [stand(5, group(0, call, ranks=(5, 6))), stand(6, at="load")]
    assert list(who_waits(stands)) == [f"rank 5 waits in {kind} of pg 0, 3 of Float{peer}"]


def test_a_collective_that_all_are_in_is_said_with_who_is_stopped() -> None:
    stands = [stand(0, group(4, SUM)), stand(1, group(4, SUM), state="T"), stand(2, group(4, SUM))]
    assert list(who_waits(stands)) == [
        "all 3 ranks of it are in all_reduce number 4 of pg 0, 10x2 of Float",
        "rank 1: stopped by a signal (SIGSTOP); at step (/home/user/train.py:7)",
    ]


def test_a_place_that_was_not_looked_at_is_the_last_that_the_rank_told() -> None:
    frames = (("import_all", "/home/user/train.py", 1),)
    one = Registered(rank=1, host="n", boot="b", pid=101, started=1, moved=1, frames=frames)
    stopped = RankStand(rank=1, registered=one, seen=Seen(state="T", error="py-spy took longer than 20 s"), placed=None)
    assert stopped.summary == ("stopped by a signal (SIGSTOP); last seen at import_all (/home/user/train.py:1)")


def test_a_rank_that_never_came_is_named() -> None:
    stands = [stand(0), RankStand(rank=1, registered=None, seen=None, placed=None)]
    assert list(who_waits(stands)) == [
        "rank 1: has not begun to run the script",
        "rank 0: at step (/home/user/train.py:7)",
    ]


@pytest.mark.parametrize(
    ("ranks", "words"),
    [([3], "rank 3"), ([0, 1], "ranks 0 and 1"), ([0, 1, 2, 5], "ranks 0-2 and 5"), ([4, 1], "ranks 1 and 4")],
)
def test_ranks_in_words(ranks: list[int], words: str) -> None:
    assert in_words(ranks) == words


def test_a_flight_recorders_trace_is_read() -> None:
    entry = {
        "process_group": ["0", "default_pg"], "is_p2p": False, "p2p_seq_id": 0, "collective_seq_id": 3, "retired": True,
        "state": "scheduled", "profiling_name": "nccl:all_reduce", "input_sizes": [[4]], "input_dtypes": ["Float"],
    }  # fmt: skip
    entries = [
        entry,
        {**entry, "collective_seq_id": 4, "retired": False},
        {**entry, "is_p2p": True, "p2p_seq_id": 1, "retired": False, "profiling_name": "nccl:recv 0<-1"},
    ]
    (one,) = watch_rank.recorded({"entries": entries})
    assert one["entered"] == 4
    assert [(call["kind"], call["number"], call["is_message"]) for call in one["pending"]] == [
        ("all_reduce", 4, False),
        ("recv 0<-1", 1, True),
    ]
    assert watch_rank.recorded({}) == []


def test_faulthandlers_text_is_read() -> None:
    other = 'Thread 0x00007f1 (most recent call first):\n  File "/a b.py", line 3 in other\n'
    main = '  File "/x.py", line ? in f\n  File "/x.py", line 9 in <module>\n'
    text = f"{other}\nCurrent thread 0x00007f2 (most recent call first):\n{main}"
    first, second = look_at_ranks.threads_of(text)
    assert first == {"name": "MainThread", "frames": [["f", "/x.py", 0], ["<module>", "/x.py", 9]]}
    assert second["frames"] == [["other", "/a b.py", 3]]


def test_a_process_with_the_number_of_one_that_ended_is_left_alone(tmp_path: Path) -> None:
    """A signal to it would end it."""
    uname, boot = os.uname(), look_at_ranks.boot_id()
    own = {
        "rank": 0,
        "host": uname.nodename,
        "boot": boot,
        "pid": os.getpid(),
        "started": 1,
        "signal": watch_rank.SIGNAL,
    }
    (tmp_path / "rank-0.json").write_text(json.dumps(own))
    (rank,) = look_at_ranks.own_ranks(tmp_path)
    assert look_at_ranks.look_at(rank, tmp_path, "", 0.0) == {"state": "", "threads": [], "by": "", "error": ""}
    started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    assert look_at_ranks.faulted({**own, "started": started}, tmp_path, 0.0) == []  # it has no handler
