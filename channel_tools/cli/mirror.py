# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools mirror``: signed bundles for places without a network, and their import there."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from channel_tools.cli import mirror_keys, options
from channel_tools.cli.console import print_json, print_line
from channel_tools.cli.grouped import grouped
from channel_tools.cli.handling import handled
from channel_tools.cli.mirror_options import BundleOptions

if TYPE_CHECKING:
    from channel_tools.mirror.contents import BundleRequest
    from channel_tools.mirror.create import CreateReport, Signing
    from channel_tools.mirror.fetch import FetchOptions
    from channel_tools.mirror.model import Received
    from channel_tools.progress import Progress

app = typer.Typer(no_args_is_help=True, help="Signed bundles for places without a network.")
app.add_typer(mirror_keys.app, name="keys")

_Bundle = Annotated[Path, typer.Argument(metavar="DIR|FILE", help="The bundle: a folder or a tar file.")]
_RootSha256 = Annotated[
    str | None,
    typer.Option(
        "--root-sha256",
        help="The fingerprint of the keys to trust, received by another way; needed once per far side.",
        show_default="what the far side trusts already",
    ),
]
_Far = Annotated[
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
        help="For a server: where this machine keeps what it trusts, locks and the like.",
        show_default="in the user's state folder",
    ),
]
_To = Annotated[Path, typer.Option("--to", metavar="DIR|FILE.tar", help="The bundle to write.")]


@app.command("create")
@handled
@grouped(BundleOptions)
def create(given: BundleOptions, *, to: _To) -> None:
    """Bring what stacks need, packages, indexes and locks, into one signed bundle."""
    _make(given, to)


@app.command("update")
@handled
@grouped(BundleOptions)
def update(
    given: BundleOptions,
    *,
    since: Annotated[
        Path,
        typer.Option(
            "--since", metavar="FILE|BUNDLE", help="What the far side has: its received.json, or its last bundle."
        ),
    ],
    to: _To,
) -> None:
    """Bring only what the far side lacks into a bundle; none is made when it lacks nothing."""
    from channel_tools.mirror.farside import read_since  # noqa: PLC0415

    _make(given, to, since=read_since(since))


def _make(given: BundleOptions, to: Path, *, since: Received | None = None) -> None:
    """Plan, and unless it is a dry run make what was planned, but nothing when the far side has it all."""
    from channel_tools.cli.progress import shown_progress  # noqa: PLC0415
    from channel_tools.workflow import mirroring  # noqa: PLC0415

    request, settings, fetching, keys = given.request, given.settings, given.fetching, given.signing_keys
    with shown_progress() as progress:
        locks = mirroring.lock_stacks(settings, request)
        extras = []
        if keys is not None:
            extras = mirroring.gather_extras(settings, request, locks, to, jobs=fetching.jobs, progress=progress)
        bundle = mirroring.plan_bundle(settings, request, locks, fetching=fetching, extras=extras, since=since)
        report = None
        if keys is not None and not bundle.brings_nothing():
            report = _sign(bundle, to, mirror_keys.signing_from(keys), fetching, progress)
    _print_made(bundle, report, to, as_json=given.as_json)


def _sign(
    bundle: BundleRequest, to: Path, signing: Signing, fetching: FetchOptions, progress: Progress
) -> CreateReport:
    from channel_tools.workflow.mirror_signing import make_bundle  # noqa: PLC0415

    return make_bundle(bundle, to, signing=signing, fetching=fetching, progress=progress)


