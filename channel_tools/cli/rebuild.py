# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools rebuild``: builds a published package again from its own recipe, and compares it."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.cli import options
from channel_tools.cli.console import handled, print_json, print_line, print_note, print_table
from channel_tools.cli.options import asks
from channel_tools.cli.progress import shown_progress
from channel_tools.requests.rebuild import RebuildRequest
from channel_tools.system.counting import counted

if TYPE_CHECKING:
    from channel_tools.workflow.rebuild import RebuildComparison, Rebuilt

_IN_WORDS = {
    "same": "the same bytes",
    "packing": "the same files, packed differently",
    "metadata": "the same installed files; metadata differs",
    "different": "installed files differ",
}


@handled
@asks(RebuildRequest)
def rebuild(
    request: RebuildRequest, *, root: options.Root = None, output: options.Output = None, as_json: options.Json = False
) -> None:
    """Build a published package again from its own recipe; with --compare, list what differs. No channel is changed."""
    from channel_tools.workflow.rebuild import compare_packages, rebuild_package

    with shown_progress() as progress:
        rebuilt = rebuild_package(options.settings_from(root, output), request, progress=progress)
    for note in rebuilt.notes:
        print_note(f"{rebuilt.published.name}: {note}")
    if request.compare:
        _report(rebuilt, compare_packages(rebuilt), request.diffoscope, as_json=as_json)
    elif as_json:
        print_json({"schema": 1, **_packages(rebuilt)})
    else:
        print_line(str(rebuilt.rebuilt))


def _packages(rebuilt: Rebuilt) -> dict[str, object]:
    return {
        "published": {"path": str(rebuilt.published), "sha256": rebuilt.published_sha256},
        "rebuilt": {"path": str(rebuilt.rebuilt), "sha256": rebuilt.rebuilt_sha256},
        "notes": list(rebuilt.notes),
    }


def _report(rebuilt: Rebuilt, comparison: RebuildComparison, diffoscope: Path | None, *, as_json: bool) -> None:
    """Print what differs; raises VerificationError if the package is not the same."""
    from channel_tools.system.errors import VerificationError
    from channel_tools.workflow.rebuild import show_in_depth

    differences, verdict = comparison.differences, comparison.verdict
    in_depth = show_in_depth(rebuilt, diffoscope, os.environ) if differences else None
    if as_json:
        rows = [asdict(difference) for difference in differences]
        shown = {"diffoscope": None if in_depth is None else str(in_depth)}
        print_json({"schema": 1, **_packages(rebuilt), "verdict": verdict, "differences": rows, **shown})
    elif differences:
        print_table(
            ("file", "difference", "published, rebuilt"),
            [(difference.file, difference.kind, difference.detail) for difference in differences],
        )
    if in_depth is not None:
        print_note(f"details: {in_depth}")
    if verdict != "same":
        message = f"{rebuilt.published.name}: built again, {_IN_WORDS[verdict]} ({counted(len(differences), 'file')})"
        raise VerificationError(message, hint=f"the new package is {rebuilt.rebuilt}")
    if not as_json:
        print_line(f"{rebuilt.published.name}: built again, {_IN_WORDS[verdict]} (sha256 {rebuilt.rebuilt_sha256})")
