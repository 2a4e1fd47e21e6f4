# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools serve``: serves channels over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from channel_tools.cli.console import handled, print_note
from channel_tools.system.extras import needs_extra
from channel_tools.system.settings import available_cores

DEFAULT_PORT = 8734
_WORKERS_AT_MOST = 1024
"""More processes than any machine has cores for."""
DEFAULT_CONNECTIONS = 1000
DEFAULT_CONNECTIONS_EACH = 250

Folder = Annotated[
    Path, typer.Argument(help="The folder of the channels: each of its folders is served under its name.")
]
TokensFile = Annotated[
    Path | None,
    typer.Option("--tokens", help="The file of tokens.", show_default="FOLDER/.channel_tools/tokens.json"),
]


@handled
def serve(
    folder: Folder,
    *,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on; 0: any free one.")] = DEFAULT_PORT,
    tokens: TokensFile = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, max=_WORKERS_AT_MOST, help="Server processes.", show_default="the number of cores"),
    ] = None,
    public: Annotated[
        list[str] | None,
        typer.Option(
            help="A channel that everyone may read, CHANNEL or CHANNEL/LABEL; may be repeated.", show_default="none"
        ),
    ] = None,
    access_log: Annotated[
        Path | None, typer.Option(help="The file of the access log, one JSON object per line.", show_default="stderr")
    ] = None,
    proxy: Annotated[
        list[str] | None,
        typer.Option(
            help="The address of a proxy whose X-Forwarded-For is trusted; may be repeated.", show_default="none"
        ),
    ] = None,
    connections: Annotated[
        int, typer.Option(min=1, help="The most connections at once of a process.")
    ] = DEFAULT_CONNECTIONS,
    connections_per_address: Annotated[
        int, typer.Option(min=1, help="The most connections at once of one address; no limit for those of --proxy.")
    ] = DEFAULT_CONNECTIONS_EACH,
) -> None:
    """Serve the channels of a folder over HTTP; tokens say who may read and write."""
    from channel_tools.serve.access.tokens import default_tokens_file

    with needs_extra("serve", "the server"):
        from channel_tools.serve.server import ServeSettings
        from channel_tools.serve.server import serve as run

    settings = ServeSettings(
        root=folder.absolute(),
        tokens_file=tokens or default_tokens_file(folder.absolute()),
        host=host,
        port=port,
        workers=workers or available_cores(),
        public=tuple(public or ()),
        access_log=access_log,
        proxies=tuple(proxy or ()),
        connections=connections,
        connections_each=connections_per_address,
    )
    run(settings, ready=lambda address: print_note(f"serving {folder} at {address}"))
