# SPDX-License-Identifier: BSD-3-Clause
"""Output of all commands: results on stdout, everything else on stderr, one message and exit code for an error.

Any text may have parts that others wrote, so all of it is made harmless, here and in progress.py; nothing else prints,
which a test looks for.

A terminal gets rich's tables (rich handles non-UTF-8 terminals); a pipe, and a terminal of someone who wants no colours
(streams.py), gets plain aligned lines that a program can read, never cut to a width. Rich is imported only when
something is drawn, so ``--help`` stays quick.

The colours of states on a terminal: the same word has the same colour in every command.

They are the terminal's own, which its user has chosen for a light or dark background, and mean what they mean on the
pages (system/templates/README.md). A state is always a word, too, so nothing is lost without colours.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import json
import logging
import os
import re
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec

import typer

from channel_tools.cli import options
from channel_tools.cli.streams import PlainStream, changed_streams, error_stream
from channel_tools.system.errors import (
    EXIT_BROKEN_PIPE,
    EXIT_SIGNAL_BASE,
    ChannelToolsError,
    FileAccessError,
    Terminated,
    UsageError,
    error_from_os,
    signals_raised,
)
from channel_tools.system.harmless import harmless, harmless_line, harmless_message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rich.text import Text as RichText

_log = logging.getLogger(__name__)
P = ParamSpec("P")
_SHOWN = 200
_ADDRESS = re.compile(r"(?i)[a-z][a-z0-9+.-]+:/")
"""What a Path makes of an address: one slash is left."""
_MAY_BE_SPECIAL = frozenset({"access_log", "passphrase_file"})
"""Parameters whose paths are only appended to, or read by ``files.read_first_line``: /dev/stderr, a shell's <(...)."""


_GOOD, _BAD, _WAITING, _QUIET = "green", "bold red", "yellow", "dim"
_STYLES = {
    _GOOD: ("ok", "built", "passed", "yes", "added", "attested"),
    _BAD: ("failed", "drop", "error", "changed", "damaged", "no", "differs", "fault"),
    _WAITING: ("build", "waiting", "warning", "not started", "unsatisfiable", "needs"),
    _QUIET: ("skip", "skipped", "before", "unchanged", "as usual", "present"),
}
_BY_WORD = {word: style for style, words in _STYLES.items() for word in words}


def print_json(value: object) -> None:
    """Print one JSON document on stdout."""
    _print_text(harmless(json.dumps(value, indent=2, ensure_ascii=False)))


def print_line(text: str) -> None:
    """Print one line of a result on stdout; further lines of it are indented."""
    _print_text(harmless_message(text))


