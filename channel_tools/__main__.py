# SPDX-License-Identifier: BSD-3-Clause
"""The command line's entry point.

Until a command begins, Ctrl-C ends the process as SIGTERM does, without a word: before that there is nothing to undo,
and an interrupt among the imports would end in a traceback. One that comes still earlier has Python's own: while the
interpreter starts, and in the script that pip makes of this entry point, until that imports this module.
"""

# not signal, which is written in Python on top of it: its import takes milliseconds that can be interrupted
import _signal  # type: ignore[import-not-found]

if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:  # else it is ignored, as for a background job
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

from channel_tools.cli.entry import main

if __name__ == "__main__":
    main()
