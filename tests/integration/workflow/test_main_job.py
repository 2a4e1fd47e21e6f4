# SPDX-License-Identifier: BSD-3-Clause
"""The main job as users run it: build, install over file:// and http://, and what a second run does.

test_whole_path.py validates.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from channel_tools.environments import find_outside_paths
from channel_tools.system.settings import Settings
from tests.integration.conftest import ROOT, Served, only_writer_of_output
from tests.support.command_line import run_tool
from tests.support.programs import program

pytestmark = [pytest.mark.integration, pytest.mark.slow]

STACK = ["channel_tools-stacks", "libswitchml", "switchml-switch", "torch-switchml", "pytorch-switchml"]
LIMIT_S = 600


def tool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return run_tool(*arguments, cwd=ROOT, environ=os.environ)


def tool_json(*arguments: str | Path) -> dict[str, object]:
    result = tool(*arguments, "--json")
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert isinstance(document, dict)
    return document


def test_what_is_built_is_not_built_again(stack_channel: Path) -> None:
    del stack_channel
    plan = tool_json("plan")
    packages = plan["packages"]
    assert isinstance(packages, list)
    assert sorted(package["name"] for package in packages) == sorted(STACK)
    assert {package["status"] for package in packages} == {"skip"}


def test_other_pythons_are_listed_with_the_reason(stack_channel: Path) -> None:
    del stack_channel
    assert tool_json("plan")["unserved"] == []
    unsatisfiable = tool_json("plan", "--all-variants")["unserved"]
    assert isinstance(unsatisfiable, list)
    reasons = [item["reason"] for item in unsatisfiable if item["variant"].get("python", "").startswith("3.12")]
    assert reasons
    assert all("python 3.12" in reason for reason in reasons)


@pytest.mark.parametrize("scheme", ["file", "http"])
def test_an_environment_comes_from_the_channel_alone(
    stack_channel: Path, own_settings: Settings, served: Served, tmp_path: Path, scheme: str
) -> None:
    prefix = tmp_path / "env"
    if scheme == "file":
        result = tool("env", "create", prefix, "--channel", stack_channel.as_uri())
    else:
        with served(stack_channel) as address:
            result = tool("env", "create", prefix, "--channel", address)
    assert result.returncode == 0, result.stderr
    script = "import torch, torch_switchml; print(torch.ones(2).sum().item(), torch_switchml.__version__)"
    # without the caller's variables: neither its PATH nor its PYTHONPATH may help
    shown = subprocess.run(
        [prefix / "bin" / "python", "-c", script], env={}, capture_output=True, text=True, check=True
    )
    assert shown.stdout.startswith("2.0 ")
    forbidden = [own_settings.tree.root, own_settings.output, Path(sys.prefix)]
    sources = [stack_channel, own_settings.package_cache]
    assert find_outside_paths(prefix, forbidden, recorded_sources=sources) == ()


def test_a_second_run_at_the_same_time_is_told_so(stack_channel: Path) -> None:
    from channel_tools.channel import channel_writer, open_channel  # noqa: PLC0415  (py-rattler only where it is used)

    with only_writer_of_output(), channel_writer(open_channel(stack_channel), wait_s=LIMIT_S):
        result = tool("build", "--force", "--package", "libswitchml")
    assert result.returncode == 8
    assert f"is in use by process {os.getpid()}" in result.stderr
    assert "Traceback" not in result.stderr


def test_the_foundation_keeps_its_promises(stack_channel: Path) -> None:
    del stack_channel
    with only_writer_of_output():  # what is verified while it is written may differ between two of its files
        assert tool_json("foundation", "verify")["findings"] == []


def test_the_channel_is_sound(stack_channel: Path) -> None:
    del stack_channel
    assert tool_json("channel", "verify")["findings"] == []


def test_another_foundation_is_refused_for_this_channel(stack_channel: Path) -> None:
    del stack_channel
    result = tool("plan", "--foundation", "conda-forge", "--foundation-channel", "http://127.0.0.1:9/none")
    assert result.returncode == 4
    assert "was made with the foundation registry" in result.stderr


def test_conda_build_gives_the_same_names(stack_channel: Path, tmp_path: Path) -> None:
    conda_build = program("conda-build")
    folders = tool_json("render", "-o", tmp_path / "recipes")["folders"]
    assert isinstance(folders, list)
    folder = next(Path(name) for name in folders if Path(name).name.startswith("libswitchml-"))
    subprocess.run(
        [
            conda_build,
            folder,
            "-m",
            folder / "variants.yaml",
            "--override-channels",
            "-c",
            stack_channel.as_uri(),
            "--output-folder",
            tmp_path / "out",
        ],
        check=True,
        timeout=LIMIT_S,
    )
    assert [path.name for path in (tmp_path / "out").glob("linux-64/*.conda")] == [f"{folder.name}.conda"]
