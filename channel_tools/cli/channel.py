# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools channel``: indexes, verifies and shows a channel folder."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from channel_tools.cli import options
from channel_tools.cli.console import handled, print_json, print_line
from channel_tools.requests.publish import PageRequest
from channel_tools.system.counting import counted

app = typer.Typer(no_args_is_help=True, help="The local channel folder, or one that was published to.")

At = Annotated[
    Path | None,
    typer.Option("--at", metavar="FOLDER", help="A channel folder.", show_default="the local channel"),
]


@app.command("index")
@handled
def index(
    *,
    at: At = None,
    root: options.Root = None,
    output: options.Output = None,
    as_json: options.Json = False,
) -> None:
    """Update the channel's indexes to match its package files."""
    from channel_tools.channel import channel_writer, index_channel, open_channel
    from channel_tools.system.errors import ChannelError

    channel = open_channel(at or options.settings_from(root, output).channel)
    with channel_writer(channel) as writer:
        report = index_channel(writer)
    if as_json:
        print_json({"schema": 1, "listed": report.listed, "written": list(report.written)})
    else:
        print_line(
            f"{channel.path}: {counted(report.listed, 'package')}, {counted(len(report.written), 'index file')} written"
        )
    if report.refused:
        first = report.refused[0]
        raise ChannelError(
            f"{counted(len(report.refused), 'file is', 'files are')} not indexed, the first: {first.message}",
            hint=first.hint,
        )


@app.command("verify")
@handled
def verify(
    *, at: At = None, root: options.Root = None, output: options.Output = None, as_json: options.Json = False
) -> None:
    """Read every package and index of the channel in full and report what is damaged, missing or inconsistent."""
    from channel_tools.channel import open_channel, verify_channel
    from channel_tools.system.errors import VerificationError

    channel = open_channel(at or options.settings_from(root, output).channel)
    findings = verify_channel(channel)
    if as_json:
        rows = [{**asdict(finding), "path": str(finding.path)} for finding in findings]
        print_json({"schema": 1, "channel": str(channel.path), "findings": rows})
    else:
        for finding in findings:
            print_line(f"{finding.path}: {finding.kind}: {finding.message}")
        print_line(f"{channel.path}: {counted(len(findings), 'finding')}")
    if findings:
        message = f"{channel.path}: {counted(len(findings), 'finding')}, the first: {findings[0].message}"
        raise VerificationError(message, hint=findings[0].hint)


@app.command("page")
@handled
@options.asks(PageRequest)
def page(
    request: PageRequest, *, root: options.Root = None, output: options.Output = None, as_json: options.Json = False
) -> None:
    """Write a web page of the channel into its folder; from then on, publishing keeps it up to date."""
    from channel_tools.page.model import PageChoices
    from channel_tools.workflow.channel_page import write_channel_page

    settings = options.settings_if_any(root, output)
    address = str(options.settings_from(root, output).channel) if request.at is None else request.at
    choices = PageChoices(
        title=request.title,
        address=request.address,
        sentence=request.sentence,
        contact=request.contact,
    )
    index, report = write_channel_page(address, settings, label=request.label, choices=choices, environ=os.environ)
    if as_json:
        print_json({"schema": 1, "index": index, **asdict(report)})
    else:
        print_line(f"{index}: {counted(report.files, 'file')}, {report.written} written, {report.removed} removed")
