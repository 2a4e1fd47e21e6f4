# SPDX-License-Identifier: BSD-3-Clause
"""The source store through the command line: a toy tree, sources served locally, an empty folder as conda-forge."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from channel_tools.conda.archive import read_info_json
from channel_tools.conda.clients import make_http_client
from channel_tools.conda.platforms import current_platform
from channel_tools.foundation.apt import DEB_ARCHITECTURES
from channel_tools.foundation.table import load_table
from channel_tools.sources.fetch import DebianSources, fetch_sources
from channel_tools.sources.store import SourceStore
from channel_tools.system.errors import FoundationError, NetworkError
from channel_tools.system.http.pace import Retry
from channel_tools.system.progress import SilentProgress
from tests.integration.conftest import Served, build_into_output
from tests.support.command_line import run_tool
from tests.support.processes import TEST_TIMEOUT_S
from tests.support.programs import has, in_namespaces, path_without, program
from tests.unit.sources.toys import file_need, git, make_repository, tar_gz

pytestmark = pytest.mark.integration

STACKS = """\
default_stack: toys
stacks:
  toys:
    description: two packages from upstream
    variants: []
    packages: [tarball, gitty]
    install: [tarball, gitty]
"""
TARBALL = """\
schema_version: 1
package: {{name: tarball, version: '1.0'}}
source:
  - url: {url}
    sha256: {sha256}
    patches: [../../patches/tarball/1.0/0001-say-more.patch]
build: {{noarch: generic, number: 0, script: mkdir -p $PREFIX/share && cp hello $PREFIX/share/tarball}}
tests:
  - script: test "$(cat $PREFIX/share/tarball)" = "$(printf 'hello\\nworld\\nthere\\n')"
about: {{license: BSD-3-Clause}}
"""
GITTY = """\
schema_version: 1
package: {{name: gitty, version: '1.0'}}
source:
  - git: {url}
    rev: {commit}
    target_directory: upstream
build: {{noarch: generic, number: 0, script: ./upstream/third/inner/install.sh}}
tests:
  - script: test "$(cat $PREFIX/share/gitty)" = inner
about: {{license: BSD-3-Clause}}
extra:
  source_excludes: [binaries]
"""
PATCH = """\
From: the channel's makers
Subject: say more

--- a/hello
+++ b/hello
@@ -1,2 +1,3 @@
 hello
+world
 there
