# SPDX-License-Identifier: BSD-3-Clause
"""A made-up secret in every place that may hold one, and every command that reads addresses: it is nowhere else then.

It is looked for in what each command prints, in every file that it leaves (also inside packages and archives), in the
command lines of all processes while it runs, in the environment of build scripts, and in what servers are told: the one
that the secret is for may see it as credentials, any other must not. The documentation lists the
places.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import subprocess
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import pytest
import zstandard

from tests.support.command_line import run_tool
from tests.support.processes import wait_for
from tests.support.scripted_server import Asked, Reply, ScriptedServer, scripted
from tests.support.toy_tree import write_toy_tree
from tests.unit.sources.toys import tar_gz

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SECRET = "Made-Up-S3cret"  # noqa: S105 - no real one
SPELLINGS = (SECRET.encode(), base64.b64encode(f"me:{SECRET}".encode()), base64.b64encode(f"{SECRET}:".encode()))
ARCHIVE = tar_gz({"toy-1/README": b"a toy\n"})
SHA256 = hashlib.sha256(ARCHIVE).hexdigest()
EMPTY = {"info": {}, "packages": {}, "packages.conda": {}, "repodata_version": 1}
ELSEWHERE = "lab.invalid"
"""A host that only the proxy of a test answers for."""


@dataclass(kw_only=True)
class World:
    """A home folder, a lab's server and another one, and a tree; ``address`` is the lab's as a user gives it."""

    root: Path
    lab: ScriptedServer
    other: ScriptedServer
    address: str = ""
    plain: str = ""
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def tree(self) -> Path:
        return self.root / "tree"

    def keep(self, name: str, text: str) -> Path:
        """A file in the home folder that only the user may read."""
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o600)
        return path

    def through_proxy(self, user: str = "") -> None:
        """Let the lab be a host elsewhere, for which its server is the proxy."""
        self.address = self.plain = f"http://{ELSEWHERE}"
        self.environ["no_proxy"] = self.environ["NO_PROXY"] = "127.0.0.1"
        self.environ["http_proxy"] = self.environ["HTTP_PROXY"] = f"http://{user}127.0.0.1:{self.lab.port}"


def in_user(world: World) -> None:
    world.address = world.plain.replace("//", f"//me:{SECRET}@")


def in_user_alone(world: World) -> None:
    world.address = world.plain.replace("//", f"//{SECRET}@")


def in_token(world: World) -> None:
    world.address = f"{world.plain}/t/{SECRET}"


def in_netrc(world: World) -> None:
    world.keep(".netrc", f"machine 127.0.0.1 login me password {SECRET}\n")


def in_netrc_for_plain_http(world: World) -> None:
    world.through_proxy()
    world.keep(".netrc", f"machine {ELSEWHERE} login me password {SECRET}\n")


def in_default_of_netrc(world: World) -> None:
    world.through_proxy()
    world.environ["NETRC"] = str(world.keep("secrets/netrc", f"default login me password {SECRET}\n"))


def in_rattler(kind: str) -> Callable[[World], None]:
    def put(world: World) -> None:
        entry: object = {"username": "me", "password": SECRET} if kind == "BasicHTTP" else SECRET
        world.keep(".rattler/credentials.json", json.dumps({"127.0.0.1": {kind: entry}}))

    return put


def in_rattler_for_plain_http(world: World) -> None:
    world.through_proxy()
    world.keep(".rattler/credentials.json", json.dumps({ELSEWHERE: {"CondaToken": SECRET}}))


def in_file_of_rattler(world: World) -> None:
    path = world.keep("secrets/rattler.json", json.dumps({"127.0.0.1": {"BearerToken": SECRET}}))
    world.environ["RATTLER_AUTH_FILE"] = str(path)


def in_proxy(world: World) -> None:
    world.through_proxy(f"me:{SECRET}@")


def in_proxy_of_condarc(world: World) -> None:
    world.through_proxy()
    del world.environ["HTTP_PROXY"]
    proxy = world.environ.pop("http_proxy").replace("//", f"//me:{SECRET}@")
    world.keep(".condarc", f"proxy_servers: {{http: '{proxy}'}}\n")


def in_mirror_of_rattler(world: World) -> None:
    mirror = world.plain.replace("//", f"//me:{SECRET}@")
    world.keep(".config/rattler/config.toml", f'[mirrors]\n"https://{ELSEWHERE}/lab" = ["{mirror}/lab"]\n')


def in_pip(world: World) -> None:
    """pip asks the lab for packages, which has none."""
    index = f"{world.plain}/simple/".replace("//", f"//me:{SECRET}@", 1)
    world.keep(".config/pip/pip.conf", f"[global]\nindex-url = {index}\n")
    world.environ["PIP_CONFIG_FILE"] = str(world.home / ".config" / "pip" / "pip.conf")


def in_conda_token(world: World) -> None:
    world.keep(".condarc", f"channel_alias: {world.plain}/t/{SECRET}\nchannels: ['{world.plain}/t/{SECRET}/lab']\n")


def in_variable(world: World) -> None:
    world.environ["CHANNEL_TOOLS_TOKEN"] = SECRET


def in_token_file(world: World) -> None:
    world.environ["CHANNEL_TOOLS_TOKEN_FILE"] = str(world.keep("secrets/token", f"{SECRET}\n"))


PLACES: dict[str, Callable[[World], None]] = {
    "user-and-password": in_user,
    "user": in_user_alone,
    "token": in_token,
    "netrc": in_netrc,
    "netrc-plain-http": in_netrc_for_plain_http,
    "netrc-default": in_default_of_netrc,
    "rattler-bearer": in_rattler("BearerToken"),
    "rattler-conda-token": in_rattler("CondaToken"),
    "rattler-basic": in_rattler("BasicHTTP"),
    "rattler-plain-http": in_rattler_for_plain_http,
    "rattler-file": in_file_of_rattler,
    "proxy": in_proxy,
    "proxy-condarc": in_proxy_of_condarc,
    "mirror": in_mirror_of_rattler,
    "pip.conf": in_pip,
    "condarc": in_conda_token,
    "variable": in_variable,
    "token-file": in_token_file,
}
REFUSED = frozenset({"user-and-password", "user", "token"})
"""Places in an address, which no file that is kept may name."""
NOT_SENT = frozenset({"netrc-plain-http", "netrc-default", "rattler-plain-http"})
"""What is stored, where everybody on the way would read it."""
PAGE = Path(__file__).parents[3] / "docs" / "reference" / "threat-model.md"
CHECKED = ("printed", "files", "`ps`", "build scripts", "other servers")
"""Where it must not be."""
SCRIPT = "mkdir -p $PREFIX/share; cp README $PREFIX/share/toy; if env | grep -q 'Made-Up-S[3]cret'; then exit 7; fi"
"""Fails where its environment has the secret, which it cannot name: it is in the package."""


@pytest.fixture(scope="module")
def channel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A channel with the toy in it, built from a source and without any secret."""
    root = tmp_path_factory.mktemp("channel")
    with scripted(ScriptedServer(lambda asked: answer(asked, root, ""))) as server:
        write_tree(root / "tree", f"{server.origin}/src/toy-1.tar.gz")
        words = ["build", "--foundation", "conda-forge", "--foundation-channel", f"{server.origin}/foundation"]
        run = run_tool(*words, cwd=root / "tree", environ=base_environ(root))
        assert run.returncode == 0, run.stderr
    return root / "tree" / "output" / "channel"


