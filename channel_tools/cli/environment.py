# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools env``: installs environments from the channel, and all that is done with them later."""

from __future__ import annotations

import contextlib
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from channel_tools.cli import options
from channel_tools.cli.console import (
    confirmed,
    handled,
    is_terminal,
    print_json,
    print_line,
    print_note,
    print_table,
    write_result,
)
from channel_tools.cli.progress import shown_progress
from channel_tools.requests.environment import (
    AddRequest,
    EnvironmentRequest,
    ExportRequest,
    ImageRequest,
    RemoveRequest,
    UpdateRequest,
)
from channel_tools.system.counting import counted
from channel_tools.system.errors import ChannelError, UsageError
from channel_tools.system.settings import available_cores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from channel_tools.environments import EnvironmentResult, PackageChanges
    from channel_tools.environments.transaction import Announce
    from channel_tools.provenance.trust import Trust
    from channel_tools.system.settings import Settings

_SHOWN = 5

app = typer.Typer(no_args_is_help=True, help="Environments installed from the channel.")


@app.command("create")
@handled
@options.asks(EnvironmentRequest)
def create(
    request: EnvironmentRequest,
    *,
    root: options.Root = None,
    output: options.Output = None,
    as_json: options.Json = False,
) -> None:
    """Install a stack, MatchSpecs or a lock into PREFIX; an environment that has all of it already stays as it is."""
    from channel_tools.workflow.attest import trust_of
    from channel_tools.workflow.environment import install

    trust = None
    if request.require_attestation:
        trust = trust_of(options.settings_if_any(root, output), request.trust)

    def create_with(announce: Announce | None) -> EnvironmentResult:
        with shown_progress() as progress, _settings_for(request, root, output, trust) as settings:
            return install(settings, request, environ=os.environ, trust=trust, progress=progress, announce=announce)

    announce = None
    if request.replace:
        planned = None if request.yes else create_with(_refused)
        if planned is not None and planned.change.takes_away:
            _announced(planned.change)
            _ask(f"Replace {request.prefix}?", f"{request.prefix}: not replaced", default=False)
        announce = _announced if planned is None else _as_shown(planned)
    _show(create_with(announce), as_json=as_json, dry_run=False)


def _changed(
    change_with: Callable[[Announce | None], EnvironmentResult], request: UpdateRequest | RemoveRequest
) -> EnvironmentResult:
    """Change an environment as the request says: say what comes and goes, ask on a terminal, do it.

    A dry run's result says what would change, so that nothing is said before. Raises UsageError for a no.
    """
    if request.dry_run:
        return change_with(None)
    if request.yes or not is_terminal():
        return change_with(_announced)
    planned = change_with(_refused)
    if planned.change.is_empty:
        # there may be something to complete or to record
        return change_with(_announced)
    _announced(planned.change)
    _ask(f"Change {request.prefix}?", f"{request.prefix}: not changed", default=True)
    return change_with(_as_shown(planned))


def _ask(question: str, refusal: str, *, default: bool) -> None:
    if not confirmed(question, default=default):
        message = f"{refusal}, since nobody said yes; nothing was changed"
        raise UsageError(message, hint="answer y on a terminal, or give --yes")


def _refused(_change: PackageChanges) -> bool:
    return False


def _as_shown(planned: EnvironmentResult) -> Announce:
    """What lets only that change be done which was shown, and says no more."""

    def announce(change: PackageChanges) -> bool:
        if change != planned.change:
            message = f"{planned.prefix}: other packages would come and go than those that were shown"
            raise ChannelError(message, hint="run the same command again")
        return True

    return announce


def _announced(change: PackageChanges) -> bool:
    """Say what comes and goes, before it does."""
    for line in _lines(change):
        print_note(line)
    return True


def _lines(change: PackageChanges) -> Iterator[str]:
    for package in change.removed:
        yield f"- {package.name} {package.version} {package.build}"
    for before, after in change.replaced:
        yield f"  {before.name} {before.version} {before.build} -> {after.version} {after.build}"
    for package in change.added:
        yield f"+ {package.name} {package.version} {package.build}"