"""
HELLO = tar_gz({"tarball-1.0/hello": b"hello\nthere\n"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Toys:
    """A tree with its upstreams beside it."""

    folder: Path
    commit: str

    @property
    def tree(self) -> Path:
        return self.folder / "tree"

    @property
    def tarball(self) -> Path:
        return self.folder / "web" / "tarball-1.0.tar.gz"

    @property
    def repositories(self) -> tuple[Path, Path]:
        return self.folder / "gitty", self.folder / "inner"

    def tool(
        self, *words: str | Path, cache: str = "cache", prefix: tuple[str, ...] = (), **variables: str
    ) -> subprocess.CompletedProcess[str]:
        if not prefix:
            environ = self.environment(cache) | variables
            return run_tool(*words, "--root", self.tree, cwd=self.folder, environ=environ)
        command = [*prefix, *_command(self.tree, *words)]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=TEST_TIMEOUT_S,
            env=self.environment(cache) | variables,
        )  # fmt: skip

    def build(
        self, *words: str | Path, cache: str = "cache", prefix: tuple[str, ...] = (), **variables: str
    ) -> subprocess.CompletedProcess[str]:
        foundation = ("--foundation", "conda-forge", "--foundation-channel", (self.folder / "empty").as_uri())
        return self.tool("build", *foundation, *words, cache=cache, prefix=prefix, **variables)

    def environment(self, cache: str) -> dict[str, str]:
        own = {"CHANNEL_TOOLS_CACHE": str(self.folder / cache), "GIT_CONFIG_GLOBAL": str(self.folder / "gitconfig")}
        return os.environ | own

    def write_recipes(self, *, tarball_url: str, content: bytes = HELLO) -> None:
        sha256 = hashlib.sha256(content).hexdigest()
        recipe = self.tree / "recipes" / "tarball" / "recipe.yaml"
        recipe.write_text(TARBALL.format(url=tarball_url, sha256=sha256))
        self.tarball.write_bytes(content)

    def built(self, name: str) -> Path:
        (package,) = (self.tree / "output" / "channel" / "noarch").glob(f"{name}-*.conda")
        return package


def _command(tree: Path, *words: str | Path) -> list[str]:
    return [sys.executable, "-m", "channel_tools", *map(str, words), "--root", str(tree)]


@pytest.fixture
def toys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toys:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    make_repository(tmp_path / "inner", {"install.sh": b"mkdir -p $PREFIX/share\necho inner > $PREFIX/share/gitty\n"})
    files = {"README": b"read", "binaries/x.bin": b"\0not ours"}
    make_repository(tmp_path / "gitty", files, submodules={"third/inner": tmp_path / "inner"})
    git(tmp_path / "gitty", "config", "-f", ".gitmodules", "submodule.third/inner.url", "../inner")
    git(tmp_path / "gitty", "commit", "-q", "-a", "-m", "beside it")
    commit = git(tmp_path / "gitty", "rev-parse", "HEAD")
    for name in ("inner", "gitty"):
        git(tmp_path / name, "config", "uploadpack.allowFilter", "true")
        git(tmp_path / name, "config", "uploadpack.allowAnySHA1InWant", "true")
    tree = tmp_path / "tree"
    for name in ("recipes/tarball", "recipes/gitty", "variants", "patches/tarball/1.0"):
        (tree / name).mkdir(parents=True)
    (tree / "variants" / "stacks.yaml").write_text(STACKS)
    (tree / "patches" / "tarball" / "1.0" / "0001-say-more.patch").write_text(PATCH)
    (tree / "recipes" / "gitty" / "recipe.yaml").write_text(
        GITTY.format(url="https://upstream.invalid/gitty", commit=commit)
    )
    for subdir in ("linux-64", "noarch"):
        (tmp_path / "empty" / subdir).mkdir(parents=True)
        (tmp_path / "empty" / subdir / "repodata.json").write_text('{"info": {}, "packages": {}, "packages.conda": {}}')
    (tmp_path / "web").mkdir()
    # git's own way to a mirror: the package must name upstream, and no file: address
    (tmp_path / "gitconfig").write_text(f'[url "{tmp_path.as_uri()}/"]\n\tinsteadOf = https://upstream.invalid/\n')
    made = Toys(folder=tmp_path, commit=commit)
    made.write_recipes(tarball_url="https://upstream.invalid/tarball-1.0.tar.gz")
    return made


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_offline_with_an_empty_store_lists_all_that_is_missing_and_changes_nothing(toys: Toys) -> None:
    before = snapshot(toys.folder)
    result = toys.build("--offline")
    assert result.returncode == 5, result.stderr
    sha256 = hashlib.sha256(HELLO).hexdigest()
    for words in (
        "but needed (2):",
        f"sha256 {sha256}  https://upstream.invalid/tarball-1.0.tar.gz  for tarball 1.0",
        f"commit {toys.commit}  https://upstream.invalid/gitty  for gitty 1.0",
        "channel_tools sources add FILE",
        "channel_tools sources import FILE",
    ):
        assert words in result.stderr
    assert snapshot(toys.folder) == before
    assert not (toys.tree / "output").exists()


def test_offline_every_source_is_named_before_a_foundation_is_made(toys: Toys) -> None:
    before = snapshot(toys.folder)
    result = toys.tool("build", "--offline")
    assert result.returncode == 5, result.stderr
    # these recipes need nothing of a foundation
    assert "foundation is incomplete" not in result.stderr
    assert "but needed (2):" in result.stderr
    assert snapshot(toys.folder) == before


def test_a_foundation_over_the_network_is_refused_offline(toys: Toys) -> None:
    result = toys.tool(
        "build", "--offline", "--foundation", "conda-forge", "--foundation-channel", "https://upstream.invalid/forge"
    )
    assert result.returncode == 5, result.stderr
    assert "https://upstream.invalid/forge needs the network" in result.stderr


def test_a_filled_store_builds_what_was_added_by_hand_and_says_where_it_is_from(toys: Toys) -> None:
    result = toys.tool("sources", "add", toys.tarball, *toys.repositories)
    assert result.returncode == 0, result.stderr
    rows = json.loads(toys.tool("sources", "list", "--json").stdout)["sources"]
    assert [(row["kind"], row["present"], row["packages"]) for row in rows] == [
        ("url", True, ["tarball 1.0"]),
        ("git", True, ["gitty 1.0"]),
    ]
    result = toys.build("--offline")
    assert result.returncode == 0, result.stderr
    for name, kind in (("tarball", "url"), ("gitty", "git")):
        about = read_info_json(toys.built(name), "about.json")
        (origin,) = about["extra"]["channel_tools"]["sources"]
        assert origin[kind] == next(row["urls"] for row in rows if row["kind"] == kind)
    result = toys.tool("render", "-o", toys.folder / "rendered")
    assert result.returncode == 0, result.stderr
    for name in ("tarball", "gitty"):
        folder = toys.folder / "rendered" / toys.built(name).name.removesuffix(".conda")
        text = (folder / "recipe.yaml").read_text()
        assert "https://upstream.invalid/" in text
        assert str(toys.folder / "cache") not in text


def test_all_that_cannot_be_added_is_named_and_nothing_is_added(toys: Toys) -> None:
    wrong = toys.folder / "wrong.tar.gz"
    wrong.write_bytes(b"another release")
    (toys.folder / "plain").mkdir()
    paths = [toys.tarball, wrong, *toys.repositories, toys.folder / "plain", toys.folder / "nosuch.tar.gz"]
    result = toys.tool("sources", "add", *paths)
    assert result.returncode == 6
    assert "nothing was added: 3 of 6 paths cannot be" in result.stderr
    assert f"{wrong}: no recipe of the tree names its sha256" in result.stderr
    assert f"{toys.folder / 'plain'}: is a folder, but not a git repository" in result.stderr
    assert f"{toys.folder / 'nosuch.tar.gz'}: no such file or folder" in result.stderr
    assert result.stderr.count("recipes name:") == 1
    rows = json.loads(toys.tool("sources", "list", "--json").stdout)["sources"]
    assert [row["present"] for row in rows] == [False, False]


def test_what_was_added_before_one_that_fails_is_named(toys: Toys) -> None:
    git(toys.folder, "clone", "-q", "--bare", str(toys.repositories[0]), "bare")  # without its submodule
    result = toys.tool("sources", "add", toys.tarball, toys.folder / "bare")
    assert result.returncode == 6
    assert "its submodule third/inner" in result.stderr
    assert "added before it, and kept (1):" in result.stderr
    assert "tarball-1.0.tar.gz  for tarball 1.0" in result.stderr
    rows = json.loads(toys.tool("sources", "list", "--json").stdout)["sources"]
    assert {row["kind"]: row["present"] for row in rows} == {"url": True, "git": False}


def test_missing_sources_are_fetched_before_the_build_and_kept(toys: Toys, served: Served) -> None:
    with served(toys.folder / "web") as address:
        toys.write_recipes(tarball_url=f"[https://upstream.invalid/x.tar.gz, {address}/tarball-1.0.tar.gz]")
        result = toys.build()
        assert result.returncode == 0, result.stderr
    shutil.rmtree(toys.tree / "output")
    for folder in toys.repositories:
        shutil.rmtree(folder)
    result = toys.build("--offline")
    assert result.returncode == 0, result.stderr
    assert toys.tool("sources", "verify").returncode == 0


def test_processes_that_fetch_at_once_fill_one_store(toys: Toys, served: Served) -> None:
    with served(toys.folder / "web") as address:
        toys.write_recipes(tarball_url=f"{address}/tarball-1.0.tar.gz")
        running = [
            subprocess.Popen(
                _command(toys.tree, "sources", "fetch"), env=toys.environment("cache"), stderr=subprocess.PIPE
            )
            for _ in range(3)
        ]
        errors = [process.communicate(timeout=TEST_TIMEOUT_S)[1].decode() for process in running]
    assert [process.returncode for process in running] == [0, 0, 0], errors
    assert toys.tool("sources", "verify").stdout.endswith("2 sources, 0 damaged\n")


def test_an_interrupt_does_not_wait_for_a_silent_server(toys: Toys, served: Served) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        toys.write_recipes(tarball_url=f"http://127.0.0.1:{silent.getsockname()[1]}/tarball-1.0.tar.gz")
        process = subprocess.Popen(
            _command(toys.tree, "sources", "fetch", "--package", "tarball"),
            env=toys.environment("cache"),
            stderr=subprocess.PIPE,
        )
        connection, _address = silent.accept()
        with connection:
            assert connection.recv(100).startswith(b"GET /tarball-1.0.tar.gz")
            process.send_signal(signal.SIGINT)
            errors = process.communicate(timeout=10)[1].decode()
    assert process.returncode == 130, errors
    assert "interrupted" in errors
    with served(toys.folder / "web") as address:
        toys.write_recipes(tarball_url=f"{address}/tarball-1.0.tar.gz")
        assert toys.tool("sources", "fetch", "--package", "tarball").returncode == 0


def test_a_store_is_carried_across_an_air_gap(toys: Toys) -> None:
    assert toys.tool("sources", "add", toys.tarball, *toys.repositories).returncode == 0
    result = toys.tool("sources", "export", toys.folder / "web", "--variant", "toys")
    assert result.returncode == 0, result.stderr
    carried = toys.folder / "web" / "sources.tar"
    for folder in toys.repositories:
        shutil.rmtree(folder)
    result = toys.tool("sources", "import", carried, "--dry-run", cache="other")
    assert "2 would be added" in result.stdout
    assert not (toys.folder / "other" / "sources" / "sha256").exists()
    assert toys.tool("sources", "import", carried, cache="other").returncode == 0
    result = toys.build("--offline", cache="other")
    assert result.returncode == 0, result.stderr


def test_an_export_of_what_is_missing_names_it(toys: Toys) -> None:
    assert toys.tool("sources", "add", toys.tarball).returncode == 0
    result = toys.tool("sources", "export", toys.folder / "out.tar", "--variant", "toys")
    assert result.returncode == 5
    assert toys.commit in result.stderr
    assert not (toys.folder / "out.tar").exists()


@pytest.mark.parametrize("content", [HELLO[:-20], HELLO + b"\0", b"something else"], ids=["cut", "longer", "other"])
def test_files_with_a_hash_that_no_recipe_names_are_refused(toys: Toys, content: bytes) -> None:
    file = toys.folder / "wrong.tar.gz"
    file.write_bytes(content)
    result = toys.tool("sources", "add", toys.tarball, file)
    assert result.returncode == 6
    assert hashlib.sha256(content).hexdigest() in result.stderr
    assert f"sha256 {hashlib.sha256(HELLO).hexdigest()}" in result.stderr
    assert "for tarball 1.0" in result.stderr
    assert not (toys.folder / "cache" / "sources" / "sha256").exists()


def test_folders_and_repositories_that_do_not_serve_are_refused(toys: Toys) -> None:
    make_repository(toys.folder / "another", {"a": b"1"})
    result = toys.tool("sources", "add", toys.folder / "another")
    assert (result.returncode, toys.commit in result.stderr) == (6, True)
    assert toys.tool("sources", "add", toys.folder / "web").returncode == 2
    assert toys.tool("sources", "add", toys.folder / "absent").returncode == 2
    git(toys.folder, "clone", "--quiet", "--bare", "gitty", "bare")
    result = toys.tool("sources", "add", toys.folder / "bare")
    assert result.returncode == 6
    assert "its submodule third/inner" in result.stderr


def test_an_archive_with_a_member_outside_is_refused_before_a_build(toys: Toys, served: Served) -> None:
    content = tar_gz({"tarball-1.0/hello": b"hello\nthere\n", "tarball-1.0/../../evil": b"x"})
    with served(toys.folder / "web") as address:
        toys.write_recipes(tarball_url=f"{address}/tarball-1.0.tar.gz", content=content)
        # it would fetch the indexes of three of Debian's releases
        result = toys.build(PATH=path_without("apt-get", toys.folder / "bin"))
    assert result.returncode == 6
    assert "'tarball-1.0/../../evil'" in result.stderr
    assert {path.name for path in (toys.tree / "output" / "work").glob("*")} <= {".lock", ".lock.owner"}


def test_a_patch_that_no_longer_applies_is_named_before_anything_is_built(toys: Toys) -> None:
    toys.write_recipes(
        tarball_url="https://upstream.invalid/tarball-1.0.tar.gz",
        content=tar_gz({"tarball-1.0/hello": b"hello\nall of you\n"}),
    )
    assert toys.tool("sources", "add", toys.tarball, *toys.repositories).returncode == 0
    result = toys.build("--offline")
    assert result.returncode == 3, result.stderr
    place = toys.tree / "patches" / "tarball" / "1.0" / "0001-say-more.patch"
    assert f"{place}:6: the patch does not apply" in result.stderr
    assert "hunk 1 of hello: line 2 is 'all of you'; expected 'there'" in result.stderr
    assert not (toys.tree / "output" / "logs").exists()


@pytest.mark.parametrize("kind", ["folder", "file", "archive"])
def test_patches_of_the_trees_own_sources_are_as_exact(toys: Toys, kind: str) -> None:
    recipe = toys.tree / "recipes" / "tarball" / "recipe.yaml"
    place = {"folder": "src", "file": "src/hello", "archive": "tarball-1.0.tar.gz"}[kind]
    text = TARBALL.format(url="x", sha256="y").replace("- url: x\n    sha256: y\n", f"- path: {place}\n")
    recipe.write_text(text)
    (recipe.parent / "src").mkdir()
    for content, code in (("hello\nother\n", 3), ("hello\nthere\n", 0)):
        (recipe.parent / "src" / "hello").write_text(content)
        (recipe.parent / "tarball-1.0.tar.gz").write_bytes(tar_gz({"tarball-1.0/hello": content.encode()}))
        result = toys.build("--package", "tarball")
        assert result.returncode == code, result.stderr
        if code:
            assert f"0001-say-more.patch:6: the patch does not apply to {place} of tarball 1.0" in result.stderr
            assert "hunk 1 of hello: line 2 is 'other'; expected 'there'" in result.stderr
            assert not list((toys.tree / "output" / "channel").glob("noarch/*.conda"))


@pytest.mark.parametrize("folder", ["/etc", "a/../../b"])
def test_a_patched_source_stays_in_the_work_folder(toys: Toys, folder: str) -> None:
    recipe = toys.tree / "recipes" / "tarball" / "recipe.yaml"
    text = TARBALL.format(url=toys.tarball.as_uri(), sha256=hashlib.sha256(HELLO).hexdigest())
    recipe.write_text(text.replace("    patches", f"    target_directory: {folder}\n    patches"))
    result = toys.build("--package", "tarball")
    assert (result.returncode, "recipe.yaml:3: target_directory" in result.stderr) == (3, True), result.stderr


def test_a_damaged_source_is_moved_aside_and_named_before_a_build(toys: Toys) -> None:
    assert toys.tool("sources", "add", toys.tarball, *toys.repositories).returncode == 0
    (stored,) = (toys.folder / "cache" / "sources" / "sha256").glob("*/*.tar.gz")
    stored.write_bytes(stored.read_bytes()[:-1])
    result = toys.build("--offline")
    assert result.returncode == 5
    assert "but needed (1):" in result.stderr
    assert "moved aside" in result.stderr
    (kept,) = (toys.folder / "cache" / "sources" / "damaged").rglob("*.tar.gz")
    assert kept.read_bytes() == HELLO[:-1]


def test_offline_needs_no_network_at_all(toys: Toys) -> None:
    without_network = in_namespaces("net")
    assert toys.tool("sources", "add", toys.tarball, *toys.repositories).returncode == 0
    result = toys.build("--offline", prefix=without_network)
    assert result.returncode == 0, result.stderr


def test_a_store_on_a_full_disk_is_one_error_and_keeps_what_it_has(toys: Toys) -> None:
    content = tar_gz({"tarball-1.0/hello": hashlib.shake_128(b"x").digest(3 << 20)})
    toys.write_recipes(tarball_url="https://upstream.invalid/tarball-1.0.tar.gz", content=content)
    cache = toys.folder / "cache"
    cache.mkdir()
    script = (
        f'{program("mount")} -t tmpfs -o size=1m none "$0" && "$@" && exit 99; code=$?; '
        'find "$0" -type f -size +0; exit $code'
    )
    command = _command(toys.tree, "sources", "add", toys.tarball)
    result = subprocess.run(
        [*in_namespaces("mount"), "sh", "-c", script, str(cache), *command],
        capture_output=True,
        text=True,
        check=False,
        env=toys.environment("cache"),
    )
    assert result.returncode == 12, result.stderr
    assert "no space left" in result.stderr
    assert [line for line in result.stdout.splitlines() if ".tar.gz" in line] == []


def test_a_finished_stack_is_left_alone_offline(stack_channel: Path) -> None:
    result = build_into_output("build", "--offline", before=in_namespaces("net"))
    assert result.returncode == 0, result.stderr
    assert "0 to build" in result.stderr
    assert stack_channel.is_dir()


def _debian_repository(folder: Path, content: bytes, changes: bytes = b"changes") -> str:
    """A repository of one source package, in the deb822 format of sources.list(5); ``changes`` are Debian's own."""
    pool, index = folder / "pool", folder / "dists" / "toy" / "main" / "source"
    pool.mkdir(parents=True)
    index.mkdir(parents=True)
    (pool / "toy_1.orig.tar.gz").write_bytes(content)
    (pool / "toy_1-1.debian.tar.xz").write_bytes(changes)
    (pool / "toy_1-1.dsc").write_text("no matter\n")
    files = {path.name: path.read_bytes() for path in pool.iterdir()}
    sums = "".join(f" {hashlib.sha256(data).hexdigest()} {len(data)} {name}\n" for name, data in sorted(files.items()))
    stanza = (
        "Package: toy\nBinary: toy\nVersion: 1-1\nArchitecture: any\nFormat: 3.0 (quilt)\nDirectory: pool\n"
        f"Checksums-Sha256:\n{sums}\n"
    )
    (index / "Sources").write_text(stanza)
    listed = f"{hashlib.sha256(stanza.encode()).hexdigest()} {len(stanza)} main/source/Sources"
    release = f"Suite: toy\nCodename: toy\nComponents: main\nSHA256:\n {listed}\n"
    (folder / "dists" / "toy" / "Release").write_text(release)
    return f"Types: deb-src\nURIs: file:{folder}\nSuites: toy\nComponents: main\nTrusted: yes\n"


