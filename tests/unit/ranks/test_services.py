# SPDX-License-Identifier: BSD-3-Clause
"""Services are scripts of the environment here: started, waited for, watched, ended, their logs counted."""

from __future__ import annotations

import os
import signal
import socket
from typing import TYPE_CHECKING

import pytest

from channel_tools.ranks.services import (
    RunContext,
    RunningService,
    ServiceCount,
    ServiceOptions,
    choose_port,
    running_services,
)
from channel_tools.system.errors import ValidationError
from channel_tools.system.processes import Deadline, wait_for_any
from channel_tools.system.progress import SilentProgress
from tests.support.processes import TEST_TIMEOUT_S, assert_ended
from tests.unit.validate.fakes import write_program

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

TALKER = """
    import os, pathlib, signal, subprocess, sys
    child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    pathlib.Path(sys.argv[1], "pids").write_text(f"{os.getpid()} {child.pid}")
    print("talking", " ".join(sys.argv[2:]), flush=True)
    for rank in (0, 1, 1):
        print(f"rank {rank}: message", flush=True)
    print("x" * 100_000, flush=True)
    print("serves at port 4711 of", os.environ["WHERE"], file=sys.stderr, flush=True)
    signal.pause()
"""
LISTENER = """
    import signal, socket, sys
    server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
    signal.pause()
"""


def services(
    folder: Path, *several: ServiceOptions, limit_s: float = TEST_TIMEOUT_S
) -> AbstractContextManager[tuple[RunningService, ...]]:
    context = RunContext(
        stack="toy",
        prefix=folder / "env",
        variables={"PATH": f"{folder}/env/bin", "WHERE": "the environment"},
        ranks=2,
        folder=folder,
        deadline=Deadline.after(limit_s),
        progress=SilentProgress(),
    )
    return running_services(several, context)


def toy(folder: Path, code: str, *words: str, **options: object) -> ServiceOptions:
    write_program(folder / "env/bin/toy-server", code)
    return ServiceOptions(command=("toy-server", *words), **options)  # type: ignore[arg-type]


def test_a_service_is_started_awaited_and_its_log_counted(tmp_path: Path) -> None:
    options = toy(
        tmp_path, TALKER, str(tmp_path), "{ranks}", "{prefix}/share",
        ready_line=r"port (?P<first>\d+) of the environment", rank_environment={"TOY": "{first} {ranks}"},
        carried_line=r"^rank (?P<rank>\d+): message", carried_bytes=64,
    )  # fmt: skip
    with services(tmp_path, options) as (running,):
        assert running.rank_variables == {"TOY": "4711 2"}
        assert running.stop() == ServiceCount(name="toy-server", lines={"0": 1, "1": 2}, bytes_per_line=64)
        assert running.program.has_ended()
    log = (tmp_path / "service-1-toy-server.log").read_text()
    assert f"talking 2 {tmp_path}/env/share\n" in log


def test_its_whole_process_group_ends_with_the_block(tmp_path: Path) -> None:
    options = toy(tmp_path, TALKER, str(tmp_path), ready_line="serves")
    with pytest.raises(KeyboardInterrupt), services(tmp_path, options):
        raise KeyboardInterrupt
    assert_ended([int(pid) for pid in (tmp_path / "pids").read_text().split()])


def test_a_service_is_ready_when_its_port_is(tmp_path: Path) -> None:
    options = toy(tmp_path, LISTENER, "{port}", ready_port="{port}", rank_environment={"PORT": "{port}"})
    with services(tmp_path, options) as (running,):
        port = int(running.rank_variables["PORT"])
        socket.create_connection(("127.0.0.1", port)).close()
        assert running.stop() is None


def test_the_second_is_started_when_the_first_is_ready(tmp_path: Path) -> None:
    first = toy(tmp_path, TALKER, str(tmp_path), ready_line="serves")
    code = f"import signal; print('first is', open({str(tmp_path / 'pids')!r}).read(), flush=True); signal.pause()"
    write_program(tmp_path / "env/bin/second", code)
    second = ServiceOptions(
        command=("second",),
        ready_line=r"first is (?P<pid>\d+)",  # type: ignore[arg-type]
        rank_environment={"FIRST": "{pid}"},
    )
    with services(tmp_path, first, second) as (one, two):
        assert two.rank_variables == {"FIRST": str(one.program.process.pid)}


def test_one_that_dies_is_seen_at_once_and_named(tmp_path: Path) -> None:
    options = toy(tmp_path, TALKER, str(tmp_path), ready_line="serves")
    with services(tmp_path, options) as (running,):
        os.kill(running.program.process.pid, signal.SIGKILL)
        assert wait_for_any([running.program.descriptor], Deadline.after(TEST_TIMEOUT_S))
        assert str(running.failure()).startswith("toy-server ended while the ranks ran: signal SIGKILL\ntalking")


def test_one_that_ends_before_it_is_ready_says_why(tmp_path: Path) -> None:
    options = toy(tmp_path, "import sys; sys.exit('no fabric here')", ready_line="serves")
    message = r"toy-server ended before it was ready: exit status 1\nno fabric here"
    with pytest.raises(ValidationError, match=message) as caught, services(tmp_path, options):
        pytest.fail("it is not ready")
    assert caught.value.hint == f"its log is {tmp_path}/service-1-toy-server.log"


def test_one_that_stays_silent_is_an_error_in_time(tmp_path: Path) -> None:
    code = "import signal; print('hm', flush=True); signal.pause()"
    options = toy(tmp_path, code, ready_line="serves", ready_timeout_s=0.5)
    with pytest.raises(ValidationError, match=r"toy-server: not ready within 0\.5 s"), services(tmp_path, options):
        pytest.fail("it is not ready")


def test_an_environment_without_it_says_so(tmp_path: Path) -> None:
    options = ServiceOptions(command=("toy-server",), ready_port="{port}")
    with pytest.raises(ValidationError, match="has no toy-server") as caught, services(tmp_path, options):
        pytest.fail("there is none")
    assert caught.value.hint == "add its package to the stack's install list"


def test_a_port_that_is_taken_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        monkeypatch.setattr("channel_tools.ranks.services._PORTS", [taken])
        with pytest.raises(ValidationError, match=rf"no free TCP port .* from {taken} to {taken}"):
            choose_port()
    assert choose_port() == taken
