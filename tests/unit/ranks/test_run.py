# SPDX-License-Identifier: BSD-3-Clause
"""The command line's ``launch`` under stand-ins for mpiexec, srun, torchrun and ssh, which start real processes."""

from __future__ import annotations

import contextlib
import os
import pty
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from channel_tools.ranks.plan import Account
from channel_tools.ranks.run import account_in_words
from tests.support.processes import TEST_TIMEOUT_S, processes_naming
from tests.unit.ranks.conftest import Site

HERE = socket.gethostname()
IN_SLURM = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1"}
READS = """\
import os, sys
text = sys.stdin.read()
os.write(1, f"{os.environ['RANK']} {text!r}\\n".encode())
"""
WAITS = """\
import os, sys
if os.environ["RANK"] == "0":
    os.write(1, b"up\\n")
for line in sys.stdin:
    os.write(1, f"the rank has {line}".encode())
"""
SAYS = """\
import os, sys
os.write(2, f"{os.environ['RANK']} ".encode() + b"\\xff \\x1b[1m\\n")
sys.exit(7 if os.environ["RANK"] == "1" else 0)
"""


def hosts_file(site: Site, text: str) -> str:
    (site.folder / "hosts").write_text(text)
    return str(site.folder / "hosts")


def test_a_dry_run_prints_a_script_that_does_the_same(site: Site) -> None:
    result = site.launch("--ranks", "2", "--dry-run", "train.py", "--lr", "0.1", "two words")
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert "export FI_PROVIDER=tcp" in lines
    assert "export OMP_NUM_THREADS=3" in lines  # the user's own
    assert shlex.split(lines[-1])[-4:] == ["train.py", "--lr", "0.1", "two words"]
    printed = site.folder / "printed.sh"
    printed.write_text(result.stdout)
    ran = subprocess.run(["sh", printed], cwd=site.folder, capture_output=True, text=True, check=True)
    assert sorted(ran.stdout.splitlines()) == [f"{rank} 2 {rank} 127.0.0.1 --lr 0.1 two words" for rank in range(2)]


@pytest.mark.parametrize(
    ("launcher", "words", "code"),
    [("mpiexec", ("exit", "7"), 7), ("torchrun", (), 0), ("torchrun", ("exit", "7"), 7), ("torchrun", ("kill",), 137)],
    ids=lambda value: "-".join(value) or "well" if isinstance(value, tuple) else None,
)
def test_the_exit_code_is_the_scripts_and_nothing_is_left(
    site: Site, launcher: str, words: tuple[str, ...], code: int
) -> None:
    result = site.launch("--ranks", "2", "--launcher", launcher, str(site.script), *words)
    assert result.returncode == code, result.stderr
    assert " ".join(["1", "2", "1", "127.0.0.1", *words]) in result.stdout.splitlines()
    assert processes_naming(site.folder) == []
    assert ("mpiexec ended with 7, the exit code of the rank that ended first" in result.stderr) is (
        launcher == "mpiexec"
    )


def test_what_carried_a_job_that_rank_0_did_not_live_to_report_is_not_known() -> None:
    account = Account(variable="REPORT", summary=lambda report: "gloo" if report is None else "the fabric")
    assert account_in_words(account, None, 0) == "gloo"
    assert account_in_words(account, None, 9).startswith("what carried this job is not known: rank 0 ended before")
    assert account_in_words(account, {}, 9) == "the fabric"


def shell(site: Site, line: str, *words: str) -> subprocess.CompletedProcess[bytes]:
    """A line of shell in which "$@" is the command."""
    command = ["sh", "-c", line, "sh", sys.executable, "-m", "channel_tools", *site.words(*words)]
    env = {**os.environ, **site.environ, **IN_SLURM} if "srun" in words else {**os.environ, **site.environ}
    return subprocess.run(command, cwd=site.folder, env=env, capture_output=True, check=False, timeout=TEST_TIMEOUT_S)


@pytest.mark.parametrize(
    ("launcher", "line", "read"),
    [
        ("torchrun", r'printf "hello\nthere" | "$@"', "hello\nthere"),
        ("torchrun", r'printf "hello\nthere" > in; "$@" < in', "hello\nthere"),
        ("torchrun", 'printf "" | "$@"', ""),
        ("torchrun", '"$@" <&-', ""),
        ("mpiexec", r'printf "hello\nthere" | "$@"', "hello\nthere"),
        ("srun", r'printf "hello\nthere" | "$@"', "hello\nthere"),
    ],
    ids=["pipe", "file", "at its end", "closed", "mpiexec", "srun"],
)
def test_standard_input_is_for_rank_0(site: Site, launcher: str, line: str, read: str) -> None:
    (site.folder / "reads.py").write_text(READS)
    result = shell(site, line, "--ranks", "2", "--launcher", launcher, "reads.py")
    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.decode().splitlines()) == [f"0 {read!r}", "1 ''"]


