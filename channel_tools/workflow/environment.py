# SPDX-License-Identifier: BSD-3-Clause
"""Environments: a stack, MatchSpecs or a lock installed from channels."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from channel_tools.build.schedule import channels_of
from channel_tools.channel import Foundation, open_channel, published_packages
from channel_tools.conda.addresses import channel_address, without_credentials
from channel_tools.conda.clients import make_client
from channel_tools.conda.platforms import current_platform
from channel_tools.conda.solving import make_gateway
from channel_tools.environments import (
    check_modulefile,
    create_environment,
    create_locked_environment,
    environment_channels,
    extend_environment,
    installed_builds,
    installed_lock,
    missing_specs,
    reduce_environment,
    write_modulefile,
)
from channel_tools.environments.stacks import channels_of_stacks
from channel_tools.matrix import expand_stacks, find_stack, load_tree
from channel_tools.matrix.choice import choices, choices_of, default_variants, label, variants_for
from channel_tools.pins.environment_file import EnvironmentFile
from channel_tools.pins.explicit import render_requested
from channel_tools.pins.files import CONDA_LOCK, FORMATS, pin_files, read_pins
from channel_tools.pins.pip_constraints import EXCLUDES_PYTORCH
from channel_tools.pins.resolve import index_look_up, note_unsolved, platforms_of_file
from channel_tools.pins.solve import query_records
from channel_tools.pins.virtual import machine_virtual_packages
from channel_tools.provenance.verify import attestation_check
from channel_tools.requests.environment import InstallRequest
from channel_tools.requests.names import FormatName
from channel_tools.system.counting import counted
from channel_tools.system.errors import SolveError, UsageError
from channel_tools.system.settings import STACKS_PACKAGE, find_cache, package_cache_in
from channel_tools.workflow.plan import asked_versions, offered_versions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import rattler

    from channel_tools.environments import EnvironmentResult, PackageChanges
    from channel_tools.environments.transaction import Announce
    from channel_tools.matrix.choice import Choice
    from channel_tools.matrix.model import RenderedPackage, Stack
    from channel_tools.pins import Lock, PlatformLock
    from channel_tools.pins.choice import LockChoice
    from channel_tools.provenance.trust import Trust
    from channel_tools.requests.environment import (
        AddRequest,
        EnvironmentRequest,
        ExportRequest,
        RemoveRequest,
        UpdateRequest,
    )
    from channel_tools.system.progress import Progress
    from channel_tools.system.settings import Settings


_OF_CUDA = re.compile(r"No candidates were found for (?:pytorch \S* ?cuda|nccl\b|cuda-|nvidia-)")
_BESIDE_PYTHON = ("pip",)
"""As conda does it: another environment's pip on the PATH would install into that one."""
_ASKED_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.\d+)*(t?)")


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


def install(
    settings: Settings | None,
    request: EnvironmentRequest,
    *,
    environ: Mapping[str, str],
    progress: Progress,
    trust: Trust | None = None,
    announce: Announce | None = None,
) -> EnvironmentResult:
    """Install what the request says into its prefix, and write its module files.

    With a stack comes the channel's record of its stacks, so that the environment says by itself how it is run.

    A stack needs ``settings``; so do MatchSpecs without channels, which come from the local channel and its foundation.
    ``trust`` says who must have signed every package, None if nobody. ``announce`` gets the change of an environment
    that is replaced. Raises as create_environment, create_locked_environment, read_pins and check_modulefile do, and
    UsageError for a Python or PyTorch that the stack does not support, a lock for other platforms, and if nothing says
    which channels.
    """
    for file in request.modulefiles:
        check_modulefile(file)
    installation = _Installation(
        prefix=request.prefix,
        virtual_packages=machine_virtual_packages(request.virtual_packages),
        trust=trust,
        environ=environ,
        progress=progress,
        replace=(announce or (lambda _change: True)) if request.replace else None,
    )
    if request.lock is not None:
        result = _install_lock(request.lock, request.choice, request.install.channels, installation)
    else:
        try:
            result = installation.solved(*_specs_and_channels(settings, request))
        except SolveError as err:
            raise naming_cuda(err, settings, request.install) from err
    for file in request.modulefiles:
        packages = counted(len(result.records), "package")
        about = f"{result.prefix.name}: a conda environment of {packages} at {result.prefix}"
        write_modulefile(file, result.prefix, about=about, environ=environ)
    return result


