# SPDX-License-Identifier: BSD-3-Clause
"""Packages that a cluster's jobs have built, and the steps that add them to the channel."""

from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.build.model import FINISHED, BuildJob, BuildPlaces
from channel_tools.build.node import build_package
from channel_tools.build.remote import (
    BUILDS_FILE,
    Outcome,
    RemoteBuilds,
    Results,
    read_outcome,
    results_of,
    write_builds,
    write_outcome,
)
from channel_tools.channel import add_set, channel_writer, published_packages
from channel_tools.workflow.admission import admit_package
from tests.support.packages import new_channel
from tests.unit.audit.packages import BUILD, Toy

NAMES = ("first", "second", "third")


class Waiting:
    """Three builds that ended well, in a workflow's folder beside an empty channel."""

    def __init__(self, folder: Path) -> None:
        self.output = folder
        self.channel = new_channel(folder)
        self.file = folder / "snakemake" / BUILDS_FILE
        self.file.parent.mkdir()
        jobs = [
            BuildJob(file_name=f"{name}-1.0-{BUILD}.conda", subdir="linux-64", recipe_folder=folder) for name in NAMES
        ]
        builds = RemoteBuilds(
            python="",
            tree=folder / "tree",
            output=folder,
            places=BuildPlaces(work=folder / "nodes", logs=folder, cache=folder / "cache"),
            platform="linux-64",
            channels=(),
            jobs=tuple(jobs),
        )
        write_builds(self.file, builds)
        for name in NAMES:
            self.make(name, b"sound")

    def make(self, name: str, content: bytes) -> None:
        """What a job that has built the package leaves."""
        package = Toy(name=name, files={"share/toy": content}).write(self.folder(name) / "out")
        outcome = Outcome(seconds=1.0, package=package)
        write_outcome(self.folder(name) / FINISHED, outcome)
        write_outcome(self.results(name).built, outcome)

    def folder(self, name: str) -> Path:
        return self.output / "nodes" / f"{name}-1.0-{BUILD}"

    def results(self, name: str) -> Results:
        return results_of(self.file, f"{name}-1.0-{BUILD}")

    def admit(self, name: str) -> bool:
        return admit_package(self.file, self.results(name).stem, cores=1)

    def published(self) -> list[str]:
        return [package.row.name for package in published_packages(self.channel)]


@pytest.fixture
def waiting(tmp_path: Path) -> Waiting:
    return Waiting(tmp_path)


def test_each_step_adds_its_own_package_and_a_job_taken_for_lost_builds_it_no_more(waiting: Waiting) -> None:
    for done, name in enumerate(NAMES, start=1):
        assert waiting.admit(name)
        assert waiting.published() == [*NAMES[:done]]
        assert waiting.results(name).admitted.is_file()
        assert not waiting.folder(name).exists()
    waiting.results("first").built.unlink()
    build_package(waiting.file, waiting.results("first").stem, cores=1)
    assert read_outcome(waiting.results("first").built).package is None
    assert not waiting.folder("first").exists()


def test_a_step_that_snakemake_is_told_to_repeat_leaves_the_channel_as_it_is(waiting: Waiting) -> None:
    assert waiting.admit("second")
    results = waiting.results("second")
    results.built.unlink()
    build_package(waiting.file, results.stem, cores=1)
    results.admitted.unlink()  # as Snakemake does with --forceall, before each step
    assert waiting.admit("second")
    assert results.admitted.is_file()
    assert waiting.published() == ["second"]


def test_what_the_audit_rejects_stays_out_and_is_built_again(waiting: Waiting) -> None:
    waiting.make("third", f"made in {waiting.output}/tree/recipes".encode())
    assert not waiting.admit("third")
    failure = read_outcome(waiting.results("third").failed).failure
    assert failure is not None
    assert failure.message.startswith(f"third-1.0-{BUILD}.conda: the audit has 1 finding")
    assert not (waiting.folder("third") / FINISHED).exists()
    assert waiting.published() == []


def test_what_the_channel_refuses_keeps_no_other_out(waiting: Waiting) -> None:
    published = Toy(name="second", files={"share/toy": b"other bytes"}).write(waiting.output / "earlier")
    with channel_writer(waiting.channel) as writer:
        add_set(writer, [published])
    assert [waiting.admit(name) for name in NAMES] == [True, False, True]
    assert waiting.published() == [*NAMES]
    failure = read_outcome(waiting.results("second").failed).failure
    assert failure is not None
    assert "other bytes under this name" in failure.message
