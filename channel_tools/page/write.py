# SPDX-License-Identifier: BSD-3-Clause
"""Writing a channel's page: only what changed, each file atomically, linked pages before those that link to them.

``.channel_tools/page.json`` says that a channel has a page, and keeps what only its owner knows. A digest of each
file's inputs is kept in ``.channel_tools/state/page.msgpack``; without it, everything is written again.
"""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from channel_tools.channel.model import RECORD_FOLDER
from channel_tools.channel.state import load_channel
from channel_tools.conda.repodata import encode_json
from channel_tools.page.model import (
    INDEX_PAGE,
    PAGE_FOLDER,
    PAGE_SCHEMA,
    PageChoices,
    PageSettings,
    PageStore,
)
from channel_tools.system.document import decode_json, decode_msgpack
from channel_tools.system.errors import ChannelError, ChannelToolsError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from channel_tools.channel.model import Channel, ChannelWriter
    from channel_tools.page.model import ShownRun, TreeRecords

SETTINGS = f"{RECORD_FOLDER}/page.json"
_NO_CHOICES = PageChoices()
_DIGESTS = f"{RECORD_FOLDER}/state/page.msgpack"
MOST_RUNS = 50
"""Validations kept per stack; the oldest are dropped."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class PageReport:
    """What was done: the page now has ``files`` files, of which ``written`` are new or changed."""

    files: int
    written: int
    removed: int


def add_page(
    writer: ChannelWriter, choices: PageChoices = _NO_CHOICES, *, known: TreeRecords | None = None
) -> PageReport:
    """Give the channel a page, or update the one that it has.

    Raises ChannelError if a page that this program did not write is in the way, DiskFullError.
    """
    store = PageStore(files=writer.channel.files)
    before = _read_settings(store)
    if before is None:
        for name in (INDEX_PAGE, PAGE_FOLDER):
            if store.present([name]):
                message = f"{store.url(name)}: already exists, and was not written by channel_tools channel page"
                raise ChannelError(message, hint="move it elsewhere, or do not make a page for this channel")
        before = PageSettings(title=writer.channel.path.name)
    fields = (name.name for name in dataclasses.fields(choices))
    chosen = {name: value for name in fields if (value := getattr(choices, name)) is not None}
    changed = dataclasses.replace(before, **chosen)
    settings = changed if known is None else _with_records(changed, known)
    _write_settings(store, settings)
    return _write(writer.channel, store, settings)


def remember_records(writer: ChannelWriter, known: TreeRecords) -> None:
    """Store what is known about stacks, builds and validations for the channel's page, if it has one."""
    store = PageStore(files=writer.channel.files)
    before = _read_settings(store)
    if before is None:
        return
    after = _with_records(before, known)
    if after != before:
        _write_settings(store, after)


def follow_page(writer: ChannelWriter) -> PageReport | None:
    """Update the page after a change of its channel; None if it has no page.

    Raises what add_page does; the error says that the change itself was made.
    """
    store = PageStore(files=writer.channel.files)
    try:
        settings = _read_settings(store)
        return None if settings is None else _write(writer.channel, store, settings)
    except ChannelToolsError as err:
        raise type(err)(f"the channel was changed, but not its page: {err.message}", hint=err.hint) from None


def _with_records(settings: PageSettings, known: TreeRecords) -> PageSettings:
    """The settings with the present stacks, each with its earlier runs, and with all builds that were ever recorded."""
    earlier = {stack.name: stack.runs for stack in settings.stacks}
    return dataclasses.replace(
        settings,
        stacks=tuple(
            dataclasses.replace(stack, runs=_merged(earlier.get(stack.name, ()), stack.runs)) for stack in known.stacks
        ),
        builds=dict(sorted({**settings.builds, **known.builds}.items())),
    )


def _merged(earlier: Sequence[ShownRun], now: Sequence[ShownRun]) -> tuple[ShownRun, ...]:
    runs = {(run.started, run.python, run.pytorch): run for run in (*earlier, *now)}
    return tuple(sorted(runs.values(), key=lambda run: run.started)[-MOST_RUNS:])


def _write(channel: Channel, store: PageStore, settings: PageSettings) -> PageReport:
    """Write the files of a page that are missing or outdated, and remove those that no longer belong to it."""
    from channel_tools.page.content import read_site  # noqa: PLC0415 - with jinja2, slow to import
    from channel_tools.page.front import page_files  # noqa: PLC0415
    from channel_tools.page.render import OWN_MARK  # noqa: PLC0415

    loaded = load_channel(channel)
    rows = {subdir: state.records.packages for subdir, state in loaded.states.items()}
    site = read_site(settings, channel.foundation, loaded.listing, rows)
    files = page_files(site, store)
    before = _read_digests(store)
    present = store.present([file.path for file in files])
    if OWN_MARK.encode() not in (store.read(INDEX_PAGE) or b""):
        present.discard(INDEX_PAGE)  # other indexers write a file of that name
    changed = [file for file in files if before.get(file.path) != file.digest or file.path not in present]
    sure = {path: before[path] for path in before.keys() - {file.path for file in changed}}
    _write_digests(store, before, sure)  # a writer that is killed leaves the others, whatever they show by then
    store.write([(file.path, lambda file=file: file.content()) for file in changed])  # type: ignore[misc]
    outdated = before.keys() - {file.path for file in files}
    store.remove(sorted(outdated))
    _write_digests(store, sure, {file.path: file.digest for file in files})
    return PageReport(files=len(files), written=len(changed), removed=len(outdated))


def _write_digests(store: PageStore, before: Mapping[str, str], digests: Mapping[str, str]) -> None:
    if digests != before:
        content = msgspec.msgpack.encode(dict(sorted(digests.items())))
        store.write([(_DIGESTS, lambda: content)])


def _read_settings(store: PageStore) -> PageSettings | None:
    content = store.read(SETTINGS)
    if content is None:
        return None
    try:
        settings = decode_json(content, PageSettings)
    except msgspec.DecodeError as err:
        message = f"{store.url(SETTINGS)}: not valid settings of a channel page ({err})"
        raise ChannelError(message, hint="delete it, then run channel_tools channel page again") from None
    if settings.schema != PAGE_SCHEMA:
        message = (
            f"{store.url(SETTINGS)}: has schema {settings.schema}; this version of channel_tools reads {PAGE_SCHEMA}"
        )
        raise ChannelError(message, hint="use the version of channel_tools that made the page")
    return settings


def _write_settings(store: PageStore, settings: PageSettings) -> None:
    content = encode_json(settings) + b"\n"
    store.write([(SETTINGS, lambda: content)])


def _read_digests(store: PageStore) -> dict[str, str]:
    try:
        return decode_msgpack(store.read(_DIGESTS) or b"\x80", dict[str, str])
    except msgspec.DecodeError as err:
        _log.warning("%s: unreadable (%s); the whole page is written again", _DIGESTS, err)
        return {}
