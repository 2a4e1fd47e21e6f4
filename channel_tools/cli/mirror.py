# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools mirror``: signed bundles for places without a network, and their import there."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from channel_tools.cli import mirror_keys, options
from channel_tools.cli.console import print_json, print_line
from channel_tools.cli.handling import handled
from channel_tools.errors import UsageError

if TYPE_CHECKING:
    from channel_tools.mirror.contents import BundleRequest
    from channel_tools.mirror.create import CreateReport, Signing
    from channel_tools.mirror.fetch import FetchOptions
    from channel_tools.mirror.model import Received
    from channel_tools.progress import Progress
    from channel_tools.settings import Settings
    from channel_tools.workflow.mirroring import MirrorRequest

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
_Stacks = Annotated[
    list[str] | None,
    typer.Option("--variant", "-V", help="A stack; may be repeated.", show_default="the default stack"),
]
_Platforms = Annotated[
    list[str] | None,
    typer.Option("--platform", help="For this platform; may be repeated.", show_default="this machine's"),
]
_Channels = Annotated[
    list[str] | None,
    typer.Option(
        "--channel",
        "-c",
        help="Mirror from this address or folder, ours first; may be repeated.",
        show_default="the local channel and its foundation",
    ),
]
_Locks = Annotated[
    list[Path] | None,
    typer.Option(
        "--lock",
        metavar="FILE",
        help="Mirror what this lock names (conda-lock.yml, an explicit list, pixi.lock); may be repeated.",
        show_default="locked now",
    ),
]
_WithSources = Annotated[
    bool, typer.Option("--with-sources", help="Recipes, sources and build tools, too: all that a rebuild needs.")
]
_ToolPythons = Annotated[
    list[str] | None,
    typer.Option(
        "--tool-python",
        metavar="3.N",
        help="Bring this program for this Python of the far side; may be repeated.",
        show_default="the version that runs here",
    ),
]
_WithoutTool = Annotated[bool, typer.Option("--without-tool", help="Do not bring this program.")]
_Jobs = Annotated[int, typer.Option("--jobs", "-j", min=1, help="Downloads at once.")]
_LimitRate = Annotated[
    int | None, typer.Option("--limit-rate", min=1, help="Bytes per second, all downloads together.")
]
_ExpiresDays = Annotated[
    int | None,
    typer.Option("--expires-days", min=1, help="How long the far side may take it.", show_default="the keys' own"),
]


@app.command("create")
@handled
def create(
    *,
    to: _To,
    stacks: _Stacks = None,
    platforms: _Platforms = None,
    channels: _Channels = None,
    virtual_packages: options.VirtualPackages = None,
    locks: _Locks = None,
    with_sources: _WithSources = False,
    tool_pythons: _ToolPythons = None,
    without_tool: _WithoutTool = False,
    jobs: _Jobs = 8,
    limit_rate: _LimitRate = None,
    keys: mirror_keys.Keys = None,
    passphrase_file: mirror_keys.PassphraseFile = None,
    expires_days: _ExpiresDays = None,
    dry_run: options.DryRun = False,
    root: options.Root = None,
    output: options.Output = None,
    as_json: options.Json = False,
) -> None:
    """Bring what stacks need, packages, indexes and locks, into one signed bundle."""
    from channel_tools.workflow.mirroring import MirrorRequest  # noqa: PLC0415

    _make(
        MirrorRequest(
            stacks=tuple(stacks or ()),
            platforms=tuple(platforms or ()),
            channels=tuple(channels or ()),
            virtual_packages=tuple(virtual_packages or ()),
            locks=tuple(locks or ()),
            with_sources=with_sources,
            tool_pythons=_pythons(tool_pythons, without_tool=without_tool),
        ),
        options.settings_from(root, output),
        to,
        fetching=_fetching(jobs, limit_rate),
        keys=None if dry_run else mirror_keys.KeyOptions(keys, passphrase_file, expires_days),
        as_json=as_json,
    )


@app.command("update")
@handled
def update(
    *,
    since: Annotated[
        Path,
        typer.Option(
            "--since", metavar="FILE|BUNDLE", help="What the far side has: its received.json, or its last bundle."
        ),
    ],
    to: _To,
    stacks: _Stacks = None,
    platforms: _Platforms = None,
    channels: _Channels = None,
    virtual_packages: options.VirtualPackages = None,
    locks: _Locks = None,
    with_sources: _WithSources = False,
    tool_pythons: _ToolPythons = None,
    without_tool: _WithoutTool = False,
    jobs: _Jobs = 8,
    limit_rate: _LimitRate = None,
    keys: mirror_keys.Keys = None,
    passphrase_file: mirror_keys.PassphraseFile = None,
    expires_days: _ExpiresDays = None,
    dry_run: options.DryRun = False,
    root: options.Root = None,
    output: options.Output = None,
    as_json: options.Json = False,
) -> None:
    """Bring only what the far side lacks into a bundle; none is made when it lacks nothing."""
    from channel_tools.mirror.farside import read_since  # noqa: PLC0415
    from channel_tools.workflow.mirroring import MirrorRequest  # noqa: PLC0415

    _make(
        MirrorRequest(
            stacks=tuple(stacks or ()),
            platforms=tuple(platforms or ()),
            channels=tuple(channels or ()),
            virtual_packages=tuple(virtual_packages or ()),
            locks=tuple(locks or ()),
            with_sources=with_sources,
            tool_pythons=_pythons(tool_pythons, without_tool=without_tool),
        ),
        options.settings_from(root, output),
        to,
        since=read_since(since),
        fetching=_fetching(jobs, limit_rate),
        keys=None if dry_run else mirror_keys.KeyOptions(keys, passphrase_file, expires_days),
        as_json=as_json,
    )


def _pythons(given: list[str] | None, *, without_tool: bool) -> tuple[str, ...]:
    if without_tool:
        return ()
    if wrong := [text for text in given or () if not re.fullmatch(r"3\.\d+", text)]:
        raise UsageError(f"--tool-python {wrong[0]}: expected a version as 3.{sys.version_info.minor}")
    return tuple(given or (f"{sys.version_info.major}.{sys.version_info.minor}",))


def _fetching(jobs: int, limit_rate: int | None) -> FetchOptions:
    from channel_tools.workflow.mirroring import make_fetching  # noqa: PLC0415

    return make_fetching(jobs=jobs, bytes_per_s=limit_rate, environ=os.environ)


def _make(
    request: MirrorRequest,
    settings: Settings,
    to: Path,
    *,
    since: Received | None = None,
    fetching: FetchOptions,
    keys: mirror_keys.KeyOptions | None,
    as_json: bool,
) -> None:
    """Plan, and with ``keys`` make what was planned, unless the far side has it all."""
    from channel_tools.cli.progress import shown_progress  # noqa: PLC0415
    from channel_tools.workflow import mirroring  # noqa: PLC0415

    with shown_progress() as progress:
        locks = mirroring.lock_stacks(settings, request)
        extras = []
        if keys is not None:
            extras = mirroring.gather_extras(settings, request, locks, to, jobs=fetching.jobs, progress=progress)
        bundle = mirroring.plan_bundle(settings, request, locks, fetching=fetching, extras=extras, since=since)
        report = None
        if keys is not None and not bundle.brings_nothing():
            report = _sign(bundle, to, mirror_keys.signing_from(keys), fetching, progress)
    _print_made(bundle, report, to, as_json=as_json)


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
