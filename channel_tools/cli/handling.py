# SPDX-License-Identifier: BSD-3-Clause
"""What every command has around it: errors become one message and an exit code, interrupts end it in order."""

from __future__ import annotations

import functools
import logging
import signal
import sys
from typing import TYPE_CHECKING, ParamSpec

import typer

from channel_tools.cli.console import print_error, print_note
from channel_tools.errors import ChannelToolsError
from channel_tools.signals import EXIT_BROKEN_PIPE, EXIT_SIGNAL_BASE, Terminated

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")


def handled(command: Callable[P, None]) -> Callable[P, None]:
    """Wrap a command so that a ChannelToolsError or an interrupt ends it with one message and the right exit code."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
            sys.stdout.flush()
        except BrokenPipeError:
            raise typer.Exit(EXIT_BROKEN_PIPE) from None
        except ChannelToolsError as err:
            print_error(err)
            raise typer.Exit(err.exit_code) from None
        except KeyboardInterrupt as err:
            number = err.number if isinstance(err, Terminated) else signal.SIGINT
            print_note("interrupted: what was complete is kept; run the same command again to go on")
            raise typer.Exit(EXIT_SIGNAL_BASE + number) from None

    return run


def configure_logging(verbosity: int) -> None:
    """Library messages on stderr: warnings; with ``-v`` the external commands; with ``-vv`` everything of ours."""
    level = {0: logging.WARNING, 1: logging.INFO}.get(verbosity, logging.DEBUG)
    logging.basicConfig(stream=sys.stderr, format="%(message)s", level=logging.WARNING)
    logging.getLogger("channel_tools").setLevel(level)
