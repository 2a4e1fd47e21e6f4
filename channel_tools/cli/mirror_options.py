# SPDX-License-Identifier: BSD-3-Clause
"""What ``mirror create`` and ``mirror update`` are asked to bring, and where to."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from channel_tools.cli import mirror_keys, options
from channel_tools.errors import UsageError

if TYPE_CHECKING:
    from channel_tools.mirror.fetch import FetchOptions
    from channel_tools.settings import Settings
    from channel_tools.workflow.mirroring import MirrorRequest


@dataclass(frozen=True, kw_only=True)
class BundleOptions:
    """The options that the two commands share; typer.Option's help says what each is."""

    stacks: Annotated[
        list[str] | None,
        typer.Option("--variant", "-V", help="A stack; may be repeated.", show_default="the default stack"),
    ] = None
    platforms: Annotated[
        list[str] | None,
        typer.Option("--platform", help="For this platform; may be repeated.", show_default="this machine's"),
    ] = None
    channels: Annotated[
        list[str] | None,
        typer.Option(
            "--channel",
            "-c",
            help="Mirror from this address or folder, ours first; may be repeated.",
            show_default="the local channel and its foundation",
        ),
    ] = None
    virtual_packages: options.VirtualPackages = None
    locks: Annotated[
        list[Path] | None,
        typer.Option(
            "--lock",
            metavar="FILE",
            help="Mirror what this lock names (conda-lock.yml, an explicit list, pixi.lock); may be repeated.",
            show_default="locked now",
        ),
    ] = None
    with_sources: Annotated[
        bool, typer.Option("--with-sources", help="Recipes, sources and build tools, too: all that a rebuild needs.")
    ] = False
    tool_pythons: Annotated[
        list[str] | None,
        typer.Option(
            "--tool-python",
            metavar="3.N",
            help="Bring this program for this Python of the far side; may be repeated.",
            show_default="the version that runs here",
        ),
    ] = None
    without_tool: Annotated[bool, typer.Option("--without-tool", help="Do not bring this program.")] = False
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Downloads at once.")] = 8
    limit_rate: Annotated[
        int | None, typer.Option("--limit-rate", min=1, help="Bytes per second, all downloads together.")
    ] = None
    keys: mirror_keys.Keys = None
    passphrase_file: mirror_keys.PassphraseFile = None
    expires_days: Annotated[
        int | None,
        typer.Option("--expires-days", min=1, help="How long the far side may take it.", show_default="the keys' own"),
    ] = None
    dry_run: options.DryRun = False
    root: options.Root = None
    output: options.Output = None
    as_json: options.Json = False

    @property
    def settings(self) -> Settings:
        """The locations of the command."""
        return options.settings_from(self.root, self.output)

    @property
    def request(self) -> MirrorRequest:
        """What the bundle is to hold. Raises UsageError for a version of Python that is none."""
        from channel_tools.workflow.mirroring import MirrorRequest  # noqa: PLC0415

        return MirrorRequest(
            stacks=tuple(self.stacks or ()),
            platforms=tuple(self.platforms or ()),
            channels=tuple(self.channels or ()),
            virtual_packages=tuple(self.virtual_packages or ()),
            locks=tuple(self.locks or ()),
            with_sources=self.with_sources,
            tool_pythons=self._pythons(),
        )

    @property
    def fetching(self) -> FetchOptions:
        """How files are fetched."""
        from channel_tools.workflow.mirroring import make_fetching  # noqa: PLC0415

        return make_fetching(jobs=self.jobs, bytes_per_s=self.limit_rate, environ=os.environ)

    @property
    def signing_keys(self) -> mirror_keys.KeyOptions | None:
        """Which keys sign; None for a dry run, which needs none."""
        return None if self.dry_run else mirror_keys.KeyOptions(self.keys, self.passphrase_file, self.expires_days)

    def _pythons(self) -> tuple[str, ...]:
        if self.without_tool:
            return ()
        if wrong := [text for text in self.tool_pythons or () if not re.fullmatch(r"3\.\d+", text)]:
            raise UsageError(f"--tool-python {wrong[0]}: expected a version as 3.{sys.version_info.minor}")
        return tuple(self.tool_pythons or (f"{sys.version_info.major}.{sys.version_info.minor}",))
