# SPDX-License-Identifier: BSD-3-Clause
"""The command line's entry point.

Until a command begins, Ctrl-C ends the process as SIGTERM does, without a word: before that there is nothing to undo,
and an interrupt among the imports would end in a traceback.
"""

import signal

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored, as for a background job
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from channel_tools.cli.entry import main

if __name__ == "__main__":
    main()
