# SPDX-License-Identifier: BSD-3-Clause
"""``bump``: another version of a recipe's software, written into the tree if everything about it holds.

The tree as it would be is made beside the real one, of links and of the few files that change, and is loaded, expanded
and its patches tried as every tree's are. So what is written has been read by the tree's own reader before.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

import msgspec

from channel_tools.matrix import load_tree
from channel_tools.matrix.bump import (
    ChangedTree,
    changed_lines,
    check_version,
    every_variant,
    overriding_stacks,
    renamed,
    texts_of_overrides,
    texts_of_recipe,
    texts_of_variants,
    version_place,
    versions_to_replace,
    with_hashes,
)
from channel_tools.matrix.site import path_named_by, read_source_mirrors
from channel_tools.plan.inputs import TreeFiles
from channel_tools.sources.model import NeededSource, file_name_of, needed_sources
from channel_tools.sources.patches import try_patches
from channel_tools.sources.store import SourceStore
from channel_tools.system.counting import counted
from channel_tools.system.errors import (
    ChannelToolsError,
    ConfigError,
    NetworkError,
    UsageError,
    nearest_names_hint,
    signals_raised_afterwards,
)
from channel_tools.system.files import replace_files
from channel_tools.system.settings import Tree
from channel_tools.system.work_folder import temporary_folder
from channel_tools.system.yamlfile import read_yaml_text
from channel_tools.workflow.sources import fetch_missing, fetch_new, patched_sources

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from channel_tools.matrix import LoadedTree, RenderedPackage
    from channel_tools.matrix.bump import ChangedLine, VersionPlace
    from channel_tools.matrix.model import RecipeFile, Stack
    from channel_tools.requests.init import BumpRequest
    from channel_tools.system.progress import Progress
    from channel_tools.system.settings import Settings

_UNKNOWN_SHA256 = "0" * 64
"""Stands for the sha256 in an override until the source is there."""
_DOWNLOADS_AT_ONCE = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class NewSource:
    """The source of the new version."""

    url: str
    sha256: str
    is_checked: bool
    """Whether the bytes of this hash are in the source store; if not, the hash was given and nothing was fetched."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bumped:
    """What ``bump`` changed, or with ``check`` would change; paths are relative to the tree."""

    recipe: str
    old: tuple[str, ...]
    new: str
    variants: int
    """The number of variants that have the new version, over all stacks, foundations and platforms."""
    lines: tuple[ChangedLine, ...]
    sources: tuple[NewSource, ...]
    patches: tuple[str, ...]
    """Those that apply."""
    unchecked: tuple[str, ...]
    """Those that could not be tried, since their source is not there."""
    moved: tuple[tuple[str, str], ...]
    """Patch files that have another path now."""
    also: tuple[str, ...]
    """Other recipes that use the variant key of the version."""

    def as_json(self) -> dict[str, object]:
        """The values as a JSON document of schema 1."""
        return {"schema": 1, **msgspec.to_builtins(self, enc_hook=str)}


def bump(settings: Settings, request: BumpRequest, progress: Progress) -> Bumped:
    """Write the new version of a recipe into the tree, the sha256 of its sources, and the paths of its patches.

    Raises UsageError and ConfigError for a recipe or version that is not there or cannot be changed, the errors of
    fetching, ConfigError if a patch does not apply, and as replace_files does; then nothing has been written.
    """
    check_version(request.version)
    loaded = load_tree(settings.tree, settings.environ)
    recipe = _recipe_of(loaded, request.package)
    with temporary_folder() as folder:
        return _Bump(settings, request, progress, loaded, recipe, folder).run()


@dataclass(frozen=True, kw_only=True, slots=True)
class Latest:
    """A recipe and its newest version: ``changes`` shows what is new, ``bumped`` is None where it has that already."""

    recipe: str
    version: str
    changes: str = ""
    bumped: Bumped | None = None
    error: ChannelToolsError | None = None

    def as_json(self) -> dict[str, object]:
        """The values as plain ones."""
        return {
            "recipe": self.recipe,
            "version": self.version,
            "changes": self.changes,
            "bumped": None if self.bumped is None else self.bumped.as_json(),
            "error": None if self.error is None else self.error.message,
        }