def _print_made(bundle: BundleRequest, report: CreateReport | None, to: Path, *, as_json: bool) -> None:
    from channel_tools.mirror.model import BOOTSTRAP  # noqa: PLC0415
    from channel_tools.workflow.mirroring import in_words  # noqa: PLC0415

    if as_json:
        planned = {"packages": len(bundle.wanted), "package_bytes": sum(item.size_bytes for item in bundle.wanted)}
        planned |= {"omitted": len(bundle.packages.omitted), "bytes": bundle.size_bytes}
        made = None if report is None else {**asdict(report), "path": str(report.path)}
        nothing_new = bundle.brings_nothing()
        print_json({"schema": 1, "path": str(to), "nothing_new": nothing_new, "planned": planned, "made": made})
    elif bundle.brings_nothing():
        print_line(f"{to}: not made: the far side has everything")
    elif report is None:
        print_line(f"{to}: would hold {in_words(bundle)}")
    else:
        print_line(f"{report.path}: bundle {report.version}, {report.files} files, {report.size_bytes / 1e6:.1f} MB")
        print_line(f"root fingerprint {report.root_sha256}; to be imported by {report.expires}")
        if report.bootstrap_sha256 is not None:
            print_line(f"sha256 of {BOOTSTRAP} {report.bootstrap_sha256}")


@app.command("verify")
@handled
def verify(
    bundle: _Bundle,
    *,
    root_sha256: _RootSha256 = None,
    far: Annotated[
        Path | None,
        typer.Option("--to", metavar="FOLDER", help="Judge it as this far side would.", show_default="no far side"),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Verify signatures and every file of a bundle; nothing is changed and no network is used."""
    from channel_tools.cli.progress import shown_progress  # noqa: PLC0415
    from channel_tools.mirror.farside import far_state  # noqa: PLC0415
    from channel_tools.mirror.reading import open_bundle  # noqa: PLC0415
    from channel_tools.mirror.verify import verify_bundle  # noqa: PLC0415

    state = None if far is None else far_state(far)
    with shown_progress() as progress:
        report = verify_bundle(
            open_bundle(bundle),
            trusted={} if state is None else state.trusted(),
            root_sha256=root_sha256,
            received=None if state is None else state.received(),
            progress=progress,
        )
    if as_json:
        found: dict[str, object] = {"version": report.bundle.version, "files": report.files, "bytes": report.size_bytes}
        found |= {"expires": report.bundle.expires, "root_sha256": report.bundle.root_sha256}
        print_json({"schema": 1, "path": str(bundle), **found, "manifest": asdict(report.manifest)})
        return
    absent = len(report.manifest.omitted)
    known = f", {absent} more are taken to be on the far side" if absent else ""
    print_line(
        f"{bundle}: bundle {report.bundle.version} is right: {report.files} files, "
        f"{report.size_bytes / 1e6:.1f} MB{known}; to be imported by {report.bundle.expires}"
    )


@app.command("import")
@handled
def import_(
    bundle: _Bundle,
    *,
    to: _Far,
    root_sha256: _RootSha256 = None,
    state: _State = None,
    dry_run: options.DryRun = False,
    as_json: options.Json = False,
) -> None:
    """Verify a bundle and take it into a folder or a server; readers of a channel see all of it or nothing."""
    from channel_tools.cli.progress import shown_progress  # noqa: PLC0415
    from channel_tools.mirror.farplace import far_place  # noqa: PLC0415
    from channel_tools.mirror.reading import open_bundle  # noqa: PLC0415
    from channel_tools.mirror.receive import ImportOptions, import_bundle  # noqa: PLC0415
    from channel_tools.workflow.mirroring import make_reader  # noqa: PLC0415

    place = far_place(to, state=state or _state_folder(), cwd=Path.cwd())
    reader = make_reader(os.environ)
    how = ImportOptions(root_sha256=root_sha256, environ=os.environ, http=reader, dry_run=dry_run)
    with shown_progress() as progress:
        report = import_bundle(open_bundle(bundle), place, how, progress=progress)
    if as_json:
        print_json({"schema": 1, "dry_run": dry_run, **asdict(report), "received": str(report.received)})
        return
    would = "would bring" if dry_run else "brought"
    print_line(f"{to}: bundle {report.version} {would} {report.files} files, {report.size_bytes / 1e6:.1f} MB")
    for name, address in report.addresses.items():
        print_line(f"{name}: {address}")


def _state_folder() -> Path:
    import platformdirs  # noqa: PLC0415

    return Path(platformdirs.user_state_path("channel_tools", appauthor=False)) / "mirrors"