def test_standard_input_is_left_for_others_by_ranks_that_do_not_read(site: Site) -> None:
    line = 'printf "one\\ntwo\\n" | while read -r name; do echo "$name"; "$@"; done'
    result = shell(site, line, "--launcher", "torchrun", str(site.script))
    assert [line for line in result.stdout.decode().splitlines() if " " not in line] == ["one", "two"]


@pytest.mark.parametrize(("line", "is_said"), [('echo hello | "$@"', True), ('"$@" < /dev/null', False)])
def test_input_that_does_not_reach_rank_0_on_another_host_is_named(site: Site, line: str, *, is_said: bool) -> None:
    (site.folder / "reads.py").write_text(READS)
    hosts = hosts_file(site, f"other:1\n{HERE}:1\n")
    result = shell(site, line, "--hosts", hosts, "--launcher", "torchrun", str(site.folder / "reads.py"))
    assert sorted(result.stdout.decode().splitlines()) == ["0 ''", "1 ''"]
    assert (b"rank 0 reads no standard input" in result.stderr) == is_said


@contextlib.contextmanager
def on_a_terminal(site: Site, line: str, *words: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A shell's line, as shell() has it, whose session has a terminal as its input; and the terminal's other end."""
    main, side = pty.openpty()
    command = ["sh", "-c", line, "sh", sys.executable, "-m", "channel_tools", *site.words(*words)]
    # the first terminal that a session's leader opens becomes the session's
    opened = ["sh", "-c", f'exec "$@" < {os.ttyname(side)}', "sh", *command]
    env = {**os.environ, **site.environ}
    with subprocess.Popen(
        opened,
        cwd=site.folder,
        env=env,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process, main
        finally:  # which ends the session, if that has not ended
            os.close(side)
            os.close(main)


@pytest.mark.parametrize("launcher", ["torchrun", "mpiexec"])
def test_a_debugger_in_rank_0_is_used_from_the_terminal(site: Site, launcher: str) -> None:
    (site.folder / "stops.py").write_text(
        "import os\nif os.environ['RANK'] == '0':\n    breakpoint()\nprint('went', 'on')\n"
    )
    with on_a_terminal(site, 'exec "$@"', "--launcher", launcher, "stops.py") as (process, terminal):
        os.write(terminal, b"p 6 * 7\nc\n")
        said, errors = process.communicate()
    assert process.returncode == 0, errors
    assert "42" in said
    assert said.count("went on") == 2


@pytest.mark.parametrize("launcher", ["torchrun", "mpiexec"])
def test_ranks_in_the_background_leave_what_is_typed_to_the_shell(site: Site, launcher: str) -> None:
    (site.folder / "reads.py").write_text(READS)
    line = 'set -m; "$@" & wait $!; read -r typed; echo "the shell has $typed"'
    with on_a_terminal(site, line, "--launcher", launcher, "reads.py") as (process, terminal):
        os.write(terminal, b"the line\n")
        said, errors = process.communicate()
    assert sorted(said.splitlines()) == ["0 ''", "1 ''", "the shell has the line"], errors


def test_what_is_typed_while_the_command_is_stopped_is_the_shells(site: Site) -> None:
    (site.folder / "waits.py").write_text(WAITS)
    line = 'set -m; "$@"; echo stopped; read -r typed; echo "the shell has $typed"; fg %1 > /dev/null'
    with on_a_terminal(site, line, "--launcher", "mpiexec", "waits.py") as (process, terminal):
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        for typed, answer in (
            (b"one\n", "the rank has one\n"),
            (b"\x1a", "stopped\n"),
            (b"two\n", "the shell has two\n"),
            (b"three\n", "the rank has three\n"),
            (b"\x04", ""),
        ):
            os.write(terminal, typed)
            assert process.stdout.readline() == answer
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("line", "options", "shown"),
    [
        ('"$@"', (), True),
        ('"$@"', ("-q",), True),
        ('"$@"', ("--color", "never"), True),
        ('"$@"', ("-q", "--color", "never"), True),
        ('"$@" 2>&-', ("-q",), False),
        ('"$@" 2> /dev/full', (), False),
        ('"$@" 2> /dev/full', ("-q",), False),
    ],
    ids=["as it is", "quiet", "plain", "quiet and plain", "closed", "full", "full and quiet"],
)
def test_what_ranks_say_on_standard_error_is_passed_on_as_it_is(
    site: Site, line: str, options: tuple[str, ...], *, shown: bool
) -> None:
    (site.folder / "says.py").write_text(SAYS)
    result = shell(site, line, *options, "--launcher", "torchrun", "says.py")
    assert result.returncode == 7, result.stderr
    assert (b"1 \xff \x1b[1m\n" in result.stderr) == shown
    assert (b"export " in result.stderr) == (shown and "-q" not in options)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=lambda number: number.name)
def test_an_interrupt_ends_ranks_that_ignore_it(site: Site, number: signal.Signals) -> None:
    with site.start("--ranks", "2", str(site.script), "wait", stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert {process.stdout.readline().split()[0] for _ in range(2)} == {"0", "1"}
        process.send_signal(number)
        assert process.stdout.read() == ""  # which ends with the last of the ranks
        said = process.stderr.read()
    assert ("interrupted: all ranks have been ended" in said) == (number == signal.SIGINT)
    assert "finished work" not in said
    assert process.returncode == (-9 if number == signal.SIGKILL else 128 + number)
    assert processes_naming(site.folder) == []


@pytest.mark.parametrize("launcher", ["mpiexec", "srun"])
def test_a_world_of_another_size_is_refused_by_the_rank(site: Site, launcher: str) -> None:
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1"} if launcher == "srun" else {}
    result = site.launch("--ranks", "2", str(site.script), TEST_STARTS="1", **job)
    assert result.returncode == 1
    assert "expected 2 ranks, this one is of 1: launcher and MPI do not belong together" in result.stderr
    assert result.stdout == ""


def test_a_slurm_job_uses_srun_with_a_plug_in_that_mpi_knows(site: Site) -> None:
    result = site.launch("--ranks", "2", "train.py", SLURM_JOB_ID="20007", SLURM_JOB_NODELIST="n1")
    assert result.returncode == 0, result.stderr
    assert f"{site.folder}/bin/srun --mpi=pmi2 --ntasks=2 --kill-on-bad-exit=1 --export=ALL --input=0 " in result.stderr
    assert "export MASTER_PORT=28007\n" in result.stderr
    assert sorted(line.split()[:3] for line in result.stdout.splitlines()) == [["0", "2", "0"], ["1", "2", "1"]]


@pytest.mark.parametrize(
    ("variables", "code", "message"),
    [
        ({"TEST_PMI": "\tcray_shasta\n\tpmix\n"}, 2, "has no plug-in for the environment's MPI"),
        ({"SLURM_MPI_TYPE": "none"}, 2, "each of the 2 ranks would be an MPI world of its own"),
        ({"TEST_NO_PMI": "1"}, 1, "launcher and MPI do not belong together"),
    ],
    ids=["no plug-in", "none asked for", "a plug-in that says nothing"],
)
def test_srun_that_would_make_worlds_of_one_is_refused(
    site: Site, variables: dict[str, str], code: int, message: str
) -> None:
    result = site.launch("train.py", SLURM_JOB_ID="7", SLURM_JOB_NODELIST="n1", **variables)
    assert result.returncode == code
    assert message in result.stderr
    assert result.stdout == ""


def test_ranks_of_other_hosts_are_started_over_ssh(site: Site) -> None:
    hosts = hosts_file(site, f"# ours\n{HERE}:2\nother slots=2\n")
    result = site.launch("--ranks", "4", "--hosts", hosts, "--launcher", "torchrun", str(site.script), "a b")
    assert result.returncode == 0, result.stderr
    rows = [[str(rank), "4", str(rank % 2), HERE, "a", "b"] for rank in range(4)]
    assert sorted(line.split() for line in result.stdout.splitlines()) == rows
    assert set((site.folder / "reached").read_text().split()) == {"other"}


def test_a_rank_that_fails_on_another_host_ends_those_here(site: Site) -> None:
    hosts = hosts_file(site, f"other:1\n{HERE}:1\n")
    result = site.launch("--ranks", "2", "--hosts", hosts, "--launcher", "torchrun", str(site.script), "kill")
    assert result.returncode == 137
    assert processes_naming(site.folder) == []


def test_mpiexec_gets_the_hosts_by_name(site: Site) -> None:
    hosts = hosts_file(site, "one:1\n[fd00::5]:2\n")
    result = site.launch("--ranks", "3", "--hosts", hosts, "--dry-run", "train.py")
    assert "mpiexec -hosts one:1,fd00::5:2 -n 3 " in result.stdout
    assert "KVS" not in result.stdout  # loopback is no place to meet on several hosts


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("nosuch.py", "train.py"), 2, "nosuch.py: no such file in "),
        (("--hosts", "{far}", "train.py"), 5, "cannot start ranks on far: ssh: connect to host far port 22"),
        (("--hosts", "{odd}", "train.py"), 3, "hosts:1: found 'two words here', expected NAME, NAME:RANKS"),
        (("--hosts", "{one}", "--ranks", "3", "train.py"), 2, "the hosts have room for 1 rank, but 3 are requested"),
        (("--stack", "silent", "train.py"), 2, "the stack silent has no validate block"),
        (("--stack", "tyo", "train.py"), 2, "'tyo' is not a stack"),
        (("--launcher", "srun", "train.py"), 2, "expected"),
        (("--switch", "train.py"), 2, "--switch: the stack toy has no software switch"),
        (("--switch", "--emit", "slurm", "train.py"), 2, "--switch: the stack toy has no software switch"),
        (("--emit", "slurm", "--time", "soon", "train.py"), 2, "--time: found 'soon', expected HH:MM:SS"),
        (("--emit", "pbs", "--ranks", "3", "--nodes", "2", "train.py"), 2, "3 ranks on 2 nodes"),
        (("--emit", "pbs", "--hosts", "{one}", "train.py"), 2, "--hosts and --emit together"),
    ],
    ids=[
        "no script",
        "far",
        "odd",
        "room",
        "silent",
        "stack",
        "no srun",
        "no switch",
        "no switch in a job",
        "time",
        "nodes",
        "both",
    ],
)
def test_what_cannot_be_started_is_one_error(site: Site, words: tuple[str, ...], code: int, message: str) -> None:
    files = {"{far}": "far\n", "{odd}": "two words here\n", "{one}": "one:1\n"}
    given = [hosts_file(site, files[word]) if word in files else word for word in words]
    if "srun" in given:
        (site.folder / "bin/srun").unlink()
        code, message = 13, "has no srun"
    result = site.launch(*given)
    assert result.returncode == code
    assert message in result.stderr
    assert result.stderr.count("error: ") == 1
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("scheduler", "headers"),
    [
        (
            "slurm",
            ["#SBATCH --nodes=2", "#SBATCH --ntasks=4", "#SBATCH --ntasks-per-node=2", "#SBATCH --time=00:10:00"],
        ),
        ("pbs", ["#PBS -l select=2:ncpus=2:mpiprocs=2", "#PBS -l walltime=00:10:00"]),
    ],
)
def test_a_job_script_launches_the_same(site: Site, scheduler: str, headers: list[str]) -> None:
    job = site.folder / "job.sh"
    options = ("--ranks", "4", "--nodes", "2", "--time", "00:10:00", "--emit", scheduler, "-o", str(job))
    assert site.launch(*options, "train.py", "two words").returncode == 0
    text = job.read_text()
    assert [line for line in headers if line not in text.splitlines()] == []
    place = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1"} if scheduler == "slurm" else {}
    environ = {**os.environ, **site.environ, **place}
    ran = subprocess.run(["bash", job], env=environ, capture_output=True, text=True, check=True)
    assert sorted(line.split()[0] for line in ran.stdout.splitlines()) == ["0", "1", "2", "3"]


def test_what_is_asked_of_the_network_is_handed_to_slurm(site: Site) -> None:
    inside = Site(folder=site.folder, environ={**site.environ, **IN_SLURM})
    shown = inside.launch("--dry-run", "--network", "disable_rdzv_get,single_node_vni", "train.py")
    assert " --network=disable_rdzv_get,single_node_vni " in shown.stdout
    script = site.launch("--emit", "slurm", "--network", "single_node_vni", "train.py").stdout
    assert "#SBATCH --network=single_node_vni" in script.splitlines()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--dry-run", "--network", "single_node_vni"), "--network: mpiexec starts the ranks"),
        (("--network", "a b"), "--network: found 'a b'"),
        (("--network", ""), "--network: is empty"),
        (("--network", "x", "--emit", "pbs"), "--network with --emit pbs"),
    ],
)
def test_a_network_that_nobody_can_ask_for_is_one_error(site: Site, words: tuple[str, ...], says: str) -> None:
    result = site.launch(*words, "train.py")
    assert result.returncode == 2
    assert says in result.stderr
    assert "Traceback" not in result.stderr
