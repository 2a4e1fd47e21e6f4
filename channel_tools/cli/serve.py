# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools serve``: serves channels over HTTP."""

from __future__ import annotations

from channel_tools.cli import options
from channel_tools.cli.console import handled, print_note
from channel_tools.requests.serve import ServeRequest
from channel_tools.system.extras import needs_extra


@handled
@options.asks(ServeRequest)
def serve(request: ServeRequest) -> None:
    """Serve the channels of a folder over HTTP; tokens say who may read and write."""
    with needs_extra("serve", "the server"):
        from channel_tools.serve.server import serve as run

    run(request, ready=lambda address: print_note(f"serving {request.folder} at {address}"))
