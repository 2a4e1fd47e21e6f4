# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools sbom`` and ``licenses``: what packages are made of, and what may be redistributed."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.cli import options
from channel_tools.cli.console import handled, print_json, print_line, print_note, print_table, write_result
from channel_tools.cli.options import asks
from channel_tools.requests.inventory import DocumentRequest, InventoryRequest
from channel_tools.system.counting import counted

if TYPE_CHECKING:
    from channel_tools.provenance.components import Inventory


@handled
@asks(DocumentRequest)
def sbom(request: DocumentRequest, *, root: options.Root = None, output: options.Output = None) -> None:
    """Write the bill of materials of a package, of a locked environment, or of a stack."""
    from datetime import UTC, datetime

    from channel_tools.workflow.inventory import make_document

    inventory = _inventory(request, root, output)
    write_result(make_document(inventory, created_at=datetime.now(UTC)), request.file)
    if request.file is not None:
        print_note(f"{request.file}: {inventory.title}, {counted(len(inventory.components), 'package')}")


@handled
@asks(InventoryRequest)
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
