# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools plan``: what would be built, what is skipped, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from channel_tools.cli import options
from channel_tools.cli.console import print_json, print_line, print_table
from channel_tools.cli.grouped import grouped
from channel_tools.cli.handling import handled
from channel_tools.cli.variants import variant_texts

if TYPE_CHECKING:
    from channel_tools.plan import Plan, PlannedPackage

_REASONS_IN_SHORT = 3


@handled
@grouped(options.PlanOptions)
def plan(
    given: options.PlanOptions,
    *,
    why: Annotated[bool, typer.Option("--why", help="Say for every package why it is built or skipped.")] = False,
    as_json: options.Json = False,
) -> None:
    """Show what `build` would do; nothing is written."""
    from channel_tools.plan import plan_to_json  # noqa: PLC0415
    from channel_tools.workflow.planning import plan_for  # noqa: PLC0415

    made = plan_for(given.settings, given.request)
    if as_json:
        print_json(plan_to_json(made))
        return
    print_plan(made, why=why)


def print_plan(made: Plan, *, why: bool) -> None:
    """The plan as a table, below it the reasons one by one, and what the foundation cannot serve."""
    print_table(("package", "version", "build", "subdir", "status"), [_row(package) for package in made.packages])
    if why:
        print_line("")
        _print_reasons(made)
    if made.unserved:
        print_line("")
        print_unserved(made)


def print_unserved(made: Plan) -> None:
    """The variants that the foundation cannot serve, with the reason in plain words."""
    variants = variant_texts([(item.rendered.name, item.rendered.variant) for item in made.unserved])
    print_table(
        ("package", "version", "variant", "reason"),
        [
            (item.rendered.name, item.rendered.version, text, item.reason)
            for item, text in zip(made.unserved, variants, strict=True)
        ],
        title="Variants that this foundation cannot serve:",
    )


def _row(package: PlannedPackage) -> tuple[str, ...]:
    return (package.name, package.version, package.build_string, package.subdir, package.status)


def _print_reasons(made: Plan) -> None:
    for package in made.packages:
        print_line(f"{package.folder_name}: {package.status}, because")
        for reason in package.reasons or ("a package with this digest is in the channel",):
            print_line(f"  {reason}")


def reasons_in_short(package: PlannedPackage) -> str:
    """The first reasons in one line; the plan command shows them all."""
    shown = "; ".join(package.reasons[:_REASONS_IN_SHORT])
    more = len(package.reasons) - _REASONS_IN_SHORT
    return f"{shown}; and {more} more (channel_tools plan --why)" if more > 0 else shown