def naming_cuda(err: SolveError, settings: Settings | None, request: InstallRequest) -> SolveError:
    """The error; where the local foundation lacks what comes with CUDA's PyTorch, with how it gets that."""
    if settings is None or request.channels or not _OF_CUDA.search(err.message):
        return err
    from channel_tools.workflow.foundation import has_pytorch_for_cpu, how_to_get_cuda  # noqa: PLC0415 - makes packages

    if not has_pytorch_for_cpu(settings):
        return err
    hint = f"this foundation has PyTorch for the CPU; 2.7 GB bring that with CUDA: {how_to_get_cuda(request.stack)}"
    return SolveError(err.message, hint=hint)


def add(
    settings: Settings | None,
    request: AddRequest,
    *,
    environ: Mapping[str, str],
    progress: Progress,
    trust: Trust | None = None,
    announce: Announce | None = None,
) -> EnvironmentResult:
    """Add what the request says to its environment; ``settings`` are for a stack, the rest is as for update.

    A stack does not choose a Python and a PyTorch, unless the request does: those of the environment stay if they can.
    """
    specs, channels = request.specs, request.channels
    if not specs:
        if settings is None:
            raise ValueError("a stack without settings")
        variants, install_request = variants_of(settings, request.stack), request.install
        is_chosen = request.python is not None or request.pytorch is not None
        choice = variants.choose(install_request) if is_chosen else ()
        specs = variants.specs_for(choice) + stacks_specs(settings, install_request)
        channels = install_channels(settings, install_request)
    return _extended(
        request,
        specs,
        channels,
        reinstall=request.force_reinstall,
        environ=environ,
        progress=progress,
        trust=trust,
        announce=announce,
    )


def update(
    request: UpdateRequest,
    *,
    environ: Mapping[str, str],
    progress: Progress,
    trust: Trust | None = None,
    announce: Announce | None = None,
) -> EnvironmentResult:
    """Bring an environment to the newest packages that what it was asked for allows.

    ``announce`` gets the change first; with ``request.dry_run``, nothing else is done. Raises as extend_environment.
    """
    return _extended(request, (), request.channels, environ=environ, progress=progress, trust=trust, announce=announce)


def remove(
    request: RemoveRequest, *, environ: Mapping[str, str], progress: Progress, announce: Announce | None = None
) -> EnvironmentResult:
    """Remove packages, and what depends on them, from an environment.

    ``announce`` gets the change first; with ``request.dry_run``, nothing else is done. Raises as reduce_environment.
    """

    def agree(change: PackageChanges) -> bool:
        return (announce is None or announce(change)) and not request.dry_run

    return asyncio.run(
        reduce_environment(
            request.prefix,
            request.specs,
            package_cache=package_cache_in(find_cache(environ)),
            subdir=current_platform(),
            progress=progress,
            announce=agree,
        )
    )


def export(request: ExportRequest) -> dict[str, str]:
    """What pins an installed environment, as file names and contents: one without a folder.

    Raises as installed_lock.
    """
    lock = installed_lock(request.prefix, machine_virtual_packages())
    if request.from_history:
        return {"environment.yml": render_requested(lock)}
    named = [name for name in FORMATS if name in request.formats]
    if request.folder is not None:
        return pin_files(lock, named if named and FormatName.ALL not in request.formats else FORMATS)
    (kind,) = named or ["environment"]
    files = pin_files(lock, [kind])
    return {name: text for name, text in files.items() if kind == "conda-lock" or name != CONDA_LOCK}


