# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools env``: installs environments from the channel."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from channel_tools.cli import options
from channel_tools.cli.console import handled, print_json, print_line, shown_progress
from channel_tools.system.counting import counted
from channel_tools.system.settings import available_cores

app = typer.Typer(no_args_is_help=True, help="Environments installed from the channel.")

_Lock = Annotated[
    Path | None,
    typer.Option(
        "--lock",
        help="Install exactly the packages of this conda-lock.yml, explicit list or pixi.lock, or what the specs of "
        "this environment.yml are solved to; --channel then replaces its channels.",
        show_default=False,
    ),
]
_Platform = Annotated[
    str | None,
    typer.Option("--platform", help="The platform of the lock, by a pixi.lock's own name.", show_default="this one's"),
]


@app.command("create")
@handled
@options.grouped(options.TrustOptions)
def create(
    trusted: options.TrustOptions,
    prefix: Annotated[Path, typer.Argument(help="The folder of the new environment, or of one to update.")],
    *,
    specs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SPEC]...", help="Install what these MatchSpecs ask for, instead of a stack."),
    ] = None,
    stack: options.Stack = None,
    python: options.Python = None,
    pytorch: options.Pytorch = None,
    lock: _Lock = None,
    platform: _Platform = None,
    categories: options.Categories = None,
    environment: options.LockEnvironment = None,
    channels: options.Channels = None,
    virtual_packages: options.VirtualPackages = None,
    require_attestation: Annotated[
        bool,
        typer.Option("--require-attestation", help="Install only packages signed by a trusted key or identity."),
    ] = False,
    modulefiles: Annotated[
        list[Path] | None,
        typer.Option(
            "--modulefile",
            metavar="FILE",
            help="Also write a module file: for Lmod (FILE.lua), else in Tcl; may be repeated.",
            show_default=False,
        ),
    ] = None,
    root: options.Root = None,
    output: options.Output = None,
    as_json: options.Json = False,
) -> None:
    """Install a stack, MatchSpecs or a lock into PREFIX, or update an environment that this command created there."""
    from channel_tools.environments import check_modulefile, write_modulefile
    from channel_tools.pins.choice import lock_choice
    from channel_tools.system.errors import UsageError
    from channel_tools.workflow.environment import InstallRequest, install_lock, install_specs_from, install_stack

    chosen = stack is not None or python is not None or pytorch is not None
    if specs and (chosen or lock is not None):
        message = "MatchSpecs with --variant, --python, --pytorch or --lock: only one of these says what to install"
        raise UsageError(message, hint="name Python and PyTorch among the MatchSpecs: 'python 3.13.*'")
    if platform is not None and lock is None:
        raise UsageError("--platform without --lock: a stack is installed for this machine", hint="leave it out")
    for file in modulefiles or ():
        check_modulefile(file)
    choice = lock_choice([platform] if platform else [], categories or [], environment, given=lock is not None)
    given, virtual = tuple(channels or ()), tuple(virtual_packages or ())
    if trusted.names_someone and not require_attestation:
        raise UsageError("trust options without --require-attestation: nothing would be checked", hint="give both")
    trust = trusted.trust(root, output) if require_attestation else None
    with shown_progress() as progress:
        if specs:
            result = install_specs_from(
                options.settings_if_any(root, output),
                specs,
                prefix,
                channels=given,
                package_cache=options.package_cache(),
                environ=os.environ,
                progress=progress,
                virtual_packages=virtual,
                trust=trust,
            )
        elif lock is None:
            request = InstallRequest(stack=stack, channels=given, python=python, pytorch=pytorch, trust=trust)
            with options.settings_for_stacks(root, output, channels=given, trust=trust) as settings:
                result = install_stack(settings, request, prefix, progress=progress, virtual_packages=virtual)
        elif chosen:
            message = "--variant, --python or --pytorch with --lock: a lock already determines them"
            raise UsageError(message, hint="give the lock alone")
        else:
            result = install_lock(
                lock,
                prefix,
                channels=given,
                package_cache=options.package_cache(),
                environ=os.environ,
                progress=progress,
                virtual_packages=virtual,
                trust=trust,
                choice=choice,
            )
    for file in modulefiles or ():
        about = (
            f"{result.prefix.name}: a conda environment of {counted(len(result.records), 'package')} at {result.prefix}"
        )
        write_modulefile(file, result.prefix, about=about, environ=os.environ)
    if as_json:
        packages = [asdict(record) for record in result.records]
        print_json({"schema": 1, "prefix": str(result.prefix), "changed": result.changed, "packages": packages})
        return
    done = f"{counted(result.changed, 'package')} changed" if result.changed else "nothing to do"
    print_line(
        f"{result.prefix}: {counted(len(result.records), 'package')}, {result.size_bytes / 1e6:.0f} MB; "
        f"{done} ({result.seconds:.1f} s)"
    )


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
