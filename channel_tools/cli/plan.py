# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools plan``: what would be built, what is skipped, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from channel_tools.cli import options
from channel_tools.cli.console import print_json, print_line, print_table
from channel_tools.cli.handling import handled

if TYPE_CHECKING:
    from collections.abc import Mapping

    from channel_tools.plan import Plan, PlannedPackage


@handled
def plan(
    *,
    stack: options.Stack = None,
    every_stack: options.Every = False,
    packages: options.Packages = None,
    why: Annotated[bool, typer.Option("--why", help="Say for every package why it is built or skipped.")] = False,
    force: options.Force = False,
    foundation: options.Foundation = None,
    address: options.FoundationAddress = None,
    root: options.Root = None,
    output: options.Output = None,
    as_json: options.Json = False,
) -> None:
    """Show what `build` would do; nothing is written."""
    from channel_tools.plan import plan_to_json  # noqa: PLC0415
    from channel_tools.workflow.planning import PlanRequest, plan_for  # noqa: PLC0415

    request = PlanRequest(
        stack=stack,
        every_stack=every_stack,
        packages=tuple(packages or ()),
        foundation=foundation,
        address=address,
        force=force,
    )
    made = plan_for(options.settings_from(root, output), request)
    if as_json:
        print_json(plan_to_json(made))
        return
    print_plan(made, why=why)


def print_plan(made: Plan, *, why: bool) -> None:
    """The plan as a table, with the reasons as a last column, and what the foundation cannot serve below it."""
    columns = ["package", "version", "build", "subdir", "status"] + (["why"] if why else [])
    rows = [[*_row(package), *([_why(package)] if why else [])] for package in made.packages]
    print_table(columns, rows)
    if made.unserved:
        print_line("")
        print_table(
            ("package", "version", "variant", "reason"),
            [
                (item.rendered.name, item.rendered.version, _variant(item.rendered.variant), item.reason)
                for item in made.unserved
            ],
            title="Variants that this foundation cannot serve:",
        )


def _row(package: PlannedPackage) -> tuple[str, ...]:
    return (package.name, package.version, package.build_string, package.subdir, package.status)


def _why(package: PlannedPackage) -> str:
    return "; ".join(package.reasons) or "this digest is in the channel"


def _variant(variant: Mapping[str, object]) -> str:
    return " ".join(f"{key}={value}" for key, value in sorted(variant.items()))
