# SPDX-License-Identifier: BSD-3-Clause
"""Stands between the scripts of a build and the engine, and makes what they write UTF-8.

py-rattler-build 0.73 stops reading a script's output at the first byte that is not UTF-8: the rest of the log is lost,
and a script that writes more than a pipe holds waits for ever. It starts every script, of the build and of the tests,
whatever its interpreter, as ``bash FILE``, and looks up bash on its own PATH (only ``interpreter: nu`` is started
directly). So a folder with a program of that name is put before the PATH: this file, which starts the bash that is
behind it and passes on what that writes. The scripts see neither the program nor its folder, nor passwords of proxies.

It runs as a file, without the installed packages, so it imports only Python's own modules.
"""

from __future__ import annotations

import codecs
import contextlib
import math
import os
import re
import resource
import selectors
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

_INTERPRETER = "bash"
LEFT_RUNNING = "left-running"
"""The file in the program's folder with a line for each script that left a process running, see main."""
_HELD_S = 10.0
_ENVIRONMENT = "build_env.sh"
"""The engine's file beside a script, which the script begins with."""
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
"""The engine needs their passwords, and scripts, which print all of their environment at times, do not."""
_USER = re.compile(r"//([^/]*@)")
_PIECE_BYTES = 1 << 14
_LINE_CHARACTERS = 1 << 14
"""Longer lines are broken: the engine holds a line in memory, and takes quadratic time to read it."""
_LINE_END = re.compile(r"(?<=[\r\n])")
_QUOTED = re.compile(r'(?:(?<=[\r\n])|\A)"(?:[^\r\n]*")?(?=[\r\n]|\Z)')


def put_before_path(folder: Path, path: str) -> str:
    """The PATH ``path`` with ``folder`` before it, which is made and gets the program that the engine takes for bash.

    No name in ``folder`` may need quotes in a shell.
    """
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / _INTERPRETER
    words = shlex.join([sys.executable, "-I", "-S", __file__, str(folder)])
    program.write_text(f'#!/bin/sh\nexec {words} "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    return f"{folder}:{path}"


class ReadableOutput:
    r"""Turns one stream into lines of UTF-8 that a person can read and that the engine passes on as they are.

    A byte that is not UTF-8 and a NUL are escaped, so that none is lost. The engine takes quotes around a line away,
    and panics at a line of one quote, so a space follows them. Very long lines are broken.

    >>> output = ReadableOutput()
    >>> output.readable(b"caf\xc3"), output.readable(b"\xa9 \xff\0\n\xc3"), output.readable(b"", final=True)
    (b'', b'caf\xc3\xa9 \\xff\\x00\n', b'\\xc3')
    >>> output.readable(b'"as it is"\n"\n')
    b'"as it is" \n" \n'
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="backslashreplace")
        self._begun = ""

    def readable(self, piece: bytes, *, final: bool = False) -> bytes:
        """The lines that end in ``piece``; if it is ``final``, also the last, which has no end."""
        text = self._begun + self._decoder.decode(piece, final).replace("\0", "\\x00")
        *lines, self._begun = _LINE_END.split(text)
        if final or len(self._begun) > _LINE_CHARACTERS:
            lines.append(self._begun if final else f"{self._begun}\n")
            self._begun = ""
        return _QUOTED.sub(r"\g<0> ", "".join(lines)).encode()


def main(folder: str, arguments: list[str], *, held_s: float = _HELD_S) -> int:
    """Run bash with ``arguments`` until it and all that have its output have ended; its exit status, negative a signal.

    What still has its output open ``held_s`` after bash has ended is killed, since it would run on while its files are
    packed; the log and the file LEFT_RUNNING say so. ``folder`` is the one that put_before_path made; it leaves the
    PATH.
    """
    before = f"{folder}:"
    own = {"PATH": os.environ["PATH"].removeprefix(before)}
    hidden = [before]
    for name in filter(os.environ.__contains__, _PROXIES):
        if user := _USER.search(os.environ[name]):
            own[name] = os.environ[name].replace(user[0], "//")
            hidden.append(user[1])
    if arguments:
        # a shell in a failed build reads the engine's file, too
        environment = Path(arguments[0]).with_name(_ENVIRONMENT)
        if environment.is_file():
            content = environment.read_bytes()
            for text in hidden:
                content = content.replace(os.fsencode(text), b"")
            environment.write_bytes(content)
    bash = subprocess.Popen(
        [_INTERPRETER, *arguments],
        env=os.environ | own,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with selectors.DefaultSelector() as streams:
        for stream, descriptor in ((bash.stdout, sys.stdout.fileno()), (bash.stderr, sys.stderr.fileno())):
            if stream is not None:
                streams.register(stream, selectors.EVENT_READ, (descriptor, ReadableOutput()))
        ended, until_s = os.pidfd_open(bash.pid), math.inf
        streams.register(ended, selectors.EVENT_READ)
        while len(streams.get_map()) > (until_s == math.inf) and (left_s := until_s - time.monotonic()) > 0:
            for key, _events in streams.select(None if left_s == math.inf else left_s):
                if key.fd == ended:
                    until_s = time.monotonic() + held_s
                    streams.unregister(ended)
                    continue
                descriptor, output = key.data
                piece = os.read(key.fd, _PIECE_BYTES)
                content = output.readable(piece, final=not piece)
                while content:
                    content = content[os.write(descriptor, content) :]
                if not piece:
                    streams.unregister(key.fileobj)
        held = {f"pipe:[{os.fstat(key.fd).st_ino}]" for key in streams.get_map().values()}
        if held and (names := _kill_holders(held)):
            _say_killed(Path(folder), names, held_s)
    return bash.wait()


def _kill_holders(pipes: set[str]) -> list[str]:
    """Kill the processes that have one of the pipes (``pipe:[INODE]``) open; returns their names and ids."""
    names = []
    for process in sorted(Path("/proc").glob("[0-9]*")):
        try:
            opened = {link for entry in (process / "fd").iterdir() if (link := _target(entry)) is not None}
            name = (process / "comm").read_text(errors="replace").strip()
        except OSError:  # another user's, or it has ended
            continue
        if opened & pipes and int(process.name) != os.getpid():
            names.append(f"{name} (process {process.name})")
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(process.name), signal.SIGKILL)
    return names


def _target(descriptor: Path) -> str | None:
    try:
        return os.fspath(descriptor.readlink())
    except OSError:  # closed meanwhile
        return None


def _say_killed(folder: Path, names: list[str], held_s: float) -> None:
    text = (
        f"the script has ended, but {', '.join(names)} still had its output open {held_s:g} s later and was killed: "
        "let the script wait for it or end it"
    )
    os.write(sys.stderr.fileno(), f"{text}\n".encode())
    with (folder / LEFT_RUNNING).open("a", encoding="utf-8") as file:
        file.write(f"{text}\n")


def _end_as(status: int) -> None:
    """End as bash did: by its signal, or with its exit status."""
    if status < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError):  # the two that no process can handle
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status if status >= 0 else 128 - status)


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # if nobody reads, it ends as the script itself would
    _end_as(main(sys.argv[1], sys.argv[2:]))
