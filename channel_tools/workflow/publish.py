# SPDX-License-Identifier: BSD-3-Clause
"""Selects a set of packages of the local channel for publishing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from channel_tools.channel import indexed_files, open_channel
from channel_tools.conda.package import PackageKey
from channel_tools.plan import current_platform
from channel_tools.publish.model import PackageFile, PackageSet
from channel_tools.system.errors import ChannelError
from channel_tools.workflow.plan import check_served, plan_request, request_in_words

if TYPE_CHECKING:
    from channel_tools.plan import PlannedPackage
    from channel_tools.system.settings import Settings
    from channel_tools.workflow.plan import PlanRequest

_SHOWN = 5


def package_set(settings: Settings, request: PlanRequest) -> PackageSet:
    """The packages in the request's plan, from the local channel.

    The registry foundation's packages belong to the set. Raises the errors of planning and check_served, and
    ChannelError naming the packages that are not built yet.
    """
    plan = plan_request(settings, request)
    check_served(plan, request)
    if missing := plan.to_build:
        raise _not_built(missing, request)
    channel = open_channel(settings.channel)
    held = indexed_files(channel, (current_platform(), "noarch"))
    own = [PackageKey(package.subdir, package.file_name) for package in plan.packages]
    foundation: list[PackageKey] = []
    if channel.foundation.kind == "registry":
        foundation = [key for key, file in held.items() if file.ref.foundation and file.hidden is None]
    return PackageSet(
        name=request_in_words(request),
        files=tuple(PackageFile.of(held[key].ref, held[key].path) for key in sorted({*own, *foundation})),
        foundation=channel.foundation,
    )


def _not_built(missing: tuple[PlannedPackage, ...], request: PlanRequest) -> ChannelError:
    names = [package.file_name for package in missing]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    message = f"{request_in_words(request)}: not in the local channel yet: {', '.join(names[:_SHOWN])}{more}"
    return ChannelError(message, hint=f"build first: {' '.join(('channel_tools', 'build', *options_of(request)))}")


def options_of(request: PlanRequest) -> tuple[str, ...]:
    """The options of ``build`` that request the same packages."""
    stacks = ("--all",) if request.every_stack else ("--variant", request.stack) if request.stack else ()
    return (*stacks, *(word for name in request.packages for word in ("--package", name)))