def write_tree(tree: Path, source: str) -> None:
    recipe = write_toy_tree(tree)
    text = recipe.read_text().replace('"echo ${{ flavour }}"', json.dumps(SCRIPT + "; echo ${{ flavour }}"))
    recipe.write_text(text.replace("build:", f"source: {{url: '{source}', sha256: {SHA256}}}\nbuild:", 1))


def base_environ(root: Path) -> dict[str, str]:
    (root / "home").mkdir(exist_ok=True)
    (root / "temporary").mkdir(exist_ok=True)
    names = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
    return {
        **dict.fromkeys(names, ""),
        "HOME": str(root / "home"),
        "XDG_CONFIG_HOME": str(root / "home" / ".config"),
        "TMPDIR": str(root / "temporary"),
        "CHANNEL_TOOLS_CACHE": str(root / "cache"),
        "CHANNEL_TOOLS_USER_SETTINGS": "",
    }


def answer(asked: Asked, published: Path, other: str) -> Reply:
    """A source, an empty foundation and a channel; packages and the source are at another host, if there is one."""
    path = urlsplit(asked.path).path.replace(f"/t/{SECRET}", "")
    if other and path.endswith((".conda", ".tar.gz")):
        return 302, {"Location": f"{other}{path}"}, b""
    if path == "/src/toy-1.tar.gz":
        return 200, {}, ARCHIVE
    if path.startswith("/foundation/") and path.endswith("/repodata.json"):
        return 200, {}, json.dumps(EMPTY | {"info": {"subdir": path.split("/")[2]}}).encode()
    file = published / path.removeprefix("/lab/")
    if path.startswith("/lab/") and file.is_file():
        return 200, {}, file.read_bytes()
    return 404, {}, b""


