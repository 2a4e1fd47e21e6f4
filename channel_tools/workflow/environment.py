# SPDX-License-Identifier: BSD-3-Clause
"""Environments: a stack, MatchSpecs or a lock installed from channels."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from channel_tools.build.schedule import channels_of
from channel_tools.channel import open_channel, published_packages
from channel_tools.conda.addresses import channel_address, without_credentials
from channel_tools.environments import create_environment, create_locked_environment
from channel_tools.matrix import expand_stacks, find_stack, load_tree
from channel_tools.matrix.choice import choices, choices_of, default_variants, label, variants_for
from channel_tools.pins.choice import EVERYTHING, LockChoice
from channel_tools.pins.environment_file import EnvironmentFile
from channel_tools.pins.files import read_pins
from channel_tools.pins.virtual import machine_virtual_packages
from channel_tools.plan import current_platform
from channel_tools.system.counting import counted
from channel_tools.system.errors import UsageError
from channel_tools.system.settings import STACKS_PACKAGE
from channel_tools.workflow.locks import index_look_up, note_unsolved, platforms_of_file
from channel_tools.workflow.plan import asked_versions, offered_versions
from channel_tools.workflow.stacks import channels_of_stacks
from channel_tools.workflow.verify import attestation_check

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from channel_tools.environments import EnvironmentResult
    from channel_tools.matrix.choice import Choice
    from channel_tools.matrix.model import RenderedPackage, Stack
    from channel_tools.pins import Lock
    from channel_tools.provenance.trust import Trust
    from channel_tools.system.progress import Progress
    from channel_tools.system.settings import Settings


_ASKED_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.\d+)*(t?)")


@dataclass(frozen=True, kw_only=True, slots=True)
class InstallRequest:
    """A stack (None: the default one) and the channels it comes from (empty: the local channel and its foundation).

    ``python`` and ``pytorch`` choose one of its variants by their versions. With neither, the local channel gives the
    default variant, and for other channels the solver chooses. ``trust`` says who must have signed every package, None
    if nobody.
    """

    stack: str | None = None
    channels: tuple[str, ...] = ()
    python: str | None = None
    pytorch: str | None = None
    trust: Trust | None = None


def install_channels(settings: Settings, request: InstallRequest) -> tuple[str, ...]:
    """The channels of a request, in order of priority.

    Without any, and without a local channel, stacks that are installed come from the channels of that environment.
    Raises ChannelError if there is no local channel yet.
    """
    if request.channels:
        return request.channels
    if not settings.tree.has_recipes and not settings.channel.exists():
        return channels_of_stacks(settings.tree)
    return channels_of(open_channel(settings.channel))


def install_specs(settings: Settings, request: InstallRequest) -> tuple[str, ...]:
    """The MatchSpecs that an environment of the request is solved for.

    Raises as load_tree does, and UsageError for a stack that does not exist, or a Python or PyTorch that it does not
    support.
    """
    return variants_of(settings, request.stack).specs(request)


def install_stack(
    settings: Settings,
    request: InstallRequest,
    prefix: Path,
    *,
    progress: Progress,
    virtual_packages: tuple[str, ...] = (),
) -> EnvironmentResult:
    """Install a stack's environment into ``prefix``, or update it there.

    With it comes the channel's record of its stacks, so that the environment says by itself how it is run. Raises as
    create_environment does, and UsageError for a Python or PyTorch that the stack does not support.
    """
    channels = install_channels(settings, request)
    return asyncio.run(
        create_environment(
            prefix,
            install_specs(settings, request) + _stacks_specs(settings, request),
            channels,
            check=attestation_check(request.trust, channels, settings.environ),
            package_cache=settings.package_cache,
            subdir=current_platform(),
            progress=progress,
            virtual_packages=machine_virtual_packages(virtual_packages),
        )
    )


def _stacks_specs(settings: Settings, request: InstallRequest) -> tuple[str, ...]:
    """The package that says what the stacks are, where the channel of a request is known to have it.

    That is where the stacks themselves are read from it, and for the local channel of a tree that builds it.
    """
    if settings.tree.has_recipes:
        if request.channels:
            return ()
        listed = (file for file in published_packages(open_channel(settings.channel)) if file.hidden is None)
        return (STACKS_PACKAGE,) if any(file.row.name == STACKS_PACKAGE for file in listed) else ()
    return (STACKS_PACKAGE,)


def install_specs_from(
    settings: Settings | None,
    specs: Sequence[str],
    prefix: Path,
    *,
    channels: Sequence[str],
    package_cache: Path,
    environ: Mapping[str, str],
    progress: Progress,
    virtual_packages: tuple[str, ...] = (),
    trust: Trust | None = None,
) -> EnvironmentResult:
    """Install what MatchSpecs ask for into ``prefix``, or update it there. With ``channels``, works without a tree.

    Without, the packages come from the local channel of ``settings`` and its foundation. ``trust`` is as in
    InstallRequest. Raises as create_environment does, and UsageError if nothing says which channels.
    """
    if not channels and settings is None:
        message = "no channel is given, and there is no tree of recipes here with a local channel"
        raise UsageError(message, hint="give --channel with an address or a folder, or --root with the tree")
    sources = tuple(channels) or install_channels(cast("Settings", settings), InstallRequest())
    return asyncio.run(
        create_environment(
            prefix,
            specs,
            sources,
            check=attestation_check(trust, sources, environ),
            package_cache=package_cache,
            subdir=current_platform(),
            progress=progress,
            virtual_packages=machine_virtual_packages(virtual_packages),
        )
    )


def install_lock(
    file: Path,
    prefix: Path,
    *,
    channels: Sequence[str],
    package_cache: Path,
    environ: Mapping[str, str],
    progress: Progress,
    virtual_packages: tuple[str, ...] = (),
    trust: Trust | None = None,
    choice: LockChoice = EVERYTHING,
) -> EnvironmentResult:
    """Give ``prefix`` exactly the packages of the lock ``file`` for this platform. Works without a tree of recipes.

    An environment.yml is solved. ``channels`` replace those of the file, unless empty. ``choice`` says which part of a
    lock is meant, by default that for this platform. ``trust`` is as in InstallRequest. Raises as read_pins,
    create_environment and create_locked_environment do, and UsageError if the lock is for other platforms.
    """
    here = current_platform()
    choice = choice if choice.platforms else replace(choice, platforms=(here,))
    found = read_pins(file, choice, note=progress.note, look_up=index_look_up(channels, environ))
    if isinstance(found, EnvironmentFile):
        _check_platform(file, platforms_of_file(found, choice)[0], here)
        note_unsolved(found, progress.note)
        return install_specs_from(
            None,
            found.specs,
            prefix,
            channels=tuple(channels) or found.required_channels(environ),
            package_cache=package_cache,
            environ=environ,
            progress=progress,
            virtual_packages=virtual_packages,
            trust=trust,
        )
    lock, chosen = found, found.platforms
    _check_platform(file, chosen[0].platform, here)
    sources = _sources(lock, channels)
    return asyncio.run(
        create_locked_environment(
            prefix,
            chosen[0],
            specs=lock.specs,
            sources=sources,
            check=attestation_check(trust, [*lock.channels, *sources.values()], environ),
            virtual_packages=machine_virtual_packages(virtual_packages),
            package_cache=package_cache,
            progress=progress,
        )
    )


def _check_platform(file: Path, platform: str, here: str) -> None:
    """Raise UsageError for packages of another platform than this machine's."""
    if platform != here:
        message = f"{file}: the packages are for {platform}, but this machine is {here}"
        raise UsageError(message, hint=f"leave --platform out, or lock for {here}")


