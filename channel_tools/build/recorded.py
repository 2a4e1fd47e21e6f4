# SPDX-License-Identifier: BSD-3-Clause
"""What a package records about its own build: the recipe in ``info/recipe`` as a folder to build from again, and the
packages it was built with as channels that have only these, so that the engine solves for exactly them.

The recipe is the rendered folder that the package was built from, except for two things: sources have upstream's
addresses, though the build took them from the source store, and the engine leaves out files whose names start with a
dot.

The engine's own Package.rebuild (0.73) would do it in the environments as they are recorded, but reports nothing while
it builds: no log, and no moment to compile byte code again (engine.py), which Python packages would then lack.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import msgspec

from channel_tools.build.model import RECIPE_FILE
from channel_tools.build.settle import source_date_of
from channel_tools.channel.records import cached_package
from channel_tools.channel.store import indexed_files
from channel_tools.conda.addresses import channel_name, local_path, without_credentials
from channel_tools.conda.archive import read_info_files, read_package, stream_component
from channel_tools.conda.clients import make_http_client
from channel_tools.conda.compiled_in import RENDERED_RECIPE
from channel_tools.conda.fetch import FetchOptions, RemoteFile, fetch_files
from channel_tools.conda.package import NOARCH, PACKAGE_SUFFIX, subdirs_of
from channel_tools.conda.platforms import current_platform
from channel_tools.conda.repodata import REPODATA, RUN_EXPORTS, encode_repodata, encode_run_exports
from channel_tools.foundation.unpack import TreeWriter
from channel_tools.provenance.statements import recorded_in
from channel_tools.sources.model import NeededSource, file_name_of, source_excludes
from channel_tools.system.errors import FoundationError, NetworkError, UsageError
from channel_tools.system.files import link_or_copy
from channel_tools.system.source_files import LINK_MARK
from channel_tools.system.yamlfile import dump_yaml, load_plain_yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from channel_tools.channel.model import Channel
    from channel_tools.channel.records import CachedPackage
    from channel_tools.conda.archive import PackageInfo
    from channel_tools.sources.store import SourceStore
    from channel_tools.system.progress import Progress

_DOWNLOADS_AT_ONCE = 4
_FOLDER = "recipe/"
_OF_ENGINE = frozenset({"rendered_recipe.yaml", "variant_config.yaml"})
"""Files that the engine adds to the recipe's folder."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvironmentChannel:
    """A channel in ``folder`` that replaces the one that the package records as ``recorded``."""

    folder: Path
    recorded: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedBuild:
    """The recipe inside a package, as text and as values, and as ``rendered`` by the engine."""

    package: Path
    info: PackageInfo
    text: str
    recipe: Mapping[str, Any]
    rendered: Mapping[str, Any]

    @property
    def inputs(self) -> Mapping[str, str]:
        """The inputs of its digest."""
        return {str(key): str(value) for key, value in recorded_in(self.info.about)["inputs"].items()}

    @property
    def engine(self) -> str | None:
        """The version of rattler-build that built it."""
        tools = self.rendered.get("system_tools")
        return tools.get("rattler-build") if isinstance(tools, dict) else None

    def sources(self, store: SourceStore) -> tuple[NeededSource, ...]:
        """The sources that it was built from."""
        return tuple(need for _entry, need in self._sources(store))

    def write_recipe(self, folder: Path, store: SourceStore) -> tuple[str, ...]:
        """Write the folder to build from, with sources from ``store``; returns notes on files that it lacks.

        Raises IntegrityError for a source that is not in the store, and for a damaged package.
        """
        writer = TreeWriter(folder, self.package)
        folder.mkdir()
        hashes, inside = set(), f"info/{_FOLDER}"
        for member, stream in stream_component(self.package, "info"):
            name = member.name.removeprefix(inside)
            if member.issym() and member.name.startswith(inside):
                writer.write_link(name, member.linkname, may_lead_out=True)
            if stream is not None and member.name.startswith(inside) and name not in _OF_ENGINE:
                path = writer.write_file(name, stream, executable=bool(member.mode & 0o111))
                hashes.add(hashlib.sha256(path.read_bytes()).hexdigest())
        (folder / RECIPE_FILE).write_text(self.recipe_text(store), encoding="utf-8")
        files = {key.removeprefix("file:"): value for key, value in self.inputs.items() if key.startswith("file:")}
        lacking = []
        for name, value in files.items():
            link = value.removeprefix(LINK_MARK) if value.startswith(LINK_MARK) else None
            if link is not None and ".." not in PurePosixPath(name).parts:
                writer.write_link(name, link, may_lead_out=True)
            elif link is None and value.split(" ")[0] not in hashes:
                lacking.append(name)
        return tuple(f"its recipe lacks {name}" for name in sorted(lacking))

    def recipe_text(self, store: SourceStore) -> str:
        """The recipe.yaml to build from."""
        supplied = {
            id(entry): {**entry, "url": store.supply(need, need.names[0]).as_uri()}
            for entry, need in self._sources(store)
        }
        if not supplied:
            return self.text
        recipe = dict(self.recipe)
        recipe["source"] = [supplied.get(id(entry), entry) for entry in _entries(recipe)]
        header = [line for line in self.text.splitlines(keepends=True)[:1] if line.startswith("#")]
        return "".join(header) + dump_yaml(recipe)

    def _sources(self, store: SourceStore) -> Iterator[tuple[Mapping[str, Any], NeededSource]]:
        """Each entry of the recipe that came from the store, with its identity in the store."""
        from_store = [entry for entry in _entries(self.recipe) if "path" not in entry]
        origins = recorded_in(self.info.about).get("sources") or ()
        for entry, origin in zip(from_store, origins, strict=True):
            need = _need_of(origin, source_excludes(dict(self.recipe)))
            needs = (need, replace(need, submodules=False))
            same = (other for other in needs if (held := store.find(other)) and held.sha256 == entry.get("sha256"))
            yield entry, next(same, need)

    def link_environment(
        self, channel: Channel, holder: Path, *, environ: Mapping[str, str], offline: bool, progress: Progress
    ) -> tuple[EnvironmentChannel, ...]:
        """Create the channels in ``holder``: from ``channel``, and from its foundation's addresses (further channels).

        Raises FoundationError for packages that no longer exist, NetworkError for a foundation that cannot be reached.
        """
        files = indexed_files(channel, subdirs_of(channel.files)).values()
        known = {file.ref.sha256: file for file in files}
        known |= {file.row.digest: file for file in files if file.row.digest is not None}
        wanted = dict(self._wanted())
        missing = {name: identity for name, identity in wanted.items() if identity not in known}
        channels = self.info.about.get("channels")
        names = [str(name) for name in channels] if isinstance(channels, list) and channels else ["channel/"]
        own = EnvironmentChannel(folder=holder / "own" / _last_part(names[0]), recorded=names[0])
        in_channel = [known[identity] for identity in wanted.values() if identity in known]
        # shards (CEP 16) say that a package has none, and so the engine's record of a build from a
        # server; a folder's index does not
        without_exports = frozenset(
            str(package.get("sha256")) for _part, package in self._resolved() if package.get("run_exports") == {}
        )
        _write_index(own.folder, {file.path: file.row for file in in_channel}, without_exports)
        addresses = channel.foundation.addresses
        others = names[1:] or names  # a package that names no channel was built from the foundation's, too
        places = [(name, _address_among(addresses, name)) for name in others] if addresses else []
        remote = {
            name: list(self._remote(address, set(missing.values()), name if len(places) > 1 else None))
            for name, address in places
        }
        if unavailable := set(missing.values()) - {file.sha256 for files in remote.values() for file in files}:
            lines = "\n".join(f"{name} {identity}" for name, identity in missing.items() if identity in unavailable)
            hint = "rebuild it with a copy or a mirror of the channel that still has these packages"
            message = f"{channel.path}: no longer has these packages that {self.package.name} was built with:\n{lines}"
            raise FoundationError(message, hint=hint)
        linked = [own]
        for number, (name, address) in enumerate(places):
            if offline and local_path(address) is None:
                shown = without_credentials(address)
                raise NetworkError(f"the channel {shown} needs the network", hint="leave out --offline")
            other = EnvironmentChannel(folder=holder / f"other-{number}" / _last_part(name), recorded=name)
            options = FetchOptions(client=make_http_client(environ), jobs=_DOWNLOADS_AT_ONCE)
            fetch_files(remote[name], other.folder, options=options, progress=progress)
            rows = {
                path: cached_package(path, read_package(path, contents=False), indexed_ms=0)
                for path in sorted(other.folder.glob(f"*/*{PACKAGE_SUFFIX}"))
            }
            _write_index(other.folder, rows, without_exports)
            linked.append(other)
        return tuple(linked)

    def _wanted(self) -> Iterator[tuple[str, str]]:
        """Every package of the environments, with the digest of ours or the sha256 of the foundation's.

        Those of the foundation that the digest leaves out are named by the engine's record alone.
        """
        known = set()
        for key, value in sorted(self.inputs.items()):
            kind, _, name = key.partition(":")
            if kind in {"package", "foundation"}:
                known.add(name)
                yield name, value.split(" ")[-1]
        for part, record in self._resolved():
            name = f"{part}/{record.get('name')}"
            if not {name, record.get("name")} & known and record.get("sha256"):
                yield name, record["sha256"]

    def _resolved(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """The packages that the engine resolved, with the environment of each."""
        dependencies = self.rendered.get("finalized_dependencies") or {}
        for part in ("build", "host"):
            yield from ((part, package) for package in (dependencies.get(part) or {}).get("resolved") or ())

    def _remote(self, address: str, hashes: set[str], channel: str | None) -> Iterator[RemoteFile]:
        """The addresses of packages with ``hashes``, as far as the package records them: of ``channel`` (None: any)."""
        resolved = (package for _part, package in self._resolved())
        if channel is not None:
            resolved = (
                package for package in resolved if str(package.get("channel")).rstrip("/") == channel.rstrip("/")
            )
        for sha256, record in {package.get("sha256"): package for package in resolved}.items():
            subdir, name, size_bytes = record.get("subdir"), str(record.get("fn")), record.get("size")
            is_safe = subdir in {current_platform(), NOARCH} and name.endswith(PACKAGE_SUFFIX) and "/" not in name
            if sha256 in hashes and is_safe and isinstance(size_bytes, int):
                path = f"{subdir}/{name}"
                url = f"{address.rstrip('/')}/{path}"
                yield RemoteFile(path=path, size_bytes=size_bytes, sha256=sha256, url=url)


def read_recorded(package: Path) -> RecordedBuild:
    """Read a package's record of its build.

    Raises UsageError if it has none, or no date to build with, IntegrityError if it is damaged.
    """
    info = read_package(package, contents=False)
    if not isinstance(recorded_in(info.about).get("inputs"), dict):
        hint = "only packages made by channel_tools build can be built again, not those of a foundation"
        raise UsageError(f"{package}: has no record of what it was built from", hint=hint)
    files = read_info_files(package, frozenset({_FOLDER + RECIPE_FILE, RENDERED_RECIPE}))
    content = files.get(_FOLDER + RECIPE_FILE)
    if content is None:
        raise UsageError(f"{package}: has no recipe", hint="only packages made by channel_tools build have one")
    recipe = load_plain_yaml(content)
    if source_date_of(recipe) is None:
        message = f"{package}: its recipe sets no date (SOURCE_DATE_EPOCH), so its bytes depend on when it was built"
        raise UsageError(message, hint="packages of channel_tools 0.1 have none: build it anew with this version")
    rendered = load_plain_yaml(files.get(RENDERED_RECIPE, b""))
    return RecordedBuild(
        package=package,
        info=info,
        text=content.decode(),
        recipe=recipe,
        rendered=rendered if isinstance(rendered, dict) else {},
    )


def _need_of(origin: Mapping[str, Any], excludes: tuple[str, ...]) -> NeededSource:
    if "url" in origin:
        urls = tuple(origin["url"])
        return NeededSource(kind="url", identity=origin["sha256"], urls=urls, names=(file_name_of(urls[0]),))
    urls = tuple(origin["git"])
    name = file_name_of(urls[0]).removesuffix(".git")
    return NeededSource(kind="git", identity=origin["rev"], urls=urls, names=(name,), excludes=excludes)


def _entries(recipe: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    entries = recipe.get("source") or []
    return entries if isinstance(entries, list) else [entries]


def _write_index(folder: Path, rows: Mapping[Path, CachedPackage], without_exports: frozenset[str]) -> None:
    """The indexes of a channel with these packages (``.../subdir/file name``), which are linked into it.

    The records of ``without_exports`` say so.
    """
    for subdir in (current_platform(), NOARCH):
        of_subdir = {path: row for path, row in rows.items() if path.parent.name == subdir}
        (folder / subdir).mkdir(parents=True, exist_ok=True)
        for path in of_subdir:
            if path.parent != folder / subdir:
                link_or_copy(path, folder / subdir / path.name)
        records = {
            path.name: {**row.record, "run_exports": {}}
            if row.sha256 in without_exports
            else msgspec.Raw(row.record_json)
            for path, row in of_subdir.items()
        }
        exports = {path.name: msgspec.Raw(row.exports_json) for path, row in of_subdir.items()}
        (folder / subdir / REPODATA).write_bytes(encode_repodata(subdir, records))
        (folder / subdir / RUN_EXPORTS).write_bytes(encode_run_exports(subdir, exports))


def _address_among(addresses: Sequence[str], recorded: str) -> str:
    """Where a channel is that a package was built with: at the address with the recorded last part, else the last."""
    return next((address for address in addresses if channel_name(address) == _last_part(recorded)), addresses[-1])


def _last_part(address: str) -> str:
    name = channel_name(address)
    return name if name.replace("-", "").replace("_", "").isalnum() else "channel"
