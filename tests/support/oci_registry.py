# SPDX-License-Identifier: BSD-3-Clause
"""An OCI registry for tests: Debian's docker-registry, a real one, on loopback.

Clients read ``oci://`` addresses over https at the host's own port only, so ``as_host`` is a proxy that leads what is
meant for ``localhost:443`` to it. ``relay`` stands before it and answers what a test wants instead.
"""

from __future__ import annotations

import base64
import http.client
import json
import socket
import socketserver
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPS_PORT
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from channel_tools.system.http.client import basic_authorization
from channel_tools.system.processes import running_program
from tests.support.certificates import Authority
from tests.support.ports import free_port
from tests.support.processes import wait_for
from tests.support.programs import program
from tests.support.scripted_server import Asked, Reply, ScriptedServer
from tests.support.server_thread import in_thread

USER, PASSWORD = "publisher", "secret-of-tests"
_BCRYPT = "$2b$04$sxa4yyuMY6nwIF0Cl1YrtuTGMlcYMfIJEjbtwn55H55UjFfEGlVSC"
"""Of PASSWORD: the one form that the registry accepts, which Python's library cannot make."""

_BASIC = basic_authorization(USER, PASSWORD)
_SERVICE, _ISSUER = "registry of tests", "tests"


@dataclass(frozen=True, kw_only=True)
class RunningRegistry:
    port: int
    folder: Path

    @property
    def address(self) -> str:
        """Of a channel in it, when it has no TLS."""
        return f"oci+http://127.0.0.1:{self.port}/ours"

    def get(self, path: str, **headers: str) -> tuple[int, bytes]:
        """What it answers to a GET, when it has no TLS."""
        status, _headers, body = self.forward("GET", path, headers, b"")
        return status, body

    def manifest(self, name: str, tag: str) -> dict[str, object]:
        status, body = self.get(f"/v2/{name}/manifests/{tag}", Accept="application/vnd.oci.image.manifest.v1+json")
        assert status == 200, body
        found: dict[str, object] = json.loads(body)
        return found

    def forward(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Reply:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request(method, path, body=body, headers=dict(headers))
            response = connection.getresponse()
            content = response.read()
            return response.status, dict(response.getheaders()), content


@contextmanager
def running_registry(
    folder: Path, *, authority: Authority | None = None, password: bool = False, tokens: ScriptedServer | None = None
) -> Iterator[RunningRegistry]:
    """A registry that keeps its files in ``folder``; with ``authority`` over https.

    With ``password`` it is for USER only, and with ``tokens`` for whoever has one of this server.
    """
    binary, port = program("docker-registry"), free_port()
    folder.mkdir(parents=True, exist_ok=True)
    config: dict[str, object] = {
        "version": "0.1",
        "log": {"level": "warn", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(folder / "data")}, "delete": {"enabled": True}},
        "http": {"addr": f"127.0.0.1:{port}", "secret": "of-this-test"},
    }
    if authority is not None:
        tls = {"certificate": str(authority.server), "key": str(authority.server)}
        config["http"] = {"addr": f"127.0.0.1:{port}", "secret": "of-this-test", "tls": tls}
    if password:
        (folder / "htpasswd").write_text(f"{USER}:{_BCRYPT}\n")
        config["auth"] = {"htpasswd": {"realm": "tests", "path": str(folder / "htpasswd")}}
    if tokens is not None and authority is not None:
        realm = f"https://localhost:{tokens.port}/token"
        token = {"realm": realm, "service": _SERVICE, "issuer": _ISSUER, "rootcertbundle": str(authority.certificates)}
        config["auth"] = {"token": token}
    (folder / "config.yml").write_text(json.dumps(config))  # JSON is YAML, too
    log = folder / "registry.log"
    command = [binary, "serve", str(folder / "config.yml")]
    with running_program("registry", command, env={}, cwd=folder, log=log, stdout=subprocess.DEVNULL) as started:
        wait_for(lambda: _listens(port) or started.process.poll() is not None)
        assert started.process.poll() is None, log.read_text()
        yield RunningRegistry(port=port, folder=folder)


def _listens(port: int) -> bool:
    with suppress(OSError), closing(socket.create_connection(("127.0.0.1", port), timeout=1)):
        return True
    return False


def token_server(authority: Authority) -> ScriptedServer:
    """A server that gives USER tokens for what is asked for, as registries have one (Docker's token authentication)."""
    content = authority.server.read_bytes()
    key = load_pem_private_key(content, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    certificate = base64.b64encode(x509.load_pem_x509_certificate(content).public_bytes(Encoding.DER)).decode()

    def answer(asked: Asked) -> Reply:
        if _BASIC not in asked.headers.values():
            return 401, {}, b"{}"
        now, access = int(time.time()), []
        for scope in parse_qs(urlsplit(asked.path).query).get("scope", []):
            kind, name, actions = scope.split(":")
            access.append({"type": kind, "name": name, "actions": actions.split(",")})
        header = {"typ": "JWT", "alg": "ES256", "x5c": [certificate]}
        claims = {"iss": _ISSUER, "sub": USER, "aud": _SERVICE, "exp": now + 300, "nbf": now - 60, "iat": now}
        signed = ".".join(map(_encoded, (header, claims | {"jti": "1", "access": access})))
        first, second = decode_dss_signature(key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        signature = _base64url(first.to_bytes(32, "big") + second.to_bytes(32, "big"))
        return 200, {"Content-Type": "application/json"}, json.dumps({"token": f"{signed}.{signature}"}).encode()

    return ScriptedServer(answer, tls=authority.context())


def _encoded(value: object) -> str:
    return _base64url(json.dumps(value).encode())


def _base64url(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def relay(registry: RunningRegistry, instead: Callable[[Asked], Reply | None]) -> ScriptedServer:
    """A server that passes every request on to the registry for which ``instead`` has no reply."""

    def answer(asked: Asked) -> Reply | None:
        return instead(asked) or registry.forward(asked.method, asked.path, asked.headers, asked.body)

    return ScriptedServer(answer)


@contextmanager
def as_host(port: int) -> Iterator[str]:
    """The address of a proxy that leads what is meant for port 443 to this port of loopback, and nothing elsewhere."""

    class Tunnel(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            named = int(self.rfile.readline().split()[1].rpartition(b":")[2])
            while self.rfile.readline().strip():
                pass
            with socket.create_connection(("127.0.0.1", port if named == HTTPS_PORT else named)) as there:
                self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
                back = threading.Thread(target=_copy, args=(there, self.connection))
                back.start()
                _copy(self.connection, there)
                back.join()

    class Proxy(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with in_thread(Proxy(("127.0.0.1", 0), Tunnel)) as address:
        yield address


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while chunk := source.recv(1 << 16):
            target.sendall(chunk)
        target.shutdown(socket.SHUT_WR)