@pytest.fixture(params=PLACES)
def world(request: pytest.FixtureRequest, tmp_path: Path, channel: Path) -> Iterator[World]:
    with ExitStack() as stack:
        other = stack.enter_context(scripted(ScriptedServer(lambda asked: answer(asked, channel, ""))))
        lab = stack.enter_context(scripted(ScriptedServer(lambda asked: answer(asked, channel, other.origin))))
        made = World(root=tmp_path, lab=lab, other=other, address=lab.origin, plain=lab.origin)
        made.environ = base_environ(tmp_path)
        PLACES[request.param](made)
        write_tree(made.tree, f"{made.plain}/src/toy-1.tar.gz")
        yield made


def commands(world: World) -> Mapping[str, tuple[list[str], Path]]:
    """What is run, in this order, and where."""
    write_tree(world.root / "other-tree", f"{world.address}/src/toy-1.tar.gz")
    site = world.root / "site-tree"
    write_toy_tree(site)
    (site / "site.yaml").write_text(f"upstreams: [{{name: toys, git: '{world.address}/toys.git', rev: v1}}]\n")
    lab, lock = f"{world.address}/lab", world.root / "pinned"
    foundation = ["--foundation", "conda-forge", "--foundation-channel", f"{world.address}/foundation"]
    own = ["--foundation", "conda-forge", "--foundation-channel", f"{world.plain}/foundation"]
    keys = world.root / "keys"
    # with pip's own index it would make a foundation
    pip = ["foundation", "build", "--output", str(world.root / "registry")]
    of_pip = {"foundation build": (pip, world.tree)} if "PIP_CONFIG_FILE" in world.environ else {}
    return of_pip | {
        "init": (["init", "new-site", "--upstream", f"{world.address}/toys.git@v1"], world.root),
        "upstream update": (["upstream", "update"], site),
        "list of a tree with it": (["list", "--variant", "toy"], world.root / "other-tree"),
        "sources fetch with it": (["sources", "fetch", "--foundation", "conda-forge"], world.root / "other-tree"),
        "build of a tree with it": (["build", "--dry-run", *own], world.root / "other-tree"),
        "sources fetch": (["sources", "fetch", "--foundation", "conda-forge"], world.tree),
        "sources list": (["sources", "list", "--foundation", "conda-forge"], world.tree),
        "foundation lock": (["foundation", "lock", *foundation[2:]], world.tree),
        "build": (["build", *foundation], world.tree),
        "build without it": (["build", *own], world.tree),
        "publish to it": (["publish", *map(str, packages(world)), "--to", lab], world.tree),
        "publish": (["publish", "--to", str(world.root / "published")], world.tree),
        "attest": (["attest", "sign", *map(str, packages(world))], world.tree),
        "pins": (["pins", "-c", lab, "-o", str(lock)], world.tree),
        "env create": (["env", "create", str(world.root / "env"), "toy", "-c", lab], world.tree),
        "licenses": (["licenses", str(lock / "conda-lock.yml"), "-c", lab], world.tree),
        "mirror keys": (["mirror", "keys", "create", "--keys", str(keys)], world.tree),
        "mirror create": (
            [
                "mirror",
                "create",
                "toy",
                "-c",
                lab,
                "--keys",
                str(keys),
                "--without-tool",
                "--to",
                str(world.root / "b"),
            ],
            world.tree,
        ),
    }


