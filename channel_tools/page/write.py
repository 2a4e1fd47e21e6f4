# SPDX-License-Identifier: BSD-3-Clause
"""Writing a channel's page: only what changed, each file whole, the pages that others lead to before those others.

``.channel_tools/page.json`` says that a channel has a page, and keeps what only its owner knows. What each file was
made of is kept as a digest in ``.channel_tools/state/page.msgpack``; without it, everything is written again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from channel_tools.channel.model import RECORD_FOLDER
from channel_tools.channel.state import load_channel
from channel_tools.conda.repodata import encode_json
from channel_tools.page.model import INDEX_PAGE, PAGE_FOLDER, PAGE_SCHEMA, PageSettings, Site, log_file
from channel_tools.page.place import FolderPlace
from channel_tools.system.document import decode_json, decode_msgpack
from channel_tools.system.errors import ChannelError
from channel_tools.system.files import write_bytes_atomically

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from channel_tools.channel.listing import Listing
    from channel_tools.channel.model import Channel, ChannelWriter, Foundation
    from channel_tools.page.content import Rows
    from channel_tools.page.model import ShownRun, TreeRecords
    from channel_tools.page.place import PagePlace

SETTINGS = f"{RECORD_FOLDER}/page.json"
_DIGESTS = f"{RECORD_FOLDER}/state/page.msgpack"
MOST_RUNS = 50
"""Of a stack; the oldest are forgotten."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class PageReport:
    """What was done: ``files`` the page has now, of which ``written`` are new or others than before.

    ``index`` is the one that leads to all, below the channel.
    """

    index: str
    files: int
    written: int
    removed: int


def add_page(
    writer: ChannelWriter,
    *,
    title: str | None = None,
    address: str | None = None,
    with_logs: bool | None = None,
    known: TreeRecords | None = None,
) -> PageReport:
    """Give the channel a page, or write the one that it has again; what is None stays as it was said last.

    Raises ChannelError where a page that is not ours is in the way, DiskFullError.
    """
    channel = writer.channel
    before = _read_settings(channel)
    if before is None:
        _check_free(channel)
        before = PageSettings(title=channel.path.name)
    said = dataclasses.replace(
        before,
        title=before.title if title is None else title,
        address=before.address if address is None else address,
        with_logs=before.with_logs if with_logs is None else with_logs,
    )
    settings = said if known is None else _with_records(said, known)
    settings = _with_logs(channel, settings, {} if known is None else known.logs)
    _write_settings(channel, settings)
    return _write(writer, settings)


def remember_records(writer: ChannelWriter, known: TreeRecords) -> None:
    """Keep what is known of stacks, builds and validations for the channel's page, if it has one."""
    before = _read_settings(writer.channel)
    if before is None:
        return
    after = _with_logs(writer.channel, _with_records(before, known), known.logs)
    if after != before:
        _write_settings(writer.channel, after)


def has_page(channel: Path) -> bool:
    """Whether the channel folder ``channel`` was given a page."""
    return (channel / SETTINGS).is_file()


def refresh_page(writer: ChannelWriter) -> PageReport | None:
    """Bring the page of a channel in step with its indexes; None when it has no page. Raises as add_page."""
    settings = _read_settings(writer.channel)
    return None if settings is None else _write(writer, settings)


def _with_records(settings: PageSettings, known: TreeRecords) -> PageSettings:
    """The settings with the stacks of now, each with its earlier runs, and with all builds that were ever known."""
    earlier = {stack.name: stack.runs for stack in settings.stacks}
    return dataclasses.replace(
        settings,
        stacks=tuple(
            dataclasses.replace(stack, runs=_merged(earlier.get(stack.name, ()), stack.runs)) for stack in known.stacks
        ),
        builds=dict(sorted({**settings.builds, **known.builds}.items())),
    )


def _with_logs(channel: Channel, settings: PageSettings, logs: Mapping[str, Path]) -> PageSettings:
    """The settings with the logs that are there now, copied beside them; without any where none are to be shown."""
    if not settings.with_logs:
        for name in settings.logs:
            (channel.path / log_file(name)).unlink(missing_ok=True)
        return dataclasses.replace(settings, logs={})
    kept = dict(settings.logs)
    for name, path in sorted(logs.items()):
        content = path.read_bytes()
        sha256 = hashlib.sha256(content).hexdigest()
        if kept.get(name) != sha256:
            write_bytes_atomically(channel.path / log_file(name), content, durable=False)
            kept[name] = sha256
    return dataclasses.replace(settings, logs=dict(sorted(kept.items())))


def _merged(earlier: Sequence[ShownRun], now: Sequence[ShownRun]) -> tuple[ShownRun, ...]:
    runs = {(run.started, run.python, run.pytorch): run for run in (*earlier, *now)}
    return tuple(sorted(runs.values(), key=lambda run: run.started)[-MOST_RUNS:])


def _write(writer: ChannelWriter, settings: PageSettings) -> PageReport:
    channel = writer.channel
    loaded = load_channel(channel)
    rows = {subdir: state.records.packages for subdir, state in loaded.states.items()}
    place = FolderPlace(root=channel.path)
    return write_site(place, settings, channel.foundation, loaded.listing, rows)


def write_site(
    place: PagePlace, settings: PageSettings, foundation: Foundation, listing: Listing, rows: Rows
) -> PageReport:
    """Write those files of a page that are not there as they would be now, and remove those that are none of it."""
    from channel_tools.page.content import passed_runs, read_packages  # noqa: PLC0415 - with jinja2, slow to import
    from channel_tools.page.files import OWN_MARK  # noqa: PLC0415
    from channel_tools.page.render import page_files  # noqa: PLC0415

    packages = read_packages(listing, rows)
    site = Site(settings=settings, foundation=foundation, packages=packages, validations=passed_runs(settings))
    files = page_files(site, place)
    before = _read_digests(place)
    present = place.present([file.path for file in files])
    if OWN_MARK.encode() not in (place.read(INDEX_PAGE) or b""):
        present.discard(INDEX_PAGE)  # other indexers write a file of that name
    changed = [file for file in files if before.get(file.path) != file.digest or file.path not in present]
    place.write([(file.path, lambda file=file: file.render().encode()) for file in changed])  # type: ignore[misc]
    gone = before.keys() - {file.path for file in files}
    place.remove(sorted(gone))
    if changed or gone:
        digests = msgspec.msgpack.encode({file.path: file.digest for file in files})
        place.write([(_DIGESTS, lambda: digests)])
    return PageReport(index=INDEX_PAGE, files=len(files), written=len(changed), removed=len(gone))


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


def _write_settings(channel: Channel, settings: PageSettings) -> None:
    write_bytes_atomically(_settings_file(channel), encode_json(settings) + b"\n")


def _settings_file(channel: Channel) -> Path:
    return channel.path / SETTINGS


def _read_digests(place: PagePlace) -> dict[str, str]:
    try:
        return decode_msgpack(place.read(_DIGESTS) or b"\x80", dict[str, str])
    except msgspec.DecodeError as err:
        _log.warning("%s: unreadable (%s); the whole page is written again", _DIGESTS, err)
        return {}
