# SPDX-License-Identifier: BSD-3-Clause
"""The errors: one base class with an exit code and a hint, one subclass per cause that a user can fix.

Messages say where, what was found and what was expected; the hint is the next thing to do. Exit codes are part of the
command line's contract (docs/reference/commands.md, tested); 2 is the command line library's own code for wrong usage.

Errors of the operating system (OSError) are turned into these by ``error_from_os``. SIGTERM and SIGHUP become
exceptions, so that they unwind like Ctrl-C: locks are released and child processes ended.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import os
import signal
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path
    from types import FrameType

_LIST_AT_MOST = 20
_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_NETWORK = frozenset({errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL, errno.EADDRINUSE})
_ANOTHER_PLACE = "choose another place, with --output or CHANNEL_TOOLS_CACHE if the command has no option for it"
_OS_HINTS: Mapping[int, str] = {
    errno.EACCES: f"run it as a user who has permission, or {_ANOTHER_PLACE}",
    errno.EPERM: f"run it as a user who has permission, or {_ANOTHER_PLACE}",
    errno.EROFS: _ANOTHER_PLACE,
    errno.ENAMETOOLONG: "choose a shorter name; most file systems allow 255 bytes for one, 4095 for a path",
    errno.ENOENT: "check the path",
    errno.ENOTDIR: "a part of the path is a file; expected a folder",
    errno.EISDIR: "expected a file, not a folder",
    errno.EEXIST: "choose a name that does not exist yet",
    errno.ELOOP: "symbolic links there are circular",
    errno.EMFILE: "raise the limit on open files (ulimit -n), or use fewer --jobs",
    errno.ENOMEM: "free memory, or use fewer --jobs",
}


class ChannelToolsError(Exception):
    """Base class of errors that end a command with a message instead of a traceback."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message

    def with_message(self, message: str) -> Self:
        """The same error with another message, whatever else its class is made from."""
        changed = type(self).__new__(type(self), message)
        vars(changed).update(vars(self), message=message)
        return changed


def nearest_names_hint(name: str, known: Iterable[str], *, noun: str) -> str:
    """The hint of every "no such name" error: ``did you mean ...?``, else the ``known`` names (at most 20).

    ``noun`` says what they are, if there are none.
    """
    names = sorted(known)
    if near := difflib.get_close_matches(name, names, n=3, cutoff=0.6):
        return f"did you mean {' or '.join(near)}?"
    if not names:
        return f"there is no {noun} at all"
    listed = ", ".join(names[:_LIST_AT_MOST]) + (", ..." if len(names) > _LIST_AT_MOST else "")
    return f"known: {listed}"


class UsageError(ChannelToolsError):
    """An argument names something that does not exist (a stack, a package, a folder) or contradicts another."""

    exit_code = 2


class ConfigError(ChannelToolsError):
    """A file that people write (variants, stacks, a recipe, the foundation table) is invalid."""

    exit_code = 3

    def __init__(
        self, message: str, *, path: Path | None = None, line: int | None = None, hint: str | None = None
    ) -> None:
        where = "" if path is None else f"{path}:{line}: " if line is not None else f"{path}: "
        super().__init__(where + message, hint=hint)
        self.path = path
        self.line = line


class FoundationError(ChannelToolsError):
    """The foundation cannot be made, lacks what is needed, or differs from the channel's."""

    exit_code = 4


class NetworkError(ChannelToolsError):
    """Something that had to be fetched could not be reached."""

    exit_code = 5


class IntegrityError(ChannelToolsError):
    """Bytes do not match their hash, size or format: a source, a wheel, a .deb, a package."""

    exit_code = 6


class BuildError(ChannelToolsError):
    """A build script or a recipe's test failed."""

    exit_code = 7


class ChannelError(ChannelToolsError):
    """A channel is damaged, locked by another writer, or has other bytes under a name."""

    exit_code = 8


class NoPackagesError(ChannelError):
    """Channels have no packages for a platform."""


class VerificationError(ChannelToolsError):
    """A check of packages found faults (foundation verify, audit)."""

    exit_code = 9


