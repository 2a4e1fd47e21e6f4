# SPDX-License-Identifier: BSD-3-Clause
"""A real nginx on loopback, the host's or Debian's unpacked, with the configurations of docs/how-to/serve.md."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import rattler

from channel_tools.errors import ChannelToolsError
from channel_tools.foundation.apt import DEB_ARCHITECTURES, Apt
from tests.integration.serving import Server, select_briefly

_HOW_TO = Path(__file__).parents[2] / "docs" / "how-to" / "serve.md"
_PROXY, _STATIC = re.findall(r"```nginx\n(.*?)```", _HOW_TO.read_text(), re.DOTALL)
_SUITE = "bookworm"


class NoNginxError(Exception):
    """Why there is none."""


def find_nginx(folder: Path) -> str:
    """The host's nginx, else Debian's, unpacked into ``folder``. Raises NoNginxError when there is neither."""
    program = shutil.which("nginx", path="/usr/sbin:/usr/bin") or shutil.which("nginx") or _unpacked(folder)
    tried = subprocess.run([program, "-v"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        raise NoNginxError(f"{program} does not run: {tried.stderr.strip()}")
    return program


def _unpacked(folder: Path) -> str:
    apt = Apt(state=folder / "apt", suite=_SUITE, architecture=DEB_ARCHITECTURES[str(rattler.Platform.current())])
    try:
        apt.update()
        files = [*apt.find(["nginx"]).values()]
    except ChannelToolsError as err:
        raise NoNginxError(f"nginx is not installed, and apt cannot bring it: {err}") from err
    result = apt.download(files, folder, poll=lambda: None)
    archives = [*folder.glob("nginx_*.deb")]
    if not archives or shutil.which("dpkg-deb") is None:
        raise NoNginxError(f"nginx is not installed, and Debian's cannot be unpacked: {result.stderr}")
    subprocess.run(["dpkg-deb", "--extract", archives[0], folder / "root"], check=True)
    return str(folder / "root" / "usr" / "sbin" / "nginx")


@dataclass(frozen=True, kw_only=True)
class Front:
    """A running nginx."""

    server: Server
    log_file: Path


def nginx_before(server: Server, program: str, work: Path) -> AbstractContextManager[Front]:
    """As a proxy of ``server``, which was started with ``--proxy 127.0.0.1``."""
    return _running(program, work, _PROXY.replace("127.0.0.1:8734", f"127.0.0.1:{server.port}"), server.root)


def nginx_alone(root: Path, program: str, work: Path) -> AbstractContextManager[Front]:
    """As a server of the static files below ``root``."""
    return _running(program, work, _STATIC, root)


@contextmanager
def _running(program: str, work: Path, configuration: str, root: Path) -> Iterator[Front]:
    port = _free_port()
    log_file = work / "nginx.log"
    lines = re.sub(r"listen \S+( ssl)?;", f"listen 127.0.0.1:{port};", configuration)
    lines = re.sub(r"^\s*ssl_certificate.*\n", "", lines, flags=re.MULTILINE)
    lines = re.sub(r"access_log \S+", f"access_log {log_file}", lines)
    lines = re.sub(r"error_log \S+", f"error_log {work / 'nginx-site.err'}", lines)
    lines = lines.replace("root /srv/channels;", f"root {root};")
    temporary = "".join(
        f"{kind}_temp_path {work / kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    file, error_file = work / "nginx.conf", work / "nginx.err"
    file.write_text(
        f"daemon off;\nuser root;\npid {work / 'nginx.pid'};\nerror_log {error_file};\n"
        f"events {{}}\nhttp {{\naccess_log off;\n{temporary}{lines}}}\n"
    )
    process = subprocess.Popen([program, "-c", str(file), "-e", str(error_file)], text=True)
    try:
        while process.poll() is None and not _answers(port):
            select_briefly()
        assert process.poll() is None, error_file.read_text()
        server = Server(root=root, address=f"http://127.0.0.1:{port}", process=process, log_file=log_file)
        yield Front(server=server, log_file=log_file)
    finally:
        process.send_signal(signal.SIGQUIT)
        process.wait(30)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _answers(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0
