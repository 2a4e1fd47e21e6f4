# SPDX-License-Identifier: BSD-3-Clause
"""``publish``: selects the packages, of the local channel or files, and publishes them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, cast

from channel_tools.channel import Foundation, open_channel
from channel_tools.channel.model import RECORD_FOLDER
from channel_tools.channel.results import read_stack
from channel_tools.channel.state import read_listing
from channel_tools.conda.closure import Closures
from channel_tools.matrix.load import find_stack, load_tree
from channel_tools.publish.folder import FolderTarget
from channel_tools.publish.model import MAIN_LABEL, PackageFile, PackageSet, file_set
from channel_tools.system.errors import ChannelError, UsageError, nearest_names_hint
from channel_tools.system.extras import needs_extra
from channel_tools.workflow.channel_page import open_followed_target, remember_for_page
from channel_tools.workflow.plan import stack_options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from channel_tools.publish.bucket import Replica
    from channel_tools.publish.model import LabelPackage, PublishPlan, PublishReport
    from channel_tools.publish.target import Target
    from channel_tools.requests.plan import StackPackages
    from channel_tools.requests.publish import PublishRequest
    from channel_tools.system.progress import Note, Progress
    from channel_tools.system.settings import Settings


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
        packages = package_set(cast("Settings", settings), request.plan, note=progress.note)
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


def package_set(settings: Settings, request: StackPackages, *, note: Note) -> PackageSet:
    """The packages that the last build of the request named, from the local channel; ``note`` is told when that was.

    A part of a stack (``packages``) may have been built with the whole. The packages of a foundation that is made here
    belong to the set. Raises UsageError for a stack or package that does not exist, ChannelError if nothing is
    recorded, or if the channel no longer has what is.
    """
    stack = None if request.every_stack else find_stack(load_tree(settings.tree, settings.environ), request.stack)
    asked = stack_options(request, stack)
    recorded = {asked, stack_options(replace(request, packages=()), stack)}
    records = [record for options in sorted(recorded) if (record := read_stack(settings.channel, options)) is not None]
    build_first = f"build it first: {' '.join(('channel_tools', 'build', *request.options))}"
    if not records:
        message = f"{request.in_words}: no build of it is recorded in {settings.channel}"
        raise ChannelError(message, hint=f"{build_first}; what is built already is not built again")
    record = max(records, key=lambda record: (record.finished, record.options == asked))
    packages = {str(package.key): package for package in FolderTarget(root=settings.channel).packages(MAIN_LABEL)}
    for key in record.keys:
        if key not in packages or packages[key].yanked is not None:
            reason = "is no longer there" if key not in packages else f"was yanked ({packages[key].yanked})"
            message = f"{request.in_words}: {settings.channel / key} {reason} since the build of {record.finished}"
            raise ChannelError(message, hint=build_first)
    note(f"{request.in_words}: as built at {record.finished}")
    chosen = {key: packages[key] for key in record.keys}
    if request.packages:
        closures = Closures(chosen.values())
        needed: dict[str, LabelPackage] = {}
        for name in request.packages:
            of_name = [package for package in chosen.values() if package.name == name]
            if not of_name:
                hint = nearest_names_hint(name, {package.name for package in chosen.values()}, noun="package")
                raise UsageError(f"{request.in_words}: no package {name!r} was built", hint=hint)
            needed |= {str(member.key): member for package in of_name for member in closures.of(package)}
        chosen = needed
    channel = open_channel(settings.channel)
    if channel.foundation.is_made_here:
        chosen |= {key: package for key, package in packages.items() if package.foundation and package.hidden is None}
    files = tuple(PackageFile.of(package, settings.channel / key) for key, package in sorted(chosen.items()))
    names: dict[str, set[str]] = {}
    for file in files:
        names.setdefault(file.subdir, set()).add(file.file_name)
    parts = {
        subdir: patch.only(names[subdir]) for subdir, patch in read_listing(channel).patches.items() if subdir in names
    }
    return PackageSet(
        name=request.in_words,
        files=files,
        foundation=channel.foundation,
        patches={subdir: patch for subdir, patch in parts.items() if patch.names()},
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
