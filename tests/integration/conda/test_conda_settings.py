# SPDX-License-Identifier: BSD-3-Clause
"""Where conda itself says that channels are, by the same files."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from channel_tools.conda.user_settings import find_user_settings
from tests.support.processes import TEST_TIMEOUT_S
from tests.support.programs import program

pytestmark = [pytest.mark.integration, pytest.mark.slow]

_FILES = {
    ".config/conda/condarc": """\
channel_alias: https://first.example.org/x  #!final
custom_channels: {a: "https://one.example.org", b: "https://one.example.org/deep/"}
default_channels: [main, "https://repo.example.org/r"]
proxy_servers: {http: "http://proxy:1"}
""",
    ".conda/condarc.d/10.yml": """\
channel_alias: https://second.example.org
custom_channels:
  b: https://two.example.org/${WHERE}
  c: relative
custom_multichannels:
  both: [a, "https://other.example.org/deep/y", plain]
""",
    ".condarc": """\
default_channels: [extra, main]
ssl_verify: no
proxy_servers:
  https: http://proxy:2
""",
}
_KEYS = ("custom_channels", "custom_multichannels", "proxy_servers", "ssl_verify", "channel_alias")


def address_of(channel: dict[str, str | None]) -> str:
    place = f"{channel['scheme']}://{channel['location']}"
    return f"{place}/{channel['name']}" if channel["name"] else place


def test_conda_and_channel_tools_read_the_same_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conda = program("conda")
    for name, text in _FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    environ = {"HOME": str(tmp_path), "WHERE": "here", "CONDARC": "", "XDG_CONFIG_HOME": ""}
    done = subprocess.run(
        [conda, "config", "--json", "--show", *_KEYS], env=os.environ | environ, capture_output=True,
        text=True, check=True, timeout=TEST_TIMEOUT_S,
    )  # fmt: skip
    theirs: dict[str, Any] = json.loads(done.stdout)
    wanted = {name: [address_of(channel)] for name, channel in theirs["custom_channels"].items()}
    wanted |= {name: [*map(address_of, several)] for name, several in theirs["custom_multichannels"].items()}
    del wanted["local"]  # conda-build's own folder
    assert {"a", "b", "c", "r", "deep/y", "both", "defaults"} < set(wanted)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    ours = find_user_settings(environ)
    assert {name: [*ours.addresses_of([name])] for name in wanted} == wanted
    assert ours.conda.texts["channel_alias"].value == address_of(theirs["channel_alias"])
    assert ours.conda.texts["ssl_verify"].value is theirs["ssl_verify"] is False
    assert {name: one.value for name, one in ours.conda.proxy_servers.items()} == theirs["proxy_servers"]
