# SPDX-License-Identifier: BSD-3-Clause
"""Takes over a channel folder of another tool, with the labels below it."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from channel_tools.channel.adopt import Remark, adopt, plan_adoption
from channel_tools.channel.model import RECORD_FOLDER
from channel_tools.channel.state import read_channel_record
from channel_tools.publish.model import LABEL_FOLDER, is_label
from channel_tools.system.beneath import Beneath
from channel_tools.system.errors import UsageError
from channel_tools.workflow.plan import chosen_foundation

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.channel.adopt import Adoption
    from channel_tools.channel.model import Foundation
    from channel_tools.requests.names import FoundationKind


def adopt_channel(path: Path, kind: FoundationKind | None, address: str | None, *, dry_run: bool) -> list[Adoption]:
    """Take over the channel in a folder and every label at ``label/NAME`` below it; safe to run again.

    ``kind`` and ``address`` say what its packages are built on, which is recorded. All of it is read before the first
    change; with ``dry_run`` nothing is changed. Raises as plan_adoption and adopt do, and UsageError without a
    foundation.
    """
    foundation = chosen_foundation(kind, address) or _recorded(path)
    labels = [name for name in Beneath(root=path).names(LABEL_FOLDER) if is_label(name)] if path.is_dir() else []
    folders = [path, *(path / LABEL_FOLDER / name for name in labels)]
    adoptions = [plan_adoption(folder, foundation) for folder in folders]
    return adoptions if dry_run else [_adopted(adoption) for adoption in adoptions]


def _adopted(adoption: Adoption) -> Adoption:
    report = adopt(adoption)
    if not adoption.is_ours:
        return adoption
    remarks = (
        Remark(path=finding.path.relative_to(adoption.path).as_posix(), kind="not listed", message=finding.message)
        for finding in report.refused
    )
    return replace(adoption, remarks=tuple(remarks))


def _recorded(path: Path) -> Foundation:
    files = Beneath(root=path)
    if path.is_dir() and files.stat(f"{RECORD_FOLDER}/channel.json") is not None:
        return read_channel_record(files).foundation
    message = f"{path}: on which foundation its packages are built has to be recorded, and a folder does not say it"
    hint = (
        "give --foundation conda-forge if they need packages of conda-forge (another address of it with "
        "--foundation-channel), or --foundation registry if they were made with channel_tools foundation build"
    )
    raise UsageError(message, hint=hint)


def adoption_json(adoption: Adoption) -> dict[str, object]:
    """The adoption for ``--json``."""
    return {
        "channel": str(adoption.path),
        "foundation": asdict(adoption.foundation),
        "already": adoption.is_ours,
        "packages": [str(key) for key in adoption.rows],
        "patched": {
            subdir: sorted({*patch.records, *patch.revoke}) for subdir, patch in sorted(adoption.patches.items())
        },
        "removed": {subdir: list(patch.remove) for subdir, patch in sorted(adoption.patches.items())},
        "remarks": [asdict(remark) for remark in adoption.remarks],
        "superseded": list(adoption.superseded),
    }
