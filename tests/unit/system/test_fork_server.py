# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from channel_tools.system.errors import CommandError
from channel_tools.system.fork_server import ForkedProcess, ForkServer
from channel_tools.system.processes import end_process_group, wait_for_any
from tests.support.processes import TEST_TIMEOUT_S, assert_ended

ROOT = Path(__file__).parents[3]
MODULE = "tests.unit.system.forking"
TIED = "from channel_tools.system.workers import end_with_parent; import signal, time; "
SLEEP = TIED + "end_with_parent(server, signal.SIGKILL); print('asleep', flush=True); time.sleep(1000)"
STATE = (
    "import json, os, sys; mask = os.umask(0); os.umask(mask); print(json.dumps({'env': dict(os.environ), 'mask': mask,"
    " 'cwd': os.getcwd(), 'known': hasattr(os, 'leak'), 'path': sys.path, 'modules': sorted(sys.modules),"
    " 'open': sorted(int(name) for name in os.listdir('/proc/self/fd')), 'session': os.getsid(0) == os.getpid()}))"
)


@pytest.fixture
def server() -> Iterator[ForkServer]:
    with ForkServer(MODULE, env={"PYTHONPATH": str(ROOT)}) as made:
        yield made


class Children:
    """Starts children with an output file each."""

    def __init__(self, server: ForkServer, folder: Path) -> None:
        self._server, self._folder = server, folder
        self._count = 0

    def start(self, code: str, env: Mapping[str, str] | None = None) -> tuple[ForkedProcess, Path]:
        self._count += 1
        path = self._folder / f"output-{self._count}"
        with path.open("wb") as output:
            return self._server.start(code, env=env or {}, output=output.fileno()), path

    def run(self, code: str, env: Mapping[str, str] | None = None) -> tuple[int, str]:
        process, path = self.start(code, env)
        status = process.wait(TEST_TIMEOUT_S)
        end_process_group(process)
        return status, path.read_text()

    def asleep(self) -> tuple[ForkedProcess, Path]:
        """A child that sleeps, and has said so."""
        process, path = self.start(SLEEP)
        while "asleep" not in path.read_text():
            os.sched_yield()
        return process, path


@pytest.fixture
def children(server: ForkServer, tmp_path: Path) -> Children:
    return Children(server, tmp_path)


def test_no_child_sees_what_another_changed(children: Children, tmp_path: Path) -> None:
    before = json.loads(children.run(STATE)[1])
    changes = (
        f"import os, sys, decimal; os.environ['LEAK'] = 'x'; os.umask(0o777); os.chdir({str(tmp_path)!r}); os.leak = 1;"
        f" sys.path.append('/leak'); os.open({str(tmp_path)!r}, os.O_RDONLY); os.nice(1)"
    )
    assert children.run(changes, {"OWN": "1"})[0] == 0
    after = json.loads(children.run(STATE)[1])
    assert after == before
    assert (after["env"], after["known"], after["session"]) == ({}, False, True)
    assert after["open"] == [0, 1, 2, 3]  # and that of the listing


def test_a_child_has_the_environment_and_the_output_that_it_was_given(children: Children) -> None:
    program = "import os, subprocess; print('begin', flush=True); subprocess.run(['/usr/bin/env']); os.write(2, b'end')"
    assert children.run(program, {"OWN": "a b", "HOME": "/x"}) == (0, "begin\nOWN=a b\nHOME=/x\nend")


@pytest.mark.parametrize(
    ("code", "status"),
    [
        pytest.param("status = 7", 7, id="status"),
        pytest.param("import os; os._exit(3)", 3, id="exit"),
        pytest.param("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, id="killed"),
        pytest.param("import os; os.abort()", -signal.SIGABRT, id="crash"),
    ],
)
def test_an_end_is_reported_as_it_was_and_takes_no_other_with_it(children: Children, code: str, status: int) -> None:
    other, _path = children.asleep()
    assert children.run(code)[0] == status
    with pytest.raises(subprocess.TimeoutExpired):
        other.wait(0)
    end_process_group(other)
    assert other.wait() == -signal.SIGTERM


def test_an_exception_is_in_the_childs_output(children: Children) -> None:
    status, said = children.run("raise ValueError('told')")
    assert status == 1
    assert said.endswith("ValueError: told\n")


def test_a_descriptor_is_ready_when_the_process_has_ended_and_its_id_stays_its_own(children: Children) -> None:
    asleep, _path = children.asleep()
    ended, _path = children.start("")
    descriptors = {asleep.end_descriptor(): asleep, ended.end_descriptor(): ended}
    assert [descriptors[one] for one in wait_for_any(descriptors)] == [ended]
    os.kill(ended.pid, 0)  # a zombie until it is closed
    for descriptor, process in descriptors.items():
        os.close(descriptor)
        end_process_group(process)
    assert_ended([ended.pid, asleep.pid])


def test_closing_the_server_ends_its_children(server: ForkServer, children: Children) -> None:
    processes = [children.asleep()[0] for _ in range(2)]
    server.close()
    for process in processes:
        with pytest.raises(ProcessLookupError):
            os.kill(process.pid, 0)
        process.close()


def test_a_killed_server_counts_as_the_end_of_its_children_and_is_started_again(children: Children) -> None:
    process, _path = children.asleep()
    _status, said = children.run("print(server)")
    os.kill(int(said), signal.SIGKILL)
    assert process.wait(TEST_TIMEOUT_S) == -signal.SIGKILL
    assert_ended([process.pid])
    process.close()
    status, again = children.run("print(server)")
    assert status == 0
    assert again != said


def test_a_server_that_cannot_start_says_why() -> None:
    with (
        ForkServer("tests.unit.system.not_there", env={"PYTHONPATH": str(ROOT)}) as server,
        pytest.raises(CommandError, match=r"No module named .*not_there"),
    ):
        server.start("", env={}, output=1)


def test_nothing_is_left_when_the_client_is_killed() -> None:
    script = (
        "import os, signal, sys, time\nfrom channel_tools.system.fork_server import ForkServer\n"
        f"server = ForkServer({MODULE!r}, env={{'PYTHONPATH': {str(ROOT)!r}}})\n"
        f"one = server.start({SLEEP!r}, env={{}}, output=1)\n"
        "two = server.start('print(server, flush=True)', env={}, output=1)\n"
        "two.wait(); print(one.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    result = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=False)
    assert result.returncode == -signal.SIGKILL
    assert_ended([int(word) for word in result.stdout.split() if word.isdigit()])


def test_a_server_that_nobody_needed_ends_at_once() -> None:
    server = ForkServer(MODULE, env={})
    server.prepare()
    server.close()
    server.close()
