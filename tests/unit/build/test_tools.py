# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.build.compiler_cache import CompilerCache
from channel_tools.build.tools import find_compiler_cache, find_conda_build
from channel_tools.system.errors import CommandError
from tests.unit.build.test_compiler_cache import program


@pytest.mark.parametrize("version", ["conda-build 26.5.0", "26.11.3", "conda-build 27.1"])
def test_a_new_enough_conda_build_is_found(tmp_path: Path, version: str) -> None:
    made = program(tmp_path, "conda-build", f"echo {version}")
    assert find_conda_build({"PATH": f"{tmp_path}:/usr/bin:/bin"}) == made


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo conda-build 26.4.9", "is version 26.4; v1 recipes need 26.5 or later"),
        ("echo conda-build 3.28.1", "is version 3.28; v1 recipes need 26.5"),
        ("echo nothing", "expected a version"),
        ("echo broken >&2; exit 3", "exit status 3"),
    ],
    ids=["old", "very old", "no version", "broken"],
)
def test_a_conda_build_that_cannot_do_it_is_refused(tmp_path: Path, script: str, words: str) -> None:
    program(tmp_path, "conda-build", script)
    with pytest.raises(CommandError, match=words):
        find_conda_build({"PATH": f"{tmp_path}:/usr/bin:/bin"})


def test_a_machine_without_conda_build_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="conda-build: not found on the PATH") as caught:
        find_conda_build({"PATH": str(tmp_path)})
    assert "leave out --engine conda-build" in str(caught.value.hint)


def test_a_cache_is_found_and_keeps_its_folder_where_its_user_says(tmp_path: Path) -> None:
    made = program(tmp_path, "ccache", "echo ccache version 4.7.5")
    found = find_compiler_cache("ccache", {"PATH": str(tmp_path)}, cache=tmp_path / "cache")
    assert found == CompilerCache(name="ccache", program=made, folder=tmp_path / "cache" / "ccache")
    environ = {"PATH": str(tmp_path), "CCACHE_DIR": "/scratch/cc"}
    assert find_compiler_cache("ccache", environ, cache=tmp_path).folder == Path("/scratch/cc")


def test_a_machine_without_the_cache_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="sccache: not found on the PATH") as caught:
        find_compiler_cache("sccache", {"PATH": str(tmp_path)}, cache=tmp_path)
    assert "leave out --compiler-cache" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("script", "words"),
    [("echo ccache version 3.7.12", "is version 3.7; .* 4.4 or later"), ("echo nothing", "expected a version")],
    ids=["old", "no version"],
)
def test_a_cache_that_cannot_do_it_is_refused(tmp_path: Path, script: str, words: str) -> None:
    program(tmp_path, "ccache", script)
    with pytest.raises(CommandError, match=words):
        find_compiler_cache("ccache", {"PATH": str(tmp_path)}, cache=tmp_path)