def packages(world: World) -> list[Path]:
    return sorted((world.tree / "output" / "channel").rglob("*.conda"))


def with_secret(content: bytes) -> bool:
    return any(spelling in content for spelling in SPELLINGS)


def unpacked(path: Path) -> Iterator[bytes]:
    """A file's bytes, and what is packed in them."""
    content = path.read_bytes()
    yield content
    if path.name.endswith((".conda", ".zip")):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for name in archive.namelist():
                inner = archive.read(name)
                yield zstandard.ZstdDecompressor().decompressobj().decompress(inner) if name.endswith(".zst") else inner
    elif path.name.endswith(".zst"):
        yield zstandard.ZstdDecompressor().decompressobj().decompress(content)
    elif path.name.endswith(".gz"):
        yield gzip.decompress(content)


class CommandLines:
    """Looks at the command lines of all processes, as ps does, while the block runs; ``found`` are those with it."""

    def __init__(self) -> None:
        self.found: set[str] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, err: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(0.01):
            for process in Path("/proc").iterdir():
                if process.name.isdecimal():
                    try:
                        words = (process / "cmdline").read_bytes()
                    except OSError:  # it has ended
                        continue
                    if with_secret(words):
                        self.found.add(words.replace(b"\0", b" ").decode())


def test_command_lines_are_seen() -> None:
    with CommandLines() as lines, subprocess.Popen(["sh", "-c", f": {SECRET}; read x"], stdin=subprocess.PIPE) as shell:
        wait_for(lambda: any(SECRET in line for line in lines.found))
        shell.communicate()


def test_a_secret_stays_where_it_is(world: World, request: pytest.FixtureRequest) -> None:
    place = request.node.callspec.params["world"]
    findings: dict[str, list[str]] = {column: [] for column in CHECKED}
    codes: dict[str, int] = {}
    errors: dict[str, str] = {}
    for name in commands(world):
        words, folder = commands(world)[name]
        inputs = {path for path in world.home.rglob("*") if path.is_file()}
        inputs |= {
            world.root / "other-tree" / "recipes" / "toy" / "recipe.yaml",
            world.root / "site-tree" / "site.yaml",
        }
        with CommandLines() as lines:
            run = run_tool("-v", *words, cwd=folder, environ=world.environ)
        codes[name], errors[name] = run.returncode, run.stderr[-300:]
        printed = f"{run.stdout}\n{run.stderr}".encode()
        if with_secret(printed):
            findings["printed"].append(f"{name}: {printed.decode()}")
        assert "Traceback" not in run.stderr, run.stderr
        left = [path for path in world.root.rglob("*") if path.is_file() and not path.is_symlink()]
        findings["files"] += [
            f"{name}: {path.relative_to(world.root)}"
            for path in left
            if path not in inputs and any(map(with_secret, unpacked(path)))
        ]
        findings["`ps`"] += [f"{name}: {line}" for line in lines.found]
        if "Script failed with status 7" in printed.decode():
            findings["build scripts"].append(name)
        findings["other servers"] += [f"{name}: {asked}" for asked in world.other.asked if with_secret(_told(asked))]
        for asked in world.lab.asked:
            assert not with_secret(asked.headers.get("Referer", "").encode()), f"{name} told it as Referer: {asked}"
            if place in NOT_SENT:
                assert not with_secret(_told(asked)), f"{name} sent it where everybody reads it: {asked}"
        world.lab.asked.clear()
        world.other.asked.clear()
        assert not any(findings.values()), findings
    # so that nothing of the above was about commands that had not come to anything
    expected = dict.fromkeys(("sources fetch", "build", "publish", "env create", "pins", "mirror create"), 0)
    if place in REFUSED:
        expected |= dict.fromkeys(("list of a tree with it", "sources fetch with it", "build of a tree with it"), 3)
        expected |= {"init": 2, "upstream update": 3}
        expected |= {"build": 2}  # a foundation's address is recorded
    assert {name: codes[name] for name in expected} == expected, errors
    assert f"`{place}`" in PAGE.read_text(encoding="utf-8").partition("The places: ")[2], "the documentation lists it"


def _told(asked: Asked) -> bytes:
    return json.dumps([asked.path, dict(asked.headers)]).encode()
