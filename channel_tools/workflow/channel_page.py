# SPDX-License-Identifier: BSD-3-Clause
"""A channel's page, with the stacks of the tree that is at hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from channel_tools.channel import channel_writer, open_channel
from channel_tools.conda.addresses import channel_address, has_credentials, without_credentials
from channel_tools.matrix.load import read_stacks
from channel_tools.page import PageReport, ShownStack, add_page
from channel_tools.system.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.system.settings import Settings


def write_channel_page(
    folder: Path, settings: Settings | None, *, address: str | None, title: str | None
) -> PageReport:
    """Write the page of the channel at ``folder``; without ``settings``, the stacks shown are those of the last time.

    Raises ChannelError where there is no channel, it is in use, or a page of somebody else is in the way; ConfigError
    for a stacks.yaml that cannot be read, UsageError for an address that is none or has credentials.
    """
    if address is not None:
        address = _shown_address(address)
    channel = open_channel(folder)
    with channel_writer(channel) as writer:
        return add_page(writer, title=title, address=address, stacks=None if settings is None else _stacks(settings))


def _shown_address(address: str) -> str:
    shown = channel_address(address)
    if has_credentials(shown):
        message = (
            f"--address {without_credentials(shown)}: it has credentials, which the page would show to all readers"
        )
        raise UsageError(message, hint="leave them out; where the channel needs a token, conda's users add /t/TOKEN")
    return shown


def _stacks(settings: Settings) -> list[ShownStack]:
    stacks = read_stacks(settings.tree.stacks_file).stacks
    return [
        ShownStack(name=stack.name, description=stack.description, install=stack.install) for stack in stacks.values()
    ]
