# SPDX-License-Identifier: BSD-3-Clause
"""From a channel to four kinds of pins and back to environments, with the command line as users run it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import rattler
import yaml

from channel_tools.environments import create_environment
from channel_tools.pins.files import read_lock
from channel_tools.system.progress import SilentProgress
from tests.integration.conftest import Served
from tests.support import conda_reader
from tests.support.command_line import run_tool
from tests.support.pypi_clients import run_client
from tests.unit.environments.toychannel import PREFIX_PLACEHOLDER, SUBDIR, ToyChannel
from tests.unit.matrix.toytree import write_tree

LIMIT_S = 60
pytestmark = pytest.mark.skipif(str(rattler.Subdir.current()) != SUBDIR, reason=f"toy packages are for {SUBDIR}")


@dataclass(frozen=True, kw_only=True)
class Site:
    """A tree, a channel and a cache of their own."""

    root: Path
    tree: Path
    channel: ToyChannel

    def tool(self, *arguments: str, cache: str = "cache", code: int = 0) -> subprocess.CompletedProcess[str]:
        result = run_tool(*arguments, cwd=self.root, environ={"CHANNEL_TOOLS_CACHE": str(self.root / cache)})
        assert result.returncode == code, result.stderr
        return result

    def pins(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        where = ("--root", str(self.tree), "-c", str(self.channel.root), "-o", "pins")
        return self.tool("pins", *where, *arguments, code=code)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    channel = ToyChannel(root=tmp_path / "channel")
    script = f"#!/bin/sh\necho {PREFIX_PLACEHOLDER}/share\n".encode()
    # both bring share/both: which one wins depends on the order of installation
    channel.add("base", version="3", files={"share/both": b"base", "share/base": b"b"}, index=False)
    channel.add("libtoy", version="1.2", build="udp_h1", depends=["base"], files={"share/both": b"toy"}, index=False)
    files = {"bin/toy": script, "share/meta": b"m"}
    channel.add("toy-meta", subdir="noarch", depends=["libtoy >=1", "__glibc >=2.17"], files=files)
    return Site(root=tmp_path, tree=write_tree(tmp_path / "tree").root, channel=channel)


def state_of(prefix: Path) -> tuple[dict[str, str], dict[str, str]]:
    """The sha256 of every package, and of every file with the prefix taken out."""
    records = [json.loads(path.read_text()) for path in (prefix / "conda-meta").glob("*.json")]
    own = {"conda-meta", "CACHEDIR.TAG"}
    files = {
        str(path.relative_to(prefix)): hashlib.sha256(path.read_bytes().replace(bytes(prefix), b"@")).hexdigest()
        for path in prefix.rglob("*")
        if path.is_file() and own.isdisjoint(path.relative_to(prefix).parts)
    }
    return {record["name"]: record["sha256"] for record in records}, files


def test_all_four_give_the_same_environment_byte_for_byte(site: Site, served: Served) -> None:
    with served(site.channel.root) as address:
        site.pins("--published", address)
        states = {}
        for name in ("conda-lock.yml", "explicit.txt", "pixi.lock"):
            prefix = site.root / name.partition(".")[0]
            site.tool("env", "create", "--lock", f"pins/{name}", str(prefix), cache=f"cache-{name}")
            states[name] = state_of(prefix)
        pinned = yaml.safe_load((site.root / "pins/environment.yml").read_text())
        prefix = site.root / "environment"
        asyncio.run(
            create_environment(
                prefix,
                pinned["dependencies"],
                pinned["channels"],
                package_cache=site.root / "cache-environment",
                subdir=SUBDIR,
                progress=SilentProgress(),
            )
        )
        states["environment.yml"] = state_of(prefix)
    first = states["conda-lock.yml"]
    assert len(first[0]) == 3
    clobbered = "__clobbers__/base/share/both"  # where rattler puts the file of the package that comes first
    assert set(first[1]) == {"bin/toy", "share/base", "share/both", "share/meta", clobbered}
    for name, state in states.items():
        packages, files = state
        assert packages == first[0], name
        assert files == first[1], name


def test_an_update_changes_what_it_must_and_says_so(site: Site) -> None:
    first = json.loads(site.pins("--json").stdout)
    assert first["changes"] == []
    assert first["platforms"][0]["packages"] == 3
    kept = site.pins("--json")
    assert json.loads(kept.stdout)["kept"] is True
    assert "other machines may not have" in kept.stderr
    site.channel.add("base", version="4", index=False)
    site.channel.add("libtoy", version="1.3", build="udp_h2", depends=["base"])
    dry = json.loads(site.pins("--update", "libtoy", "--dry-run", "--json").stdout)
    change = {"platform": SUBDIR, "name": "libtoy", "kind": "changed", "before": "1.2 udp_h1", "after": "1.3 udp_h2"}
    assert dry["changes"] == [change]
    assert {one.name: one.version for one in read_lock(site.root / "pins/conda-lock.yml").platforms[0].packages} == {
        "base": "3",
        "libtoy": "1.2",
        "toy-meta": "1.0",
    }
    text = site.pins("--update", "libtoy").stdout
    assert f"{SUBDIR}: ~ libtoy 1.2 udp_h1 -> 1.3 udp_h2\n" in text
    assert "base 3" not in text
    assert f"{SUBDIR}: ~ base 3 0 -> 4 0\n" in site.pins("--update").stdout


def test_wrong_usage_ends_with_one_message(site: Site) -> None:
    for arguments, says in [
        (("libtoy",), "package names need --update"),
        (("--virtual-package", "cuda=12"), "is not a virtual package"),
        (("--published", "https://a", "--published", "https://b"), "2 published addresses, but 1"),
    ]:
        result = site.pins(*arguments, code=2)
        assert says in result.stderr
        assert "Traceback" not in result.stderr
    (site.root / "broken.yml").write_text("metadata: [")
    broken = site.tool("env", "create", "--lock", "broken.yml", str(site.root / "env"), code=3)
    assert "broken.yml:1: this is not valid YAML" in broken.stderr
    both = site.tool("env", "create", "--lock", "broken.yml", "--variant", "udp", str(site.root / "env"), code=2)
    assert "--variant, --python or --pytorch with --lock" in both.stderr


_PARSED = """
import json, pathlib, sys
from conda_lock.lockfile import parse_conda_lock_file
lock = parse_conda_lock_file(pathlib.Path(sys.argv[1]))
print(json.dumps([[package.name, package.url, package.hash.sha256] for package in lock.package]))
"""


def test_conda_lock_reads_ours_and_renders_the_addresses_of_our_explicit_list(site: Site, served: Served) -> None:
    with served(site.channel.root) as address:
        site.pins("--published", address, "--platform", SUBDIR, "--virtual-package", "__cuda=12.9")
        lock = site.root / "pins" / "conda-lock.yml"
        parsed = json.loads(run_client("tools", "python", "-c", _PARSED, lock))
        assert [name for name, _url, _sha256 in parsed] == ["base", "libtoy", "toy-meta"]
        listed = conda_reader.explicit((site.root / "pins" / "explicit.txt").read_text())
        assert [(download.url, download.sha256) for download in listed] == [(url, sha256) for _, url, sha256 in parsed]
        assert all(download.fetch() for download in listed)
        run_client("tools", "conda-lock", "render", "--kind", "explicit", "--platform", SUBDIR, lock, cwd=site.root)
        rendered = (site.root / f"conda-{SUBDIR}.lock").read_text().splitlines()
        # its list has md5 where the lock has both
        installed = site.tool("env", "create", "--lock", f"conda-{SUBDIR}.lock", str(site.root / "env"))
    assert [line.partition("#")[0] for line in rendered if "://" in line] == [url for _name, url, _sha256 in parsed]
    assert "3 packages have only an md5" in installed.stderr
    assert len(list((site.root / "env" / "conda-meta").glob("*.json"))) == len(parsed)


def test_conda_pack_packs_an_environment_of_ours_and_it_works_elsewhere(site: Site, tmp_path: Path) -> None:
    site.pins()
    site.tool("env", "create", "--lock", "pins/conda-lock.yml", str(site.root / "env"))
    run_client("tools", "conda-pack", "--quiet", "--prefix", site.root / "env", "--output", tmp_path / "env.tar")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    subprocess.run(["tar", "-xf", tmp_path / "env.tar", "-C", elsewhere], check=True, timeout=LIMIT_S)
    subprocess.run([sys.executable, elsewhere / "bin" / "conda-unpack"], check=True, timeout=LIMIT_S)
    assert (elsewhere / "bin" / "toy").read_text() == f"#!/bin/sh\necho {elsewhere}/share\n"
