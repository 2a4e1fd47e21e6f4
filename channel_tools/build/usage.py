# SPDX-License-Identifier: BSD-3-Clause
"""What builds used, kept beside the channel's records, and what their next jobs therefore request from a scheduler.

Builds are identified by package, version and variant: the digest in the build string changes with every change of the
recipe, what the build uses mostly does not. A new version or variant is estimated by the package's other builds.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from channel_tools.build.model import BuildUsage  # noqa: TC001 - msgspec looks for it here
from channel_tools.channel.model import RECORD_FOLDER
from channel_tools.channel.results import BuildRecord, record_build
from channel_tools.conda.package import split_stem
from channel_tools.system.document import decode_json
from channel_tools.system.errors import ChannelError
from channel_tools.system.schedulers import BuildResources

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from channel_tools.build.model import BuildJob, BuildResult
    from channel_tools.channel.model import Channel

_FILE = f"{RECORD_FOLDER}/builds.json"
_LIMIT_BYTES = 64 << 20
_SCHEMA = 1
_DIGEST = re.compile(r"h[0-9a-f]{7}(?=_|$)")
_MIB = 1 << 20
_MEMORY_MARGIN = 1.5
_JOB_MIB = 1024
"""Memory for the processes around the build."""
_MEMORY_STEP_MIB = 256
_TIME_MARGIN = 2.0
_TIME_FLOOR_MIN = 10
_BUSY = 0.7
"""A build that kept more than this share of its cores busy might use more of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _UsageFile:
    schema: int = _SCHEMA
    builds: dict[str, BuildUsage] = field(default_factory=dict)


def read_usage(channel: Channel) -> Mapping[str, BuildUsage]:
    """What the latest build of each package, version and variant used. Raises ChannelError for a damaged file."""
    try:
        return decode_json(channel.files.read(_FILE, limit_bytes=_LIMIT_BYTES), _UsageFile).builds
    except FileNotFoundError:
        return {}
    except msgspec.DecodeError as err:
        message = f"{channel.path / _FILE}: not a record of what builds used ({err})"
        raise ChannelError(message, hint="remove the file: the next builds write it again") from None


def record_usage(channel: Channel, usages: Mapping[str, BuildUsage]) -> None:
    """Save what builds used, by stem; the caller holds the channel's lock. Raises as read_usage does."""
    builds = {**read_usage(channel), **{_key_of(stem): usage for stem, usage in usages.items()}}
    content = msgspec.json.encode(_UsageFile(builds=dict(sorted(builds.items()))))
    channel.files.write(_FILE, msgspec.json.format(content, indent=1) + b"\n")


def usage_before(known: Mapping[str, BuildUsage], stem: str) -> BuildUsage | None:
    """What the build of ``stem`` may use: what it used before, else the most that a build of this package used."""
    if (same := known.get(_key_of(stem))) is not None:
        return same
    name = split_stem(stem)[0]
    others = [usage for key, usage in known.items() if split_stem(key)[0] == name]
    if not others:
        return None
    longest = max(others, key=lambda usage: usage.seconds)
    return replace(longest, memory_bytes=max(usage.memory_bytes for usage in others))


def asked_for(stated: BuildResources, before: BuildUsage | None) -> BuildResources:
    """What a job requests: what is stated, else what the build used before plus a margin, else nothing (None).

    A build that did not use all its cores requests fewer; one that used them all may get more.
    """
    if before is None:
        return stated
    busy = before.cpu_s / max(before.seconds, 1e-3)
    spared = None if busy > _BUSY * before.cores else max(1, math.ceil(busy))
    memory_mib = _MEMORY_MARGIN * before.memory_bytes / _MIB + _JOB_MIB
    return BuildResources(
        cores=stated.cores or spared,
        memory_mib=stated.memory_mib or math.ceil(memory_mib / _MEMORY_STEP_MIB) * _MEMORY_STEP_MIB,
        minutes=stated.minutes or math.ceil(_TIME_MARGIN * before.seconds / 60) + _TIME_FLOOR_MIN,
    )


def with_resources(
    jobs: Sequence[BuildJob], stated: Sequence[BuildResources | None], known: Mapping[str, BuildUsage]
) -> list[BuildJob]:
    """The jobs with the resources that they request and their expected times; ``stated`` has an entry for each."""
    filled = []
    for job, request in zip(jobs, stated, strict=True):
        before = usage_before(known, job.stem)
        resources = asked_for(request or BuildResources(), before)
        filled.append(replace(job, resources=resources, expected_s=None if before is None else before.seconds))
    return filled


def _key_of(stem: str) -> str:
    name, version, build = split_stem(stem)
    return f"{name}-{version}-{_DIGEST.sub('h', build)}"


def record_result(channel: Channel, result: BuildResult) -> None:
    """Record in the channel when a successful build ended and, unless it was a continued build, what it used."""
    if result.package is not None:
        finished = datetime.now(UTC).isoformat(timespec="seconds")
        seconds = None if result.usage is None else result.seconds
        record_build(channel.path, BuildRecord(file_name=result.package.name, finished=finished, seconds=seconds))
