# SPDX-License-Identifier: BSD-3-Clause
"""Runs of the command line with hostile arguments: many, each in a world of its own, without rights.

A server process imports the command line once and forks for every run. Before that it moves to namespaces of its own,
with loopback alone as network and with small file systems in memory: one for the runs, which flush their files all the
time, one that is full, one that nobody may write to.
A run belongs to a user id that nobody has, works in a folder with a copy of the test's world, and
is judged by what it leaves: its exit code, what it says, processes, and files in places that its arguments do not name.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import gc
import importlib
import json
import os
import pkgutil
import resource
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pytest

LIMIT_S = 120.0
"""Two commands for each core take a second or two, at a load of 20 half a minute."""
PLACE, FULL, READONLY, FINGERPRINT = "{place}", "{full}", "{readonly}", "{fingerprint}"
"""Stand in arguments and variables for the folder of a run, the small file systems, and what world/fingerprint says."""
NOBODY = 54321
_DEFECT = 70
_CLONE_NEWNS, _CLONE_NEWUSER, _CLONE_NEWNET = 0x00020000, 0x10000000, 0x40000000
_MS_RDONLY, _MS_BIND, _MS_REC, _MS_PRIVATE = 1, 1 << 12, 1 << 14, 1 << 18
_PR_SET_CHILD_SUBREAPER = 36
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_FULL_BYTES = 1 << 16
_MEMORY_BYTES = 1 << 31
_PROCESSES_PER_CORE = 400
"""The limit is for all that a user has: two runs for each core, each with some threads for each core."""
_WORDS_OF_DEFECTS = ("Traceback (most recent call last)", "This is a defect", "panicked at")
_SERVING = b"serving "
_IS_ROOT = os.getuid() == 0
"""Asked before a namespace makes everybody root."""
_ALWAYS_FREE = ("cache", "world/output", "world/tree/locks", "gone")
"""Places that a run may always write to: its environment names them."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One command; streams are names of files, ``-`` for a closed one."""

    arguments: Sequence[str]
    environ: Mapping[str, str | None] = field(default_factory=dict)
    stdout: str = ""
    stderr: str = ""
    cwd: str = "cwd"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a run was like; ``findings`` is empty for one that behaved."""

    run: Run
    code: int
    seconds: float
    stderr: str
    findings: Sequence[str]

    def __str__(self) -> str:
        run, words = self.run, " ".join(self.run.arguments)
        where = f"stdout={run.stdout!r} stderr={run.stderr!r} cwd={run.cwd!r} {dict(run.environ)}"
        return f"{'; '.join(self.findings)}: [{words[:300]}] {where} {self.stderr[-1500:]}"


class Sweeper:
    """The server's client."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.has_mounts = json.loads(self._read())

    def sweep(self, runs: Sequence[Run]) -> list[Outcome]:
        """What each run was like; one that took too long among others is tried again alone, on a machine at rest."""
        outcomes = self._sweep(runs)
        for number, outcome in enumerate(outcomes):
            if outcome.seconds > LIMIT_S:
                outcomes[number : number + 1] = self._sweep([outcome.run])
        return outcomes

    def _sweep(self, runs: Sequence[Run]) -> list[Outcome]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([asdict(run) for run in runs]) + "\n")
        self._process.stdin.flush()
        outcomes = json.loads(self._read())
        return [Outcome(run=run, **outcome) for run, outcome in zip(runs, outcomes, strict=True)]

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the server of the sweep ended"
        return line


@contextmanager
def sweeper(make_world: Callable[[Path], None]) -> Iterator[Sweeper]:
    """A server whose runs get copies of the folder that ``make_world`` fills."""
    root = Path(__file__).parents[2]
    folder = tempfile.mkdtemp(prefix="sweep-")
    command = [sys.executable, "-m", "tests.support.sweep", folder]
    try:
        (world := Path(folder) / "world").mkdir()
        make_world(world)
        if os.getuid() == 0:
            for parent, _folders, files in os.walk(world):
                for name in (".", *files):
                    os.chown(os.path.join(parent, name), NOBODY, NOBODY, follow_symlinks=False)  # noqa: PTH118
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root) as process:
            try:
                running = Sweeper(process)
                if not running.has_mounts and os.getuid() == 0 and _hidden():
                    pytest.skip(f"{_hidden()}: runs of another user cannot read it")
                yield running
            finally:
                process.communicate()  # after an interrupt there are outcomes yet that nobody has read
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _serve(folder: Path) -> None:
    folder.chmod(0o755)
    has_mounts = _enter_namespaces(folder)
    for module in ("channel_tools.cli.app", *_modules()):
        importlib.import_module(module)
    gc.freeze()  # what all runs share is copied less often
    sys.stdout.write(json.dumps(has_mounts) + "\n")
    sys.stdout.flush()
    for line in sys.stdin:
        outcomes = _run_all([Run(**run) for run in json.loads(line)], folder)
        sys.stdout.write(json.dumps(outcomes) + "\n")
        sys.stdout.flush()