class ValidationError(ChannelToolsError):
    """The installed stack does not work as documented: wrong sums, silent fallback, a rank or switch that failed."""

    exit_code = 10


class SolveError(ChannelToolsError):
    """No set of packages in the given channels meets the requirements."""

    exit_code = 11


class DiskFullError(ChannelToolsError):
    """The disk to write to is full."""

    exit_code = 12


class CommandError(ChannelToolsError):
    """An external program failed, or is not installed."""

    exit_code = 13


class JobError(ChannelToolsError):
    """A scheduler's job ended before its command did: it was cancelled, ran out of time, or lost its node."""

    exit_code = 15


class FileAccessError(ChannelToolsError):
    """The operating system denies access to a file or folder: no permission, read-only, a name too long, a device."""

    exit_code = 14


def error_from_os(err: OSError, *, where: str | Path | None = None) -> ChannelToolsError:
    """The error to report for an OSError, by its errno.

    ``where`` is what was read or written, for errors that do not name it, such as those of write.
    """
    named = [os.fsdecode(name) for name in (err.filename, err.filename2) if isinstance(name, str | bytes)]
    path = " to ".join(named) or (None if where is None else str(where))
    reason = err.strerror or str(err) or type(err).__name__
    message = reason if path is None else f"{path}: {reason[:1].lower()}{reason[1:]}"
    if err.errno in _DISK_FULL:
        message = "no space left on a device" if path is None else f"{path}: no space left on the device"
        hint = f"free space there, or {_ANOTHER_PLACE}; then run the same command again: complete files are kept"
        return DiskFullError(message, hint=hint)
    if isinstance(err, ConnectionError | TimeoutError) or err.errno in _NETWORK:
        return NetworkError(message, hint="check the address and the route to it, then run it again")
    return FileAccessError(message, hint=_OS_HINTS.get(err.errno or 0))


EXIT_SIGNAL_BASE = 128
"""A shell adds this to a signal's number for the exit code of a process that the signal ended."""
EXIT_BROKEN_PIPE = EXIT_SIGNAL_BASE + signal.SIGPIPE
"""The exit code if the reader of the output has closed it."""


class Terminated(KeyboardInterrupt):
    """A signal asked the process to end; ``number`` is the signal."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@contextlib.contextmanager
def signals_raised() -> Iterator[None]:
    """While the block runs, SIGINT raises KeyboardInterrupt, and SIGTERM and SIGHUP Terminated, in the main thread.

    An ignored signal stays ignored: ``nohup`` and shells' background jobs rely on that.
    """
    raising = {
        number: signal.default_int_handler if number == signal.SIGINT else _raise_terminated
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is signal.SIG_DFL
    }
    for number, handler in raising.items():
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number in raising:
            signal.signal(number, signal.SIG_DFL)


def ending_handlers() -> dict[signal.Signals, Callable[[int, FrameType | None], Any]]:
    """The functions that handle the signals of signals_raised now; not those that are ignored or end the process."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return {number: handler for number in numbers if callable(handler := signal.getsignal(number))}


@contextlib.contextmanager
def signals_raised_afterwards() -> Iterator[None]:
    """Delay the signals of signals_raised: the first that arrives while the block runs is raised at its end.

    For short steps that must not be left half done. Signals that are ignored, or end the process, still do.
    """
    heard: list[int] = []
    before = ending_handlers()
    for number in before:
        signal.signal(number, lambda number, _frame: heard.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if heard:
            signal.raise_signal(heard[0])


def _raise_terminated(number: int, _frame: FrameType | None) -> NoReturn:
    raise Terminated(number)


NO_MEANS_ERRNOS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EIO, errno.ESTALE})


class WithoutMeansError(Exception):
    """The system lacks descriptors or memory, or the disk fails; the file itself may be intact."""


def raise_without_means(error: OSError) -> None:
    """Raise WithoutMeansError if the error is caused by the system and not by the file."""
    if error.errno in NO_MEANS_ERRNOS:
        raise WithoutMeansError(str(error)) from error
