# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools serve``: serves channels over HTTP.

``channel_tools token``: who may read from and publish to a server's channels.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from channel_tools.cli import options
from channel_tools.cli.console import handled, print_json, print_line, print_note, print_table
from channel_tools.requests.serve import ServeRequest
from channel_tools.system.errors import ConfigError, UsageError
from channel_tools.system.extras import needs_extra

if TYPE_CHECKING:
    from channel_tools.serve.access.tokens import TokenRecord

app = typer.Typer(no_args_is_help=True, help="Tokens of a server: who may read and publish.")

Folder = Annotated[
    Path | None, typer.Option("--at", metavar="FOLDER", help="The folder that the server serves.", show_default=False)
]
TokensFile = Annotated[Path | None, typer.Option("--tokens", help="The server's file of tokens.", show_default=False)]


@handled
@options.asks(ServeRequest)
def serve(request: ServeRequest) -> None:
    """Serve the channels of a folder over HTTP; tokens say who may read and write."""
    with needs_extra("serve", "the server"):
        from channel_tools.serve.server import serve as run

    run(request, ready=lambda address: print_note(f"serving {request.folder} at {address}"))


@app.command("create")
@handled
def create(
    name: Annotated[str, typer.Argument(help="What the token is for; `token revoke` takes it, too.")],
    *,
    folder: Folder = None,
    tokens: TokensFile = None,
    channel: Annotated[
        list[str] | None,
        typer.Option(help="A channel that the token is valid for; may be repeated.", show_default=False),
    ] = None,
    all_channels: Annotated[bool, typer.Option("--all-channels", help="Valid for every channel.")] = False,
    label: Annotated[
        list[str] | None,
        typer.Option(help="A label that the token is valid for; may be repeated.", show_default="main"),
    ] = None,
    all_labels: Annotated[bool, typer.Option("--all-labels", help="Valid for every label.")] = False,
    write: Annotated[bool, typer.Option("--write", help="Allow publishing, not only reading.")] = False,
    expires: Annotated[
        str, typer.Option(help="When it expires: after days (90d) or hours (12h), on a date (2030-01-31), or never.")
    ] = "365d",
    as_json: options.Json = False,
) -> None:
    """Create a token and print it: only its hash is stored, and it is never shown again."""
    from channel_tools.serve.access.tokens import create_token, parse_expiry

    if bool(channel) == all_channels:
        raise UsageError("a token needs a scope", hint="give --channel NAME (may be repeated) or --all-channels")
    token, record = create_token(
        _file(folder, tokens),
        name=name,
        channels=None if all_channels else tuple(channel or ()),
        labels=None if all_labels else tuple(label or ("main",)),
        access="write" if write else "read",
        expires_s=parse_expiry(expires, now_s=time.time()),
        clock=time.time,
    )
    if as_json:
        print_json({"schema": 1, "token": token, **_described(record)})
        return
    print_line(token)
    print_note(f"token {record.id} ({name}); it is not shown again")


@app.command("list")
@handled
def list_tokens(*, folder: Folder = None, tokens: TokensFile = None, as_json: options.Json = False) -> None:
    """List the tokens with their scopes and states."""
    from channel_tools.serve.access.tokens import read_token_file

    token_file = read_token_file(_file(folder, tokens))
    if as_json:
        print_json({"schema": 1, "tokens": [_described(record) for record in token_file.records]})
    else:
        columns = ("id", "name", "channels", "labels", "access", "state", "expires")
        print_table(columns, [_row(record) for record in token_file.records])
    if token_file.faults:
        hint = "the server rejects these; remove them from the file, and create the tokens again"
        raise ConfigError("\n".join(token_file.faults), hint=hint)


@app.command("revoke")
@handled
def revoke(
    token: Annotated[str, typer.Argument(metavar="ID|NAME", help="The token's ID or name; `token list` shows them.")],
    *,
    folder: Folder = None,
    tokens: TokensFile = None,
) -> None:
    """Revoke a token; it is rejected at once, without a restart of the server."""
    from channel_tools.serve.access.tokens import revoke_token

    record = revoke_token(_file(folder, tokens), token, clock=time.time)
    print_line(f"token {record.id} ({record.name}) is revoked")


def _file(folder: Path | None, tokens: Path | None) -> Path:
    from channel_tools.serve.access.tokens import default_tokens_file

    if tokens is not None:
        return tokens
    if folder is None:
        raise UsageError(
            "no file of tokens given", hint="give --at FOLDER, as to channel_tools serve, or --tokens FILE"
        )
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder", hint="give the folder of the channels, as to channel_tools serve")
    return default_tokens_file(folder)


def _state(record: TokenRecord) -> str:
    if record.revoked_s is not None:
        return "revoked"
    return "valid" if record.is_valid(time.time()) else "expired"


def _described(record: TokenRecord) -> dict[str, object]:
    fields = {key: value for key, value in asdict(record).items() if key != "sha256"}
    return {**fields, "state": _state(record)}


def _row(record: TokenRecord) -> tuple[str, ...]:
    return (
        record.id,
        record.name,
        "all" if record.channels is None else ", ".join(record.channels),
        "all" if record.labels is None else ", ".join(record.labels),
        record.access,
        _state(record),
        "never"
        if record.expires_s is None
        else datetime.fromtimestamp(record.expires_s, UTC).strftime("%Y-%m-%d %H:%M"),
    )