_RUN_WHEN_IMPORTED = (".data", ".workers.", ".fork_ranks", "__main__")
"""Parts of modules' names; the second and third are programs for an environment's Python, which has PyTorch."""


def _modules() -> Iterator[str]:
    """The program's, without those that run when they are imported."""
    import channel_tools  # noqa: PLC0415

    for found in pkgutil.walk_packages(channel_tools.__path__, "channel_tools."):
        if not any(part in found.name for part in _RUN_WHEN_IMPORTED):
            yield found.name


def _enter_namespaces(folder: Path) -> bool:
    """Whether there are file systems of its own; where this user may make no namespaces, the runs go without."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # what runs leave behind is waited for here
    for name in ("full", "readonly", "runs"):
        (folder / name).mkdir()
    user, group = os.getuid(), os.getgid()
    if libc.unshare((0 if user == 0 else _CLONE_NEWUSER) | _CLONE_NEWNS | _CLONE_NEWNET) != 0:
        (folder / "readonly").chmod(0o555)
        return False
    if user != 0:
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1", encoding="ascii")
    _set_loopback_up()

    def mount(target: Path, flags: int, data: str = "", source: str = "tmpfs") -> None:
        if libc.mount(source.encode(), bytes(target), b"tmpfs", flags, data.encode()) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(target))

    libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None)
    if _IS_ROOT:
        _show_hidden(folder, mount)
    mount(folder / "runs", 0, "mode=755")
    mount(folder / "readonly", _MS_RDONLY, "mode=777")
    mount(folder / "full", 0, f"mode=777,size={_FULL_BYTES}")
    try:
        with (folder / "full" / "filler").open("wb", buffering=0) as stream:
            while True:
                stream.write(bytes(4096))
    except OSError as err:
        if err.errno != errno.ENOSPC:
            raise
    return True


def _set_loopback_up() -> None:
    """A new network namespace has it down, where a server would wait for ever until it can be reached."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        (flags,) = struct.unpack_from("16xH", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, struct.pack("16sH14x", b"lo", 0)))
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | _IFF_UP))


def _hidden() -> dict[Path, Path]:
    """What runs read and only root may, by the folder that hides it: the clone, Python, and folders of the PATH."""
    found = {}
    paths = (Path(__file__).parents[2], Path(sys.prefix), Path(sys.base_prefix), *map(Path, os.get_exec_path()))
    for path in sorted(path for path in {*paths} if path.is_dir()):
        closed = [parent for parent in (path, *path.parents) if not parent.stat().st_mode & stat.S_IXOTH]
        if closed:
            found[path] = closed[-1]
    return found


def _show_hidden(folder: Path, mount: Callable[..., None]) -> None:
    """Put an open folder over each that hides something, and the hidden where it was."""
    hidden = _hidden()
    for number, path in enumerate(hidden):
        (folder / f"shown{number}").mkdir()
        mount(folder / f"shown{number}", _MS_BIND, source=str(path))
    for parent in {*hidden.values()}:
        mount(parent, 0, "mode=755")
    for number, path in enumerate(hidden):
        path.mkdir(parents=True, exist_ok=True)
        mount(path, _MS_BIND, source=str(folder / f"shown{number}"))


@dataclass(kw_only=True)
class _Child:
    number: int
    run: Run
    process: int
    place: Path
    before: Mapping[str, object]
    started_s: float
    is_told: bool = False


