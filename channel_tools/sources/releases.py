# SPDX-License-Identifier: BSD-3-Clause
"""The newest release of upstream's, found where a recipe's source comes from: the tags of a repository, or a folder.

What names the version that the recipe has, a tag or a file, says how others are named; whatever is named otherwise is
no release. Where the version has no letters, neither has its successor: those are alphas and candidates.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote, urljoin

from channel_tools.conda.addresses import local_path, without_credentials
from channel_tools.sources.git import git_environment_for
from channel_tools.system.counting import counted
from channel_tools.system.errors import ChannelToolsError, NetworkError, UsageError
from channel_tools.system.processes import run_command

if TYPE_CHECKING:
    from collections.abc import Iterable

    from channel_tools.sources.model import SourceMirrors
    from channel_tools.system.http.client import HttpClient

_FORGE = re.compile(r"(https?://[^/]+/.+?)(?:\.git)?(/-)?/(?:archive|releases/download)/")
_LINKS = re.compile(r"""href\s*=\s*["']([^"'?#]+)""", re.IGNORECASE)
_LISTING_BYTES = 8 * 2**20
_TAGS = "refs/tags/"
_PEELED = "^{}"
_TIMEOUT_S = 120.0
_HINT = "look the version up at upstream, and give it: channel_tools bump RECIPE VERSION"


@dataclass(frozen=True, kw_only=True, slots=True)
class Release:
    """The newest version; ``commit`` is that of its tag, ``changes`` an address that shows what is new ("": none)."""

    version: str
    commit: str | None = None
    changes: str = ""


def find_release(location: str, version: str, *, client: HttpClient, mirrors: SourceMirrors) -> Release:
    """The newest release of what the source at ``location`` has as ``version``; it may be this one.

    Raises NetworkError where nothing can be listed, UsageError where what is listed does not name ``version``.
    """
    forge = _FORGE.match(location)
    if forge is not None or not any(version in part for part in _parts(location)):
        repository = location if forge is None else forge[1]
        return _of_tags(repository, version, between=(forge[2] or "") if forge else "", mirrors=mirrors)
    parts = _parts(location)
    index = next(number for number, part in enumerate(parts) if version in part)
    folder = "/".join(parts[:index]) + "/"
    names = _listed(mirrors.addresses([folder]), client)
    newest = _newest(names, parts[index], version, where=without_credentials(folder))
    return Release(version=newest, changes=without_credentials(folder) if local_path(folder) is None else "")


def _parts(location: str) -> list[str]:
    return location.split("/")


def _of_tags(repository: str, version: str, *, between: str, mirrors: SourceMirrors) -> Release:
    tags = _tags(mirrors.addresses([repository]))
    named = sorted((tag for tag in tags if _pattern(tag, version) is not None), key=len)
    where = without_credentials(repository)
    if not named:
        raise UsageError(f"{where}: none of its {counted(len(tags), 'tag')} names the version {version}", hint=_HINT)
    newest = _newest(tags, named[0], version, where=where)
    pattern = _pattern(named[0], version)
    tag = next(tag for tag in tags if pattern is not None and (found := pattern.fullmatch(tag)) and found[1] == newest)
    page = where.removesuffix(".git") + between
    is_shown = newest != version and page.startswith(("http://", "https://"))
    return Release(version=newest, commit=tags[tag], changes=f"{page}/compare/{named[0]}...{tag}" if is_shown else "")


def _pattern(name: str, version: str) -> re.Pattern[str] | None:
    """What matches names that are as ``name``, but for the version; None if this has it not, or twice."""
    parts = re.split(rf"(?<![\d.]){re.escape(version)}(?!\d|\.\d)", name)
    if len(parts) != 2:  # noqa: PLR2004 - before and after
        return None
    other = r"(\d+(?:\.\d+)*)" if re.fullmatch(r"[\d.]+", version) else r"(\d[\w.+!]*)"
    return re.compile(other.join(map(re.escape, parts)))


def _newest(names: Iterable[str], known: str, version: str, *, where: str) -> str:
    """The newest of the versions in names that are as ``known``. Raises UsageError without any."""
    from rattler import Version  # noqa: PLC0415 - half a second

    pattern = _pattern(known, version)
    found = {match[1] for name in names if pattern is not None and (match := pattern.fullmatch(name))}
    if not found:
        raise UsageError(f"{where}: lists nothing that is named as {known}", hint=_HINT)
    return max({*found, version}, key=Version)


def _listed(addresses: Iterable[str], client: HttpClient) -> set[str]:
    """The names in a folder, at the first of its addresses that answers."""
    failures = []
    for address in addresses:
        path = local_path(address)
        try:
            if path is not None:
                return {entry.name for entry in path.iterdir()}
            page = client.read(address, limit_bytes=_LISTING_BYTES).decode("utf-8", "replace")
        except (OSError, NetworkError) as err:
            failures.append(f"{without_credentials(address)}: {getattr(err, 'message', None) or err}")
            continue
        linked = (urljoin(address, unquote(link)) for link in _LINKS.findall(page))
        return {link.removeprefix(address).strip("/") for link in linked if link.startswith(address)}
    raise NetworkError("; ".join(failures), hint=_HINT)


def _tags(addresses: Iterable[str]) -> dict[str, str]:
    """The tags of a repository, with their commits, at the first of its addresses that answers."""
    failures = []
    for address in addresses:
        try:
            with git_environment_for(address) as environ:
                words = ("git", "ls-remote", "--tags", "--", address)
                lines = run_command(words, env=environ, timeout_s=_TIMEOUT_S).stdout.splitlines()
        except ChannelToolsError as err:
            failures.append(err.message)
            continue
        rows = [line.split("\t") for line in lines]
        names = sorted((name.removeprefix(_TAGS), commit) for commit, name in rows if name.startswith(_TAGS))
        return {name.removesuffix(_PEELED): commit for name, commit in names}  # the peeled one comes after the tag
    raise NetworkError("; ".join(failures), hint=_HINT)
