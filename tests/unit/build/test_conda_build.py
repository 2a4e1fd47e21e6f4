# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from channel_tools.build.conda_build import run_conda_build
from channel_tools.build.model import BuildTools, WorkerResult, WorkerSpec, decode, encode
from channel_tools.system.processes import end_process_group, start_command
from tests.support.processes import TEST_TIMEOUT_S


def program(folder: Path, script: str) -> Path:
    """A stand-in for conda-build."""
    made = folder / "bin" / "conda-build"
    made.parent.mkdir(exist_ok=True)
    made.write_text(f"#!/bin/sh\n{script}\n")
    made.chmod(0o755)
    return made


def spec_of(folder: Path) -> WorkerSpec:
    for name in ("recipe", "out"):
        (folder / name).mkdir()
    (folder / "recipe" / "variants.yaml").touch()
    (folder / "recipe" / "recipe.yaml").write_text("source: {path: src, patches: [x.patch]}\n")
    (folder / "recipe" / "x.patch").write_text("--- a/x\n+++ b/x\n")
    return WorkerSpec(
        recipe_folder=folder / "recipe",
        output=folder / "out",
        result_file=folder / "result.json",
        channels=("file:///channel", "https://foundation"),
        recorded_channels=("file:///channel", "https://foundation"),
        platform="linux-64",
        error_prefix_in_binary=True,
        compression_threads=1,
    )


def test_it_is_told_the_folder_the_variant_and_the_channels_in_order(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    words = f"cd {tmp_path}; printf '%s\\n' \"$@\" > words"
    made = program(tmp_path, f"{words}; mkdir out/noarch; touch out/noarch/toy-1-0.conda out/noarch/repodata.json")
    result = run_conda_build(spec, made)
    assert result.packages == (tmp_path / "out/noarch/toy-1-0.conda",)
    assert result.failure is None
    assert (tmp_path / "words").read_text().split() == [
        str(spec.recipe_folder),
        "-m",
        f"{spec.recipe_folder}/variants.yaml",
        "--override-channels",
        "--channel",
        "file:///channel",
        "--channel",
        "https://foundation",
        "--output-folder",
        str(spec.output),
        "--no-anaconda-upload",
    ]


@pytest.mark.parametrize(
    ("summary", "kind", "message"),
    [
        ("  - ❌ toy: Package tests failed", "test", "Package tests failed"),
        ("  - ❌ toy: Script failed with status 2", "script", "Script failed with status 2"),
        ("  - ❌ toy: Failed to resolve dependencies: none", "solve", "Failed to resolve dependencies: none"),
        ("  - ❌ recipe: Failed to render it", "recipe", "Failed to render it"),
    ],
)
def test_its_summary_says_what_kind_of_failure_it_was(tmp_path: Path, summary: str, kind: str, message: str) -> None:
    said = f"some log\n=== Build summary ===\nDetails:\n- ❌ recipe.yaml\n{summary}\n"
    (tmp_path / "said").write_text(said)
    result = run_conda_build(spec_of(tmp_path), program(tmp_path, f"cat {tmp_path}/said; exit 1"))
    assert (result.failure, result.message) == (kind, message)


def test_a_crash_without_a_summary_gives_its_last_line(tmp_path: Path) -> None:
    result = run_conda_build(spec_of(tmp_path), program(tmp_path, "echo one; echo ValueError: two >&2; exit 1"))
    assert (result.failure, result.message) == ("other", "ValueError: two")


def test_one_that_waits_for_ever_at_a_pipe_in_the_prefix_is_ended(tmp_path: Path) -> None:
    made = program(
        tmp_path, 'cd "$(dirname "$0")/../out"; mkdir -p bld/toy/host_env; cd bld/*/*; mkfifo pipe; read a < pipe'
    )
    spec = replace(spec_of(tmp_path), tools=BuildTools(conda_build=made))
    (tmp_path / "spec.json").write_bytes(encode(spec))
    worker = [sys.executable, "-P", "-m", "channel_tools.build.worker", str(tmp_path / "spec.json"), str(os.getpid())]
    with (tmp_path / "log").open("wb") as log:
        process = start_command(worker, env={"PATH": "/usr/bin:/bin"}, stdout=log.fileno(), stderr=log.fileno())
        assert process.wait(TEST_TIMEOUT_S) == 0
        end_process_group(process)
    result = decode(spec.result_file.read_bytes(), WorkerResult)
    assert result.failure == "file"
    assert result.message == "pipe is a named pipe; packages have only files, folders and links"


def test_a_patch_that_it_would_apply_in_part_is_refused(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    (spec.recipe_folder / "x.patch").write_text("diff --git a/x b/x\nold mode 100644\nnew mode 100755\n")
    result = run_conda_build(spec, program(tmp_path, "touch was-run"))
    assert (result.failure, "x.patch" in result.message) == ("recipe", True)
    assert not (tmp_path / "was-run").exists()