def _run_all(runs: Sequence[Run], folder: Path) -> list[dict[str, object]]:
    waiting = list(enumerate(runs))[::-1]
    running: dict[int, _Child] = {}
    outcomes: dict[int, dict[str, object]] = {}
    while waiting or running:
        while waiting and len(running) < 2 * (os.cpu_count() or 1):
            number, run = waiting.pop()
            child = _start(number, run, folder)
            running[child.process] = child
        process, status = os.waitpid(-1, os.WNOHANG)
        if process in running:
            child = running.pop(process)
            outcomes[child.number] = _judge(child, os.waitstatus_to_exitcode(status), folder)
            continue
        for child in running.values():
            _hurry(child)
        if process == 0:
            time.sleep(0.002)
    return [outcomes[number] for number in range(len(runs))]


def _hurry(child: _Child) -> None:
    """End a server that serves, as its user would, and what takes too long."""
    if time.monotonic() - child.started_s > LIMIT_S:
        os.killpg(child.process, signal.SIGKILL)
    elif not child.is_told and "serve" in child.run.arguments and _is_serving(child):
        child.is_told = True
        os.kill(child.process, signal.SIGTERM)


def _is_serving(child: _Child) -> bool:
    """By what it says, or by its workers where that goes elsewhere."""
    if child.run.stderr:
        return bool(Path(f"/proc/{child.process}/task/{child.process}/children").read_bytes())
    return _SERVING in (child.place / "stderr").read_bytes()


def _start(number: int, run: Run, folder: Path) -> _Child:
    place = folder / "runs" / str(number)
    here, there = socket.socketpair()
    place.mkdir()
    if _IS_ROOT:
        os.chown(place, NOBODY, NOBODY)
    started_s = time.monotonic()
    process = os.fork()
    if process == 0:
        try:
            os.setpgid(0, 0)
            _drop_rights()
            _prepare(place, folder / "world")
            there.send(b"ready")
            here.close()
            there.recv(1)
            _become(run, place, folder)
        except Exception as err:  # noqa: BLE001 - no run may come to the loop of the server
            os.write(2, f"the run could not be prepared: {err!r}\n".encode())
            os._exit(99)
        from channel_tools.cli.entry import main  # noqa: PLC0415

        main()
    there.close()
    with here:
        here.recv(10)
        before = _snapshot(place)
        here.send(b"x")
    return _Child(number=number, run=run, process=process, place=place, before=before, started_s=started_s)


def _drop_rights() -> None:
    if _IS_ROOT:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    libc.capset(header, (ctypes.c_uint32 * 6)())
    processes = _PROCESSES_PER_CORE * (os.cpu_count() or 1)
    resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.umask(0o022)


def _prepare(place: Path, world: Path) -> None:
    """The folder of a run: a copy of the world, and what is no regular file."""
    shutil.copytree(world, place / "world", symlinks=True)
    for name in ("cwd", "home", "tmp", "cache", "folder", "locked", "gone"):
        (place / name).mkdir()
    (place / "file").write_text("text\n", encoding="ascii")
    (place / "folder" / "inner").write_text("text\n", encoding="ascii")
    (place / "unreadable").touch(0)
    (place / "dangling").symlink_to("nowhere")
    (place / "loop").symlink_to("loop")
    os.mkfifo(place / "fifo")
    here = os.open(place, os.O_RDONLY)
    os.chdir(here)  # a socket's path may have 107 bytes
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
    os.close(here)
    for name in ("stdout", "stderr"):
        (place / name).touch()
    (place / "locked").chmod(0o555)


def _become(run: Run, place: Path, folder: Path) -> None:
    os.chdir(place / run.cwd)
    if run.cwd == "gone":
        (place / run.cwd).rmdir()
    environ = {
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "HOME": f"{place}/home",
        "TMPDIR": str(place / "tmp"),
        "CHANNEL_TOOLS_ROOT": f"{place}/world/tree",
        "CHANNEL_TOOLS_OUTPUT": f"{place}/world/output",
        "CHANNEL_TOOLS_CACHE": f"{place}/cache",
        **{name: _placed(value, place, folder) for name, value in run.environ.items() if value is not None},
    }
    os.environ.clear()
    os.environ.update({name: value for name, value in environ.items() if run.environ.get(name, "") is not None})
    tempfile.tempdir = None
    sys.argv = ["channel_tools", *(_placed(argument, place, folder) for argument in run.arguments)]
    os.closerange(3, 100)
    for number, (path, usual) in enumerate(
        (("/dev/null", "/dev/null"), (run.stdout, str(place / "stdout")), (run.stderr, str(place / "stderr")))
    ):
        if path == "-":
            os.close(number)
            continue
        descriptor = os.open(path or usual, os.O_RDWR | os.O_APPEND)
        os.dup2(descriptor, number)
        os.close(descriptor)
    if run.stdout == "-":
        sys.stdout = None
    if run.stderr == "-":
        sys.stderr = None


