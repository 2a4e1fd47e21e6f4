# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools mirror keys``: the keys that sign bundles."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from channel_tools.cli import options  # noqa: TC001  (typer reads the annotations of commands at run time)
from channel_tools.cli.console import handled, print_json, print_line
from channel_tools.system.extras import needs_extra

if TYPE_CHECKING:
    from channel_tools.mirror.keys import Role, RootState


class _Role(StrEnum):
    """The roles of channel_tools.mirror.keys, which is too slow to import for --help."""

    ROOT = "root"
    TARGETS = "targets"
    SNAPSHOT = "snapshot"
    TIMESTAMP = "timestamp"


_needs_extra = needs_extra("mirror", "channel_tools mirror")
app = typer.Typer(no_args_is_help=True, help="The keys that sign bundles, and the root metadata that names them.")

_RootKeys = Annotated[
    list[Path] | None,
    typer.Option("--root-key", help="Sign with this key file; may be repeated.", show_default="those in the folder"),
]
_Days = Annotated[int | None, typer.Option("--expires-days", min=1, help="For how many days a bundle may be imported.")]
_RootDays = Annotated[
    int | None, typer.Option("--root-expires-days", min=1, help="For how many days root metadata is valid.")
]


@app.command("create")
@handled
@_needs_extra
def create(
    *,
    keys: options.MirrorKeys = None,
    root_keys: Annotated[int, typer.Option("--root-keys", min=1, help="The number of root keys.")] = 1,
    threshold: Annotated[int, typer.Option("--threshold", min=1, help="The number of root keys that must sign.")] = 1,
    expires_days: _Days = None,
    root_expires_days: _RootDays = None,
    passphrase_file: options.PassphraseFile = None,
    as_json: options.Json = False,
) -> None:
    """Create a key folder; afterwards, move its root keys to offline media."""
    from datetime import UTC, datetime

    from channel_tools.mirror.keys import create_keys, key_folder, show_keys
    from channel_tools.system.keys import read_passphrase

    folder = create_keys(
        key_folder(keys).path,
        root_keys=root_keys,
        threshold=threshold,
        expiry_days=_expiry(expires_days, root_expires_days),
        passphrase=read_passphrase(passphrase_file),
        now=datetime.now(UTC),
    )
    _print_state(folder.path, show_keys(folder), as_json=as_json)
    if not as_json:
        print_line(f"now move {folder.private}/root-*.pem to offline media")


@app.command("rotate")
@handled
@_needs_extra
def rotate(
    *,
    keys: options.MirrorKeys = None,
    roles: Annotated[
        list[_Role] | None, typer.Option("--role", help="Give this role new keys; may be repeated.")
    ] = None,
    root_keys: Annotated[int | None, typer.Option("--root-keys", min=1, help="The number of new root keys.")] = None,
    threshold: Annotated[
        int | None, typer.Option("--threshold", min=1, help="The number of root keys that must sign.")
    ] = None,
    expires_days: _Days = None,
    root_expires_days: _RootDays = None,
    root_key_files: _RootKeys = None,
    passphrase_file: options.PassphraseFile = None,
    as_json: options.Json = False,
) -> None:
    """Make the next root metadata: new keys for roles, or a later expiry; importing sites adopt it by themselves."""
    from datetime import UTC, datetime

    from channel_tools.mirror.keys import Rotation, key_folder, rotate_keys
    from channel_tools.system.keys import read_passphrase

    folder = key_folder(keys)
    rotation = Rotation(
        roles=tuple(role.value for role in roles or ()),
        root_keys=root_keys,
        threshold=threshold,
        expiry_days=_expiry(expires_days, root_expires_days),
    )
    state = rotate_keys(
        folder,
        rotation,
        root_files=root_key_files or (),
        passphrase=read_passphrase(passphrase_file),
        now=datetime.now(UTC),
    )
    _print_state(folder.path, state, as_json=as_json)


@app.command("sign")
@handled
@_needs_extra
def sign(
    *,
    keys: options.MirrorKeys = None,
    root_key_files: _RootKeys = None,
    passphrase_file: options.PassphraseFile = None,
    as_json: options.Json = False,
) -> None:
    """Add signatures to root metadata that needs more of them."""
    from channel_tools.mirror.keys import key_folder, sign_pending
    from channel_tools.system.keys import read_passphrase

    folder = key_folder(keys)
    state = sign_pending(folder, root_files=root_key_files or (), passphrase=read_passphrase(passphrase_file))
    _print_state(folder.path, state, as_json=as_json)


@app.command("show")
@handled
@_needs_extra
def show(*, keys: options.MirrorKeys = None, as_json: options.Json = False) -> None:
    """Show the fingerprint for importing sites and the keys in use; no private key is read."""
    from channel_tools.mirror.keys import key_folder, show_keys

    folder = key_folder(keys)
    _print_state(folder.path, show_keys(folder), as_json=as_json)


def _expiry(days: int | None, root_days: int | None) -> dict[Role, int]:
    chosen: dict[Role, int] = {}
    if days is not None:
        chosen |= {"targets": days, "snapshot": days, "timestamp": days}
    if root_days is not None:
        chosen["root"] = root_days
    return chosen


def _print_state(folder: Path, state: RootState, *, as_json: bool) -> None:
    if as_json:
        print_json({"schema": 1, "keys": str(folder), **asdict(state)})
        return
    print_line(f"{folder}: root metadata {state.version}, expires {state.expires}")
    print_line(f"root fingerprint {state.fingerprint}")
    for role, keyids in state.keyids.items():
        needed = f" ({state.threshold} must sign)" if role == "root" else ""
        print_line(f"{role}: {', '.join(keyid[:16] for keyid in keyids)}{needed}")
    if state.pending is not None:
        print_line(f"needs more signatures: {state.pending}")
