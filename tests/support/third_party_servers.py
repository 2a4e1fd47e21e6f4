# SPDX-License-Identifier: BSD-3-Clause
"""Stand-ins for the servers of others, on loopback: they take uploads as each service does and hand the channel out.

What they ask for and answer was seen on rattler-build's uploads; they check the key, refuse names that they have (but
Artifactory, which overwrites), and remember what was sent, in order.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import io
import json
import re
import tarfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from urllib.parse import parse_qs, urlsplit

import zstandard

from tests.support.server_thread import in_thread

KEY = "key-that-must-be-seen-nowhere"
_READ = re.compile(r"(?P<channel>.+)/(?P<subdir>linux-64|noarch)/(?P<name>[^/]+)")


class ForeignServer(http.server.ThreadingHTTPServer):
    """One server that speaks all five; ``files`` are what it took: (channel as it is read, subdir, name) to bytes.

    ``behind`` are names that the index does not list yet, ``failing`` those whose upload is answered with 500,
    ``stalled`` lets uploads wait for ever; ``without_hashes`` leaves the sha256 out of the index.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[tuple[str, str, str], bytes] = {}
        self.arrived: list[str] = []
        self.labels: list[list[str]] = []
        self.behind: set[str] = set()
        self.failing: set[str] = set()
        self.staged: dict[str, tuple[str, str, str]] = {}
        self.stalled = threading.Event()
        self.without_hashes = threading.Event()
        self.ended = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def addresses(self) -> dict[str, str]:
        """The address of a channel on each kind of server."""
        return {
            "quetz": f"quetz+{self.url}/toys",
            "artifactory": f"artifactory+{self.url}/artifactory/toys",
            "prefix": f"prefix://toys?api={self.url}&read={self.url}/prefix/toys",
            "anaconda": f"anaconda://owner?api={self.url}&read={self.url}/conda/owner",
            "cloudsmith": f"cloudsmith://owner/repo?api={self.url}&read={self.url}/cloudsmith/owner/repo",
        }

    def take(self, channel: str, body: bytes, name: str) -> bool:
        """Keep a package; False when the name is taken."""
        place = (channel, _index(body)["subdir"], name)
        if place in self.files:
            return False
        self.files[place] = body
        self.arrived.append(name)
        return True

    def repodata(self, channel: str, subdir: str) -> dict[str, object]:
        hashed = not self.without_hashes.is_set()
        rows = {
            name: _index(body) | ({"sha256": hashlib.sha256(body).hexdigest()} if hashed else {}) | {"size": len(body)}
            for (where, place, name), body in self.files.items()
            if (where, place) == (channel, subdir) and name not in self.behind
        }
        return {"info": {"subdir": subdir}, "packages": {}, "packages.conda": rows, "repodata_version": 1}


def _index(body: bytes) -> dict[str, str]:
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        name = next(name for name in archive.namelist() if name.startswith("info-"))
        packed = archive.read(name)
    plain = zstandard.ZstdDecompressor().decompressobj().decompress(packed)
    with tarfile.open(fileobj=io.BytesIO(plain)) as tar:
        member = tar.extractfile("info/index.json")
        assert member is not None
        index: dict[str, str] = json.loads(member.read())
    return index


