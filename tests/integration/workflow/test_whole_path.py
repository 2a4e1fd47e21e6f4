# SPDX-License-Identifier: BSD-3-Clause
"""The way of a stack from its recipes to a site without a network, by the commands that users give, in their order.

build, audit, publish to testing, promote, pin, mirror; on the offline side, in a network namespace that has loopback
alone and nothing of the connected side but the bundle and the lock: verify, import, install, allreduce. `make channel`
validates on the connected side.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from channel_tools.system.settings import make_settings
from tests.integration.conftest import ROOT
from tests.integration.workflow.test_main_job import STACK
from tests.support.command_line import run_tool
from tests.support.serving import running

pytestmark = pytest.mark.integration

STEP_LIMIT_S = 600
RANKS = "2"
OWN = re.compile(r"(channel_tools-stacks|libswitchml|switchml-switch|torch-switchml|pytorch-switchml)-")


class Side:
    """One side of the air gap: variables of its own, and what has to stand before each command there."""

    def __init__(self, *, inside: tuple[str, ...] = (), **variables: str) -> None:
        self._inside = inside
        self.environ = {**os.environ, **variables}

    def run(self, *arguments: str | Path) -> str:
        """What the command printed on stdout; a failure is the test's."""
        if self._inside:
            command = [*self._inside, sys.executable, "-m", "channel_tools", *map(str, arguments)]
            result = subprocess.run(
                command, cwd=ROOT, env=self.environ, capture_output=True, text=True, check=False, timeout=STEP_LIMIT_S
            )
        else:
            result = run_tool(*arguments, cwd=ROOT, environ=self.environ)
        assert result.returncode == 0, f"{arguments}: exit {result.returncode}\n{result.stdout}\n{result.stderr}"
        return result.stdout

    def run_json(self, *arguments: str | Path) -> dict[str, object]:
        document = json.loads(self.run(*arguments, "--json"))
        assert isinstance(document, dict)
        return document


def test_from_recipes_to_an_allreduce_beyond_the_air_gap(
    stack_channel: Path, tmp_path: Path, without_network: tuple[str, ...]
) -> None:
    connected = Side()
    offline = Side(inside=without_network, CHANNEL_TOOLS_CACHE=str(tmp_path / "cache"))
    target, bundle, keys, pins = (tmp_path / name for name in ("served/ours", "bundle", "keys", "pins"))

    own = sorted(path for path in stack_channel.glob("*/*.conda") if OWN.match(path.name))
    assert {package.name.rsplit("-", 2)[0] for package in own} == set(STACK)
    for package in own:
        audited = connected.run_json("audit", package)["packages"]
        assert isinstance(audited, list)
        assert [one["findings"] for one in audited] == [[]]

    published = connected.run_json("publish", "--to", target, "--label", "testing")
    assert {f"{path.parent.name}/{path.name}" for path in own} >= own_names(published["uploaded"])
    promoted = connected.run_json("promote", "testing", "main", "--at", target)
    assert promoted["uploaded"] == []
    assert promoted["linked"] == published["uploaded"]

    token = str(connected.run_json("token", "create", "site", "--at", target.parent, "--channel", "ours")["token"])
    connected.run("mirror", "keys", "create", "--keys", keys)
    fingerprint = str(connected.run_json("mirror", "keys", "show", "--keys", keys)["fingerprint"])
    with running(target.parent, work=tmp_path) as server:
        private = f"{server.address}/t/{token}/ours"
        connected.run("pins", "--channel", private, "-o", pins)
        connected.run("mirror", "create", "--channel", private, "--keys", keys, "--to", bundle, "--without-tool")
        lock = (pins / "conda-lock.yml").read_text(encoding="utf-8")
        assert f"{server.address}/ours/" in lock
    for kept in (server.log_file, *pins.iterdir(), *(path for path in bundle.rglob("*") if path.is_file())):
        assert token.encode() not in kept.read_bytes(), kept
    shutil.rmtree(target)
    beside_the_lock = bundle_names(bundle) - locked_names(lock)
    assert bundle_names(bundle) >= locked_names(lock)
    # pip, which conda wants beside Python
    assert {name.rsplit("-", 2)[0] for name in beside_the_lock} == {"pip"}

    mirror, environment = tmp_path / "mirror", tmp_path / "env"
    offline.run("mirror", "verify", bundle, "--root-sha256", fingerprint)
    offline.run("mirror", "import", bundle, "--to", mirror, "--root-sha256", fingerprint)
    theirs = mirror / "channels" / "ours"
    offline.run("env", "create", environment, "--lock", pins / "conda-lock.yml", "--channel", theirs)
    require_counted(offline, environment, theirs, tmp_path / "output")
    measured = offline.run("bench", environment)  # what is installed there, without any channel
    assert [line.split()[0] for line in measured.splitlines()[2:4]] == ["float32", "float32"], measured
    assert "carried by switchml" in measured.splitlines()[-1]
    assert measured.splitlines()[-1].endswith("output/report/as-installed/udp.json")  # no report of the channel


def require_counted(side: Side, prefix: Path, channel: Path, output: Path) -> None:
    """The counters say what carried the allreduces; nothing but the report stays in ``output``."""
    words = ("--ranks", RANKS, "--prefix", prefix, "--channel", channel, "--output", output, "--history")
    report = side.run_json("validate", *words)
    assert report["passed"] is True
    transports, bandwidth = report["transports"], report["bandwidth"]
    assert isinstance(transports, list)
    assert isinstance(bandwidth, list)
    carried = {row["name"]: row["elements"] > 0 for row in transports if row["counted_by"] != "switch"}
    assert carried == {"switchml": True, "gloo": True}
    assert len(bandwidth) == 6
    here = report["on_this_host"]
    assert isinstance(here, dict)
    assert here["carrier"] == "this host's memory"
    assert json.loads((output / "report" / "udp.json").read_text()) == report
    (kept,) = (output / "report" / "history" / "udp").iterdir()
    assert json.loads(kept.read_text()) == report
    assert (output / "report" / "udp.html").read_text().startswith("<!DOCTYPE html>")
    settings = make_settings(root=ROOT, output=output, environ=side.environ, cwd=ROOT)
    assert list(settings.work.iterdir()) == []


def own_names(keys: object) -> set[str]:
    assert isinstance(keys, list)
    return {key for key in keys if OWN.match(key.partition("/")[2])}


def bundle_names(bundle: Path) -> set[str]:
    return {path.name for path in (bundle / "channels").glob("*/*/*.conda")}


def locked_names(lock: str) -> set[str]:
    return set(re.findall(r"/([^/\s]+\.conda)\b", lock))
