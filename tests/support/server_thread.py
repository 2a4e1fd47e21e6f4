# SPDX-License-Identifier: BSD-3-Clause
"""A server of the standard library, or of werkzeug, in a thread of its own."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socketserver
    from collections.abc import Iterator


@contextlib.contextmanager
def in_thread(server: socketserver.TCPServer) -> Iterator[str]:
    """Serve while the block runs, and close the server; gives its address on loopback, as http."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
