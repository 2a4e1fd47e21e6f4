# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools serve``: serves channels over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from channel_tools.cli import options
from channel_tools.cli.console import handled, print_note
from channel_tools.requests.serve import ServeRequest
from channel_tools.system.extras import needs_extra

_WORKERS_AT_MOST = 1024
"""More processes than any machine has cores for."""
_SERVE: options.Declared = {
    "folder": Annotated[
        Path, typer.Argument(help="The folder of the channels: each of its folders is served under its name.")
    ],
    "host": Annotated[str, typer.Option(help="The address to listen on.")],
    "port": Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on; 0: any free one.")],
    "tokens": Annotated[
        Path | None,
        typer.Option("--tokens", help="The file of tokens.", show_default="FOLDER/.channel_tools/tokens.json"),
    ],
    "workers": Annotated[
        int | None,
        typer.Option(min=1, max=_WORKERS_AT_MOST, help="Server processes.", show_default="the number of cores"),
    ],
    "public": Annotated[
        list[str] | None,
        typer.Option(
            help="A channel that everyone may read, CHANNEL or CHANNEL/LABEL; may be repeated.", show_default="none"
        ),
    ],
    "access_log": Annotated[
        Path | None, typer.Option(help="The file of the access log, one JSON object per line.", show_default="stderr")
    ],
    "proxies": Annotated[
        list[str] | None,
        typer.Option(
            "--proxy",
            help="The address of a proxy whose X-Forwarded-For is trusted; may be repeated.",
            show_default="none",
        ),
    ],
    "connections": Annotated[int, typer.Option(min=1, help="The most connections at once of a process.")],
    "connections_each": Annotated[
        int,
        typer.Option(
            "--connections-per-address",
            min=1,
            help="The most connections at once of one address; no limit for those of --proxy.",
        ),
    ],
}
"""The options, by the fields of ServeRequest."""


@handled
@options.grouped(ServeRequest, _SERVE)
def serve(request: ServeRequest) -> None:
    """Serve the channels of a folder over HTTP; tokens say who may read and write."""
    with needs_extra("serve", "the server"):
        from channel_tools.serve.server import serve as run

    run(request, ready=lambda address: print_note(f"serving {request.folder} at {address}"))
