# SPDX-License-Identifier: BSD-3-Clause
"""The channel stage: a folder of immutable packages and the indexes that conda clients read."""

from channel_tools.channel.index import IndexReport, index_channel
from channel_tools.channel.model import Channel, ChannelFault, ChannelWriter, Foundation, IndexedFile
from channel_tools.channel.publish import add_set, prefer_packages, show_attestations
from channel_tools.channel.store import (
    channel_writer,
    create_channel,
    ensure_channel,
    indexed_files,
    open_channel,
    published_packages,
)
from channel_tools.channel.verify import verify_channel

__all__ = [
    "Channel",
    "ChannelFault",
    "ChannelWriter",
    "Foundation",
    "IndexReport",
    "IndexedFile",
    "add_set",
    "channel_writer",
    "create_channel",
    "ensure_channel",
    "index_channel",
    "indexed_files",
    "open_channel",
    "prefer_packages",
    "published_packages",
    "show_attestations",
    "verify_channel",
]
