# SPDX-License-Identifier: BSD-3-Clause
"""Selects a set of packages for publishing: of the local channel, or files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from channel_tools.channel import indexed_files, open_channel
from channel_tools.channel.model import RECORD_FOLDER
from channel_tools.conda.package import PackageKey
from channel_tools.plan import current_platform
from channel_tools.publish.model import PackageFile, PackageSet, file_set
from channel_tools.system.errors import ChannelError, UsageError
from channel_tools.workflow.plan import check_served, chosen_foundation, options_of, plan_request, request_in_words

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from channel_tools.channel.model import FoundationKind
    from channel_tools.plan import PlannedPackage
    from channel_tools.publish.target import Target
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


def files_to_publish(
    settings: Settings | None,
    files: Sequence[Path],
    target: Target,
    *,
    kind: FoundationKind | None = None,
    address: str | None = None,
) -> PackageSet:
    """The set of package files, which may be anywhere; works without a tree.

    Their foundation is ``kind`` at ``address``, else that of the channels they are in, else the local channel's, else
    the target's. Raises as file_set does, and UsageError if none of these says what the foundation is.
    """
    asked = chosen_foundation(kind, address)
    if asked is not None:
        return file_set(files, asked)
    channels = {path.absolute().parent.parent for path in files}
    if all((channel / RECORD_FOLDER).is_dir() for channel in channels):
        found = {str(one): one for one in (open_channel(channel).foundation for channel in channels)}
        if len(found) == 1:
            return file_set(files, *found.values())
    if settings is not None and settings.channel.exists():
        return file_set(files, open_channel(settings.channel).foundation)
    foundation = target.foundation()
    if foundation is None:
        message = f"{target.address}: does not say on which foundation its packages are built, and neither do the files"
        hint = "give --foundation conda-forge, or registry; a channel has packages for one foundation only"
        raise UsageError(message, hint=hint)
    return file_set(files, foundation)


def _not_built(missing: tuple[PlannedPackage, ...], request: PlanRequest) -> ChannelError:
    names = [package.file_name for package in missing]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    message = f"{request_in_words(request)}: not in the local channel yet: {', '.join(names[:_SHOWN])}{more}"
    return ChannelError(message, hint=f"build first: {' '.join(('channel_tools', 'build', *options_of(request)))}")
