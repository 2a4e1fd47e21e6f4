# SPDX-License-Identifier: BSD-3-Clause
"""The error vocabulary: one base with an exit code and a hint, one subclass per cause that a user can fix.

Messages say where, what was found and what was expected; the hint is the next thing to do. Exit codes are part of the
command line's contract (README, tested); 2 is the command line library's own code for wrong usage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from pathlib import Path


class ChannelToolsError(Exception):
    """Base of every error that ends a command with one message instead of a traceback."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message


class UsageError(ChannelToolsError):
    """An argument names something that does not exist (a stack, a package, a folder) or contradicts another."""

    exit_code = 2


class ConfigError(ChannelToolsError):
    """A file that people write (variants, stacks, a recipe, the foundation table) is wrong."""

    exit_code = 3

    def __init__(
        self, message: str, *, path: Path | None = None, line: int | None = None, hint: str | None = None
    ) -> None:
        where = "" if path is None else f"{path}:{line}: " if line is not None else f"{path}: "
        super().__init__(where + message, hint=hint)
        self.path = path
        self.line = line


class FoundationError(ChannelToolsError):
    """The foundation cannot be made, does not hold what is needed, or differs from the channel's."""

    exit_code = 4


class NetworkError(ChannelToolsError):
    """Something that had to be fetched could not be reached."""

    exit_code = 5


class IntegrityError(ChannelToolsError):
    """Bytes are not what their hash, size or format says: a source, a wheel, a .deb, a package."""

    exit_code = 6


class BuildError(ChannelToolsError):
    """A build script or a recipe's test failed."""

    exit_code = 7


class ChannelError(ChannelToolsError):
    """A channel folder is damaged, locked by another writer, or holds other bytes under a name."""

    exit_code = 8


class VerificationError(ChannelToolsError):
    """A check of made packages found faults (foundation verify, audit)."""

    exit_code = 9


class ValidationError(ChannelToolsError):
    """The installed stack did not do what it promises: wrong sums, silent fallback, a rank or switch that failed."""

    exit_code = 10


class SolveError(ChannelToolsError):
    """No set of packages in the given channels meets the requirements."""

    exit_code = 11


class DiskFullError(ChannelToolsError):
    """No space is left where something had to be written."""

    exit_code = 12


class CommandError(ChannelToolsError):
    """An external program failed, or is not installed."""

    exit_code = 13