def _show(result: EnvironmentResult, *, as_json: bool, dry_run: bool) -> None:
    """Print a result, also to those who asked for quiet; after a dry run, what would come and go, too."""
    change = result.change
    if as_json:
        packages = [asdict(record) for record in result.records]
        document = {"schema": 1, "prefix": str(result.prefix), "changed": result.changed, "packages": packages}
        changes = {
            "added": [asdict(package) for package in change.added],
            "removed": [asdict(package) for package in change.removed],
            "replaced": [{"before": asdict(before), "after": asdict(after)} for before, after in change.replaced],
        }
        print_json({**document, "dry_run": dry_run, **changes, "left_out": list(result.left_out)})
        return
    if dry_run:
        for line in _lines(change):
            print_line(line)
        changed = len(change.added) + len(change.removed) + len(change.replaced)
        summary = f"{counted(changed, 'package')} would change" if changed else "nothing to do"
        print_line(f"{result.prefix}: {counted(len(result.records), 'package')}; {summary}")
        return
    summary = f"{counted(result.changed, 'package')} changed" if result.changed else "nothing to do"
    print_line(
        f"{result.prefix}: {counted(len(result.records), 'package')}, {result.size_bytes / 1e6:.0f} MB; "
        f"{summary} ({result.seconds:.1f} s)"
    )
    if lost := result.left_out:
        listed = ", ".join(lost[:_SHOWN]) + (f" and {len(lost) - _SHOWN} more" if len(lost) > _SHOWN else "")
        words = "packages have files of the same name; only one of each was installed, left out"
        print_line(f"{result.prefix}: {words}: {listed}")


@app.command("add")
@handled
@options.asks(AddRequest)
def add(
    request: AddRequest,
    *,
    root: options.Root = None,
    output: options.Output = None,
    as_json: options.Json = False,
) -> None:
    """Add MatchSpecs or a stack to an environment, whoever made it; what it was asked for before stays."""
    from channel_tools.workflow import environment
    from channel_tools.workflow.attest import trust_of

    trust = trust_of(options.settings_if_any(root, output), request.trust) if request.require_attestation else None
    with contextlib.ExitStack() as stack:
        settings = None
        if not request.specs:
            settings = stack.enter_context(
                options.settings_for_stacks(root, output, channels=request.channels, prefix=request.prefix, trust=trust)
            )

        def add_with(announce: Announce | None) -> EnvironmentResult:
            with shown_progress() as progress:
                return environment.add(
                    settings, request, environ=os.environ, progress=progress, trust=trust, announce=announce
                )

        result = _changed(add_with, request)
    _show(result, as_json=as_json, dry_run=request.dry_run)


@app.command("update")
@handled
@options.asks(UpdateRequest)
def update(
    request: UpdateRequest,
    *,
    root: options.Root = None,
    output: options.Output = None,
    as_json: options.Json = False,
) -> None:
    """Bring an environment, whoever made it, to the newest packages that what it was asked for allows."""
    from channel_tools.workflow import environment
    from channel_tools.workflow.attest import trust_of

    trust = trust_of(options.settings_if_any(root, output), request.trust) if request.require_attestation else None

    def update_with(announce: Announce | None) -> EnvironmentResult:
        with shown_progress() as progress:
            return environment.update(request, environ=os.environ, progress=progress, trust=trust, announce=announce)

    _show(_changed(update_with, request), as_json=as_json, dry_run=request.dry_run)


@app.command("remove")
@handled
@options.asks(RemoveRequest)
def remove(request: RemoveRequest, *, as_json: options.Json = False) -> None:
    """Remove packages from an environment, whoever made it: with what depends on them, and what only these needed."""
    from channel_tools.workflow import environment

    def remove_with(announce: Announce | None) -> EnvironmentResult:
        with shown_progress() as progress:
            return environment.remove(request, environ=os.environ, progress=progress, announce=announce)

    _show(_changed(remove_with, request), as_json=as_json, dry_run=request.dry_run)