def _extended(
    request: UpdateRequest,
    specs: tuple[str, ...],
    channels: tuple[str, ...],
    *,
    reinstall: bool = False,
    environ: Mapping[str, str],
    progress: Progress,
    trust: Trust | None,
    announce: Announce | None,
) -> EnvironmentResult:
    def agree(change: PackageChanges) -> bool:
        return (announce is None or announce(change)) and not request.dry_run

    check = None
    if trust is not None:
        check = attestation_check(trust, channels or environment_channels(request.prefix), environ)
    return asyncio.run(
        extend_environment(
            request.prefix,
            specs,
            channels,
            newest=not specs,
            reinstall=reinstall,
            check=check,
            package_cache=package_cache_in(find_cache(environ)),
            subdir=current_platform(),
            progress=progress,
            virtual_packages=machine_virtual_packages(request.virtual_packages),
            announce=agree,
        )
    )


def _specs_and_channels(
    settings: Settings | None, request: EnvironmentRequest
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What an environment without a lock is solved for, and from which channels."""
    if request.specs and request.install.channels:
        return request.specs, request.install.channels
    if settings is None:
        message = "no channel is given, and there is no tree of recipes here with a local channel"
        raise UsageError(message, hint="give --channel with an address or a folder, or --root with the tree")
    channels = install_channels(settings, request.install)
    if request.specs:
        return request.specs, channels
    return install_specs(settings, request.install) + stacks_specs(settings, request.install), channels


def stacks_specs(settings: Settings, request: InstallRequest) -> tuple[str, ...]:
    """The package that says what the stacks are, where a channel of the request (install_channels) has it.

    Channels from which the stacks themselves were read have it. Raises as query_records for one that cannot be read.
    """
    if not request.channels and settings.channel.exists():
        listed = (file for file in published_packages(open_channel(settings.channel)) if file.hidden is None)
        return (STACKS_PACKAGE,) if any(file.row.name == STACKS_PACKAGE for file in listed) else ()
    if not settings.tree.has_recipes:
        return (STACKS_PACKAGE,)
    addresses, client = make_client([channel_address(channel) for channel in request.channels])
    gateway = make_gateway(package_cache_in(find_cache(settings.environ)), client)
    groups = asyncio.run(query_records(gateway, addresses, [current_platform()], [STACKS_PACKAGE]))
    return (STACKS_PACKAGE,) if any(groups) else ()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Installation:
    """An installation into ``prefix``, on a machine with these virtual packages."""

    prefix: Path
    virtual_packages: Sequence[rattler.GenericVirtualPackage]
    trust: Trust | None
    environ: Mapping[str, str]
    progress: Progress
    replace: Announce | None

    def solved(self, specs: Sequence[str], channels: Sequence[str]) -> EnvironmentResult:
        """Install what the specs are solved to now."""
        return asyncio.run(
            create_environment(
                self.prefix,
                specs,
                channels,
                check=attestation_check(self.trust, channels, self.environ),
                package_cache=package_cache_in(find_cache(self.environ)),
                subdir=current_platform(),
                progress=self.progress,
                virtual_packages=self.virtual_packages,
                replace=self.replace,
                beside_python=_BESIDE_PYTHON,
            )
        )

    def locked(self, lock: Lock, platform: PlatformLock, sources: Mapping[str, str]) -> EnvironmentResult:
        """Install exactly the packages of a lock, each from the address in ``sources`` for its channel."""
        return asyncio.run(
            create_locked_environment(
                self.prefix,
                platform,
                specs=lock.specs,
                sources=sources,
                check=attestation_check(self.trust, [*lock.channels, *sources.values()], self.environ),
                look_up=index_look_up((), self.environ),
                virtual_packages=self.virtual_packages,
                package_cache=package_cache_in(find_cache(self.environ)),
                progress=self.progress,
                replace=self.replace,
            )
        )


def _install_lock(
    file: Path, choice: LockChoice, channels: Sequence[str], installation: _Installation
) -> EnvironmentResult:
    """Install exactly the packages of the lock ``file`` for this platform, or what an environment.yml is solved to.

    ``choice`` is the part of it that is meant; ``channels`` are where its packages are instead of its own channels.
    """
    note, own_platform = installation.progress.note, current_platform()
    choice = choice if choice.platforms else replace(choice, platforms=(own_platform,))
    pins = read_pins(file, choice, note=note, look_up=index_look_up(channels, installation.environ))
    if isinstance(pins, EnvironmentFile):
        _check_platform(file, platforms_of_file(pins, choice)[0], own_platform)
        note_unsolved(pins, note)
        return installation.solved(pins.specs, channels or pins.required_channels(installation.environ))
    platform = pins.platforms[0]
    _check_platform(file, platform.platform, own_platform)
    return installation.locked(pins, platform, _sources(pins, channels))


def _check_platform(file: Path, platform: str, own_platform: str) -> None:
    """Raise UsageError for packages of another platform than this machine's."""
    if platform != own_platform:
        message = f"{file}: the packages are for {platform}, but this machine is {own_platform}"
        raise UsageError(message, hint=f"leave --platform out, or lock for {own_platform}")


def _sources(lock: Lock, channels: Sequence[str]) -> dict[str, str]:
    """The given address for each channel of the lock: the same except for credentials, else one for all."""
    addresses = [channel_address(channel) for channel in channels]
    plain = {without_credentials(address): address for address in addresses}
    locked = sorted({package.channel for platform in lock.platforms for package in platform.packages})
    if all(address in locked for address in plain):
        return plain
    if len(addresses) == 1:
        return dict.fromkeys(locked, addresses[0])
    channels = counted(len(addresses), "channel is", "channels are")
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

    def chosen_in(self, prefix: Path | None, request: InstallRequest) -> Choice:
        """As choose, but if the request leaves it open, the pair of the variant that the environment ``prefix`` has."""
        if prefix is not None and request.python is None and request.pytorch is None:
            installed = installed_builds(prefix)
            for choice in choices(self.packages):
                if not missing_specs(self.specs_for(choice), installed):
                    return choice
        return self.choose(request)

    def specs(self, request: InstallRequest) -> tuple[str, ...]:
        """The MatchSpecs that an environment of the request is solved for. Raises as choose."""
        return self.specs_for(self.choose(request))

    def specs_for(self, choice: Choice) -> tuple[str, ...]:
        """As specs, for a pair that was chosen."""
        pytorch = self._pytorch_package(choice)
        return self.stack.install + tuple(
            f"{key} {value}" if key == "python" else f"{pytorch} {value}.*" for key, value in choice
        )

    def _pytorch_package(self, choice: Choice) -> str:
        """The package that has PyTorch's files: ``pytorch``, or one of the stack's own that cannot be beside it."""
        version = dict(choice).get("pytorch")
        for package in self.packages:
            requirements = package.recipe.get("requirements")
            constraints = requirements.get("run_constraints") if isinstance(requirements, dict) else None
            if package.version == version and isinstance(constraints, list) and EXCLUDES_PYTORCH in constraints:
                return package.name
        return "pytorch"

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
    foundation = open_channel(settings.channel).foundation if settings.channel.exists() else Foundation()
    packages = expand_stacks(
        loaded, [stack], foundation_kind=foundation.kind, base=foundation.base, platform=current_platform()
    )
    return StackVariants(stack=stack, packages=tuple(packages), offered=offered_versions(settings, foundation))


def _asked_choice(asked: Mapping[str, str]) -> Choice:
    """The values of versions like 3.13 and 3.13t, where no recipe says which there are; the solver finds out.

    Raises UsageError for anything else.
    """
    versions = []
    for key, version in asked.items():
        match = _ASKED_VERSION.fullmatch(version)
        if match is None or (match[3] and key != "python"):
            raise UsageError(f"--{key} {version}: not a version", hint="give it as 3.13, or for Python also 3.13t")
        ending = f".* *_cp{match[1]}{match[2]}t" if match[3] else ".*"
        versions.append((key, version.removesuffix("t") + (ending if key == "python" else "")))
    return tuple(versions)


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
