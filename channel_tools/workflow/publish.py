# SPDX-License-Identifier: BSD-3-Clause
"""``publish``: selects the packages, of the local channel or files, and publishes them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import chain
from typing import TYPE_CHECKING, cast

from channel_tools.channel import Foundation, indexed_files, open_channel
from channel_tools.channel.model import RECORD_FOLDER
from channel_tools.conda.package import PackageKey
from channel_tools.conda.platforms import current_platform
from channel_tools.publish.model import PackageFile, PackageSet, file_set
from channel_tools.requests.plan import PlanRequest
from channel_tools.system.errors import ChannelError, UsageError
from channel_tools.system.extras import needs_extra
from channel_tools.workflow.channel_page import open_followed_target, remember_for_page
from channel_tools.workflow.plan import check_served, plan_request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from channel_tools.plan import PlannedPackage
    from channel_tools.publish.bucket import Replica
    from channel_tools.publish.model import PublishPlan, PublishReport
    from channel_tools.publish.target import Target
    from channel_tools.requests.publish import PublishRequest
    from channel_tools.system.progress import Progress
    from channel_tools.system.settings import Settings

_SHOWN = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Published:
    """What was planned for the target at ``address``, and what was done: nothing in a dry run."""

    address: str
    plan: PublishPlan
    report: PublishReport | None = None


def publish_packages(
    settings: Settings | None,
    request: PublishRequest,
    *,
    environ: Mapping[str, str],
    progress: Progress,
    on_plan: Callable[[Published], None],
) -> Published:
    """Publish the request's packages; readers see the whole set or none of it. Files need no tree (``settings`` None).

    ``environ`` has the target's credentials. ``on_plan`` is called before anything is sent. Raises as open_target,
    package_set, files_to_publish and Target.publish do.
    """
    target = open_followed_target(request.target, environ=environ)
    if request.files:
        foundation = Foundation.named(request.foundation, request.address)
        packages = files_to_publish(request.files, foundation, settings=settings, target=target)
    else:
        packages = package_set(cast("Settings", settings), PlanRequest(**asdict(request.plan)))
    plan = target.plan(packages, label=request.label)
    planned = Published(address=target.address, plan=plan)
    if request.dry_run:
        return planned
    on_plan(planned)
    if not request.files:
        names = {file.file_name for file in packages.files}
        remember_for_page(target, request.label, cast("Settings", settings), names)
    return Published(address=target.address, plan=plan, report=target.publish(plan, progress=progress))


def copy_to_bucket(
    settings: Settings | None, request: PublishRequest, *, environ: Mapping[str, str], progress: Progress
) -> Replica:
    """Make the request's bucket a copy of a channel's folder. Raises as replicate does."""
    with needs_extra("s3", "publishing to s3://"):
        from channel_tools.publish.bucket import replicate  # noqa: PLC0415 - of an extra

    root = request.source if request.source is not None else cast("Settings", settings).channel
    return replicate(root, request.target, environ=environ, progress=progress, dry_run=request.dry_run)


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
    indexed = indexed_files(channel, (current_platform(), "noarch"))
    own = [PackageKey(package.subdir, package.file_name) for package in plan.packages]
    foundation: list[PackageKey] = []
    if channel.foundation.is_made_here:
        foundation = [key for key, file in indexed.items() if file.ref.foundation and file.hidden is None]
    return PackageSet(
        name=request.in_words,
        files=tuple(PackageFile.of(indexed[key].ref, indexed[key].path) for key in sorted({*own, *foundation})),
        foundation=channel.foundation,
    )


def files_to_publish(
    files: Sequence[Path], foundation: Foundation | None, *, settings: Settings | None, target: Target
) -> PackageSet:
    """The set of package files, which may be anywhere, with the further channels that theirs record.

    Without a ``foundation`` it is that of the channels that the files are in, else the local channel's (``settings``
    None: there is no tree), else the target's. Raises as file_set does, and UsageError if none of them says it.
    """
    channels = dict.fromkeys(path.absolute().parent.parent for path in files)
    recorded = [open_channel(channel).foundation for channel in channels if (channel / RECORD_FOLDER).is_dir()]
    if foundation is None and len(recorded) == len(channels) and len(set(recorded)) == 1:
        foundation = recorded[0]
    if foundation is None and settings is not None and settings.channel.exists():
        foundation = open_channel(settings.channel).foundation
    if foundation is None:
        foundation = target.foundation()
    if foundation is None:
        message = f"{target.address}: does not say on which foundation its packages are built, and neither do the files"
        hint = "give --foundation conda-forge, or registry; a channel has packages for one foundation only"
        raise UsageError(message, hint=hint)
    further = chain.from_iterable(channel.further for channel in recorded)
    return file_set(files, foundation.with_further(further))


def _not_built(missing: tuple[PlannedPackage, ...], request: PlanRequest) -> ChannelError:
    names = [package.file_name for package in missing]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    message = f"{request.in_words}: not in the local channel yet: {', '.join(names[:_SHOWN])}{more}"
    return ChannelError(message, hint=f"build first: {' '.join(('channel_tools', 'build', *request.options))}")
