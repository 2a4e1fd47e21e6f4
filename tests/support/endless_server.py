# SPDX-License-Identifier: BSD-3-Clause
"""Servers whose answers do not end."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def endless(head: bytes, piece: bytes, pause_s: float) -> Iterator[str]:
    """The address of a server that answers with ``head``, and then with ``piece`` again and again, until it is left."""
    ended = threading.Event()

    def answer(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.recv(1 << 16)
            connection.sendall(head)
            while not ended.wait(pause_s):
                connection.sendall(piece)
                if not piece:
                    ended.wait()

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=answer, args=(listening.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        ended.set()
        listening.shutdown(socket.SHUT_RDWR)
