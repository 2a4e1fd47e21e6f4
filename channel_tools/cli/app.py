# SPDX-License-Identifier: BSD-3-Clause
"""The command tree. Each command group has its own module; a stage is imported only by the command that runs it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Annotated

import typer

import channel_tools
from channel_tools.cli import (
    attest,
    audit,
    build,
    channel,
    config,
    debug,
    doctor,
    environment,
    foundation,
    init,
    inventory,
    launch,
    maintenance,
    mirror,
    pins,
    plan,
    publish,
    rebuild,
    render,
    serve,
    sources,
    tokens,
    upstream,
    validate,
)
from channel_tools.cli import plan as lists
from channel_tools.cli import render as export
from channel_tools.cli.console import configure_logging, print_line

app = typer.Typer(
    name="channel_tools",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Build, validate and serve a private conda channel for PyTorch on special fabrics.",
)


def _print_version(wanted: bool) -> None:  # noqa: FBT001  (the signature that typer calls)
    if wanted:
        print_line(f"channel_tools {channel_tools.__version__}")
        raise typer.Exit


@app.callback()
def main(
    *,
    verbose: Annotated[
        int,
        typer.Option(
            "--verbose", "-v", count=True, help="Show external commands; twice: show everything that is logged."
        ),
    ] = 0,
    version: Annotated[  # noqa: ARG001  (the callback answers it)
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options that come before the command."""
    configure_logging(verbose)


app.command("init")(init.init)
app.command("list")(lists.list_stacks)
app.command("render")(render.render)
app.command("plan")(plan.plan)
app.command("build")(build.build)
app.command("debug", context_settings={"allow_interspersed_args": False})(debug.debug)
app.command("validate")(validate.validate)
app.command("doctor")(doctor.doctor)
app.command("launch", context_settings={"allow_interspersed_args": False})(launch.launch)
app.command("audit")(audit.audit)
app.add_typer(attest.app, name="attest")
app.command("verify")(attest.verify)
app.command("rebuild")(rebuild.rebuild)
app.command("sbom")(inventory.sbom)
app.command("licenses")(inventory.licenses)
app.command("pins")(pins.pins)
app.command("publish")(publish.publish)
app.command("promote")(publish.promote)
app.command("yank")(maintenance.yank)
app.command("hotfix")(maintenance.hotfix)
app.command("retain")(maintenance.retain)
app.add_typer(environment.app, name="env")
app.add_typer(foundation.app, name="foundation")
app.add_typer(upstream.app, name="upstream")
app.add_typer(sources.app, name="sources")
app.add_typer(channel.app, name="channel")
app.add_typer(export.app, name="export")
app.command("config")(config.config)
app.command("serve")(serve.serve)
app.add_typer(tokens.app, name="token")
app.add_typer(mirror.app, name="mirror")


def app_for(arguments: Sequence[str]) -> typer.Typer:
    """The command tree with only the command or group that the first argument names, else all of it.

    Typer builds every command that it knows at each start, which takes longer than running most of them.
    """
    commands = [one for one in app.registered_commands if arguments[:1] == [one.name]]
    groups = [one for one in app.registered_groups if arguments[:1] == [one.name]]
    if not commands and not groups:
        return app
    chosen = copy.copy(app)
    chosen.registered_commands, chosen.registered_groups = commands, groups
    return chosen
