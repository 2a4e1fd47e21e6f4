# SPDX-License-Identifier: BSD-3-Clause
"""The gate in front of a real channel, and what it promises: packages work at any prefix, from a channel anywhere."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from channel_tools.channel import Foundation, create_channel
from channel_tools.conda.archive import stream_component
from channel_tools.system.errors import VerificationError
from tests.integration.build.driver import build
from tests.integration.build.test_build import published, toy
from tests.integration.workflow.test_main_job import tool
from tests.support.processes import TEST_TIMEOUT_S

pytestmark = pytest.mark.integration

LONG_PREFIX_BYTES = 200


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    create_channel(tmp_path / "channel", Foundation(kind="registry"))
    return tmp_path


@pytest.mark.parametrize(
    ("script", "rule", "found"),
    [
        pytest.param(
            "mkdir $PREFIX/share; echo -I$SRC_DIR/include > $PREFIX/share/flags",
            "build-path",
            "share/flags line 1: build-path: names",
            id="the work folder in a text",
        ),
        pytest.param(
            "mkdir -p $PREFIX/lib/pkgconfig; echo prefix=$PREFIX > $PREFIX/lib/pkgconfig/toy.pc",
            "self-locating",
            "lib/pkgconfig/toy.pc line 1: self-locating: names the installation prefix, written in full",
            id="the prefix in a pkg-config file",
        ),
        pytest.param(
            "mkdir $PREFIX/bin; printf '#!/opt/python\\n' > $PREFIX/bin/toy; chmod +x $PREFIX/bin/toy",
            "interpreter",
            "bin/toy line 1: interpreter: is run by /opt/python",
            id="an interpreter of the host",
        ),
    ],
)
def test_a_built_package_with_findings_does_not_enter(folder: Path, script: str, rule: str, found: str) -> None:
    bad = toy(folder, "toy", script=script, test="true")
    with pytest.raises(VerificationError) as caught:
        build(folder, [bad, toy(folder, "after", "toy"), toy(folder, "beside")])
    assert found in caught.value.message
    assert "toy-1.0-h_0.conda: the audit has 1 finding; it was not added to the channel" in caught.value.message
    assert "not built because of that: after-1.0-h_0" in caught.value.message
    assert published(folder) == ["beside"]
    # the file that the hint names can be audited again, alone
    refused = (caught.value.hint or "").rpartition("channel_tools audit ")[2]
    result = tool("audit", refused, "--json")
    assert result.returncode in {0, 9}, result.stderr
    rules = {finding["rule"] for one in json.loads(result.stdout)["packages"] for finding in one["findings"]}
    assert rules <= {rule}


def test_a_mended_recipe_enters(folder: Path) -> None:
    job = toy(folder, "toy", script="mkdir $PREFIX/share; pwd > $PREFIX/share/toy")
    with pytest.raises(VerificationError):
        build(folder, [job])
    recipe_file = job.recipe_folder / "recipe.yaml"
    recipe = yaml.safe_load(recipe_file.read_text())
    recipe["build"]["script"] = ["mkdir $PREFIX/share; echo toy > $PREFIX/share/toy"]
    recipe_file.write_text(yaml.safe_dump(recipe))
    assert [result.status for result in build(folder, [job])] == ["built"]
    assert published(folder) == ["toy"]


def test_the_metadata_of_what_was_built_names_nothing_of_this_machine(folder: Path) -> None:
    (result,) = build(folder, [toy(folder, "toy")])
    assert result.package is not None
    texts = {
        member.name: stream.read().decode(errors="replace")
        for member, stream in stream_component(result.package, "info")
        if stream is not None
    }
    assert "info/recipe/rendered_recipe.yaml" in texts
    assert [name for name, text in texts.items() if str(folder) in text or "file:/" in text] == []
    assert json.loads(texts["info/about.json"])["channels"] == ["channel/"]


@pytest.mark.slow
def test_installed_at_any_prefix_and_from_a_moved_channel_it_works(stack_channel: Path, tmp_path: Path) -> None:
    channel = tmp_path / "channel"
    shutil.copytree(stack_channel, channel, copy_function=os.link)
    before = _installed(channel, tmp_path, None)
    moved = channel.rename(tmp_path / "moved")
    after = _installed(moved, tmp_path, LONG_PREFIX_BYTES)
    assert len(str(after)) == LONG_PREFIX_BYTES
    for prefix in (before, after):
        _assert_works(prefix)
    result = tool("audit", after)
    assert result.returncode == 0, result.stdout + result.stderr


def _installed(channel: Path, folder: Path, length: int | None) -> Path:
    """A new environment with the stack's programs, at a prefix of so many bytes."""
    holder = folder / channel.name[0]
    prefix = holder / ("p" if length is None else "p" * (length - len(str(holder)) - 1))
    result = tool("env", "create", prefix, "--channel", channel.as_uri())
    assert result.returncode == 0, result.stderr
    return prefix


def _assert_works(prefix: Path) -> None:
    """Programs, interpreter and entry points run, with nothing of the caller's environment to help."""
    import_it = "import torch, torch_switchml; print(torch.ones(2).sum().item())"
    for command, words in (
        (["bin/switchml-bench", "--version"], "switchml-bench 1.1.0 (udp)"),
        (["bin/switchml-switch", "--version"], "switchml-switch 1.0.0"),
        (["bin/python", "-c", import_it], "2.0"),
        (["bin/torchrun", "--help"], "usage: torchrun"),
    ):
        program, *arguments = command
        environ = {"PATH": f"{prefix}/bin"} if program == "bin/torchrun" else {}
        result = subprocess.run(
            [prefix / program, *arguments],
            env=environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=TEST_TIMEOUT_S,
        )
        assert result.returncode == 0, result.stderr
        assert words in result.stdout
