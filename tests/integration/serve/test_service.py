# SPDX-License-Identifier: BSD-3-Clause
"""The server as docs/how-to/service.md runs it: by the unit's command, its log rotated, backed up and restored."""

from __future__ import annotations

import configparser
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from channel_tools.channel import add_set, channel_writer, create_channel
from tests.integration.conftest import ROOT
from tests.support.packages import REGISTRY, make_conda
from tests.support.serving import make_token, running
from tests.support.shell_blocks import shell_blocks

pytestmark = [pytest.mark.integration, pytest.mark.slow]
PAGE = ROOT / "docs/how-to/service.md"
INDEX = "/ourchannel/linux-64/repodata.json"


def unit() -> configparser.SectionProxy:
    parsed = configparser.ConfigParser(interpolation=None)
    parsed.optionxform = str  # type: ignore[assignment,method-assign]
    parsed.read(PAGE.with_name("service") / "channel_tools.service")
    return parsed["Service"]


def test_the_units_command_serves_and_what_is_backed_up_serves_again(tmp_path: Path) -> None:
    channels, backup = tmp_path / "channels", tmp_path / "backup"
    backup.mkdir()
    with channel_writer(create_channel(channels / "ourchannel", REGISTRY)) as writer:
        add_set(writer, [make_conda(tmp_path, "toy")])
    token = {"Authorization": f"Bearer {make_token(channels, 'ourchannel')}"}
    program, command, folder, *options = shlex.split(unit()["ExecStart"])
    assert (program, command, folder) == ("/opt/channel_tools/bin/channel_tools", "serve", "/srv/channels")
    assert options[-2:] == ["--access-log", "/var/log/channel_tools/access.log"]
    variables = dict(word.split("=", 1) for word in unit()["Environment"].split())
    clean = {name: str(tmp_path / "home") for name in variables}
    launcher = ("env", "-i", *(f"{name}={value}" for name, value in clean.items()))
    with running(channels, *options[:-2], work=tmp_path, launcher=launcher) as server:
        assert server.ask(INDEX, headers=token).status == 200
        assert server.statuses(INDEX, count=1) == [200]
        os.truncate(server.log_file, 0)  # copytruncate, of the rotation
        assert server.ask("/health").status == 200
        assert server.statuses("/health", count=1) == [200]
        assert server.log_file.read_bytes()[:1] == b"{"
        lines = "".join(block.text for block in shell_blocks(PAGE.read_text()) if not block.heavy)
        environ = {
            **os.environ,
            "CHANNELS": str(channels),
            "BACKUP": str(backup),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        typed = subprocess.run(
            ["bash", "-euc", lines.replace("mkdir restored", f"cd {tmp_path}; mkdir restored")],
            env=environ, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert typed.returncode == 0, typed.stderr
    with running(tmp_path / "restored", work=tmp_path) as server:
        assert server.ask(INDEX, headers=token).status == 200
