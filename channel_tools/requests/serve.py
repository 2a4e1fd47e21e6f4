# SPDX-License-Identifier: BSD-3-Clause
"""What ``serve`` is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.system.settings import available_cores

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class ServeRequest:
    """Serve the channels in ``folder``; everybody may read those that ``public`` names (``NAME``, ``NAME/LABEL``).

    ``tokens`` None: the default file below the folder; ``workers`` None: as many as the machine has cores. Without
    ``access_log``, the log is written to stderr. ``proxies`` are addresses whose ``X-Forwarded-For`` is trusted.
    ``connections`` is how many a process accepts, ``connections_each`` how many of them one address may have, unless it
    is a proxy.
    """

    folder: Path
    host: str = "127.0.0.1"
    port: int = 8734
    tokens: Path | None = None
    workers: int | None = None
    public: tuple[str, ...] = ()
    access_log: Path | None = None
    proxies: tuple[str, ...] = ()
    connections: int = 1000
    connections_each: int = 250

    @property
    def root(self) -> Path:
        """The folder's absolute path."""
        return self.folder.absolute()

    @property
    def worker_count(self) -> int:
        """The number of server processes."""
        return self.workers or available_cores()
