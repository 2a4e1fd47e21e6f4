# SPDX-License-Identifier: BSD-3-Clause
"""The default stack, built once per run by the same command that users give, into the clone's own output folder.

A machine that cannot reach what the foundation is made from skips the tests that need it, with the error as reason;
every other failure of the build is a failure of the tests.
"""

from __future__ import annotations

import functools
import http
import http.server
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

from channel_tools.settings import Settings, make_settings

if TYPE_CHECKING:
    from tests.integration.buckets import Bucket, Server

ROOT = Path(__file__).parents[2]
BUILD_LIMIT_S = 900
OUT_OF_REACH = {4: "the foundation cannot be made", 5: "the registries cannot be reached"}


@pytest.fixture(scope="session")
def s3_server() -> Iterator[Server]:
    """An S3 server on loopback."""
    from tests.integration.buckets import running_server  # noqa: PLC0415 - its libraries take half a second to import

    with running_server() as server:
        yield server


@pytest.fixture
def bucket(s3_server: Server, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """An empty bucket, with credentials for it in the environment."""
    from tests.integration.s3 import ACCESS_KEY, SECRET_KEY  # noqa: PLC0415 - as above

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):  # not those of whoever runs the tests
        monkeypatch.setenv(name, os.devnull)
    return s3_server.make_bucket()


@pytest.fixture(scope="session")
def nginx(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The program."""
    from tests.integration.nginx import NoNginxError, find_nginx  # noqa: PLC0415 - as above

    try:
        return find_nginx(tmp_path_factory.mktemp("nginx"))
    except NoNginxError as err:
        pytest.skip(str(err))


@pytest.fixture
def without_network() -> tuple[str, ...]:
    """What to put before a command so that it runs where there is loopback alone."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        pytest.skip("a network namespace needs unshare (util-linux) and ip (iproute2)")
    probe = subprocess.run(["unshare", "-rn", "true"], capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        pytest.skip(f"no network namespaces: {probe.stderr.strip()}")
    return ("unshare", "-rn", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")


class Served(Protocol):
    """Serves a folder over HTTP on loopback for as long as the block runs; gives its address."""

    def __call__(self, folder: Path) -> AbstractContextManager[str]: ...


@pytest.fixture(scope="session")
def own_settings() -> Settings:
    return make_settings(root=ROOT, output=None, environ=os.environ, cwd=ROOT)


@pytest.fixture(scope="session")
def stack_channel(own_settings: Settings) -> Path:
    """The channel folder with the default stack in it."""
    command = [sys.executable, "-m", "channel_tools", "build", "--root", str(ROOT)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=BUILD_LIMIT_S)
    if result.returncode in OUT_OF_REACH:
        pytest.skip(f"{OUT_OF_REACH[result.returncode]}: {result.stderr.splitlines()[-2:]}")
    assert result.returncode == 0, result.stderr
    return own_settings.channel


class _Handler(http.server.SimpleHTTPRequestHandler):
    """A static server that answers revalidation as nginx does: rattler refuses a 304 that names no validator."""

    def send_response(self, code: int, message: str | None = None) -> None:
        super().send_response(code, message)
        if code == http.HTTPStatus.NOT_MODIFIED:
            self.send_header("Last-Modified", self.headers["If-Modified-Since"])

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002  (the name that http.server gives it)
        del format, arguments


@pytest.fixture(scope="session")
def served() -> Served:
    @contextmanager
    def serve(folder: Path) -> Iterator[str]:
        handler = functools.partial(_Handler, directory=str(folder))
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    return serve
