# SPDX-License-Identifier: BSD-3-Clause
"""The Atom feed (RFC 4287) of what the channel published: its own builds, the newest first.

Ids are made of a build's sha256, so an entry keeps its id wherever the channel moves. Without the channel's address,
links are relative to the feed, which RFC 4287 allows.
"""

from __future__ import annotations

import uuid
from operator import itemgetter
from typing import TYPE_CHECKING
from urllib.parse import quote

from channel_tools.page.render import FEED, page_file, render

if TYPE_CHECKING:
    from channel_tools.page.model import Build, Site
    from channel_tools.page.render import PageFile

_ENTRIES = 50
_NEVER = "1970-01-01T00:00:00+00:00"


def feed_file(site: Site, newest: list[Build]) -> PageFile:
    """The feed of the first of these builds, which are the newest, as a file of the site."""
    entries = [_entry(site, build, site.built(build) or _NEVER) for build in newest[:_ENTRIES]]
    settings = site.settings
    base = "../" if settings.address is None else f"{settings.address.rstrip('/')}/"
    updated = site.built(newest[0]) if newest else ""
    values = {
        "entries": entries,
        "base": base,
        "updated": _timed(updated or _NEVER),
        "id": _id(settings.address or settings.title),
    }
    return page_file(FEED, [values, settings.title], lambda: render("feed.xml.jinja", settings=settings, **values))


def newest_builds(site: Site) -> list[Build]:
    """The channel's own builds that new solves see, the newest first."""
    dated = [
        (site.built_s(build), build.file_name, build)
        for package in site.packages.values()
        for build in package.builds
        if build.hidden is None and not build.foundation
    ]
    return [build for _moment, _name, build in sorted(dated, key=itemgetter(0, 1), reverse=True)]


def _entry(site: Site, build: Build, moment: str) -> dict[str, str]:
    return {
        "id": _id(build.row.sha256),
        "title": f"{build.row.name} {build.version} ({build.build}, {build.subdir})",
        "page": quote(build.page),
        "updated": _timed(moment),
        "summary": site.summaries[build.row.name],
    }


def _id(text: str) -> str:
    return uuid.uuid5(uuid.NAMESPACE_URL, text).urn


def _timed(moment: str) -> str:
    """A time as RFC 3339 has it; a day alone is its start."""
    return moment if "T" in moment else f"{moment}T00:00:00+00:00"
