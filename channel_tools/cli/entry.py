# SPDX-License-Identifier: BSD-3-Clause
"""The one way out of the process: flush, then leave with the exact code.

py-rattler's runtime threads outlive the interpreter and can crash its shutdown, after the work is done
(PyO3/pyo3-async-runtimes#40), so the process ends without it. Delete this when that is fixed.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import sys
import traceback
from typing import NoReturn

from channel_tools.cli.streams import PlainStream, changed_streams, wants_no_color
from channel_tools.system.errors import EXIT_BROKEN_PIPE, ChannelToolsError, error_from_os
from channel_tools.system.extras import skip_unused_plugins
from channel_tools.system.harmless import harmless

_ALLOCATIONS_PER_COLLECTION = 500_000
_ALLOCATIONS_OF_SERVERS = 100_000
_EXIT_DEFECT = 70  # EX_SOFTWARE of sysexits.h


def main() -> NoReturn:
    """Run the command line and end the process with its exit code."""
    _open_standard_streams()
    # most objects of a command live until it ends: a single collection takes longer than the build of a small package
    gc.set_threshold(_ALLOCATIONS_OF_SERVERS if sys.argv[1:2] == ["serve"] else _ALLOCATIONS_PER_COLLECTION)
    skip_unused_plugins()
    plain = wants_no_color(os.environ, sys.argv[1:])
    with changed_streams(quiet=False, plain=plain):
        code = _run(sys.argv[1:], plain=plain)
    try:
        sys.stdout.flush()
    except OSError as err:
        code = code or _code_of_output(err)
    with contextlib.suppress(OSError):  # output that cannot be written does not change what was done
        sys.stderr.flush()
    os._exit(code)


def _open_standard_streams() -> None:
    """Open file descriptors 0, 1 and 2 if the caller closed them, so that no file opened later gets one of them.

    Writing to a closed standard output is then an error, as for other programs, and output to a closed standard error
    is lost. Characters that the terminal's encoding lacks, which file names may have, are written as escapes.
    """
    for number, flags in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, flags)  # takes the lowest free descriptor: this one
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = _writing_to(1)
    if sys.stderr is None:
        sys.stderr = _writing_to(2)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            with contextlib.suppress(OSError):  # it seeks to a file's end
                stream.reconfigure(errors="backslashreplace")


def _writing_to(number: int) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BufferedWriter(io.FileIO(number, "wb", closefd=False)), line_buffering=number > 1)


def _run(arguments: list[str], *, plain: bool) -> int:
    try:
        from channel_tools.cli.app import app_for  # the streams are in order before the slow imports
        from channel_tools.cli.console import ended_by, read_arguments

        try:
            arguments = read_arguments(arguments)
            if any(harmless(argument) != argument for argument in arguments):
                sys.stderr = PlainStream(sys.stderr)  # the command line's library repeats what it does not know
            app_for(arguments, plain=plain)(arguments, prog_name="channel_tools")
        except (ChannelToolsError, OSError, UnicodeEncodeError) as err:  # while reading the command line
            return ended_by(err)
    except SystemExit as err:
        return err.code if isinstance(err.code, int) else int(err.code is not None)
    except Exception:  # noqa: BLE001  (the last resort: a defect of this program, reported in full)
        from channel_tools.cli.console import print_defect

        print_defect(traceback.format_exc())
        return _EXIT_DEFECT
    return 0


def _code_of_output(err: OSError) -> int:
    """The exit code if the last results could not be written; there is no message if the reader has closed the pipe."""
    if isinstance(err, BrokenPipeError):
        return EXIT_BROKEN_PIPE
    error = error_from_os(err, where="standard output")
    with contextlib.suppress(OSError):
        sys.stderr.write(f"error: {error}\n")
    return error.exit_code
