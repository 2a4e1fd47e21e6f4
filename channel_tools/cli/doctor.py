# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools doctor``: what would carry the data on this machine, and what keeps the fabric from doing so."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from channel_tools.cli import options
from channel_tools.cli.console import handled, print_finding, print_json

SCHEMA = 1


@handled
def doctor(
    prefix: Annotated[
        Path | None, typer.Argument(help="An environment of the stack.", show_default="the active one")
    ] = None,
    *,
    stack: Annotated[str | None, options.stack_option("that of the environment, else the default stack")] = None,
    hosts: Annotated[
        Path | None,
        typer.Option(help="A file with one host per line: compare these hosts over ssh.", show_default=False),
    ] = None,
    launch: Annotated[
        bool,
        typer.Option("--launch", help="Ask one rank on each host of --hosts or of the job what it has loaded."),
    ] = False,
    root: options.Root = None,
    as_json: options.Json = False,
) -> None:
    """Show what would carry a stack's data on this machine, and how to fix what keeps the fabric from carrying it."""
    from channel_tools.doctor import uses_fabric
    from channel_tools.system.errors import ValidationError
    from channel_tools.workflow.doctor import run_doctor

    with options.settings_for_stacks(root, None, prefix=prefix) as settings:
        subject, findings = run_doctor(settings, stack, prefix, hosts, launch=launch, environ=os.environ)
    if as_json:
        print_json(
            {
                "schema": SCHEMA,
                "stack": subject.stack,
                "prefix": None if subject.prefix is None else str(subject.prefix),
                "uses_fabric": uses_fabric(findings),
                "findings": [asdict(diagnosis) for diagnosis in findings],
            }
        )
    else:
        for diagnosis in findings:
            print_finding(f"{diagnosis.level:7}  ", f"{diagnosis.subject}: {diagnosis.found}", diagnosis.fix)
    if not uses_fabric(findings):
        faults = ", ".join(dict.fromkeys(diagnosis.subject for diagnosis in findings if diagnosis.level == "fault"))
        # what was found and its fix stand above, once
        raise ValidationError(f"stack {subject.stack}: its fabric would not carry the data: see {faults} above")
