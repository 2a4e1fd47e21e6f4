# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools attest`` and ``verify``: how packages were built, signed and checked.

``channel_tools sbom`` and ``licenses``: what packages are made of, and what may be redistributed.
"""

from __future__ import annotations

import os
import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from channel_tools.cli import options
from channel_tools.cli.console import handled, print_json, print_line, print_note, print_table, write_result
from channel_tools.cli.options import asks
from channel_tools.requests.attest import SignRequest, TrustRequest
from channel_tools.requests.inventory import DocumentRequest, InventoryRequest
from channel_tools.system.counting import counted

if TYPE_CHECKING:
    from channel_tools.provenance.attestations import Verified
    from channel_tools.provenance.components import Inventory

app = typer.Typer(no_args_is_help=True, help="Signed statements of how packages were built.")

_Days = Annotated[int, typer.Option("--expires-days", min=1, help="For how many days its attestations are valid.")]
_SHORT = 16
_KEY_ID = re.compile("[0-9a-f]{64}")


@app.command("create-key")
@handled
def create_key(
    folder: Annotated[Path, typer.Argument(help="The new folder of the key.", show_default=False)],
    *,
    expires_days: _Days = 1095,
    passphrase_file: options.PassphraseFile = None,
    as_json: options.Json = False,
) -> None:
    """Create a key for signing attestations; its .json file is for those who check them."""
    from datetime import UTC, datetime

    from channel_tools.provenance.trust import create_key as make
    from channel_tools.system.keys import read_passphrase

    private = make(folder, passphrase=read_passphrase(passphrase_file), days=expires_days, now=datetime.now(UTC))
    public = private.with_suffix(".json")
    if as_json:
        print_json({"schema": 1, "private": str(private), "public": str(public)})
        return
    print_line(f"{private}: the private key; for build --signing-key and attest sign --signing-key")
    print_line(f"{public}: the public key, for those who check: verify --trusted-key")


@app.command("sign")
@handled
@options.asks(SignRequest)
def sign(
    request: SignRequest,
    *,
    root: options.Root = None,
    output: options.Output = None,
    as_json: options.Json = False,
) -> None:
    """Sign statements of how packages were built, for those that have no attestation yet."""
    from channel_tools.workflow.attest import sign_packages

    signed = sign_packages(options.settings_if_any(root, output), request)
    if as_json:
        print_json({"schema": 1, "target": str(request.target), "signed": signed})
        return
    for name in signed:
        print_line(name)
    print_line(f"{request.target}: {counted(len(signed), 'package')} attested")


@handled
@options.asks(TrustRequest)
def verify(
    request: TrustRequest,
    target: Annotated[
        str,
        typer.Argument(
            metavar="FOLDER|ADDRESS",
            help="A channel or a .conda file, as a path or an address.",
            show_default=False,
        ),
    ],
    *,
    root: options.Root = None,
    output: options.Output = None,
    as_json: options.Json = False,
) -> None:
    """Check packages against attestations by a trusted key or a Sigstore identity."""
    from channel_tools.conda.addresses import without_credentials
    from channel_tools.provenance.verify import verify_target
    from channel_tools.workflow.attest import trust_of

    trust = trust_of(options.settings_if_any(root, output), request)
    verdicts = verify_target(target, trust, os.environ)
    shown = without_credentials(target)
    rows = [
        {
            "package": verdict.package,
            "signer": None if verdict.verified is None else verdict.verified.signer,
            "finished": _time(verdict.verified),
            "error": None if verdict.error is None else verdict.error.message,
        }
        for verdict in verdicts
    ]
    if as_json:
        print_json({"schema": 1, "target": shown, "packages": rows})
    else:
        table = [
            (str(row["package"]), _shown(row["signer"]), row["finished"] or "-", row["error"] or "verified")
            for row in rows
        ]
        print_table(("package", "signed by", "built", "result"), table)
    wrong = [verdict.error for verdict in verdicts if verdict.error is not None]
    if len(wrong) == 1:
        raise wrong[0]
    if wrong:
        message = (
            f"{shown}: {len(wrong)} of {counted(len(verdicts), 'package')} are not verified, the first: {wrong[0]}"
        )
        raise type(wrong[0])(message, hint=wrong[0].hint)


def _time(verified: Verified | None) -> str | None:
    from channel_tools.provenance.statements import time_text

    return None if verified is None or verified.finished is None else time_text(verified.finished)


def _shown(signer: str | None) -> str:
    """A key shown by the start of its ID, an identity unchanged."""
    if signer is None:
        return "-"
    return signer[:_SHORT] if _KEY_ID.fullmatch(signer) else signer


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
