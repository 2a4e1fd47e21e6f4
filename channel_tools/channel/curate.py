# SPDX-License-Identifier: BSD-3-Clause
"""Changing what a channel lists without publishing anything: yank, repodata patches, retention."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from channel_tools.channel.index import IndexReport, index_channel
from channel_tools.channel.retention import Retention, RetentionPlan, plan_retention, with_deleted, with_retired
from channel_tools.channel.state import LoadedChannel, load_channel, read_listing, write_listing

if TYPE_CHECKING:
    from collections.abc import Callable

    from channel_tools.channel.model import Channel, ChannelWriter
    from channel_tools.channel.state import Listing


def relist(writer: ChannelWriter, change: Callable[[LoadedChannel], Listing]) -> IndexReport:
    """Give the channel the listing that ``change`` makes of what it holds, and index it."""
    loaded = load_channel(writer.channel)
    listing = change(loaded)
    if listing != loaded.listing:
        write_listing(writer.channel, listing)
    return index_channel(writer, loaded=dataclasses.replace(loaded, listing=listing))


def listed_names(channel: Channel) -> frozenset[str]:
    """``subdir/file name`` of everything that the channel's last index lists."""
    loaded = load_channel(channel)
    return frozenset(
        f"{subdir}/{name}"
        for subdir, state in loaded.states.items()
        for name in state.records.packages.keys() - set(state.removed)
    )


def preview_retention(channel: Channel, rule: Retention, *, elsewhere: frozenset[str], now_s: float) -> RetentionPlan:
    """What apply_retention would do now."""
    loaded = load_channel(channel)
    held = {subdir: state.records.packages for subdir, state in loaded.states.items()}
    return plan_retention(loaded.listing, held, rule, elsewhere=elsewhere, now_s=now_s)


def apply_retention(writer: ChannelWriter, rule: Retention, *, elsewhere: frozenset[str]) -> RetentionPlan:
    """Hide what is due by ``rule`` and delete what was hidden for long enough; see plan_retention.

    The indexes no longer name a file before it is deleted. A name that was deleted is remembered with its hash.
    """
    now_s = writer.clock()
    plan = preview_retention(writer.channel, rule, elsewhere=elsewhere, now_s=now_s)

    def retire(loaded: LoadedChannel) -> Listing:
        rows = {
            key: loaded.states[key.partition("/")[0]].records.packages[key.partition("/")[2]] for key in plan.retire
        }
        return with_retired(loaded.listing, rows, now_s=now_s)

    relist(writer, retire)
    if plan.delete:
        for key in plan.delete:
            (writer.channel.path / key).unlink(missing_ok=True)
        write_listing(writer.channel, with_deleted(read_listing(writer.channel), plan.delete))
        index_channel(writer)
    return plan
