# SPDX-License-Identifier: BSD-3-Clause
"""The command line's entry point."""

from channel_tools.cli.entry import main

if __name__ == "__main__":
    main()
