# SPDX-License-Identifier: BSD-3-Clause
"""The registry foundation as a channel of its own: made, listed and verified."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from channel_tools.audit.foundation import verify_foundation
from channel_tools.channel import (
    Foundation,
    add_set,
    channel_writer,
    ensure_channel,
    open_channel,
    show_attestations,
)
from channel_tools.channel.state import CHANNEL_RECORD, read_listing
from channel_tools.conda.platforms import current_platform, machine_glibc
from channel_tools.foundation.build import build_foundation, check_versions, remove_superseded
from channel_tools.foundation.model import table_summary
from channel_tools.foundation.plan import flavour
from channel_tools.foundation.pypi import NoPytorchError
from channel_tools.foundation.record import RECORD_NAME, list_foundation, read_record, read_record_file
from channel_tools.foundation.table import load_table
from channel_tools.requests.foundation import FoundationRequest
from channel_tools.requests.names import BASES, FIRST_BASE
from channel_tools.system.errors import UsageError
from channel_tools.workflow.audit import admit_foundation
from channel_tools.workflow.bases import listed_base, own_base, recorded_pytorch, require_runs
from channel_tools.workflow.plan import expand_request, foundation_needs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from channel_tools.audit.model import Finding
    from channel_tools.channel import Channel, ChannelWriter
    from channel_tools.foundation.build import FoundationResult
    from channel_tools.foundation.model import PytorchSource
    from channel_tools.foundation.record import FoundationRow
    from channel_tools.requests.names import BaseName
    from channel_tools.requests.plan import PlanRequest
    from channel_tools.system.progress import Progress
    from channel_tools.system.settings import Settings
    from channel_tools.workflow.attest import Attester
    from channel_tools.workflow.plan import Expansion


def make_registry_foundation(
    settings: Settings, request: FoundationRequest, *, progress: Progress, attester: Attester | None = None
) -> FoundationResult:
    """Make or update the registry foundation in ``output/foundation`` and index it.

    With ``dry_run``, nothing is written. ``attester`` signs packages that have no attestation yet. Raises the errors of
    building it, FoundationError for a base that this machine does not run or that is not the folder's, and
    ChannelError while another run works on it.
    """
    subdir = current_platform()
    glibc = machine_glibc()
    base = request.base or own_base(settings, glibc=glibc)
    require_runs(base, glibc=glibc)
    wanted = Foundation().on(base)
    if not BASES[base].is_supported and not request.dry_run:
        progress.note(f"base {wanted.base_in_words}: for machines that run no later one")
    if (settings.foundation / CHANNEL_RECORD).is_file():
        open_channel(settings.foundation, foundation=wanted)
    first, *others = _pytorch_sources(settings, request, base)
    channel = None if request.dry_run else ensure_channel(settings.foundation, wanted, subdirs=(subdir,))

    def build(pytorch: PytorchSource) -> FoundationResult:
        return build_foundation(
            load_table(base=base, subdir=subdir, pytorch=pytorch),
            request,
            destination=settings.foundation,
            downloads=settings.downloads,
            subdir=subdir,
            progress=progress,
            pytorch_index=settings.pytorch_index,
        )

    try:
        result = build(first)
    except NoPytorchError as err:
        if not others:
            raise
        version = table_summary(base, subdir).debian_pytorch
        progress.note(f"{err.message}: PyTorch {version} of {base} itself is taken")
        result = build(others[0])
    if channel is not None:
        index_foundation(settings, channel, result, attester)
    return result


def check_registry_versions(settings: Settings, request: FoundationRequest, *, progress: Progress) -> None:
    """Raise what make_registry_foundation raises for a version that nobody offers, as a PyTorch for the CPU."""
    base, subdir = request.base or own_base(settings, glibc=machine_glibc()), current_platform()
    first, *others = _pytorch_sources(settings, request, base)
    try:
        check_versions(
            load_table(base=base, subdir=subdir, pytorch=first),
            request,
            destination=settings.foundation,
            downloads=settings.downloads,
            subdir=subdir,
            progress=progress,
            pytorch_index=settings.pytorch_index,
        )
    except NoPytorchError:
        if not others:
            raise


def _pytorch_sources(settings: Settings, request: FoundationRequest, base: BaseName) -> Sequence[PytorchSource]:
    """Where PyTorch is looked for, the first before the second: a wheel for the CPU, then the release's own.

    What a foundation has it keeps until an update. Wheels alone have other versions, and CUDA. Raises UsageError where
    CUDA is asked for with Debian's version.
    """
    if request.locked is not None:
        return [read_record_file(request.locked).pytorch_source]
    recorded = recorded_pytorch(settings, base)
    if recorded is not None and not request.update:
        return [recorded]
    summary = table_summary(base, current_platform())
    if request.debian_pytorch and request.cuda:
        message = f"CUDA is asked for, but PyTorch {summary.debian_pytorch} of {base} itself is for the CPU"
        raise UsageError(message, hint="leave out --pytorch, or give a version that has wheels")
    if request.debian_pytorch:
        return ["debian"]
    asked = request.asked.intersection(combination.name for combination in summary.combinations)
    return ["wheel"] if summary.debian_pytorch is None or request.cuda or asked else ["wheel", "debian"]


def index_foundation(
    settings: Settings, channel: Channel, result: FoundationResult, attester: Attester | None = None
) -> None:
    """Have the foundation's index list the packages of its record alone, and delete those that ``result`` removes.

    What an earlier run of other code or versions left, and no index lists, goes first: the index lists every package
    that it finds. Raises ChannelError while another run works on it, and the errors of signing.
    """
    with channel_writer(channel) as writer:
        remove_superseded(settings.foundation, result, listed=read_listing(channel).foundation)
        signed = [] if attester is None else attester.sign_foundation(settings.foundation)
        files = foundation_packages(settings)
        add_set(writer, (), [*files.made, *files.supplied])
        if signed:
            show_attestations(writer, signed)
        remove_superseded(settings.foundation, result)


def with_needs(settings: Settings, request: FoundationRequest, expansion: Expansion) -> FoundationRequest:
    """The request for what the recipes and environments of an expanded request need, beside what it asks for itself."""
    combinations = {combination.name for combination in expansion.combinations}
    asked = request.asked | expansion.optional_packages | combinations
    is_new = not (settings.foundation / RECORD_NAME).is_file()  # what has a PyTorch for the CPU keeps it
    cuda = request.cuda or (is_new and expansion.wants_cuda)
    needed, base = foundation_needs(settings, expansion), expansion.foundation.release
    return replace(
        request, base=base, needed=needed, asked=asked, cuda=cuda, debian_pytorch=expansion.asks_for_debian_pytorch
    )


def has_pytorch_for_cpu(settings: Settings) -> bool:
    """Whether the tree has a registry foundation, whose PyTorch is for the CPU."""
    if not (settings.foundation / RECORD_NAME).is_file():
        return False
    taken = read_record(settings.foundation).pytorch
    return taken is not None and (taken.kind == "deb" or not flavour(taken).startswith("cuda"))


def how_to_get_cuda(stack: str | None) -> str:
    """The command that gives a foundation PyTorch with CUDA, for this stack."""
    named = "" if stack is None else f" --variant {stack}"
    return f"channel_tools build{named} --cuda --update"


def is_up_to_date(settings: Settings, request: FoundationRequest, expansion: Expansion, *, progress: Progress) -> bool:
    """Whether the registry foundation has what an expanded request needs; False if it can be made from downloads.

    Raises the errors of building it.
    """
    dry = replace(with_needs(settings, request, expansion), jobs=1, dry_run=True)
    packages_made = make_registry_foundation(settings, dry, progress=progress).made
    return not packages_made and settings.foundation.exists()


def make_needed_foundation(settings: Settings, request: PlanRequest, *, progress: Progress) -> None:
    """Make the registry foundation for a plan, as a build would, but for other Pythons, which only builds make.

    Raises the errors of expand_request and of make_registry_foundation.
    """
    expansion = expand_request(settings, request)
    own = expansion.table.default.python
    others = {combination.name for combination in expansion.combinations if combination.python != own}
    wanted = with_needs(settings, FoundationRequest(), expansion)
    make_registry_foundation(settings, replace(wanted, asked=wanted.asked - others), progress=progress)


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundationFiles:
    """The package files of a foundation: those that it made, and those that recipes built for it."""

    made: tuple[Path, ...]
    supplied: tuple[Path, ...]


def foundation_packages(settings: Settings) -> FoundationFiles:
    """The package files that the foundation's record names. Raises FoundationError if there is none yet."""
    packages = read_record(settings.foundation).packages
    return FoundationFiles(
        made=tuple(item.key.path_in(settings.foundation) for item in packages if not item.is_given),
        supplied=tuple(item.key.path_in(settings.foundation) for item in packages if item.is_given),
    )


