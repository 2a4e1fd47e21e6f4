# SPDX-License-Identifier: BSD-3-Clause
"""An nginx of two processes over a folder, tuned for files as its manual says; what others are measured beside."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from tests.support.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_CONFIGURATION = """\
daemon off;
user root;
pid {work}/pid;
error_log {work}/errors;
worker_processes 2;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  sendfile on;
  tcp_nopush on;
  keepalive_requests 1000000;
  client_body_temp_path {work}/body;
  proxy_temp_path {work}/proxy;
  fastcgi_temp_path {work}/fastcgi;
  uwsgi_temp_path {work}/uwsgi;
  scgi_temp_path {work}/scgi;
  server {{ listen 127.0.0.1:{port}; root {root}; }}
}}
"""
_TIMEOUT_S = 10.0


@contextlib.contextmanager
def nginx(root: Path, work: Path) -> Iterator[str]:
    """Serve ``root`` for the block, with its own files in the new folder ``work``; its address."""
    port = free_port()
    work.mkdir()
    (work / "conf").write_text(_CONFIGURATION.format(work=work, root=root, port=port), encoding="utf-8")
    process = subprocess.Popen(["nginx", "-c", str(work / "conf"), "-e", str(work / "errors")])
    try:
        _wait_for(process, port)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGQUIT)
        process.wait()


def _wait_for(process: subprocess.Popen[bytes], port: int) -> None:
    deadline_s = time.monotonic() + _TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline_s:
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.02)
    sys.exit("nginx did not start")
