# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools env`` and ``validate``: environments from the channel, and the distributed allreduce in them."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from channel_tools.cli import options
from channel_tools.cli.console import handled, print_json, print_line, print_table, shown_progress

app = typer.Typer(no_args_is_help=True, help="Environments installed from the channel.")

_RANKS_AT_MOST = 10_000
"""All are processes of this machine."""
_Lock = Annotated[
    Path | None,
    typer.Option(
        "--lock",
        help="Install exactly what this conda-lock.yml, explicit list or pixi.lock names; --channel then says where "
        "to take it from instead.",
        show_default=False,
    ),
]


@app.command("create")
@handled
def create(
    prefix: Annotated[Path, typer.Argument(help="The new environment's folder, or one to bring up to date.")],
    *,
    stack: options.Stack = None,
    lock: _Lock = None,
    channels: options.Channels = None,
    virtual_packages: options.VirtualPackages = None,
    root: options.Root = None,
    output: options.Output = None,
    as_json: options.Json = False,
) -> None:
    """Install a stack or a lock into PREFIX; an environment that is there is brought up to date."""
    from channel_tools.system.errors import UsageError  # noqa: PLC0415
    from channel_tools.workflow.environment import (  # noqa: PLC0415
        InstallRequest,
        LockInstallRequest,
        install_lock,
        install_stack,
    )

    given, virtual = tuple(channels or ()), tuple(virtual_packages or ())
    with shown_progress() as progress:
        if lock is None:
            request = InstallRequest(stack=stack, channels=given)
            settings = options.settings_from(root, output)
            result = install_stack(settings, request, prefix, progress=progress, virtual_packages=virtual)
        elif stack is not None:
            raise UsageError("--variant and --lock together: a lock says what it is of", hint="give one of the two")
        else:
            locked = LockInstallRequest(lock=lock, channels=given, virtual_packages=virtual)
            result = install_lock(locked, prefix, package_cache=options.package_cache(), progress=progress)
    if as_json:
        packages = [asdict(record) for record in result.records]
        print_json({"schema": 1, "prefix": str(result.prefix), "changed": result.changed, "packages": packages})
        return
    done = f"{result.changed} packages changed" if result.changed else "nothing to do"
    print_line(
        f"{result.prefix}: {len(result.records)} packages, {result.size_bytes / 1e6:.0f} MB; "
        f"{done} ({result.seconds:.1f} s)"
    )


@handled
def validate(
    *,
    stack: options.Stack = None,
    ranks: Annotated[
        int, typer.Option("--ranks", "-r", min=1, max=_RANKS_AT_MOST, help="Processes of the allreduce.")
    ] = 2,
    channels: options.Channels = None,
    prefix: Annotated[
        Path | None,
        typer.Option(help="Validate in this environment and keep it.", show_default="a new one, removed after"),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the new environment and the logs of the run.")] = False,
    timeout_s: Annotated[float, typer.Option("--timeout", min=1, help="Seconds for the run after installing.")] = 600,
    history: Annotated[
        bool, typer.Option("--history", help="Keep the report beside earlier ones, and say what has become slower.")
    ] = False,
    fail_on_drop: Annotated[
        bool, typer.Option("--fail-on-drop", help="With --history: a drop beyond the noise is exit code 10.")
    ] = False,
    root: options.Root = None,
    output: options.Output = None,
    as_json: options.Json = False,
) -> None:
    """Install a stack from the channel, run a distributed allreduce in it, and report who carried what."""
    from channel_tools.system.errors import UsageError  # noqa: PLC0415
    from channel_tools.validate import (  # noqa: PLC0415
        raise_for_drops,
        raise_for_failures,
        report_document,
        report_tables,
    )
    from channel_tools.workflow.environment import (  # noqa: PLC0415
        InstallRequest,
        ValidateRequest,
        validate_installed,
    )

    if fail_on_drop and not history:
        raise UsageError("--fail-on-drop without --history: nothing to compare with", hint="give --history as well")
    request = ValidateRequest(
        install=InstallRequest(stack=stack, channels=tuple(channels or ())),
        ranks=ranks,
        prefix=prefix,
        keep=keep,
        timeout_s=timeout_s,
        environ=os.environ,
        keeps_history=history,
    )
    with shown_progress() as progress:
        report, path = validate_installed(options.settings_from(root, output), request, progress=progress)
    if as_json:
        print_json(report_document(report))
    else:
        for table in report_tables(report):
            print_table(table.columns, table.rows, title=table.title)
            print_line("")
        print_line(f"report: {path}, as a page: {path.with_suffix('.html')}")
    raise_for_failures(report, report_file=path)
    if fail_on_drop:
        raise_for_drops(report)
