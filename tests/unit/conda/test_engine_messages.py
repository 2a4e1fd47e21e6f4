# SPDX-License-Identifier: BSD-3-Clause
"""The advice in the engine's real messages, caused with the engine itself, and in those of its source."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from channel_tools.conda.engine_messages import explained, in_our_words

if TYPE_CHECKING:
    from pathlib import Path

HEAD = "package: {name: toy, version: '1.0'}\n"
LINK = "mkdir -p $PREFIX/share; cd $PREFIX/share; echo a > a; ln -s a b"
BINARY = 'mkdir -p $PREFIX/lib; printf "\\000%s" $PREFIX > $PREFIX/lib/x.bin'


BUILD = """
import os, sys
from pathlib import Path
from rattler_build import *

folder = Path(sys.argv[1])
config = RenderConfig(platform=PlatformConfig(target_platform="linux-64"))
tools = ToolConfiguration(test_strategy="skip", error_prefix_in_binary=True)
try:
    for variant in Stage0Recipe.from_file(folder / "recipe.yaml").render(VariantConfig({}), config):
        variant.run_build(tool_config=tools, output_dir=folder / "out", channels=[], no_build_id=True)
except RattlerBuildError as err:
    (folder / "message").write_text(str(err))
os._exit(0)
"""
"""In a process of its own, which ends at once: the engine's threads can crash the interpreter's exit."""


def message_of(recipe: str, script: str, folder: Path) -> str:
    """What the engine says about a recipe that it cannot build."""
    (folder / "recipe.yaml").write_text(HEAD + recipe)
    (folder / "build.sh").write_text(script)
    subprocess.run([sys.executable, "-c", BUILD, str(folder)], check=True, capture_output=True)
    return (folder / "message").read_text()


@pytest.mark.parametrize(
    ("recipe", "script", "hint"),
    [
        ("build: {noarch: generic, script: build.sh}\n", LINK, "__unix"),
        ("build: {script: build.sh}\n", BINARY, "-ffile-prefix-map"),
        ("build: {script: build.sh, flags: [a]}\n", "", "CEP 13"),
        ("build: {script: build.sh}\nrequirements: {extras: {x: [b]}}\n", "", "CEP 13"),
        ("build: {script: build.sh}\nabout: {summary: \"${{ load_from_file('x.json') }}\"}\n", "", "CEP 13"),
    ],
    ids=["links in noarch", "prefix in a binary", "flags", "extras", "experimental"],
)
def test_advice_of_the_engine_is_replaced(tmp_path: Path, recipe: str, script: str, hint: str) -> None:
    message = message_of(recipe, script, tmp_path)
    assert "--" in message, "the engine's advice has changed: adapt the table"
    said = explained(message)
    assert not re.search(r"--[a-z]", said.message)
    assert hint in said.hint


PLATFORM = (
    "Setting 'target_platform' in a variant config file is not supported and will be ignored. "
    "Please use the '--target-platform' command-line flag to specify the target platform."
)


@pytest.mark.parametrize(
    "message",
    [
        PLATFORM,
        "Absolute paths in license_file are not allowed. Use --allow-absolute-license-paths to enable. Path: /x",
        "`build.steps` is an experimental feature: provide the `--experimental` flag to enable it",
        "To automatically migrate your recipe, run:\nrattler-build migrate-recipe --recipe /tmp/recipe.yaml",
        "invalid bracket key. Enable --v3 to use V3 MatchSpec keys such as extras, flags, or when.",
    ],
)
def test_advice_in_the_engines_source_is_replaced(message: str) -> None:
    said = explained(message)
    assert not re.search(r"--[a-z]|rattler-build migrate", said.message)
    assert said.hint


def test_a_program_that_the_engine_lacks_is_explained() -> None:
    said = explained("failed to find `patchelf` (cannot find binary path)")
    assert said.message.startswith("patchelf, which has to lengthen the rpath")
    assert "requirements.build" in said.hint


def test_an_option_that_is_not_known_is_said_to_be_another_programs() -> None:
    said = explained("cannot do that. Use --some-new-flag.")
    assert said.message == "cannot do that. Use --some-new-flag."
    assert said.hint.startswith("--some-new-flag: options of the program rattler-build")


@pytest.mark.parametrize("line", ["cc -O2 --sysroot=/x -o a a.c", "configure --prefix=/p", "plain"])
def test_what_a_script_writes_is_unchanged(line: str) -> None:
    assert in_our_words(line) == line
