# SPDX-License-Identifier: BSD-3-Clause
"""What ``serve`` is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from channel_tools.system.files import absolute_path
from channel_tools.system.settings import available_cores

_WORKERS_AT_MOST = 1024
"""More processes than any machine has cores for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServeRequest:
    """Which channels are served, to whom, and by how many processes."""

    folder: Annotated[Path, Argument(help="The folder of the channels: each of its folders is served under its name.")]
    host: Annotated[str, Option(help="The address to listen on.")] = "127.0.0.1"
    port: Annotated[int, Option(min=0, max=65535, help="The port to listen on; 0: any free one.")] = 8734
    tokens: Annotated[
        Path | None,
        Option("--tokens", help="The file of tokens.", show_default="FOLDER/.channel_tools/tokens.json"),
    ] = None
    workers: Annotated[
        int | None, Option(min=1, max=_WORKERS_AT_MOST, help="Server processes.", show_default="the number of cores")
    ] = None
    public: Annotated[
        tuple[str, ...],
        Option(
            help="A channel that everyone may read, CHANNEL or CHANNEL/LABEL; may be repeated.", show_default="none"
        ),
    ] = ()
    access_log: Annotated[
        Path | None, Option(help="The file of the access log, one JSON object per line.", show_default="stderr")
    ] = None
    proxies: Annotated[
        tuple[str, ...],
        Option(
            "--proxy",
            help="The address of a proxy whose X-Forwarded-For is trusted; may be repeated.",
            show_default="none",
        ),
    ] = ()
    connections: Annotated[int, Option(min=1, help="The most connections at once of a process.")] = 1000

    @property
    def root(self) -> Path:
        """The folder's absolute path."""
        return absolute_path(self.folder)

    @property
    def worker_count(self) -> int:
        """The number of server processes."""
        return self.workers or available_cores()
