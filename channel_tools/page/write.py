# SPDX-License-Identifier: BSD-3-Clause
"""Writing a channel's page: only what changed, each file whole, the pages that others lead to before those others.

``.channel_tools/page.json`` says that a channel has a page, and keeps what only its owner knows. What each file was
made of is kept as a digest in ``.channel_tools/state/page.msgpack``; without it, everything is written again.
"""

from __future__ import annotations

import itertools
import logging
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import msgspec

from channel_tools.channel.state import load_channel
from channel_tools.conda.repodata import encode_json
from channel_tools.page.model import INDEX_PAGE, PAGE_FOLDER, PAGE_SCHEMA, PageSettings, Site
from channel_tools.system.document import decode_json, decode_msgpack
from channel_tools.system.errors import ChannelError
from channel_tools.system.files import remove_leftovers, replace_files, write_bytes_atomically

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from channel_tools.channel.model import Channel, ChannelWriter
    from channel_tools.page.model import ShownStack
    from channel_tools.page.render import PageFile

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class PageReport:
    """What was done: ``files`` the page has now, of which ``written`` are new or others than before."""

    index: Path
    files: int
    written: int
    removed: int


def add_page(
    writer: ChannelWriter, *, title: str | None, address: str | None, stacks: Sequence[ShownStack] | None
) -> PageReport:
    """Give the channel a page, or write the one that it has again; what is None stays as it was said last.

    Raises ChannelError where a page that is not ours is in the way, DiskFullError.
    """
    channel = writer.channel
    known = _read_settings(channel)
    if known is None:
        _check_free(channel)
        known = PageSettings(title=channel.path.name)
    settings = PageSettings(
        title=known.title if title is None else title,
        address=known.address if address is None else address,
        stacks=known.stacks if stacks is None else tuple(stacks),
    )
    write_bytes_atomically(_settings_file(channel), encode_json(settings) + b"\n")
    return _write(writer, settings)


def refresh_page(writer: ChannelWriter) -> PageReport | None:
    """Bring the page of a channel in step with its indexes; None when it has no page. Raises as add_page."""
    settings = _read_settings(writer.channel)
    return None if settings is None else _write(writer, settings)


def _write(writer: ChannelWriter, settings: PageSettings) -> PageReport:
    from channel_tools.page.content import read_packages  # noqa: PLC0415 - with jinja2, a quarter of a second to import
    from channel_tools.page.render import page_files  # noqa: PLC0415

    channel = writer.channel
    site = Site(settings=settings, foundation=channel.foundation, packages=read_packages(load_channel(channel)))
    files = page_files(site, channel.path)
    before = _read_digests(channel)
    folders = {file.path.rpartition("/")[0] for file in files}
    present = {folder: _names_in(channel.path / folder) for folder in folders}
    changed = [file for file in files if not _is_current(file, before, present)]
    for folder, group in itertools.groupby(changed, key=lambda file: file.path.rpartition("/")[0]):
        remove_leftovers(channel.path / folder)
        replace_files(
            channel.path / folder, ((PurePosixPath(file.path).name, file.render().encode()) for file in group)
        )
    gone = before.keys() - {file.path for file in files}
    for path in sorted(gone):
        (channel.path / path).unlink(missing_ok=True)
    if changed or gone:
        _write_digests(channel, files)
    return PageReport(index=channel.path / INDEX_PAGE, files=len(files), written=len(changed), removed=len(gone))


def _is_current(file: PageFile, before: Mapping[str, str], present: Mapping[str, set[str]]) -> bool:
    folder, _slash, name = file.path.rpartition("/")
    return before.get(file.path) == file.digest and name in present[folder]


def _names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


def _check_free(channel: Channel) -> None:
    for name in (INDEX_PAGE, PAGE_FOLDER):
        if (channel.path / name).exists():
            message = f"{channel.path / name}: is there already, and was not written by channel_tools channel page"
            raise ChannelError(message, hint="move it elsewhere, or do without a page")


def _read_settings(channel: Channel) -> PageSettings | None:
    path = _settings_file(channel)
    try:
        settings = decode_json(path.read_bytes(), PageSettings)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as err:
        message = f"{path}: not the settings of a page ({err})"
        raise ChannelError(message, hint="delete it, then run channel_tools channel page again") from None
    if settings.schema != PAGE_SCHEMA:
        message = f"{path}: has schema {settings.schema}; this version of channel_tools reads schema {PAGE_SCHEMA}"
        raise ChannelError(message, hint="use the version of channel_tools that made the page")
    return settings


def _read_digests(channel: Channel) -> dict[str, str]:
    try:
        return decode_msgpack(_digests_file(channel).read_bytes(), dict[str, str])
    except FileNotFoundError:
        return {}
    except msgspec.DecodeError as err:
        _log.warning("%s: unreadable (%s); the whole page is written again", _digests_file(channel), err)
        return {}


def _write_digests(channel: Channel, files: Iterable[PageFile]) -> None:
    digests = {file.path: file.digest for file in files}
    write_bytes_atomically(_digests_file(channel), msgspec.msgpack.encode(digests), durable=False)


def _settings_file(channel: Channel) -> Path:
    return channel.record_folder / "page.json"


def _digests_file(channel: Channel) -> Path:
    return channel.record_folder / "state" / "page.msgpack"