class _Handler(http.server.BaseHTTPRequestHandler):
    server: ForeignServer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Not on the terminal."""

    def answer(self, status: int, body: bytes | Mapping[str, object] = b"") -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        chunks = []
        while size := int(self.rfile.readline(), 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def has_key(self, header: str, form: str) -> bool:
        return self.headers.get(header) == form.format(KEY)

    def uploaded(self, channel: str, body: bytes, name: str, *, taken: int = 409) -> None:
        """Answer an upload of a whole file."""
        if name in self.server.failing:
            return self.answer(500)
        return self.answer(201 if self.server.take(channel, body, name) else taken)

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if path.startswith("/behind/"):
            self.server.behind.add(path.removeprefix("/behind/"))
            return self.answer(200)
        if path.startswith(("/package/", "/release/")):
            return self.answer(404 if self.has_key("Authorization", "token {}") else 401)
        found = _READ.fullmatch(path)
        if found is None:
            return self.answer(404)
        channel, subdir, name = found["channel"], found["subdir"], found["name"]
        if name == "repodata.json" and any(key[:2] == (channel, subdir) for key in self.server.files):
            return self.answer(200, self.server.repodata(channel, subdir))
        body = self.server.files.get((channel, subdir, name))
        return self.answer(404) if body is None else self.answer(200, body)

    def do_HEAD(self) -> None:
        self.send_response(404)  # rattler asks so for other forms of the index
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_PUT(self) -> None:
        body, path = self.body(), urlsplit(self.path).path
        if not self.has_key("Authorization", "Bearer {}"):
            return self.answer(401)
        channel, _subdir, name = path.rsplit("/", 2)
        self.server.files.pop((channel, _index(body)["subdir"], name), None)  # Artifactory overwrites
        return self.uploaded(channel, body, name)

    def do_POST(self) -> None:
        if self.server.stalled.is_set():
            self.server.ended.wait(60)
            return None
        parts = urlsplit(self.path)
        kind = parts.path.split("/")[1]
        asked = {"api": self.post_api, "stage": self.post_stage, "commit": self.post_commit, "s3": self.post_s3}
        asked |= {"files": self.post_files, "packages": self.post_packages}
        if kind in {"package", "release"}:
            self.body()
            return self.answer(201 if self.has_key("Authorization", "token {}") else 401)
        return asked[kind](parts.path, parts.query)

    def post_api(self, path: str, query: str) -> None:
        body = self.body()
        if path.startswith("/api/channels/"):  # quetz
            if not self.has_key("X-Api-Key", "{}"):
                return self.answer(401)
            said, name = parse_qs(query)["sha256"][0], path.rpartition("/")[2]
            if said != hashlib.sha256(body).hexdigest():
                return self.answer(400)
            return self.uploaded(f"/get/{path.split('/')[3]}", body, name)
        if not self.has_key("Authorization", "Bearer {}"):
            return self.answer(401)
        name, content = _form_file(self.headers["Content-Type"], body)
        return self.uploaded(f"/prefix/{path.rpartition('/')[2]}", content, name)

    def post_stage(self, path: str, query: str) -> None:
        del query
        owner, name = path.split("/")[2], path.rpartition("/")[2]
        wanted = json.loads(self.body())
        if any(key[2] == name for key in self.server.files):
            return self.answer(409)
        self.server.labels.append(wanted["channels"])
        label = wanted["channels"][0]
        channel = f"/conda/{owner}" + ("" if label == "main" else f"/label/{label}")
        self.server.staged[name] = (channel, name, wanted["sha256"])
        form = {"post_url": f"{self.server.url}/s3", "form_data": {"key": name}, "dist_id": name}
        return self.answer(200, form)

    def post_files(self, path: str, query: str) -> None:
        del query
        wanted = json.loads(self.body())
        if not self.has_key("X-Api-Key", "{}"):
            return self.answer(401)
        self.server.staged[wanted["filename"]] = (f"/cloudsmith{path.removeprefix('/files').rstrip('/')}", "", "")
        url = f"{self.server.url}/s3"
        form = {"identifier": wanted["filename"], "upload_url": url, "upload_fields": {"key": wanted["filename"]}}
        return self.answer(200, form)

    def post_s3(self, path: str, query: str) -> None:
        del path, query
        assert KEY not in str(self.headers)
        body = self.body()
        found = re.search(rb'name="key"\r\n\r\n([^\r]+)', body)
        assert found is not None
        channel, _name, said = self.server.staged[found[1].decode()]
        _file, content = _form_file(self.headers["Content-Type"], body)
        assert said in {"", hashlib.sha256(content).hexdigest()}
        self.server.staged[found[1].decode()] = (channel, "sent", content.hex())
        return self.answer(204)

    def post_commit(self, path: str, query: str) -> None:
        del query
        name = path.rpartition("/")[2]
        self.body()
        channel, _sent, content = self.server.staged[name]
        return self.uploaded(channel, bytes.fromhex(content), name)

    def post_packages(self, path: str, query: str) -> None:
        del path, query
        name = json.loads(self.body())["package_file"]
        channel, _sent, content = self.server.staged[name]
        if name in self.server.failing:
            return self.answer(500)
        if not self.server.take(channel, bytes.fromhex(content), name):
            return self.answer(422)
        return self.answer(201, {"slug_perm": name, "slug": name})


def _form_file(content_type: str, body: bytes) -> tuple[str, bytes]:
    """The file of a multipart form, and its name when it has one."""
    boundary = content_type.partition("boundary=")[2].encode()
    part = next(part for part in body.split(b"--" + boundary) if b'name="file"' in part)
    head, _gap, content = part.partition(b"\r\n\r\n")
    found = re.search(rb'filename="([^"]+)"', head)
    return found[1].decode() if found else "", content.removesuffix(b"\r\n")


@contextlib.contextmanager
def foreign_server() -> Iterator[ForeignServer]:
    """Serve for as long as the block runs."""
    server = ForeignServer()
    with in_thread(server):
        try:
            yield server
        finally:
            server.ended.set()
