# SPDX-License-Identifier: BSD-3-Clause
"""Standard streams that take less than the process's own: no colours and no control characters, or errors alone.

What prints asks a stream whether it is a terminal, so a stream that says no gets plain lines from everything, the
command line's library included. Imported before anything slow.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import sys
from typing import TYPE_CHECKING, TextIO

from channel_tools.system.harmless import harmless

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import BinaryIO

NO_COLOR_VARIABLE = "NO_COLOR"


class PlainStream(io.TextIOBase):
    """A stream that is no terminal for those who write to it, and gets no control characters from them."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write the text with its control characters made visible; they are others' words."""
        self._stream.write(harmless(text))
        return len(text)

    def flush(self) -> None:
        """Flush the stream itself."""
        self._stream.flush()

    def fileno(self) -> int:
        """The descriptor of the stream itself."""
        return self._stream.fileno()

    @property
    def buffer(self) -> BinaryIO:
        """The bytes, for what programs of the user's write."""
        return self._stream.buffer


class QuietStream(io.TextIOBase):
    """A stream that loses what is written to it; ``destination`` is where errors go."""

    def __init__(self, destination: TextIO) -> None:
        self.destination = destination

    def write(self, text: str) -> int:
        """Write nothing."""
        return len(text)

    def fileno(self) -> int:
        """The descriptor of the stream for errors, for programs that are started with it."""
        return self.destination.fileno()


def error_stream() -> TextIO:
    """Where errors are printed: standard error, also of a quiet command."""
    return sys.stderr.destination if isinstance(sys.stderr, QuietStream) else sys.stderr


def wants_no_color(environ: Mapping[str, str], arguments: Sequence[str]) -> bool:
    """Whether NO_COLOR is set to anything but nothing (no-color.org), or ``--color never`` is among the arguments.

    They are looked at before they are parsed, since what does not parse is an error, too.
    """
    pairs = itertools.pairwise(arguments)
    return bool(environ.get(NO_COLOR_VARIABLE)) or "--color=never" in arguments or ("--color", "never") in pairs


@contextlib.contextmanager
def changed_streams(*, quiet: bool, plain: bool) -> Iterator[None]:
    """Make the standard streams plain, or standard error quiet, while the block runs."""
    before = sys.stdout, sys.stderr
    if plain:
        sys.stdout, sys.stderr = (_plain(stream) for stream in before)
    if quiet and not isinstance(sys.stderr, QuietStream):
        sys.stderr = QuietStream(sys.stderr)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def _plain(stream: TextIO) -> TextIO:
    return stream if isinstance(stream, PlainStream | QuietStream) else PlainStream(stream)  # type: ignore[return-value]
