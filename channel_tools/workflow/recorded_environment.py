# SPDX-License-Identifier: BSD-3-Clause
"""The packages that a package was built with, as channels that hold these and no others.

The engine solves for exactly them then, whatever the real channels hold by now.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from channel_tools.audit.package import RENDERED_RECIPE
from channel_tools.channel.records import cached_package
from channel_tools.channel.state import subdirs_of
from channel_tools.channel.store import indexed_files
from channel_tools.conda.archive import read_info_files, read_package
from channel_tools.conda.clients import make_http_client
from channel_tools.conda.package import NOARCH, PACKAGE_SUFFIX
from channel_tools.conda.repodata import REPODATA, RUN_EXPORTS, encode_repodata, encode_run_exports
from channel_tools.mirror.exporting.fetch import FetchOptions, RemoteFile, fetch_files
from channel_tools.plan import current_platform
from channel_tools.provenance.statements import recorded_in
from channel_tools.system.errors import FoundationError, NetworkError, UsageError
from channel_tools.system.files import link_or_copy
from channel_tools.system.yamlfile import load_plain_yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from channel_tools.channel.model import Channel
    from channel_tools.channel.records import CachedPackage
    from channel_tools.conda.archive import PackageInfo
    from channel_tools.system.progress import Progress

_DOWNLOADS_AT_ONCE = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvironmentChannel:
    """A channel in ``folder``, in the place of the one that the package records as ``recorded``."""

    folder: Path
    recorded: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedEnvironment:
    """What a package says of its build: the inputs of its digest, and the engine's rendered recipe."""

    package: Path
    info: PackageInfo
    inputs: Mapping[str, str]
    rendered: Mapping[str, Any]

    @property
    def engine(self) -> str | None:
        """The version of rattler-build that built it."""
        tools = self.rendered.get("system_tools")
        return tools.get("rattler-build") if isinstance(tools, dict) else None

    def link(
        self, channel: Channel, holder: Path, *, environ: Mapping[str, str], offline: bool, progress: Progress
    ) -> tuple[EnvironmentChannel, ...]:
        """Make the channels in ``holder``, of ``channel`` and of the foundation that it has at another address.

        Raises FoundationError for packages that are no longer there, NetworkError for one out of reach.
        """
        files = indexed_files(channel, subdirs_of(channel.path)).values()
        known = {file.ref.sha256: file for file in files}
        known |= {file.row.digest: file for file in files if file.row.digest is not None}
        wanted = dict(self._wanted())
        missing = {name: identity for name, identity in wanted.items() if identity not in known}
        names = self._channel_names()
        own = EnvironmentChannel(folder=holder / "own" / _last_part(names[0]), recorded=names[0])
        found = [known[identity] for identity in wanted.values() if identity in known]
        _write_index(own.folder, {file.path: file.row for file in found})
        address = channel.foundation.address
        remote = [] if address is None else list(self._remote(address, set(missing.values())))
        if lost := set(missing.values()) - {file.sha256 for file in remote}:
            lines = "\n".join(f"{name} {identity}" for name, identity in missing.items() if identity in lost)
            hint = "rebuild it where the channel kept these packages, or in a mirror of it"
            message = f"{channel.path}: no longer has what {self.package.name} was built with:\n{lines}"
            raise FoundationError(message, hint=hint)
        if address is None:
            return (own,)
        if offline and not address.startswith("file:"):
            raise NetworkError(f"the foundation {address} is read over the network", hint="leave out --offline")
        other = EnvironmentChannel(folder=holder / "foundation" / _last_part(names[-1]), recorded=names[-1])
        options = FetchOptions(client=make_http_client(environ), jobs=_DOWNLOADS_AT_ONCE)
        fetch_files(remote, other.folder, options=options, progress=progress)
        _write_index(other.folder, {path: _row(path) for path in sorted(other.folder.glob(f"*/*{PACKAGE_SUFFIX}"))})
        return own, other

    def _channel_names(self) -> list[str]:
        found = self.info.about.get("channels")
        return [str(name) for name in found] if isinstance(found, list) and found else ["channel/"]

    def _wanted(self) -> Iterator[tuple[str, str]]:
        """Every package of the environments, with the digest of ours or the sha256 of the foundation's."""
        for key, value in sorted(self.inputs.items()):
            kind, _, name = key.partition(":")
            if kind in {"package", "foundation"}:
                yield name, value.split(" ")[-1]

    def _remote(self, address: str, hashes: set[str]) -> Iterator[RemoteFile]:
        """Where those of the foundation's packages are that have one of ``hashes``, as far as the package says it."""
        dependencies = self.rendered.get("finalized_dependencies") or {}
        records = [one for part in ("build", "host") for one in (dependencies.get(part) or {}).get("resolved") or ()]
        for sha256, record in {one.get("sha256"): one for one in records}.items():
            subdir, name, size_bytes = record.get("subdir"), str(record.get("fn")), record.get("size")
            is_safe = subdir in {current_platform(), NOARCH} and name.endswith(PACKAGE_SUFFIX) and "/" not in name
            if sha256 in hashes and is_safe and isinstance(size_bytes, int):
                path = f"{subdir}/{name}"
                url = f"{address.rstrip('/')}/{path}"
                yield RemoteFile(path=path, size_bytes=size_bytes, sha256=sha256, url=url)


def read_recorded(package: Path) -> RecordedEnvironment:
    """What the package says of its build. Raises UsageError where it says nothing, IntegrityError where damaged."""
    info = read_package(package, contents=False)
    inputs = recorded_in(info.about).get("inputs")
    if not isinstance(inputs, dict):
        hint = "only packages that channel_tools build made can be built again; not those of a foundation"
        raise UsageError(f"{package}: carries no record of what it was built from", hint=hint)
    content = read_info_files(package, frozenset({RENDERED_RECIPE})).get(RENDERED_RECIPE, b"")
    rendered = load_plain_yaml(content)
    return RecordedEnvironment(
        package=package,
        info=info,
        inputs={str(key): str(value) for key, value in inputs.items()},
        rendered=rendered if isinstance(rendered, dict) else {},
    )


def _row(path: Path) -> CachedPackage:
    return cached_package(path, read_package(path, contents=False), indexed_ms=0)


def _write_index(folder: Path, rows: Mapping[Path, CachedPackage]) -> None:
    """The indexes of a channel with these packages (``.../subdir/file name``), which are linked into it."""
    for subdir in (current_platform(), NOARCH):
        here = {path: row for path, row in rows.items() if path.parent.name == subdir}
        (folder / subdir).mkdir(parents=True, exist_ok=True)
        for path in here:
            if path.parent != folder / subdir:
                link_or_copy(path, folder / subdir / path.name)
        records = {path.name: msgspec.Raw(row.record_json) for path, row in here.items()}
        exports = {path.name: msgspec.Raw(row.exports_json) for path, row in here.items()}
        (folder / subdir / REPODATA).write_bytes(encode_repodata(subdir, records))
        (folder / subdir / RUN_EXPORTS).write_bytes(encode_run_exports(subdir, exports))


def _last_part(address: str) -> str:
    name = address.rstrip("/").rpartition("/")[2]
    return name if name.replace("-", "").replace("_", "").isalnum() else "channel"