@app.command("list")
@handled
def list_packages(
    prefix: Annotated[Path, typer.Argument(help="The environment.")], *, as_json: options.Json = False
) -> None:
    """List an environment's packages, whoever installed them, pip's among them, and what was asked for."""
    from channel_tools.environments import listed_environment

    listed = listed_environment(prefix)
    if as_json:
        document = {"schema": 1, "prefix": str(listed.prefix), "packages": [asdict(row) for row in listed.packages]}
        print_json(document | {"requested": {name: list(specs) for name, specs in listed.requested.items()}})
        return
    rows = [
        (row.name, row.version, row.build, row.channel, ", ".join(listed.requested.get(row.name, ())))
        for row in listed.packages
    ]
    print_table(("package", "version", "build", "channel", "asked for"), rows)


@app.command("export")
@handled
@options.asks(ExportRequest)
def export(request: ExportRequest) -> None:
    """Write what is installed as environment.yml, explicit list, conda-lock.yml, pixi files or constraints for pip."""
    from channel_tools.pins.files import write_pin_files
    from channel_tools.workflow.environment import export as export_files

    files = export_files(request)
    if request.folder is None:
        write_result("".join(files.values()), None)
        return
    write_pin_files(request.folder, files)
    print_line(f"{request.folder}: wrote: {', '.join(files)}")


@contextlib.contextmanager
def _settings_for(
    request: EnvironmentRequest, root: Path | None, output: Path | None, trust: Trust | None
) -> Iterator[Settings | None]:
    """The locations of the command, while the block runs: a lock needs none, MatchSpecs with channels no tree."""
    if request.needs_stacks:
        with options.settings_for_stacks(root, output, channels=request.install.channels, trust=trust) as settings:
            yield settings
    else:
        yield options.settings_if_any(root, output) if request.specs else None


@app.command("activate")
@handled
def activate(prefix: Annotated[Path, typer.Argument(help="The environment.")]) -> None:
    """Print the lines by which bash or zsh activates an environment: eval "$(channel_tools env activate PREFIX)"."""
    from channel_tools.environments import activation_script

    write_result(activation_script(prefix, environ=os.environ), None)


@app.command("image")
@handled
@options.asks(ImageRequest)
def image(request: ImageRequest, *, root: options.Root = None, output: options.Output = None) -> None:
    """Write an environment, or a stack, as one SquashFS image, which is mounted at the folder of --at."""
    from channel_tools.workflow.images import make_environment_image

    with contextlib.ExitStack() as stack:
        settings = None
        if request.prefix is None:
            channels = request.install.channels
            settings = stack.enter_context(options.settings_for_stacks(root, output, channels=channels))
        progress = stack.enter_context(shown_progress())
        made = make_environment_image(settings, request, environ=os.environ, progress=progress)
    print_line(f"{made.file}: {made.size_bytes / 1e6:.0f} MB, sha256 {made.sha256}; mount it at {made.at}")


@app.command("pack")
@handled
def pack(
    prefix: Annotated[Path, typer.Argument(help="The environment.")],
    *,
    archive: Annotated[Path, typer.Option("-o", help="The file to write: .tar.gz, .tar.zst, .tar.bz2, .tar or .zip.")],
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
) -> None:
    """Write an environment as one file, which is unpacked anywhere, without conda and without a network."""
    from channel_tools.environments import check_archive, pack_environment

    check_archive(archive, replace=force)
    with shown_progress() as progress, progress.task(f"pack {prefix.name}", total=None):
        size_bytes = pack_environment(prefix, archive, threads=available_cores())
    print_line(f"{archive}: {size_bytes / 1e6:.0f} MB; unpack it into an empty folder, and run bin/conda-unpack there")
