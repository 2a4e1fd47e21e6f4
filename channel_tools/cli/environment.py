# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools env``: installs environments from the channel."""

from __future__ import annotations

import contextlib
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from channel_tools.cli import options
from channel_tools.cli.console import handled, print_json, print_line
from channel_tools.cli.progress import shown_progress
from channel_tools.requests.environment import EnvironmentRequest
from channel_tools.system.counting import counted
from channel_tools.system.settings import available_cores

if TYPE_CHECKING:
    from collections.abc import Iterator

    from channel_tools.provenance.trust import Trust
    from channel_tools.system.settings import Settings

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
    """Install a stack, MatchSpecs or a lock into PREFIX, or update an environment that this command created there."""
    from channel_tools.workflow.environment import install
    from channel_tools.workflow.verify import trust_of

    trust = None
    if request.require_attestation:
        trust = trust_of(options.settings_if_any(root, output), request.trust)
    with shown_progress() as progress, _settings_for(request, root, output, trust) as settings:
        result = install(settings, request, environ=os.environ, trust=trust, progress=progress)
    if as_json:
        packages = [asdict(record) for record in result.records]
        print_json({"schema": 1, "prefix": str(result.prefix), "changed": result.changed, "packages": packages})
        return
    summary = f"{counted(result.changed, 'package')} changed" if result.changed else "nothing to do"
    print_line(
        f"{result.prefix}: {counted(len(result.records), 'package')}, {result.size_bytes / 1e6:.0f} MB; "
        f"{summary} ({result.seconds:.1f} s)"
    )


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
