# SPDX-License-Identifier: BSD-3-Clause
"""The one way out of the process: flush, then leave with the exact code.

py-rattler's runtime threads outlive the interpreter and can crash it while it is torn down, after the work is done
(PyO3/pyo3-async-runtimes#40), so the interpreter is not torn down. Delete this when that is fixed.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from typing import NoReturn

from channel_tools.signals import EXIT_BROKEN_PIPE, raise_on_termination

_EXIT_DEFECT = 70  # EX_SOFTWARE of sysexits.h


def main() -> NoReturn:
    """Run the command line and end the process with its exit code."""
    raise_on_termination()
    code = _run(sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            code = code or EXIT_BROKEN_PIPE  # nobody is left to read it
    os._exit(code)


def _run(arguments: list[str]) -> int:
    from channel_tools.cli.app import app  # noqa: PLC0415  (signals are taken care of before the slow imports)

    try:
        app(arguments, prog_name="channel_tools")
    except SystemExit as err:
        return err.code if isinstance(err.code, int) else int(err.code is not None)
    except BrokenPipeError:
        return EXIT_BROKEN_PIPE
    except Exception:  # noqa: BLE001  (the last resort: a defect of this program, reported in full)
        with contextlib.suppress(BrokenPipeError):
            traceback.print_exc()
            sys.stderr.write("This is a defect in channel_tools: please report the lines above.\n")
        return _EXIT_DEFECT
    return 0
