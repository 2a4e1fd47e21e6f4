# SPDX-License-Identifier: BSD-3-Clause
"""Publishes to a server of others; a program, since reading uses rattler's runtime.

``python -m tests.integration.publish.third_party_publisher ADDRESS VARIABLE`` reads steps as JSON, each of which plans
and publishes ``files`` under ``label`` with ``key`` in the variable, after telling the server that its index lacks
``behind``. It prints for each what was uploaded and what was there, or the error. Leaves through os._exit.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import urllib.request
from pathlib import Path

import msgspec

from channel_tools.publish.third_party import open_third_party
from channel_tools.system.errors import ChannelToolsError
from channel_tools.system.progress import SilentProgress
from tests.unit.publish.sets import make_set


class Notes(SilentProgress):
    def __init__(self) -> None:
        self.told: list[str] = []

    def note(self, message: str) -> None:
        self.told.append(message)


class Step(msgspec.Struct, kw_only=True):
    files: list[str]
    label: str = "main"
    key: str | None = None
    limit_s: int = 60
    behind: str | None = None


def run(address: str, variable: str, step: Step) -> object:
    environ = {} if step.key is None else {variable: step.key}
    target = dataclasses.replace(open_third_party(address, environ), upload_s=step.limit_s)
    if step.behind is not None:
        urllib.request.urlopen(f"{target.server.api.partition('/artifactory')[0]}/behind/{step.behind}")  # noqa: S310
    notes = Notes()
    try:
        plan = target.plan(make_set([Path(file) for file in step.files]), label=step.label)
        report = target.publish(plan, progress=notes)
    except ChannelToolsError as err:
        return {"error": type(err).__name__, "message": err.message, "hint": err.hint}
    present = [file.file_name for file in plan.present]
    return {"uploaded": list(report.uploaded), "present": present, "address": report.address, "notes": notes.told}


def main(arguments: list[str]) -> object:
    address, variable = arguments
    steps = msgspec.json.decode(sys.stdin.buffer.read(), type=list[Step])
    return [run(address, variable, step) for step in steps]


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:])), flush=True)  # noqa: T201 - its result, read by the test
    os._exit(0)
