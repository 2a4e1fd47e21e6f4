# SPDX-License-Identifier: BSD-3-Clause
"""``python -m channel_tools.publish.third_party.worker``: makes one upload, given as JSON on standard input.

It is a separate process, since the engine holds the interpreter's lock and has no time limit. The key is passed on
standard input, so that no process list shows it; a signal that cannot be blocked ends the upload when its time is over.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass

import msgspec

from channel_tools.system.document import decode_json

UploadArguments = dict[str, str | list[str]]


@dataclass(frozen=True, kw_only=True, slots=True)
class UploadJob:
    """Which function of rattler_build to call, its arguments, and the time limit."""

    function: str
    path: str
    arguments: UploadArguments
    limit_s: int


def main() -> None:
    """Make the upload; prints the engine's error message, null if it succeeded."""
    job = decode_json(sys.stdin.buffer.read(), UploadJob)
    signal.alarm(job.limit_s)  # its default action ends the process, whatever the engine is doing
    sys.stdout.buffer.write(msgspec.json.encode(_upload(job)))


def _upload(job: UploadJob) -> str | None:
    from rattler_build import RattlerBuildError, upload  # noqa: PLC0415 - after the time limit was set

    try:
        getattr(upload, job.function)([job.path], **job.arguments)
    except RattlerBuildError as err:  # one class for everything; the parent tells it apart
        return str(err)
    return None


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # the engine's runtime threads sometimes crash the interpreter at exit
