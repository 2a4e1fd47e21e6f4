# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from channel_tools.build.model import FINISHED, BuildJob, BuildOptions, BuildResult
from channel_tools.build.node import lock_of
from channel_tools.build.remote import Outcome, write_outcome
from channel_tools.build.schedule import build_packages, channels_of, take_in, take_over_finished
from channel_tools.channel import Channel, ChannelWriter, channel_writer, published_packages
from channel_tools.system.errors import BuildError, ChannelError, ConfigError
from channel_tools.system.files import exclusive_lock
from channel_tools.system.progress import NotesOnly, SilentProgress
from tests.support.packages import CONDA_FORGE, REGISTRY, new_channel
from tests.unit.audit.packages import BUILD, Toy


def job(name: str, *waits_for: str) -> BuildJob:
    waits = tuple(f"{other}-1-0.conda" for other in waits_for)
    return BuildJob(file_name=f"{name}-1-0.conda", subdir="noarch", recipe_folder=Path(name), waits_for=waits)


@pytest.mark.parametrize(
    ("jobs", "message"),
    [
        pytest.param([job("a", "b"), job("b", "a")], "wait for each other: ", id="circle"),
        pytest.param([job("a"), job("a")], "is to be built twice", id="twice"),
    ],
)
def test_an_impossible_order_is_refused(tmp_path: Path, jobs: list[BuildJob], message: str) -> None:
    writer = ChannelWriter(channel=Channel(path=tmp_path, foundation=REGISTRY), clock=time.time)
    with pytest.raises(ConfigError, match=message):
        build_packages(
            jobs,
            BuildOptions(platform="linux-64", max_jobs=1, cores=1, environ={}),
            writer=writer,
            places=None,  # type: ignore[arg-type]
            admit=lambda _package: None,
            progress=SilentProgress(),
        )


def test_builds_solve_from_the_channel_and_then_from_its_foundation(tmp_path: Path) -> None:
    own = Channel(path=tmp_path, foundation=REGISTRY)
    assert channels_of(own) == (tmp_path.as_uri(),)
    beside = Channel(path=tmp_path, foundation=CONDA_FORGE)
    assert channels_of(beside) == (tmp_path.as_uri(), CONDA_FORGE.address)


class Nodes:
    """What a cluster's jobs left, and the channel that it is taken into."""

    def __init__(self, folder: Path, *names: str) -> None:
        self.nodes, self.channel = folder / "nodes", new_channel(folder)
        self.notes = NotesOnly()
        self.heard: list[BuildResult] = []
        for name in names:
            package = Toy(name=name, files={"share/toy": b"sound"}).write(self.folder(name) / "out")
            write_outcome(self.folder(name) / FINISHED, Outcome(seconds=3.0, package=package))

    def folder(self, name: str) -> Path:
        return self.nodes / f"{name}-1.0-{BUILD}"

    def take_over(self, jobs: Sequence[BuildJob], *, refused: str = "") -> list[str]:
        def admit(package: Path) -> None:
            if package.name == f"{refused}-1.0-{BUILD}.conda":
                raise BuildError(f"{package.name}: 1 findings")

        with channel_writer(self.channel) as writer:
            taken = take_over_finished(
                self.nodes, jobs, writer=writer, logs=self.nodes, admit=admit, progress=self.notes,
                on_result=self.heard.append,
            )  # fmt: skip
        assert taken == self.heard
        assert [result.package for result in taken] == [
            self.channel.path / "linux-64" / result.job.file_name for result in taken
        ]
        return [package.row.name for package in published_packages(self.channel)]


def toy_job(name: str, *waits_for: str) -> BuildJob:
    waits = tuple(f"{other}-1.0-{BUILD}.conda" for other in waits_for)
    return BuildJob(file_name=f"{name}-1.0-{BUILD}.conda", subdir="linux-64", recipe_folder=Path(name), waits_for=waits)


def test_what_a_cluster_had_built_is_taken_over_in_the_plans_order(tmp_path: Path) -> None:
    cluster = Nodes(tmp_path, "upper", "lower", "after")
    jobs = [toy_job("upper", "lower"), toy_job("lower"), toy_job("after", "missing"), toy_job("missing")]
    assert cluster.take_over(jobs) == ["lower", "upper"]
    assert [(result.job.stem.partition("-")[0], result.seconds) for result in cluster.heard] == [
        ("lower", 3.0),
        ("upper", 3.0),
    ]
    assert [path.name for path in cluster.nodes.iterdir()] == [cluster.folder("after").name]


def test_what_is_refused_or_in_use_is_left_to_be_built(tmp_path: Path) -> None:
    cluster = Nodes(tmp_path, "bad", "used", "good")
    with exclusive_lock(lock_of(cluster.folder("used")), resource="the build folder"):
        assert cluster.take_over([toy_job(name) for name in ("bad", "used", "good")], refused="bad") == ["good"]
    said = [note for note in cluster.notes.notes if "is not used" in note]
    assert [note.partition("-")[0] for note in said] == ["bad", "used"]
    assert "1 findings" in said[0]
    assert f"in use by process {os.getpid()}" in said[1]
    assert all((cluster.folder(name) / FINISHED).is_file() for name in ("bad", "used"))


def test_a_package_whose_name_the_channel_has_enters_only_if_it_is_built_from_the_same(tmp_path: Path) -> None:
    channel, notes = new_channel(tmp_path), NotesOnly()
    earlier = Toy(name="taken", files={"share/toy": b"earlier"}).write(tmp_path / "earlier")
    other = Toy(name="taken", files={"share/toy": b"new"}).write(tmp_path / "built")

    with channel_writer(channel) as writer:
        published = take_in(writer, earlier, admit=lambda _package: None, progress=notes)
        assert take_in(writer, earlier, admit=lambda _package: None, progress=notes) == published
        with pytest.raises(ChannelError, match="other bytes under this name"):
            take_in(writer, other, admit=lambda _package: None, progress=notes)
    assert [package.path for package in published_packages(channel)] == [published]