def _sources(lock: Lock, channels: Sequence[str]) -> dict[str, str]:
    """The given address for each channel of the lock: the same except for credentials, else one for all."""
    given = [channel_address(channel) for channel in channels]
    plain = {without_credentials(address): address for address in given}
    locked = sorted({package.channel for platform in lock.platforms for package in platform.packages})
    if all(address in locked for address in plain):
        return plain
    if len(given) == 1:
        return dict.fromkeys(locked, given[0])
    channels = counted(len(given), "channel is", "channels are")
    message = f"{channels} given, but not all of them are channels of the lock ({', '.join(locked)})"
    hint = "give one channel that has all packages, or the lock's own channels with credentials"
    raise UsageError(message, hint=hint)


@dataclass(frozen=True, kw_only=True, slots=True)
class StackVariants:
    """The packages of a stack in every variant, and the Pythons and PyTorches that the foundation has now."""

    stack: Stack
    packages: tuple[RenderedPackage, ...]
    offered: Mapping[str, Sequence[str]]

    @property
    def default(self) -> Choice:
        """The Python and PyTorch of the default variant; empty if the stack depends on neither."""
        return next(iter(choices(default_variants(self.packages, self.offered))), ())

    def choose(self, request: InstallRequest) -> Choice:
        """The pair that a request means; empty if it leaves the choice to the solver, or the stack depends on neither.

        Raises UsageError if the stack does not support the pair.
        """
        asked = asked_versions(python=request.python, pytorch=request.pytorch)
        if not self.packages:
            return _asked_choice(asked)
        if not asked and request.channels:
            return ()
        return next(iter(choices(variants_for(self.packages, asked, self.offered))), ())

    def specs(self, request: InstallRequest) -> tuple[str, ...]:
        """The MatchSpecs that an environment of the request is solved for. Raises as choose."""
        return self.stack.install + specs_of(self.choose(request))

    def report_name(self, choice: Choice) -> str:
        """The name of the report of a validation."""
        others = () if choice in ((), self.default) else choice
        return "-".join([self.stack.name, *(f"{key}{label(value)}" for key, value in others)])