def test_a_tarball_that_debian_holds_is_found_by_its_hash(tmp_path: Path) -> None:
    if not has("apt-get"):
        pytest.skip("apt is not installed")
    debian = DebianSources(
        state=tmp_path / "state",
        suite="toy",
        architecture="amd64",
        sources=_debian_repository(tmp_path / "debian", HELLO),
    )
    store = SourceStore(folder=tmp_path / "store")
    need = file_need(HELLO, "https://upstream.invalid/toy-1.tar.gz")
    unknown = file_need(tar_gz({"x": b"unknown"}), "https://upstream.invalid/unknown-1.tar.gz")
    client = make_http_client({}, retry=Retry(attempts=1))
    with pytest.raises(NetworkError, match=r"could not be fetched \(1\)"):
        fetch_sources([need, unknown], store, client=client, jobs=2, progress=SilentProgress(), debian=[debian])
    assert store.known(need).path.read_bytes() == HELLO
    assert store.origin(need) == "toy_1.orig.tar.gz of Debian's source package toy 1-1"


def test_debians_own_part_of_a_source_package_is_found_by_its_hash(tmp_path: Path) -> None:
    if not has("apt-get"):
        pytest.skip("apt is not installed")
    changes = tar_gz({"debian/patches/series": b""})
    debian = DebianSources(
        state=tmp_path / "state",
        suite="toy",
        architecture="amd64",
        sources=_debian_repository(tmp_path / "debian", HELLO, changes),
    )
    file = debian.find({hashlib.sha256(changes).hexdigest()}).popitem()[1]
    assert debian.download(file, tmp_path).read_bytes() == changes


GRPC = "b55696fb249669744de3e71acc54a9382bea0dce7cd5ba379b356b12b82d4229"


def test_grpcs_release_is_found_among_the_hosts_debian_sources(tmp_path: Path) -> None:
    suite = load_table(subdir=current_platform()).suite
    if suite != "bookworm":
        pytest.skip(f"the foundation's suite is {suite}; grpc 1.51.1 is bookworm's")
    architecture = DEB_ARCHITECTURES[current_platform()]
    debian = DebianSources(state=tmp_path / "state", suite=suite, architecture=architecture)
    try:
        found = debian.find({GRPC})
    except (FoundationError, NetworkError) as err:
        pytest.skip(f"Debian's source packages are out of reach: {err}")
    assert (found[GRPC].package, found[GRPC].file_name) == ("grpc", "grpc_1.51.1.orig.tar.gz")
    assert hashlib.sha256(debian.download(found[GRPC], tmp_path).read_bytes()).hexdigest() == GRPC