def bump_latest(settings: Settings, request: BumpRequest, progress: Progress) -> list[Latest]:
    """Bring a recipe, or each recipe of the tree that has upstream's sources, to upstream's newest release.

    With several, one that fails does not stop the others, and has its error. Raises as bump and find_release.
    """
    loaded = load_tree(settings.tree, settings.environ)
    if request.package:
        return [_latest(settings, request, progress, loaded)]
    rows = []
    for name, recipe in loaded.recipes.items():
        of_one = replace(request, package=name)
        if recipe.path.is_relative_to(loaded.tree.upstreams) and not _overrides_version(loaded, name):
            continue
        if not any(source.kind != "path" for one in every_variant(loaded, name) for source in one.sources):
            continue
        try:
            rows.append(_latest(settings, of_one, progress, loaded))
        except ChannelToolsError as err:
            rows.append(Latest(recipe=name, version="", error=err))
    return rows


def _overrides_version(loaded: LoadedTree, name: str) -> bool:
    overrides = (stack.overrides.get(name) for stack in loaded.own_stacks)
    return any(override is not None and override.version is not None for override in overrides)


def _latest(settings: Settings, request: BumpRequest, progress: Progress, loaded: LoadedTree) -> Latest:
    from channel_tools.conda.clients import make_http_client  # noqa: PLC0415 - slow to import
    from channel_tools.sources.model import SourceMirrors  # noqa: PLC0415
    from channel_tools.sources.releases import find_release  # noqa: PLC0415

    recipe = _recipe_of(loaded, request.package)
    packages = every_variant(loaded, recipe.name)
    old = request.old or _only_version(recipe, [package.version for package in packages])
    sources = [source for package in packages if package.version == old for source in package.sources]
    # the one that the version is in, else a repository
    named = [source for source in sources if source.kind != "path" and (old in source.location or source.revision)]
    if not named:
        message = f"no source of {recipe.name} {old} is upstream's: nothing says where its releases are"
        raise recipe.document.error(message, "source", hint="give the version: channel_tools bump RECIPE VERSION")
    source = min(named, key=lambda source: old not in source.location)
    release = find_release(
        source.location,
        old,
        client=make_http_client(settings.environ),
        mirrors=SourceMirrors(places=read_source_mirrors(settings.tree)),
    )
    if release.version == old:
        return Latest(recipe=recipe.name, version=old)
    commit = request.commit or (release.commit if source.kind == "git" else None)
    wanted = replace(request, version=release.version, latest=False, old=old, commit=commit)
    bumped = bump(settings, wanted, progress)
    return Latest(recipe=recipe.name, version=release.version, changes=release.changes, bumped=bumped)


def _only_version(recipe: RecipeFile, versions: Sequence[str]) -> str:
    """The version that a recipe has. Raises UsageError for none and for several."""
    distinct = sorted({*versions})
    if len(distinct) == 1:
        return distinct[0]
    listed = f"several versions: {', '.join(distinct)}" if distinct else "no variant here"
    message = f"{recipe.name} has {listed}"
    raise UsageError(
        message, hint=f"say which one the newest replaces: channel_tools bump {recipe.name} --latest --from"
    )


def _recipe_of(loaded: LoadedTree, name: str) -> RecipeFile:
    """The recipe of that name. Raises UsageError."""
    if (recipe := loaded.recipes.get(name)) is None:
        hint = nearest_names_hint(name, loaded.recipes, noun="recipe")
        raise UsageError(f"the tree has no recipe {name!r}", hint=hint)
    return recipe


