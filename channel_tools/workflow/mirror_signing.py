# SPDX-License-Identifier: BSD-3-Clause
"""From a planned bundle to a signed one. Apart from planning, which finds out whether there is anything to sign."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from channel_tools.mirror.create import Signing, create_bundle
from channel_tools.mirror.keys import KeyFolder, signing_keys
from channel_tools.workflow.mirroring import in_words

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from channel_tools.mirror.contents import BundleRequest
    from channel_tools.mirror.create import CreateReport
    from channel_tools.mirror.fetch import FetchOptions
    from channel_tools.mirror.model import Role
    from channel_tools.progress import Progress


@dataclass(frozen=True, kw_only=True, slots=True)
class SigningRequest:
    """With which keys, and for how many days what is signed counts (None: as the key folder says)."""

    keys: Path
    passphrase: bytes | None
    expires_days: int | None


def open_signing(request: SigningRequest) -> Signing:
    """The keys, read before anything else is done. Raises UsageError and ConfigError as signing_keys."""
    folder = KeyFolder(path=request.keys)
    folder.root_files()
    days: Mapping[Role, int] = folder.settings().expiry_days
    if request.expires_days is not None:
        days = dict.fromkeys(days, request.expires_days)
    return Signing(
        folder=folder,
        keys=signing_keys(folder, passphrase=request.passphrase),
        expiry_days=days,
        now=datetime.now(UTC),
    )


def make_bundle(
    bundle: BundleRequest, destination: Path, *, signing: Signing, fetching: FetchOptions, progress: Progress
) -> CreateReport:
    """Say how much it is, then fetch and sign. Raises as create_bundle."""
    progress.note(in_words(bundle))
    return create_bundle(bundle, destination, signing=signing, options=fetching, progress=progress)
