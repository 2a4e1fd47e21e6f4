# SPDX-License-Identifier: BSD-3-Clause
"""What a server is started with, checked before anything runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.channel.model import RECORD_FOLDER
from channel_tools.errors import UsageError
from channel_tools.serve.access import parse_public
from channel_tools.serve.addresses import CHANNEL_NAME, RESERVED

if TYPE_CHECKING:
    from pathlib import Path

TOKENS_FILE_NAME = "tokens.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class ServeSettings:
    """A server: ``root`` holds the channels, ``public`` names channels (``NAME``, ``NAME/LABEL``) open to all readers.

    ``access_log`` None writes the log to stderr. ``proxies`` are addresses whose ``X-Forwarded-For`` is believed.
    """

    root: Path
    tokens_file: Path
    host: str
    port: int
    workers: int
    public: tuple[str, ...] = ()
    access_log: Path | None = None
    proxies: tuple[str, ...] = ()
    connections: int = 1000


def default_tokens_file(root: Path) -> Path:
    """Where the tokens of the channels in a folder are kept, out of reach of every request."""
    return root / RECORD_FOLDER / TOKENS_FILE_NAME


def check_settings(settings: ServeSettings) -> None:
    """Raise UsageError for a folder that cannot be served as it is meant."""
    root = settings.root
    if not root.is_dir():
        raise UsageError(f"{root}: no such folder", hint="name the folder that holds the channels' folders")
    if (root / RECORD_FOLDER / "channel.json").is_file():
        message = f"{root}: is a channel itself; expected the folder that holds it, so that its address has its name"
        raise UsageError(message, hint=f"serve {root.parent}; it is then served as /{root.name}/")
    for channel, label in sorted(parse_public(settings.public).places):
        if not CHANNEL_NAME.fullmatch(channel) or channel in RESERVED or not CHANNEL_NAME.fullmatch(label):
            raise UsageError(
                f"--public {channel}/{label}: no name of a channel and label", hint="write NAME or NAME/LABEL"
            )
    _check_tokens_file(settings)


def _check_tokens_file(settings: ServeSettings) -> None:
    root, file = settings.root.resolve(), settings.tokens_file.resolve()
    if not file.is_relative_to(root):
        return
    if not any(part.startswith(".") for part in file.relative_to(root).parts):
        message = f"{settings.tokens_file}: lies among the files that are served"
        raise UsageError(message, hint=f"keep it elsewhere, for example at {default_tokens_file(settings.root)}")
