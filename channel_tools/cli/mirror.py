# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools mirror``: signed bundles for sites without a network, and their import there."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from channel_tools.cli import mirror_keys, options
from channel_tools.cli.console import handled, print_json, print_line
from channel_tools.cli.options import asks
from channel_tools.cli.progress import shown_progress
from channel_tools.requests.mirror import MirrorRequest, MirrorUpdateRequest
from channel_tools.system.counting import counted
from channel_tools.system.extras import needs_extra
from channel_tools.system.settings import user_folder

if TYPE_CHECKING:
    from channel_tools.system.settings import Settings

_needs_extra = needs_extra("mirror", "channel_tools mirror")
app = typer.Typer(no_args_is_help=True, help="Signed bundles for sites without a network.")
app.add_typer(mirror_keys.app, name="keys")

_Bundle = Annotated[Path, typer.Argument(metavar="DIR|FILE", help="The bundle: a folder or a tar file.")]
_RootSha256 = Annotated[
    str | None,
    typer.Option(
        "--root-sha256",
        help="The fingerprint of the keys to trust, received separately; needed once per importing site.",
        show_default="what the importing site trusts already",
    ),
]
_ImportTo = Annotated[
    str,
    typer.Option(
        "--to", metavar="FOLDER|ADDRESS", help="The mirror's folder, or a server's channel: https://HOST/NAME."
    ),
]
_State = Annotated[
    Path | None,
    typer.Option(
        "--state",
        metavar="FOLDER",
        help="For a server: this machine's folder for trusted keys, locks and the like.",
        show_default="in the user's state folder",
    ),
]


@app.command("create")
@handled
@_needs_extra
@asks(MirrorRequest)
def create(
    request: MirrorRequest, *, root: options.Root = None, output: options.Output = None, as_json: options.Json = False
) -> None:
    """Collect the packages, indexes and locks of stacks, MatchSpecs or locks in one signed bundle."""
    _make(request, options.settings_if_any(root, output), as_json=as_json)


@app.command("update")
@handled
@_needs_extra
@asks(MirrorUpdateRequest)
def update(
    request: MirrorUpdateRequest,
    *,
    root: options.Root = None,
    output: options.Output = None,
    as_json: options.Json = False,
) -> None:
    """Make a bundle with only what the importing site lacks; none is made if it lacks nothing."""
    _make(request, options.settings_if_any(root, output), as_json=as_json)


def _make(request: MirrorRequest, settings: Settings | None, *, as_json: bool) -> None:
    from channel_tools.workflow.mirror import make_mirror

    with shown_progress() as progress:
        result = make_mirror(settings, request, environ=os.environ, progress=progress)
    from channel_tools.mirror.format import BOOTSTRAP
    from channel_tools.workflow.mirror import in_words

    plan, report = result.plan, result.report
    if as_json:
        wanted, size_bytes = len(plan.new_packages), sum(package.size_bytes for package in plan.new_packages)
        planned = {"packages": wanted, "package_bytes": size_bytes}
        planned |= {"omitted": len(plan.packages) - wanted, "bytes": plan.size_bytes}
        written = None if report is None else {**asdict(report), "path": str(report.path)}
        nothing_new = plan.brings_nothing()
        print_json(
            {
                "schema": 1,
                "path": str(request.destination),
                "nothing_new": nothing_new,
                "planned": planned,
                "made": written,
            }
        )
    elif plan.brings_nothing():
        print_line(f"{request.destination}: not made: the importing site has everything")
    elif report is None:
        print_line(f"{request.destination}: would contain {in_words(plan)}")
    else:
        print_line(
            f"{report.path}: bundle {report.version}, {counted(report.files, 'file')}, {report.size_bytes / 1e6:.1f} MB"
        )
        print_line(f"root fingerprint {report.root_sha256}; import it by {report.expires}")
        if report.bootstrap_sha256 is not None:
            print_line(f"sha256 of {BOOTSTRAP} {report.bootstrap_sha256}")


@app.command("verify")
@handled
@_needs_extra
def verify(
    bundle: _Bundle,
    *,
    root_sha256: _RootSha256 = None,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to",
            metavar="FOLDER",
            help="Verify it as the importing site with this folder would.",
            show_default="none",
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Verify the signatures and every file of a bundle; changes nothing and uses no network."""
    from channel_tools.mirror.files import open_bundle
    from channel_tools.mirror.importing.site import import_state, verify_bundle

    state = None if to is None else import_state(to)
    with shown_progress() as progress:
        report = verify_bundle(
            open_bundle(bundle),
            trusted={} if state is None else state.trusted(),
            root_sha256=root_sha256,
            received=None if state is None else state.received(),
            progress=progress,
        )
    if as_json:
        summary: dict[str, object] = {
            "version": report.bundle.version,
            "files": report.files,
            "bytes": report.size_bytes,
        }
        summary |= {"expires": report.bundle.expires, "root_sha256": report.bundle.root_sha256}
        print_json({"schema": 1, "path": str(bundle), **summary, "manifest": asdict(report.manifest)})
        return
    absent = len(report.manifest.omitted)
    known = f", {absent} more are assumed to be at the importing site" if absent else ""
    print_line(
        f"{bundle}: bundle {report.bundle.version} is valid: {counted(report.files, 'file')}, "
        f"{report.size_bytes / 1e6:.1f} MB{known}; import it by {report.bundle.expires}"
    )


@app.command("import")
@handled
@_needs_extra
def import_(
    bundle: _Bundle,
    *,
    to: _ImportTo,
    root_sha256: _RootSha256 = None,
    state: _State = None,
    trust_existing: Annotated[
        bool,
        typer.Option("--trust-existing", help="Do not verify files of earlier imports; quicker."),
    ] = False,
    dry_run: options.DryRun = False,
    as_json: options.Json = False,
) -> None:
    """Verify a bundle and import it into a folder or a server; readers of a channel see all of it or none."""
    from channel_tools.conda.clients import make_http_client
    from channel_tools.mirror.files import open_bundle
    from channel_tools.mirror.importing.importer import ImportOptions, import_bundle
    from channel_tools.mirror.importing.site import import_target

    target = import_target(to, state=state or user_folder("state") / "mirrors", cwd=Path.cwd())
    import_options = ImportOptions(
        root_sha256=root_sha256,
        environ=os.environ,
        client=make_http_client(os.environ),
        dry_run=dry_run,
        trust_existing=trust_existing,
    )
    with shown_progress() as progress:
        report = import_bundle(open_bundle(bundle), target, import_options, progress=progress)
    if as_json:
        print_json({"schema": 1, "dry_run": dry_run, **asdict(report), "received": str(report.received)})
        return
    would = "would add" if dry_run else "added"
    print_line(
        f"{to}: bundle {report.version} {would} {counted(report.files, 'file')}, {report.size_bytes / 1e6:.1f} MB"
    )
    if report.held:
        unread = report.held - report.held_verified
        print_line(
            f"{counted(report.held, 'file was', 'files were')} here already: "
            f"{report.held_verified} verified, {unread} not read"
        )
    for name, address in report.addresses.items():
        print_line(f"{name}: {address}")
