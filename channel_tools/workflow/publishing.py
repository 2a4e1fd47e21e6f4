# SPDX-License-Identifier: BSD-3-Clause
"""From the local channel to a set that can be published."""

from __future__ import annotations

from typing import TYPE_CHECKING

from channel_tools.channel import held_files, open_channel
from channel_tools.errors import ChannelError, UsageError
from channel_tools.publish import PackageFile, PackageSet
from channel_tools.workflow.planning import plan_for
from channel_tools.workflow.platforms import current_platform

if TYPE_CHECKING:
    from channel_tools.channel import HeldFile
    from channel_tools.plan import PlannedPackage
    from channel_tools.settings import Settings
    from channel_tools.workflow.planning import PlanRequest

_SHOWN = 5


def package_set(settings: Settings, request: PlanRequest) -> PackageSet:
    """The packages that the plan of the request names, as the local channel holds them.

    With the registry foundation, the foundation's packages belong to the set. Raises what planning raises, and
    ChannelError naming the packages that are not built yet.
    """
    plan = plan_for(settings, request)
    if not plan.packages:
        reasons = sorted({item.reason for item in plan.unserved})
        message = f"{_words(request)}: nothing in it can be built here: {'; '.join(reasons)}"
        raise UsageError(message, hint="channel_tools plan --why tells more")
    if missing := plan.to_build:
        raise _not_built(missing, request)
    channel = open_channel(settings.channel)
    held = held_files(channel, (current_platform(), "noarch"))
    own = [f"{package.subdir}/{package.file_name}" for package in plan.packages]
    foundation = _foundation_names(held) if channel.foundation.kind == "registry" else []
    return PackageSet(
        name=_words(request),
        files=tuple(_package_file(key, held) for key in sorted({*own, *foundation})),
        foundation=channel.foundation,
    )


def _foundation_names(held: dict[str, HeldFile]) -> list[str]:
    return [key for key, file in held.items() if file.foundation and file.hidden is None]


def _not_built(missing: tuple[PlannedPackage, ...], request: PlanRequest) -> ChannelError:
    names = [package.file_name for package in missing]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    message = f"{_words(request)}: not in the local channel yet: {', '.join(names[:_SHOWN])}{more}"
    return ChannelError(message, hint=f"build first: channel_tools build{_options(request)}")


def _words(request: PlanRequest) -> str:
    stacks = "all stacks" if request.every_stack else f"stack {request.stack}" if request.stack else "the default stack"
    return f"{', '.join(request.packages)} of {stacks}" if request.packages else stacks


def _options(request: PlanRequest) -> str:
    stacks = " --all" if request.every_stack else f" --variant {request.stack}" if request.stack else ""
    return stacks + "".join(f" --package {name}" for name in request.packages)


def _package_file(key: str, held: dict[str, HeldFile]) -> PackageFile:
    subdir, _, file_name = key.partition("/")
    file = held[key]
    return PackageFile(
        subdir=subdir,
        file_name=file_name,
        path=file.path,
        sha256=file.sha256,
        size_bytes=file.size_bytes,
        foundation=file.foundation,
    )
