# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools sbom`` and ``licenses``: what packages are made of, and what may be redistributed."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from channel_tools.cli import options
from channel_tools.cli.console import handled, print_json, print_line, print_note, print_table, write_result
from channel_tools.cli.options import grouped
from channel_tools.requests.inventory import DocumentFormat, InventoryRequest
from channel_tools.system.counting import counted

if TYPE_CHECKING:
    from channel_tools.provenance.components import Inventory

_INVENTORY: options.Declared = {
    "target": Annotated[
        Path | None,
        typer.Argument(
            help="A .conda file, a lock (conda-lock.yml, explicit list, pixi.lock) or an environment.yml.",
            show_default="a stack",
        ),
    ],
    "install": {
        "stack": options.Stack,
        "channels": Annotated[
            list[str] | None,
            options.channels_option("A channel's folder with the packages; may be repeated.", "where the lock says"),
        ],
    },
    "platform": Annotated[
        str | None,
        typer.Option(
            "--platform", help="The platform, for a lock of several platforms.", show_default="this machine's"
        ),
    ],
    "categories": options.Categories,
    "environment": options.LockEnvironment,
}
"""The options of both commands, by the fields of InventoryRequest."""
_DOCUMENT: options.Declared = {
    "kind": Annotated[DocumentFormat, typer.Option("--format", help="CycloneDX 1.6 or SPDX 2.3, as JSON.")],
    "file": Annotated[
        Path | None, typer.Option("--output-file", "-o", help="The file to write.", show_default="standard output")
    ],
}


@handled
@grouped(InventoryRequest, {**_INVENTORY, **_DOCUMENT})
def sbom(request: InventoryRequest, *, root: options.Root = None, output: options.Output = None) -> None:
    """Write the bill of materials of a package, of a locked environment, or of a stack."""
    from datetime import UTC, datetime

    from channel_tools.workflow.inventory import make_document

    inventory = _inventory(request, root, output)
    write_result(make_document(inventory, request.kind, created_at=datetime.now(UTC)), request.file)
    if request.file is not None:
        print_note(f"{request.file}: {inventory.title}, {counted(len(inventory.components), 'package')}")


@handled
@grouped(InventoryRequest, _INVENTORY)
def licenses(
    request: InventoryRequest,
    *,
    root: options.Root = None,
    output: options.Output = None,
    as_json: options.Json = False,
) -> None:
    """List the licences of a stack's packages, and which packages may be redistributed."""
    from channel_tools.provenance.licenses import license_row

    inventory = _inventory(request, root, output)
    rows = [license_row(component) for component in inventory.components]
    if as_json:
        print_json({"schema": 1, "name": inventory.title, "packages": [asdict(row) for row in rows]})
        return
    table = [(row.package, row.spdx or row.declared or "-", row.redistribution) for row in rows]
    print_table(("package", "licence", "redistributable"), table)
    for row in rows:
        if row.redistribution not in {"yes", "with source"}:
            print_line(f"{row.package}: {row.why}" + (f" ({row.terms})" if row.terms else ""))


def _inventory(request: InventoryRequest, root: Path | None, output: Path | None) -> Inventory:
    from channel_tools.workflow.inventory import take_inventory

    settings = options.settings_if_any(root, output)
    cache = options.package_cache()
    return take_inventory(settings, request, package_cache=cache, environ=os.environ, note=print_note)