def _placed(text: str, place: Path, folder: Path) -> str:
    for word, path in ((PLACE, place), (FULL, folder / "full"), (READONLY, folder / "readonly")):
        text = text.replace(word, str(path))
    if FINGERPRINT in text:
        text = text.replace(FINGERPRINT, (folder / "world" / "fingerprint").read_text(encoding="ascii"))
    return text


def _judge(child: _Child, code: int, folder: Path) -> dict[str, object]:
    seconds = time.monotonic() - child.started_s
    stderr = (child.place / "stderr").read_text(encoding="utf-8", errors="replace")
    findings = []
    if seconds > LIMIT_S:
        findings.append(f"no end in {LIMIT_S:.0f} s")
    elif code == _DEFECT or (code < 0 and not child.is_told) or code in {1, 99}:
        findings.append(f"exit code {code}")
    if any(words in stderr for words in _WORDS_OF_DEFECTS):
        findings.append("a traceback")
    if _has_processes(child.process):
        findings.append("processes are left")
        os.killpg(child.process, signal.SIGKILL)
    findings += [f"wrote {path}" for path in sorted(_strays(child, folder))]
    _remove(child.place)
    return {"code": code, "seconds": seconds, "stderr": stderr, "findings": findings}


def _has_processes(group: int) -> bool:
    """Whether processes of a run stay after its end: a machine that is busy takes its time to end them."""
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        try:
            os.killpg(group, 0)
            os.waitpid(-group, os.WNOHANG)
        except ProcessLookupError:
            return False
        except ChildProcessError:
            time.sleep(0.01)
    return True


def _strays(child: _Child, folder: Path) -> set[str]:
    """What changed in places that neither the arguments nor the environment name."""
    after = _snapshot(child.place)
    changed = {path for path in after.keys() | child.before.keys() if after.get(path) != child.before.get(path)}
    named = [*_ALWAYS_FREE, *_named(child, folder)]
    return {path for path in changed if not any(_is_in(path, place) for place in named)}


def _named(child: _Child, folder: Path) -> Iterator[str]:
    for argument in (*child.run.arguments, *(value or "" for value in child.run.environ.values())):
        text = _placed(argument, child.place, folder)
        text = text.partition("=")[2] if text.startswith("--") else text[2:] if text.startswith("-") else text
        at_home = f"{child.place}/home{text[1:]}" if text.startswith("~/") or text == "~" else ""
        for one in {text, text.removeprefix("file://"), argument, at_home} - {""}:
            path = os.path.normpath(os.path.join(child.place / "cwd", one))  # noqa: PTH118 - may be no path at all
            for named in (path, os.path.realpath(path)):
                if f"{named}/".startswith(f"{child.place}/"):
                    yield named.removeprefix(str(child.place)).removeprefix("/")


def _is_in(path: str, place: str) -> bool:
    """Also a lock file or a temporary name beside it, and the folders that it lies in; "" is the run's own folder."""
    beside = os.path.dirname(path) == os.path.dirname(place) and os.path.basename(place) in os.path.basename(path)  # noqa: PTH119, PTH120
    return place in {path, ""} or path.startswith(f"{place}/") or place.startswith(f"{path}/") or beside


def _snapshot(place: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for parent, folders, files in os.walk(place):
        for name in (*folders, *files):
            path = os.path.join(parent, name)  # noqa: PTH118
            about = os.lstat(path)
            key = path.removeprefix(f"{place}/")
            if key not in {"stdout", "stderr"}:
                size = 0 if stat.S_ISDIR(about.st_mode) else about.st_size
                found[key] = (about.st_mode, size, 0 if stat.S_ISDIR(about.st_mode) else about.st_mtime_ns)
    return found


def _remove(place: Path) -> None:
    def with_rights(_function: object, path: str, _err: object) -> None:
        os.chmod(os.path.dirname(path), 0o700)  # noqa: PTH101, PTH120
        os.unlink(path)  # noqa: PTH108

    shutil.rmtree(place, onerror=with_rights)


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