def variants_of(settings: Settings, stack_name: str | None) -> StackVariants:
    """The variants of a stack (None: the default one) on the local channel's foundation; none without recipes.

    Raises as load_tree.
    """
    loaded = load_tree(settings.tree, settings.environ)
    stack = find_stack(loaded, stack_name)
    if not settings.tree.has_recipes:
        return StackVariants(stack=stack, packages=(), offered={})
    kind = open_channel(settings.channel).foundation.kind if settings.channel.exists() else "registry"
    packages = expand_stacks(loaded, [stack], foundation_kind=kind, platform=current_platform())
    return StackVariants(stack=stack, packages=tuple(packages), offered=offered_versions(kind))


def _asked_choice(asked: Mapping[str, str]) -> Choice:
    """The values of versions like 3.13 and 3.13t, where no recipe says which there are; the solver finds out.

    Raises UsageError for anything else.
    """
    found = []
    for key, version in asked.items():
        match = _ASKED_VERSION.fullmatch(version)
        if match is None or (match[3] and key != "python"):
            raise UsageError(f"--{key} {version}: not a version", hint="give it as 3.13, or for Python also 3.13t")
        ending = f".* *_cp{match[1]}{match[2]}t" if match[3] else ".*"
        found.append((key, version.removesuffix("t") + (ending if key == "python" else "")))
    return tuple(found)


def specs_of(choice: Choice) -> tuple[str, ...]:
    """The MatchSpecs that pin an environment to a Python and a PyTorch."""
    return tuple(f"{key} {value}" if key == "python" else f"{key} {value}.*" for key, value in choice)


def built_requests(settings: Settings, stack_name: str | None) -> list[InstallRequest]:
    """A request for each Python and PyTorch for which the local channel has packages of the stack, newest first.

    One request without either if the stack depends on neither. Raises ChannelError if there is no local channel yet.
    """
    variants = variants_of(settings, stack_name)
    names = {package.name for package in variants.packages}
    built = [
        variant
        for file in published_packages(open_channel(settings.channel))
        if file.row.name in names and (variant := file.row.origin.variant) is not None
    ]
    requests = [
        InstallRequest(stack=variants.stack.name, python=label(python), pytorch=label(pytorch))
        for (_, pytorch), (_, python) in choices_of(built)
    ]
    return requests or [InstallRequest(stack=variants.stack.name)]
