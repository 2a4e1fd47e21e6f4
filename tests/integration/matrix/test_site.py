# SPDX-License-Identifier: BSD-3-Clause
"""A site's own tree, from init to an environment: built on an upstream with a patch and a variable, without a fork."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from channel_tools.environments.activation import activated_environment
from tests.support.command_line import run_tool
from tests.unit.sources.toys import git

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.system.settings import Settings

pytestmark = [pytest.mark.integration, pytest.mark.slow]

UPSTREAM = {
    "LICENSE": "do what you like\n",
    "variants/pins.yaml": "colour: [red]\n",
    "variants/stacks.yaml": """\
default_stack: base
stacks:
  base: {description: one word, packages: [word], install: [word]}
""",
    "recipes/word/recipe.yaml": """\
package: {name: word, version: "1.0"}
source: [{path: src}, {path: ../../LICENSE}]
build: {noarch: generic, string: "${{ colour }}_h${{ hash }}_0", script: build.sh}
about: {license: MIT, license_file: LICENSE}
""",
    "recipes/word/build.sh": 'mkdir -p "$PREFIX/share" && cp word.txt "$PREFIX/share"\n',
    "recipes/word/src/word.txt": "theirs\n",
}
PATCH = "--- a/word.txt\n+++ b/word.txt\n@@ -1 +1 @@\n-theirs\n+ours\n"
STACKS = """\
default_stack: mysite
stacks:
  mysite:
    extends: base
    packages: [hello, hello-python]
    install: [hello, hello-python]
    overrides:
      word:
        patches: patches/word
        environment: {SITE_WORD: "it's ours"}
"""


def test_a_site_builds_on_an_upstream_with_a_patch_and_a_variable(
    tmp_path: Path, own_settings: Settings, stack_channel: Path
) -> None:
    assert stack_channel.is_dir()
    upstream, site = tmp_path / "upstream", tmp_path / "mysite"
    _write(upstream, UPSTREAM)
    git(upstream, "init", "--quiet", "--initial-branch=main")
    git(upstream, "add", "--all")
    git(upstream, "commit", "--quiet", "-m", "first")

    def tool(*words: str | Path, cwd: Path = site) -> str:
        environ = os.environ | {"CHANNEL_TOOLS_CACHE": str(tmp_path / "cache")}
        result = run_tool(*words, cwd=cwd, environ=environ)
        assert result.returncode == 0, result.stderr
        return result.stdout

    tool("init", "mysite", "--upstream", f"file://{upstream}@main", "--ci", "gitlab", cwd=tmp_path)
    _write(
        site,
        {
            "variants/stacks.yaml": STACKS,
            # the local foundation stands for a mirror of conda-forge, with Debian's compilers
            "variants/pins.yaml": 'c_compiler: [gcc]\nc_compiler_version: ["12"]\nc_stdlib: [sysroot]\n',
            "variants/foundation-conda-forge.yaml": 'c_stdlib_version: ["2.36"]\n',
            "patches/word/0001-ours.patch": PATCH,
        },
    )
    foundation = ("--foundation", "conda-forge", "--foundation-channel", own_settings.foundation.as_uri())
    tool("build", *foundation, "--no-attest")
    channels = ("-c", site / "output" / "channel", "-c", own_settings.foundation)
    tool("env", "create", tmp_path / "env", "hello", "hello-python", "word", *channels)

    assert (tmp_path / "env" / "share" / "word.txt").read_text() == "ours\n"
    hello = subprocess.run([tmp_path / "env" / "bin" / "hello"], capture_output=True, text=True, check=True)
    assert hello.stdout == "hello from mysite\n"
    assert activated_environment(tmp_path / "env", environ=os.environ)["SITE_WORD"] == "it's ours"
    tool("env", "pack", tmp_path / "env", "-o", tmp_path / "env.tar")
    assert _in_packed(tmp_path / "env.tar", tmp_path / "elsewhere") == ["theirs", "it's ours", "theirs"]

    (upstream / "recipes" / "word" / "src" / "word.txt").write_text("moved on\n")
    git(upstream, "commit", "--quiet", "--all", "-m", "second")
    tool("upstream", "update")
    result = run_tool("build", cwd=site, environ=os.environ | {"CHANNEL_TOOLS_CACHE": str(tmp_path / "cache")})
    assert result.returncode != 0
    assert "0001-ours.patch" in result.stderr


def _in_packed(archive: Path, folder: Path) -> list[str]:
    """SITE_WORD of a user who has one: before, with and after the activation of the unpacked environment."""
    folder.mkdir()
    subprocess.run(["tar", "-xf", archive, "-C", folder], check=True)
    say = 'echo "${SITE_WORD-}"\n'
    script = f"{say}. {folder}/bin/activate\n{say}. {folder}/bin/deactivate\n{say}"
    environ = {"PATH": os.environ["PATH"], "SITE_WORD": "theirs"}
    done = subprocess.run(["bash", "-ec", script], env=environ, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def _write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def test_a_new_tree_alone_is_built_and_validated(tmp_path: Path) -> None:
    for words, cwd in ((("init", "mysite"), tmp_path), (("build",), tmp_path / "mysite")):
        result = run_tool(*words, cwd=cwd, environ=os.environ)
        assert result.returncode == 0, result.stderr
    result = run_tool("validate", "--ranks", "2", cwd=tmp_path / "mysite", environ=os.environ)
    assert (result.returncode, result.stdout[:6]) == (0, "PASSED"), result.stderr