def link_foundation(settings: Settings, writer: ChannelWriter, *, jobs: int, progress: Progress) -> None:
    """Have the local channel list the foundation's packages, which are audited first. Raises as admit_foundation."""
    files = foundation_packages(settings)
    rows = admit_foundation(settings, writer.channel, [*files.made, *files.supplied], jobs=jobs, progress=progress)
    add_set(writer, files.supplied, files.made, trusted=rows)


def foundation_rows(settings: Settings | None) -> list[FoundationRow]:
    """The table's packages and what was made for each, if a foundation was made already; None: without a tree."""
    is_made = settings is not None and (settings.foundation / RECORD_NAME).is_file()
    base = FIRST_BASE if settings is None else listed_base(settings)
    record = read_record(settings.foundation) if settings is not None and is_made else None
    pytorch = "wheel" if settings is None else recorded_pytorch(settings, base) or "wheel"
    return list_foundation(load_table(base=base, subdir=current_platform(), pytorch=pytorch), record)


def verify_registry_foundation(
    settings: Settings, *, jobs: int | None, progress: Progress
) -> tuple[int, list[Finding]]:
    """The number of packages in the foundation, and all findings. Raises FoundationError if there are no packages."""
    packages = len(read_record(settings.foundation).packages)
    return packages, verify_foundation(
        settings.foundation,
        progress=progress,
        jobs=jobs,
        build_folders=[settings.tree.root],
        glibc=open_channel(settings.foundation).foundation.glibc,
    )
