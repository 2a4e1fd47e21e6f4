# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import errno
import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from channel_tools.build.compiler_cache import CachedCompilers, CompilerCache, find_compiler_cache
from channel_tools.build.model import FINISHED, BuildJob
from channel_tools.build.node import finished_build
from channel_tools.build.remote import Outcome, write_outcome
from channel_tools.system.errors import CommandError, UsageError
from channel_tools.system.settings import Settings, Tree


def program(folder: Path, name: str, script: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def prefix_with_compilers(folder: Path, sha256: str = "1") -> Path:
    """An environment with a compiler under three names, and a tool that is none."""
    prefix = folder / "prefix"
    program(prefix / "bin", "x86_64-conda-linux-gnu-gcc", 'echo "compiled $*"')
    (prefix / "bin" / "x86_64-conda-linux-gnu-cc").symlink_to("x86_64-conda-linux-gnu-gcc")
    (prefix / "bin" / "gcc").symlink_to("x86_64-conda-linux-gnu-gcc")
    program(prefix / "bin", "x86_64-conda-linux-gnu-gcc-ar", "echo ar")
    (prefix / "conda-meta").mkdir()
    (prefix / "conda-meta" / "gcc-12-0.json").write_text(f'{{"sha256": "{sha256}"}}')
    return prefix


def ccache_of(folder: Path) -> CompilerCache:
    said = 'test "$1" = --show-log-stats && echo Hits: 7 && exit; echo "$CCACHE_COMPILERCHECK $CCACHE_DIR"; exec "$@"'
    made = program(folder / "tools", "ccache", said)
    return CompilerCache(name="ccache", program=made, folder=folder / "my cache")


def test_compilers_are_called_by_way_of_the_cache_under_their_own_paths(tmp_path: Path) -> None:
    prefix, cache = prefix_with_compilers(tmp_path), ccache_of(tmp_path)
    compilers = CachedCompilers(cache, prefix, tmp_path)
    compilers.wrap()
    for name in ("gcc", "x86_64-conda-linux-gnu-cc", "x86_64-conda-linux-gnu-gcc"):
        said = subprocess.run([prefix / "bin" / name, "a b"], capture_output=True, text=True, check=True).stdout
        assert said.splitlines()[0].startswith("string:")
        assert said.splitlines()[0].endswith(f" {cache.folder}")
        assert said.splitlines()[1] == "compiled a b"
    ar = subprocess.run([prefix / "bin" / "x86_64-conda-linux-gnu-gcc-ar"], capture_output=True, text=True, check=True)
    assert ar.stdout == "ar\n"
    (tmp_path / "compiler-cache.log").touch()
    assert compilers.statistics() == f"ccache in {cache.folder}:\nHits: 7"


def test_another_compiler_is_another_key(tmp_path: Path) -> None:
    keys = set()
    for sha256 in ("1", "2"):
        prefix = prefix_with_compilers(tmp_path / sha256, sha256)
        CachedCompilers(ccache_of(tmp_path / sha256), prefix, tmp_path).wrap()
        keys.add(subprocess.run([prefix / "bin" / "gcc"], capture_output=True, text=True, check=True).stdout.split()[0])
    assert len(keys) == 2


def test_an_environment_without_compilers_is_said(tmp_path: Path) -> None:
    compilers = CachedCompilers(ccache_of(tmp_path), tmp_path / "none", tmp_path)
    compilers.wrap()
    assert compilers.statistics() == "ccache: no compiler in the build environment"


def test_the_variable_names_the_cache(tmp_path: Path) -> None:
    def settings(value: str) -> Settings:
        environ = {"CHANNEL_TOOLS_COMPILER_CACHE": value}
        return Settings(tree=Tree(root=tmp_path), output=tmp_path, cache=tmp_path, environ=environ)

    assert (settings("sccache").compiler_cache, settings("").compiler_cache) == ("sccache", None)
    with pytest.raises(UsageError, match="CHANNEL_TOOLS_COMPILER_CACHE=distcc: expected ccache or sccache"):
        assert settings("distcc").compiler_cache


def test_what_another_digest_left_in_the_folder_is_not_taken_over(tmp_path: Path) -> None:
    jobs = [
        BuildJob(file_name=f"toy-1.0-{build}.conda", subdir="noarch", recipe_folder=tmp_path, work_name="toy-1.0-h_0")
        for build in ("h1111111_0", "h2222222_0")
    ]
    assert {job.folder_name for job in jobs} == {"toy-1.0-h_0"}
    write_outcome(tmp_path / "results" / FINISHED, Outcome(seconds=1.0, package=Path("/out/noarch", jobs[0].file_name)))
    assert finished_build(tmp_path / "results", jobs[0]) is not None
    assert finished_build(tmp_path / "results", jobs[1]) is None


def test_a_node_without_the_program_says_so(tmp_path: Path) -> None:
    cache = CompilerCache(name="ccache", program=Path("/nowhere/ccache"), folder=tmp_path)
    with pytest.raises(CommandError, match="/nowhere/ccache: not found on this machine"):
        CachedCompilers(cache, prefix_with_compilers(tmp_path), tmp_path).wrap()


def test_a_cache_that_cannot_be_written_is_known_before_the_first_compilation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*, dir: Path) -> None:  # noqa: A002 - tempfile's name
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(dir))

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    prefix = prefix_with_compilers(tmp_path)
    with pytest.raises(OSError, match=r"Read-only file system: '.*my cache'"):
        CachedCompilers(ccache_of(tmp_path), prefix, tmp_path).wrap()
    assert not (prefix / "uncached").exists()


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
