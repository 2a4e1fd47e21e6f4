# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools list``: stacks, packages, variants."""

from __future__ import annotations

from channel_tools.cli import options
from channel_tools.cli.console import print_json, print_table
from channel_tools.cli.handling import handled
from channel_tools.cli.variants import variant_texts


@handled
def list_stacks(
    *,
    stack: options.Stack = None,
    foundation: options.Foundation = None,
    root: options.Root = None,
    as_json: options.Json = False,
) -> None:
    """Show the stacks, their packages and the variants of each (of one stack with --variant)."""
    from channel_tools.workflow.listing import list_tree  # noqa: PLC0415

    settings = options.settings_from(root, None)
    rows = list_tree(settings, stack=stack, kind=foundation or "registry")
    if as_json:
        print_json({"schema": 1, "packages": [row.as_json() for row in rows]})
        return
    variants = variant_texts([(row.package, row.variant) for row in rows])
    print_table(
        ("stack", "package", "version", "subdir", "variant"),
        [(row.stack, row.package, row.version, row.subdir, text) for row, text in zip(rows, variants, strict=True)],
    )
