# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools pins``: locks a stack's environment."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from channel_tools.cli import options
from channel_tools.cli.console import handled, print_json, print_line, print_note
from channel_tools.cli.options import asks
from channel_tools.requests.pins import PinRequest
from channel_tools.system.counting import counted

if TYPE_CHECKING:
    from channel_tools.pins.lock import PinChange
    from channel_tools.workflow.pins import PinResult


_SIGNS = {"added": "+", "removed": "-", "changed": "~"}


@handled
@asks(PinRequest)
def pins(
    request: PinRequest, *, root: options.Root = None, output: options.Output = None, as_json: options.Json = False
) -> None:
    """Lock a stack's environment and write it as environment.yml, explicit list, conda-lock.yml and pixi files."""
    from channel_tools.workflow.pins import pin_stack

    result = pin_stack(options.settings_from(root, output), request)
    if as_json:
        print_json(_json(result, dry_run=request.dry_run))
    else:
        for change in result.changes:
            print_line(f"{change.platform}: {_SIGNS[change.kind]} {_described(change)}")
        for platform in result.lock.platforms:
            size = sum(package.size_bytes for package in platform.packages)
            print_line(
                f"{platform.platform}: {counted(len(platform.packages), 'package')}, {size / 1e6:.1f} MB, "
                f"assuming {' '.join(platform.virtual_packages) or 'no virtual packages'}"
            )
        did = (
            "would write"
            if request.dry_run
            else "the lock is still valid; files up to date"
            if result.kept
            else "wrote"
        )
        print_line(f"{result.folder}: {did}: {', '.join(result.files)}")
    if result.local:
        print_note(
            f"note: the files name {', '.join(result.local)}, which other machines may not have; "
            "with --published ADDRESS they name the address at which the packages are published"
        )


def _json(result: PinResult, *, dry_run: bool) -> dict[str, object]:
    return {
        "schema": 1,
        "stack": result.lock.stack,
        "folder": str(result.folder),
        "files": list(result.files),
        "kept": result.kept,
        "dry_run": dry_run,
        "channels": list(result.lock.channels),
        "platforms": [
            {
                "platform": platform.platform,
                "virtual_packages": list(platform.virtual_packages),
                "packages": len(platform.packages),
                "bytes": sum(package.size_bytes for package in platform.packages),
            }
            for platform in result.lock.platforms
        ],
        "changes": [asdict(change) for change in result.changes],
    }


def _described(change: PinChange) -> str:
    if change.before == change.after:
        return f"{change.name} {change.after} (other bytes)"
    return f"{change.name} {' -> '.join(version for version in (change.before, change.after) if version is not None)}"
