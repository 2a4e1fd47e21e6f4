# SPDX-License-Identifier: BSD-3-Clause
"""The recipe that a package carries below ``info/recipe``, as a folder to build from again.

It is the rendered folder that the package was built from, but for two things: sources have upstream's addresses there,
where the build took them from the source store, and the engine leaves out files whose names begin with a dot.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from channel_tools.build.model import RECIPE_FILE
from channel_tools.build.settle import source_date_of
from channel_tools.conda.archive import stream_component
from channel_tools.foundation.unpack import TreeWriter
from channel_tools.plan.render import dated_script
from channel_tools.provenance.statements import recorded_in
from channel_tools.sources.model import NeededSource, file_name_of, source_excludes
from channel_tools.system.errors import UsageError
from channel_tools.system.yamlfile import dump_yaml, load_plain_yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from channel_tools.conda.archive import PackageInfo
    from channel_tools.sources.store import SourceStore

_FOLDER = "info/recipe/"
_OF_ENGINE = frozenset({"rendered_recipe.yaml", "variant_config.yaml"})
"""What the engine adds to the folder that it was given."""
_MS = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class CarriedRecipe:
    """A package's recipe: its text, its values, and what the package says of itself."""

    package: Path
    info: PackageInfo
    text: str
    recipe: Mapping[str, Any]

    def needs(self, store: SourceStore) -> tuple[NeededSource, ...]:
        """The sources that it was built from."""
        return tuple(need for _entry, need in self._sources(store))

    def write(self, folder: Path, store: SourceStore) -> tuple[str, ...]:
        """Write the folder to build from, which takes its sources from ``store``; returns what it lacks, as notes.

        Raises IntegrityError for a source that the store does not hold, and for a damaged package.
        """
        writer = TreeWriter(folder, self.package)
        folder.mkdir()
        hashes = set()
        for member, stream in stream_component(self.package, "info"):
            name = member.name.removeprefix(_FOLDER)
            if stream is not None and member.name.startswith(_FOLDER) and name not in _OF_ENGINE:
                path = writer.write_file(name, stream, executable=bool(member.mode & 0o111))
                hashes.add(hashlib.sha256(path.read_bytes()).hexdigest())
        (folder / RECIPE_FILE).write_text(self.text_for(folder, store), encoding="utf-8")
        files = {key: value for key, value in recorded_in(self.info.about)["inputs"].items() if key.startswith("file:")}
        lacking = [key.removeprefix("file:") for key, value in files.items() if value.split(" ")[0] not in hashes]
        return tuple(f"the recipe that it carries lacks {name}" for name in sorted(lacking))

    def text_for(self, folder: Path, store: SourceStore) -> str:
        """The recipe.yaml to build from in ``folder``, which has the other files."""
        supplied = {id(entry): _supplied(entry, need, store) for entry, need in self._sources(store)}
        date_s = source_date_of(self.recipe)
        if not supplied and date_s is not None:
            return self.text
        recipe = dict(self.recipe)
        if supplied:
            recipe["source"] = [supplied.get(id(entry), entry) for entry in _entries(recipe)]
        if date_s is None:  # built before packages had a date of their own
            build, made_ms = recipe.get("build") or {}, self.info.index.get("timestamp")
            files = {path.name for path in folder.iterdir()}
            made_s = made_ms // _MS if isinstance(made_ms, int) else 0
            recipe["build"] = {**build, "script": dated_script(build.get("script"), made_s, files=files)}
        header = [line for line in self.text.splitlines(keepends=True)[:1] if line.startswith("#")]
        return "".join(header) + dump_yaml(recipe)

    def _sources(self, store: SourceStore) -> Iterator[tuple[Mapping[str, Any], NeededSource]]:
        """Each entry of the recipe that was taken from the store, with what the store knows it by."""
        taken = [entry for entry in _entries(self.recipe) if "path" not in entry]
        origins = recorded_in(self.info.about).get("sources") or ()
        for entry, origin in zip(taken, origins, strict=True):
            need = _need_of(origin, source_excludes(dict(self.recipe)))
            others = (need, replace(need, submodules=False))
            same = (one for one in others if (held := store.find(one)) and held.sha256 == entry.get("sha256"))
            yield entry, next(same, need)


def read_carried(package: Path, info: PackageInfo) -> CarriedRecipe:
    """The recipe in a package, of which ``info`` was read.

    Raises UsageError for a package that carries none, IntegrityError for a damaged one.
    """
    members = stream_component(package, "info")
    found = (stream.read() for member, stream in members if member.name == _FOLDER + RECIPE_FILE and stream)
    content = next(found, None)
    if content is None:
        raise UsageError(f"{package}: carries no recipe", hint="only packages that channel_tools build made do")
    recipe = load_plain_yaml(content)
    return CarriedRecipe(package=package, info=info, text=content.decode(), recipe=recipe)


def _need_of(origin: Mapping[str, Any], excludes: tuple[str, ...]) -> NeededSource:
    if "url" in origin:
        urls = tuple(origin["url"])
        return NeededSource(kind="url", identity=origin["sha256"], urls=urls, names=(file_name_of(urls[0]),))
    urls = tuple(origin["git"])
    name = file_name_of(urls[0]).removesuffix(".git")
    return NeededSource(kind="git", identity=origin["rev"], urls=urls, names=(name,), excludes=excludes)


def _supplied(entry: Mapping[str, Any], need: NeededSource, store: SourceStore) -> dict[str, Any]:
    return {**entry, "url": store.supply(need, need.names[0]).as_uri()}


def _entries(recipe: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    entries = recipe.get("source") or []
    return entries if isinstance(entries, list) else [entries]
