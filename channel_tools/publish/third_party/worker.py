# SPDX-License-Identifier: BSD-3-Clause
"""``python -m channel_tools.publish.third_party.worker``: one upload, asked for as JSON on its input.

A process of its own, since the engine holds the interpreter's lock and has no limit of time. The key comes through the
input, so that no process list shows it; a signal that nothing can hold up ends the upload when its time is over.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass

import msgspec

UploadArguments = dict[str, str | list[str]]


@dataclass(frozen=True, kw_only=True, slots=True)
class UploadJob:
    """Which function of rattler_build to call with what, and for how long at most."""

    function: str
    path: str
    arguments: UploadArguments
    limit_s: int


def main() -> None:
    """Do what the input asks for; prints what the engine said was wrong, null when the upload was taken."""
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=UploadJob)
    signal.alarm(job.limit_s)  # its default action ends the process, whatever the engine does
    sys.stdout.buffer.write(msgspec.json.encode(_upload(job)))


def _upload(job: UploadJob) -> str | None:
    from rattler_build import upload  # noqa: PLC0415 - after the limit of time was set

    try:
        getattr(upload, job.function)([job.path], **job.arguments)
    except Exception as err:  # noqa: BLE001 - the engine has one class for everything; the parent tells it apart
        return str(err)
    return None


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # the engine's runtime threads crash the interpreter's exit now and then
