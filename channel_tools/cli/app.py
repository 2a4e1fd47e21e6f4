# SPDX-License-Identifier: BSD-3-Clause
"""The command tree. Each command group has its own module; a stage is imported only by the command that runs it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

import channel_tools
from channel_tools.cli import (
    attest,
    audit,
    build,
    channel,
    doctor,
    environment,
    foundation,
    launch,
    maintenance,
    mirror,
    options,
    pins,
    plan,
    publish,
    render,
    serve,
    sources,
    upstream,
    validate,
)
from channel_tools.cli import plan as lists
from channel_tools.cli import render as export
from channel_tools.cli.console import configure_logging, print_line, shown_streams

if TYPE_CHECKING:
    from typer.models import TyperInfo

_MAKE = "Make a tree and look at it"
_BUILD = "Build"
_RUN = "Run and validate"
_PUBLISH = "Publish and serve"
_TRUST = "Trust"
"""The headings of --help, in the order of a channel's life; a heading lists commands before groups of them."""

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
    context: typer.Context,
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
    quiet: options.Quiet = False,
    color: options.Color = "auto",
) -> None:
    """Options that come before the command."""
    configure_logging(verbose)
    context.with_resource(shown_streams(quiet=quiet, color=color))


app.command("init", rich_help_panel=_MAKE)(upstream.init)
app.command("list", rich_help_panel=_MAKE)(lists.list_stacks)
app.command("plan", rich_help_panel=_MAKE)(plan.plan)
app.command("render", rich_help_panel=_MAKE)(render.render)
app.add_typer(export.app, name="export", rich_help_panel=_MAKE)
app.add_typer(upstream.app, name="upstream", rich_help_panel=_MAKE)
app.command("bump", rich_help_panel=_MAKE)(upstream.bump)
app.command("build", rich_help_panel=_BUILD)(build.build)
app.command("debug", rich_help_panel=_BUILD, context_settings={"allow_interspersed_args": False})(build.debug)
app.command("rebuild", rich_help_panel=_BUILD)(build.rebuild)
app.command("audit", rich_help_panel=_BUILD)(audit.audit)
app.add_typer(foundation.app, name="foundation", rich_help_panel=_BUILD)
app.add_typer(sources.app, name="sources", rich_help_panel=_BUILD)
app.command("validate", rich_help_panel=_RUN)(validate.validate)
app.command("bench", rich_help_panel=_RUN)(validate.bench)
app.command("doctor", rich_help_panel=_RUN)(doctor.doctor)
app.command("launch", rich_help_panel=_RUN, context_settings={"allow_interspersed_args": False})(launch.launch)
app.add_typer(environment.app, name="env", rich_help_panel=_RUN)
app.command("pins", rich_help_panel=_RUN)(pins.pins)
app.command("publish", rich_help_panel=_PUBLISH)(publish.publish)
app.command("promote", rich_help_panel=_PUBLISH)(publish.promote)
app.command("yank", rich_help_panel=_PUBLISH)(maintenance.yank)
app.command("hotfix", rich_help_panel=_PUBLISH)(maintenance.hotfix)
app.command("retain", rich_help_panel=_PUBLISH)(maintenance.retain)
app.add_typer(channel.app, name="channel", rich_help_panel=_PUBLISH)
app.command("serve", rich_help_panel=_PUBLISH)(serve.serve)
app.add_typer(serve.app, name="token", rich_help_panel=_PUBLISH)
app.add_typer(mirror.app, name="mirror", rich_help_panel=_PUBLISH)
app.add_typer(attest.app, name="attest", rich_help_panel=_TRUST)
app.command("verify", rich_help_panel=_TRUST)(attest.verify)
app.command("sbom", rich_help_panel=_TRUST)(attest.sbom)
app.command("licenses", rich_help_panel=_TRUST)(attest.licenses)


def app_for(arguments: Sequence[str], *, plain: bool = False) -> typer.Typer:
    """The command tree with only the command or group that the first argument names, else all of it.

    ``plain``: its help and the errors of its arguments have no colours, even where FORCE_COLOR or a CI asks for them.

    Typer builds every command that it knows at each start, which takes longer than running most of them.
    """
    commands = [command for command in app.registered_commands if arguments[:1] == [command.name]]
    groups = [group for group in app.registered_groups if arguments[:1] == [group.name]]
    if not commands and not groups:
        if not plain:
            return app
        commands, groups = app.registered_commands, app.registered_groups
    chosen = copy.copy(app)
    chosen.registered_commands, chosen.registered_groups = commands, groups
    if plain:
        chosen.rich_markup_mode = None
        chosen.registered_groups = [_without_markup(group) for group in groups]
    return chosen


def _without_markup(group: TyperInfo) -> TyperInfo:
    copied = copy.copy(group)
    copied.typer_instance = copy.copy(group.typer_instance)
    if copied.typer_instance is not None:
        copied.typer_instance.rich_markup_mode = None
    return copied
