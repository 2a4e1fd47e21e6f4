# SPDX-License-Identifier: BSD-3-Clause
"""Runs commands in forks of one process, so that each costs no start; prints their exit codes and what they said."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from typing import NoReturn

from channel_tools.cli.entry import main
from tests.support.command_line import prepare


def outcome_of(words: list[str]) -> tuple[int, str]:
    """The exit code of a command, and its standard error."""
    with tempfile.TemporaryFile() as errors:
        child = os.fork()
        if child == 0:
            _become(words, errors.fileno())
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        errors.seek(0)
        return code, errors.read().decode()


def _become(words: list[str], errors: int) -> NoReturn:
    try:
        os.dup2(errors, 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.argv[1:] = words
        main()
    finally:
        os._exit(70)


if __name__ == "__main__":
    commands: dict[str, list[str]] = json.loads(sys.argv[1])
    prepare()
    sys.stdout.write(json.dumps({name: outcome_of(words) for name, words in commands.items()}))