class _Bump:
    """One run: the tree as it is and as it would be."""

    def __init__(
        self,
        settings: Settings,
        request: BumpRequest,
        progress: Progress,
        loaded: LoadedTree,
        recipe: RecipeFile,
        folder: Path,
    ) -> None:
        self._settings = settings
        self._request = request
        self._progress = progress
        self._loaded = loaded
        self._recipe = recipe
        self._folder = folder
        self._location: VersionPlace = version_place(loaded, recipe)
        self._before = every_variant(loaded, recipe.name)
        self._stacks = self._overriding_stacks()
        self._old = self._old_versions()

    def run(self) -> Bumped:
        """Everything, and at the end the writing."""
        texts = self._texts()
        patches = self._moved_patches()
        after = self._expanded_with(texts, patches)
        hashes, sources = self._new_sources(after)
        texts = with_hashes(texts, hashes)
        after = self._expanded_with(texts, patches)
        self._check_others(after)
        applied, unchecked = self._try_patches(after, sources)
        removed = self._unused(patches, texts)
        lines = [
            line
            for path, text in texts.items()
            for line in changed_lines(self._shown(path), read_yaml_text(path), text)
        ]
        if not self._request.check:
            with signals_raised_afterwards():  # of all files or of none
                copies = ((new, old.read_bytes()) for old, new in patches.items())
                replace_files([*copies, *((path, text.encode()) for path, text in texts.items())])
                for path in removed:
                    path.unlink()
                    with contextlib.suppress(OSError):
                        path.parent.rmdir()
        key = self._location.key
        return Bumped(
            recipe=self._recipe.name,
            old=self._old,
            new=self._request.version,
            variants=len(self._with_new(after)),
            lines=tuple(lines),
            sources=tuple(sources),
            patches=tuple(applied),
            unchecked=tuple(unchecked),
            moved=tuple((str(self._shown(old)), str(self._shown(new))) for old, new in sorted(patches.items())),
            also=tuple(
                sorted(
                    name
                    for name, recipe in self._loaded.recipes.items()
                    if key in recipe.used_keys and name != self._recipe.name
                )
            ),
        )

    def _overriding_stacks(self) -> tuple[Stack, ...]:
        if self._location.kind == "override":
            return overriding_stacks(self._loaded, self._recipe, self._request.stack)
        if self._request.stack is not None:
            message = f"the recipe {self._recipe.name} is the tree's own, the same for every stack"
            raise UsageError(message, hint="leave --variant out; it chooses among overrides of an upstream's recipe")
        return ()

    def _old_versions(self) -> tuple[str, ...]:
        """The versions to replace. Raises UsageError unless it is clear which."""
        versions = sorted({package.version for package in self._before if self._is_concerned(package)})
        request = self._request
        return versions_to_replace(self._recipe, self._location, versions, old=request.old, new=request.version)

    def _is_concerned(self, package: RenderedPackage) -> bool:
        return not self._stacks or package.stack in {stack.name for stack in self._stacks}

    def _texts(self) -> dict[Path, str]:
        """The files with the new version, and with the old hashes."""
        recipe, location, new = self._recipe, self._location, self._request.version
        if location.kind == "override":
            return texts_of_overrides(self._loaded, recipe, self._stacks, new, self._request.sha256 or _UNKNOWN_SHA256)
        (old,) = self._old
        texts = texts_of_recipe(recipe, location, old, new)
        if location.key is not None:
            texts |= texts_of_variants(self._loaded, location.key, old, new)
        if self._request.commit is not None:
            texts = with_hashes(texts, {self._old_commit(): self._request.commit})
        return texts

    def _old_commit(self) -> str:
        """The one commit of the recipe that its version stands for. Raises UsageError."""
        commits = {
            str(source.revision) for package in self._with_old() for source in package.sources if source.revision
        }
        context = self._recipe.document.value
        named = context.get("context") if isinstance(context, dict) else None
        if isinstance(named, dict) and isinstance(named.get("commit"), str):
            commits = {str(named["commit"])}
        if len(commits) != 1:
            message = (
                f"{self._recipe.name} has {counted(len(commits), 'git source')}; --commit replaces the commit of one"
            )
            raise UsageError(message, hint="change the commits by hand, and bump without --commit")
        return commits.pop()

    def _moved_patches(self) -> dict[Path, Path]:
        """The tree's patches whose path has the version, and their new paths; those that are there already stay."""
        moved: dict[Path, Path] = {}
        tree = self._loaded.tree
        upstreams, root = tree.upstreams, tree.root
        is_override = self._location.kind == "override"
        for package in self._with_old():
            for source in package.sources:
                for name in source.patches:
                    old = path_named_by(tree, package.recipe_file.folder, name)
                    inside = old.relative_to(root)
                    if not is_override and old.is_relative_to(upstreams):  # of a recipe that was copied from there
                        inside = inside.relative_to(*inside.parts[:2])
                    new = root / renamed(inside.as_posix(), package.version, self._request.version)
                    is_there = new.is_file() or (is_override and any(new.parent.glob("*.patch")))
                    if new != old and not new.is_relative_to(upstreams) and not is_there:
                        moved[old] = new
        return moved

    def _expanded_with(self, texts: Mapping[Path, str], patches: Mapping[Path, Path]) -> list[RenderedPackage]:
        """The recipe's variants in the tree as it would be. Raises ConfigError, which names the real files."""
        contents = {path: text.encode() for path, text in texts.items()}
        contents |= {new: old.read_bytes() for old, new in patches.items()}
        self._changed = ChangedTree(self._loaded, self._settings.environ, Path(mkdtemp(dir=self._folder)), contents)
        with self._named():
            return every_variant(self._changed.loaded(), self._recipe.name)

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """Have an error say that it is one of the tree as it would be."""
        with self._changed.real_names(f"with version {self._request.version}: "):
            yield

    def _with_old(self) -> list[RenderedPackage]:
        return [package for package in self._before if package.version in self._old and self._is_concerned(package)]

    def _with_new(self, after: Sequence[RenderedPackage]) -> list[RenderedPackage]:
        new = self._request.version
        return [package for package in after if package.version == new and self._is_concerned(package)]

    def _check_others(self, after: Sequence[RenderedPackage]) -> None:
        """Raise ConfigError unless exactly the variants of the old version have the new one, and no other changed."""
        old, new = self._with_old(), self._with_new(after)
        others = [_value(package) for package in self._before if package not in old]
        remaining = [_value(package) for package in after if package not in new]
        if len(old) != len(new) or Counter(others) != Counter(remaining):
            message = (
                f"with version {self._request.version}, {counted(len(new), 'variant')} would have it in place of "
                f"{len(old)}, and {counted(len(set(remaining) - set(others)), 'other')} would change"
            )
            hint = "the recipe's conditions name the version in a way that is not followed: change it by hand"
            raise ConfigError(message, path=self._recipe.path, hint=hint)

    def _new_sources(self, after: Sequence[RenderedPackage]) -> tuple[dict[str, str], list[NewSource]]:
        """The sha256 of each source that is another now, by the one that the texts have; each is in the store.

        Raises ConfigError if no source changes with the version, and the errors of fetching.
        """
        known = {(source.location, source.revision) for package in self._with_old() for source in package.sources}
        named = [source for package in self._with_new(after) for source in package.sources if source.kind != "path"]
        changed = [source for source in named if (source.location, source.revision) not in known]
        if named and not changed:
            message = f"no source of {self._recipe.name} changes with its version: {named[0].location}"
            hint = "give the commit of the new version: --commit" if self._request.commit is None else "check --commit"
            raise self._recipe.document.error(message, "source", hint=hint)
        by_hash: dict[str, tuple[str, ...]] = {}
        for source in changed:
            if source.sha256 is not None:
                urls = (*by_hash.get(source.sha256, ()), source.location, *source.mirrors)
                by_hash[source.sha256] = tuple(dict.fromkeys(urls))
        if self._request.sha256 is not None and len(by_hash) != 1:
            message = f"{counted(len(by_hash), 'source')} with a sha256 would change; --sha256 is that of one"
            raise UsageError(message, hint="leave --sha256 out: they are downloaded")
        fetched = {old: self._fetched(urls) for old, urls in by_hash.items()}
        return {old: source.sha256 for old, source in fetched.items()}, list(fetched.values())

    def _fetched(self, urls: Sequence[str]) -> NewSource:
        """The source at these addresses, in the store; with a given sha256 it may be missing there."""
        sha256 = self._request.sha256
        if sha256 is None:
            try:
                need = fetch_new(self._settings, urls, self._progress)
            except NetworkError as err:
                hint = "check the version; where its address cannot be reached, give its sha256: --sha256"
                raise NetworkError(f"the source of version {self._request.version}: {err}", hint=hint) from None
            return NewSource(url=urls[0], sha256=need.identity, is_checked=True)
        package = f"{self._recipe.name} {self._request.version}"
        need = NeededSource(
            kind="url", identity=sha256, urls=tuple(urls), names=(file_name_of(urls[0]),), packages=(package,)
        )
        try:
            fetch_missing(self._settings, [need], jobs=1, progress=self._progress)
        except NetworkError as err:
            self._progress.note(f"{err}; the sha256 is the given one, and patches are not tried")
            return NewSource(url=urls[0], sha256=sha256, is_checked=False)
        return NewSource(url=urls[0], sha256=sha256, is_checked=True)

    def _try_patches(
        self, after: Sequence[RenderedPackage], sources: Sequence[NewSource]
    ) -> tuple[list[str], list[str]]:
        """The patches that apply to the new version, and those that cannot be tried. Raises ConfigError for others."""
        patched = [package for package in self._with_new(after) if any(source.patches for source in package.sources)]
        lacking = {source.sha256 for source in sources if not source.is_checked}
        store = SourceStore(folder=self._settings.sources)
        results: dict[str, str | None] = {}
        unchecked: dict[str, None] = {}
        seen: set[str] = set()
        for package in patched:
            names = [self._shown_patch(package, name) for source in package.sources for name in source.patches]
            if any(source.sha256 in lacking for source in package.sources):
                unchecked |= dict.fromkeys(names)
                continue
            with self._named():
                fetch_missing(
                    self._settings, needed_sources([package]), jobs=_DOWNLOADS_AT_ONCE, progress=self._progress
                )
                root = self._changed.root
                tried = patched_sources(
                    store, Tree(root=root), package, TreeFiles(root, real_root=self._loaded.tree.root).of_build(package)
                )
            if (key := repr(tried)) not in seen:
                seen.add(key)
                for path, error in try_patches(tried):
                    name = path.relative_to(root).as_posix()
                    results[name] = results.get(name) or (
                        None if error is None else f"fails: {str(error).removeprefix(f'{path}:')}"
                    )
        failed = [name for name, error in results.items() if error is not None]
        if failed:
            raise self._patch_error(results, failed)
        return list(results), list(unchecked)

    def _patch_error(self, results: Mapping[str, str | None], failed: Sequence[str]) -> ConfigError:
        rows = [f"{name}: {'applies' if error is None else error}" for name, error in results.items()]
        failures = f"{len(failed)} of {counted(len(results), 'patch', 'patches')}"
        message = f"{failures} of {self._recipe.name} does not apply to {self._request.version}; nothing was written:\n"
        if len(failed) > 1:
            message = message.replace(" does not apply", " do not apply")
        hint = (
            f"write the patch for the new version to {failed[0]}, or take it out of the recipe, and run the same again"
        )
        return ConfigError(message + "\n".join(rows), path=self._recipe.path, hint=hint)

    def _shown_patch(self, package: RenderedPackage, name: str) -> str:
        root = self._changed.root
        return path_named_by(Tree(root=root), package.recipe_file.folder, name).relative_to(root).as_posix()

    def _unused(self, patches: Mapping[Path, Path], texts: Mapping[Path, str]) -> list[Path]:
        """The old patch files that no recipe of the tree names any more; those of overrides and of upstreams stay."""
        if self._location.kind == "override":
            return []
        root = self._loaded.tree.root
        recipes = [texts.get(path) or read_yaml_text(path) for path in self._loaded.tree.recipes.glob("*/recipe.yaml")]
        own = (old for old in patches if not old.is_relative_to(self._loaded.tree.upstreams))
        return [old for old in own if not any(old.relative_to(root).as_posix() in text for text in recipes)]

    def _shown(self, path: Path) -> Path:
        return path.relative_to(self._loaded.tree.root)


def _value(package: RenderedPackage) -> str:
    """What must not change in a variant that is not bumped."""
    return repr((package.stack, package.platform, sorted(package.variant.items()), package.recipe))