def print_finding(mark: str, text: str, fix: str) -> None:
    """Print a finding and the command that fixes it ("" if none), in one line for programs.

    On a terminal the text is wrapped at spaces, below itself, and the command has its own line, whole, to be copied;
    the mark, if it is a state, has its colour.
    """
    if not sys.stdout.isatty():
        print_line(mark + text + (f" -> {fix}" if fix else ""))
        return
    import shutil
    import textwrap

    from rich.text import Text

    indent = " " * len(mark)
    wrapped = textwrap.wrap(
        harmless_line(text),
        width=shutil.get_terminal_size().columns,
        initial_indent=mark,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    drawn = Text("\n".join([*wrapped, *([f"{indent}-> {harmless_line(fix)}"] if fix else [])]))
    drawn.stylize(style_of(mark), 0, len(mark.rstrip()))
    _print_text(_drawn(drawn))


def print_outcome(word: str, text: str) -> None:
    """Print a line of a result on stdout that begins with a state (passed, failed), in its colour on a terminal."""
    _print_text(_stated(word, text) if sys.stdout.isatty() else f"{harmless_line(word)} {harmless_message(text)}")


def _print_text(text: str) -> None:
    with _output_named():
        sys.stdout.write(text + "\n")


def print_state(word: str, text: str) -> None:
    """Print a line on stderr that begins with a state (built, failed ...), in its colour on a terminal."""
    if not sys.stderr.isatty():
        print_note(f"{word} {text}")
        return
    with _messages_lost():
        sys.stderr.write(_stated(word, text) + "\n")
        sys.stderr.flush()


def _stated(word: str, text: str) -> str:
    from rich.text import Text

    return _drawn(Text.assemble((harmless_line(word), style_of(word)), " ", harmless_message(text)))


def _drawn(text: RichText) -> str:
    """Lines with their colours, unless the user wants none.

    rich writes past its own bars to what is a terminal, so it draws into a string, which then goes above them.
    """
    from rich.console import Console

    drawn = io.StringIO()
    Console(file=drawn, highlight=False, soft_wrap=True, force_terminal=True).print(text)
    return drawn.getvalue().removesuffix("\n")


def is_terminal() -> bool:
    """Whether a user can be asked."""
    # a stream without colours says that it is no terminal
    is_shown = sys.stderr.isatty() or (isinstance(sys.stderr, PlainStream) and os.isatty(sys.stderr.fileno()))
    return sys.stdin.isatty() and is_shown


def confirmed(question: str, *, default: bool = True) -> bool:
    """Whether the user says yes to a question on the terminal; an empty line is the default, no terminal is a no."""
    if not is_terminal():
        return False
    sys.stderr.write(f"{harmless_line(question)} {'[Y/n]' if default else '[y/N]'} ")
    sys.stderr.flush()
    answer = sys.stdin.readline()
    return answer.endswith("\n") and answer.strip().lower() in {"y", "yes", *([""] if default else [])}


def write_result(text: str, to: Path | None) -> None:
    """Write a result to a file, atomically, or to stdout if ``to`` is None; only a terminal gets it made harmless."""
    from channel_tools.system.files import write_text_atomically

    if to is None:
        body = text.removesuffix("\n")
        _print_text(harmless(body) if sys.stdout.isatty() else body)
    else:
        write_text_atomically(to, text)


@contextlib.contextmanager
def _output_named() -> Iterator[None]:
    """Have errors say that standard output cannot be written."""
    try:
        yield
    except OSError as err:
        err.filename = err.filename or "standard output"
        raise


def print_note(message: str) -> None:
    """Print one line on stderr; if it cannot be written (a full disk), the work continues without it."""
    with _messages_lost():
        sys.stderr.write(harmless_message(message) + "\n")
        sys.stderr.flush()


@contextlib.contextmanager
def _messages_lost() -> Iterator[None]:
    try:
        yield
    except OSError as err:
        if isinstance(err, BrokenPipeError):
            raise  # nobody reads any more


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, title: str | None = None) -> None:
    """Print a table on stdout: drawn on a terminal, aligned plain text elsewhere."""
    shown = [[harmless_line(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _draw_table(columns, shown, None if title is None else harmless_line(title))
        return
    if title:
        print_line(title)
    table = [tuple(columns), *(tuple(row) for row in shown)]
    widths = [max(len(row[index]) for row in table) for index in range(len(columns))]
    for row in table:
        print_line("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def print_gap() -> None:
    """Print the empty line between a table and what follows it; a table that is drawn ends with one."""
    if not sys.stdout.isatty():
        print_line("")


def print_error(error: ChannelToolsError) -> None:
    """Print the message of a failed command on stderr."""
    from rich.console import Console
    from rich.text import Text

    stream = error_stream()
    no_terminal = False if isinstance(stream, PlainStream) else None  # whatever FORCE_COLOR says
    console = Console(file=stream, highlight=False, soft_wrap=True, force_terminal=no_terminal)
    with _messages_lost():
        console.print(Text.assemble(("error: ", "bold red"), harmless_message(str(error))))
        if error.hint:
            console.print(Text.assemble(("hint: ", "bold cyan"), harmless_message(error.hint)))


def _draw_table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str | None) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    named = None if title is None else Text(title)
    table = Table(*columns, title=named, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        table.add_row(*(Text(cell, style=style_of(cell)) for cell in row))
    Console(file=sys.stdout, highlight=False).print(table)


def read_arguments(arguments: Sequence[str]) -> list[str]:
    """The arguments, with ``~`` expanded at the start of an option's value after ``=``.

    Shells expand it only at the start of a word, and nobody means a folder that is called ``~``. Raises UsageError for
    an empty argument or value: none has a meaning, a shell makes one of an unset variable, and as a path it would be
    the current folder.
    """
    read = []
    for before, text in zip(["", *arguments], arguments, strict=False):
        option, equals, value = text.partition("=")
        is_option = option.startswith("--") and bool(equals)
        if not (value if is_option else text):
            subject = option if is_option else before if before.startswith("-") else "an argument"
            message = f"{subject}: is empty"
            raise UsageError(message, hint="give a value; an unset variable of the shell gives an empty one")
        # unchanged if there is no such home folder
        read.append(f"{option}={os.path.expanduser(value)}" if is_option else text)  # noqa: PTH111
    return read


def handled(command: Callable[P, None]) -> Callable[P, None]:
    """Wrap a command so that an interrupt, or an error that a user can fix, ends it with one message and an exit code.

    Such errors are ChannelToolsErrors and the operating system's. Paths of devices, pipes and sockets are rejected
    before the command starts: it might write to them, or read them without end.
    """

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with shown_streams(quiet=bool(kwargs.pop("quiet", False)), color=str(kwargs.pop("color", "auto"))):
            try:
                with signals_raised():
                    _check_paths(kwargs)
                    command(*args, **kwargs)
                with _output_named():
                    sys.stdout.flush()
            except (ChannelToolsError, OSError, UnicodeEncodeError, KeyboardInterrupt) as err:
                raise typer.Exit(ended_by(err)) from None

    added = {"quiet": (options.Quiet, False), "color": (options.Color, "auto")}
    parameters = [*inspect.signature(run, eval_str=True).parameters.values()]
    parameters += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
        for name, (annotation, default) in added.items()
    ]
    return options.with_parameters(run, parameters)


@contextlib.contextmanager
def shown_streams(*, quiet: bool, color: str) -> Iterator[None]:
    """Print what a command was asked to print while the block runs: ``quiet``, errors and the result alone."""
    before = logging.root.manager.disable
    with changed_streams(quiet=quiet, plain=color == "never"):
        try:
            if quiet:
                logging.disable(logging.WARNING)
            yield
        finally:
            logging.disable(before)


def _check_paths(arguments: Mapping[str, object]) -> None:
    """Raise FileAccessError for a path of something that is neither a file nor a folder, UsageError for an address.

    An address may have a password, so it is not shown.
    """
    from channel_tools.system.files import special_kind

    for name, value in arguments.items():
        for path in value if isinstance(value, list) else [value]:
            if isinstance(path, Path) and _ADDRESS.match(str(path)) and not path.exists():
                message = f"{name.replace('_', '-')}: an address; expected a file or a folder of this machine"
                raise UsageError(message, hint="give a path; --help says which options take an address")
            if isinstance(path, Path) and name not in _MAY_BE_SPECIAL and (kind := special_kind(path)):
                message = f"{path}: is {kind}; expected a file or a folder"
                raise FileAccessError(message, hint="give another path; save the output of a pipe to a file first")


def ended_by(err: ChannelToolsError | OSError | UnicodeEncodeError | KeyboardInterrupt) -> int:
    """Print what ended a command; returns the exit code."""
    if isinstance(err, BrokenPipeError):
        return EXIT_BROKEN_PIPE
    if isinstance(err, KeyboardInterrupt):
        print_note("interrupted: finished work is kept; run the same command again to continue")
        return interrupted_code(err)
    if isinstance(err, OSError | UnicodeEncodeError):
        _log.debug("traceback", exc_info=err)
        err = error_from_os(err) if isinstance(err, OSError) else _error_from_text(err)
    print_error(err)
    return err.exit_code


def interrupted_code(err: KeyboardInterrupt) -> int:
    """The exit code of a command that a signal has ended, as a shell gives it."""
    return EXIT_SIGNAL_BASE + (err.number if isinstance(err, Terminated) else signal.SIGINT)


def _error_from_text(err: UnicodeEncodeError) -> ChannelToolsError:
    """The error for a name that is not valid text: the operating system allows any bytes in names."""
    message = (
        f"{err.object[:_SHOWN]!r}: has bytes that are not valid {err.encoding}, so it cannot be written to results"
    )
    return UsageError(message, hint="choose another name or text")


def configure_logging(verbosity: int) -> None:
    """Show log messages on stderr: warnings; with ``-v`` external commands; with ``-vv`` all of channel_tools."""
    level = {0: logging.WARNING, 1: logging.INFO}.get(verbosity, logging.DEBUG)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(_HarmlessFormatter("%(message)s"))
    logging.getLogger("channel_tools").setLevel(level)


class _HarmlessFormatter(logging.Formatter):
    """Formats records as messages, tracebacks included."""

    def format(self, record: logging.LogRecord) -> str:
        """The message and the traceback."""
        return harmless_message(super().format(record))


def print_defect(traceback: str) -> None:
    """Print the traceback of an error that is our fault, as far as stderr can be written."""
    with contextlib.suppress(OSError):
        error_stream().write(harmless(traceback))
        error_stream().write("This is a defect in channel_tools: please report the lines above.\n")


def style_of(text: str) -> str:
    """Rich's style for a text that is a state, in any case, "" for other texts."""
    return _BY_WORD.get(text.strip().lower(), "")
