# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from channel_tools.build.model import BuildJob, BuildResult, BuildUsage
from channel_tools.build.usage import asked_for, read_usage, record_result, record_usage, usage_before, with_resources
from channel_tools.channel import Channel
from channel_tools.channel.results import read_builds
from channel_tools.system.errors import ChannelError
from channel_tools.system.schedulers import BuildResources
from tests.support.packages import CONDA_FORGE, new_channel

GIB = 1 << 30


def usage(seconds: float = 600, *, cpu_s: float = 600, memory: int = GIB, cores: int = 4) -> BuildUsage:
    return BuildUsage(seconds=seconds, cpu_s=cpu_s, memory_bytes=memory, cores=cores)


@pytest.fixture
def channel(tmp_path: Path) -> Channel:
    (tmp_path / ".channel_tools").mkdir()
    return Channel(path=tmp_path, foundation=CONDA_FORGE)


def test_what_a_build_took_is_found_again_whatever_its_digest(channel: Channel) -> None:
    record_usage(channel, {"lib-1.0-udp_h1234567_0": usage(1)})
    record_usage(channel, {"lib-1.0-py311habcdef0_0": usage(2)})
    record_usage(channel, {"lib-1.0-udp_h7654321_0": usage(3)})
    known = read_usage(channel)
    assert len(known) == 2
    assert usage_before(known, "lib-1.0-udp_h0000000_0") == usage(3)
    assert usage_before(known, "lib-1.0-py311h0000000_0") == usage(2)


def test_of_a_new_version_the_other_builds_of_the_package_tell(channel: Channel) -> None:
    record_usage(channel, {"lib-1.0-a_h1234567_0": usage(9, memory=GIB)})
    record_usage(channel, {"lib-1.0-b_h1234567_0": usage(1, memory=2 * GIB)})
    record_usage(channel, {"lib-extra-1.0-h1234567_0": usage(99)})
    assert usage_before(read_usage(channel), "lib-2.0-a_h1234567_0") == usage(9, memory=2 * GIB)
    assert usage_before(read_usage(channel), "other-1.0-h1234567_0") is None


def test_a_damaged_record_is_an_error_that_says_what_to_do(channel: Channel) -> None:
    (channel.record_folder / "builds.json").write_text("{")
    with pytest.raises(ChannelError, match=r"builds\.json: not a record of what builds used") as caught:
        read_usage(channel)
    assert caught.value.hint == "remove the file: the next builds write it again"


@pytest.mark.parametrize(
    ("cpu_s", "cores"), [(600, 1), (700, 2), (1600, 3), (1800, None)], ids=["one", "two", "three", "all that it had"]
)
def test_cores_that_a_build_did_not_use_are_not_asked_for(cpu_s: float, cores: int | None) -> None:
    assert asked_for(BuildResources(), usage(cpu_s=cpu_s)).cores == cores


def test_what_is_stated_goes_before_what_was_measured() -> None:
    measured = BuildResources(cores=1, memory_mib=2560, minutes=30)
    assert asked_for(BuildResources(), usage()) == measured
    assert asked_for(BuildResources(cores=9), usage()) == BuildResources(cores=9, memory_mib=2560, minutes=30)
    said = BuildResources(cores=9, memory_mib=9, minutes=9)
    assert asked_for(said, usage()) == said
    assert asked_for(BuildResources(minutes=9), None) == BuildResources(minutes=9)


def test_jobs_get_what_they_ask_for_and_how_long_they_may_take() -> None:
    jobs = [
        BuildJob(file_name=f"{name}-1.0-h1234567_0.conda", subdir="noarch", recipe_folder=Path()) for name in ("a", "b")
    ]
    known, new = with_resources(jobs, [None, BuildResources(cores=2)], {"a-1.0-h_0": usage(60, cpu_s=60)})
    assert (known.resources, known.expected_s) == (BuildResources(cores=1, memory_mib=2560, minutes=12), 60)
    assert (new.resources, new.expected_s) == (BuildResources(cores=2), None)


def test_the_channel_keeps_how_long_a_whole_build_took_and_not_how_long_its_rest(tmp_path: Path) -> None:
    channel, name = new_channel(tmp_path), "toy-1.0-h1_0.conda"
    job = BuildJob(file_name=name, subdir="linux-64", recipe_folder=tmp_path)
    used = BuildUsage(seconds=7.5, cpu_s=7.0, memory_bytes=1, cores=1)
    whole = BuildResult(job=job, status="built", package=tmp_path / name, seconds=8.0, usage=used)
    record_result(channel, replace(whole, status="failed", package=None))
    assert read_builds(channel.path) == {}
    record_result(channel, whole)
    assert read_builds(channel.path)[name].seconds == 8.0
    record_result(channel, replace(whole, usage=None))
    assert read_builds(channel.path)[name].seconds is None
