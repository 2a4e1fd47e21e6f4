# SPDX-License-Identifier: BSD-3-Clause
"""The source store for a tree: what its recipes need, and how the store is filled, checked, exported and imported."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, get_args

from channel_tools.conda.platforms import current_platform
from channel_tools.matrix import expand_stacks, find_stack, load_tree
from channel_tools.matrix.model import Stack
from channel_tools.matrix.site import path_named_by, read_source_mirrors
from channel_tools.requests.names import FoundationKind
from channel_tools.requests.plan import SourcesRequest
from channel_tools.sources.archives import is_archive
from channel_tools.sources.git import GitRepository, open_repository, repositories_below
from channel_tools.sources.model import SUPPLY_HINT, file_name_of, need_of, needed_sources, source_excludes
from channel_tools.sources.store import SourceStore, stored_entries
from channel_tools.system.counting import counted
from channel_tools.system.errors import ChannelToolsError, ConfigError, IntegrityError, NetworkError, UsageError
from channel_tools.system.files import sha256_of_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from channel_tools.matrix import LoadedTree, RenderedPackage
    from channel_tools.matrix.model import RecipeSource
    from channel_tools.plan import Plan, PlannedPackage
    from channel_tools.plan.model import BuildFile
    from channel_tools.sources.fetch import DebianSources
    from channel_tools.sources.model import NeededSource, StoredSource
    from channel_tools.sources.patches import PatchedSource
    from channel_tools.system.progress import Progress
    from channel_tools.system.settings import Settings, Tree
    from channel_tools.system.yamlfile import YamlValue

_DOWNLOADS_AT_ONCE = 4
_KEPT_KEYS = frozenset({"file_name", "patches", "target_directory"})
"""The keys of a source entry that do not say where to get the bytes."""
_LATER_SUITES = ("trixie", "sid")
"""The suites with tarballs newer than the foundation's packages: of recipes/python, and of PyTorch's third_party."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceRow:
    """A source that recipes need, and its state in the store."""

    need: NeededSource
    stored: StoredSource | None
    origin: str | None

    def as_json(self) -> dict[str, object]:
        """The row as plain values."""
        return {
            "kind": self.need.kind,
            self.need.word: self.need.identity,
            "urls": list(self.need.urls),
            "excludes": list(self.need.excludes),
            "packages": list(self.need.packages),
            "present": self.stored is not None,
            "path": None if self.stored is None else str(self.stored.path),
            "size_bytes": None if self.stored is None else self.stored.size_bytes,
            "origin": self.origin,
        }


def needed_by_tree(settings: Settings, request: SourcesRequest, progress: Progress) -> tuple[NeededSource, ...]:
    """The sources that recipes name in any variant, on the request's foundation or (None) on any; none is read.

    If every stack is requested, this includes recipes that no stack names, provided they render with only the shared
    variant files. Raises the errors of loading and expanding a tree.
    """
    loaded = load_tree(settings.tree, settings.environ)
    kinds = get_args(FoundationKind) if request.foundation is None else (request.foundation,)
    stacks = list(loaded.stacks.values()) if request.every_stack else [find_stack(loaded, request.stack)]
    rendered = [
        package
        for stack in stacks
        for kind in kinds
        for package in expand_stacks(
            loaded, [stack], foundation_kind=kind, platform=current_platform(), packages=request.packages
        )
    ]
    if request.every_stack:
        rendered += _without_stack(loaded, kinds, progress)
    return needed_sources(rendered)


def _without_stack(
    loaded: LoadedTree, kinds: Sequence[FoundationKind], progress: Progress
) -> Iterable[RenderedPackage]:
    named = {name for stack in loaded.stacks.values() for name in stack.packages}
    for name in sorted(loaded.recipes.keys() - named):
        stack = Stack(name=f"({name})", description="", variants=(), packages=(name,), install=(), validation={})
        for kind in kinds:
            try:
                yield from expand_stacks(loaded, [stack], foundation_kind=kind, platform=current_platform())
            except ConfigError as err:
                progress.note(f"recipes/{name} is in no stack, and its sources cannot be listed: {err}")
                break


def list_sources(settings: Settings, request: SourcesRequest, progress: Progress) -> list[SourceRow]:
    """A row per needed source; the origin of a damaged entry is what can still be read."""
    store = SourceStore(folder=settings.sources)
    rows = []
    for need in needed_by_tree(settings, request, progress):
        stored = store.find(need)
        rows.append(SourceRow(need=need, stored=stored, origin=None if stored is None else store.origin(need)))
    return rows


def add_sources(
    settings: Settings, paths: Sequence[Path], *, dry_run: bool, progress: Progress
) -> list[tuple[NeededSource, Path]]:
    """Add files and clones of git repositories to the store; returns what was, or would be, added and where it is.

    Raises UsageError for a path that does not exist, IntegrityError for a file whose sha256 no recipe names, a
    repository without a commit that a recipe names, and for damaged ones. All paths are checked before any is added,
    and the error names every one that cannot be; one that is found later says what was added before it.
    """
    store = SourceStore(folder=settings.sources)
    needs = needed_by_tree(settings, SourcesRequest(every_stack=True), progress)
    repositories, files = _checked_paths(paths, needs)
    commits = [need for need in needs if need.kind == "git" and any(item.holds(need.identity) for item in repositories)]
    if repositories and not commits:
        wanted = "\n".join(in_words(need) for need in needs if need.kind == "git") or "  no recipe has a git source"
        places = ", ".join(str(item.folder) for item in repositories)
        raise IntegrityError(
            f"{places}: has no commit that a recipe of the tree names; recipes name:\n{wanted}",
            hint="fetch the commit there: git fetch <address> <commit>",
        )
    searched = [below for repository in repositories for below in repositories_below(repository)]
    added: list[tuple[NeededSource, Path]] = []
    try:
        for path, need in files:
            stored = None if dry_run else store.add_file(path, need, origin=f"added from {path.name}")
            added.append((need, stored.path if stored else store.entry(need)))
        for need in commits:
            stored = None if dry_run else _add_commit(store, need, searched)
            added.append((need, stored.path if stored else store.entry(need)))
    except ChannelToolsError as err:
        if not added or dry_run:
            raise
        names = "\n".join(in_words(need) for need, _path in added)
        raise err.with_message(f"{err}\nadded before it, and kept ({len(added)}):\n{names}") from err
    return added


def _checked_paths(
    paths: Sequence[Path], needs: Sequence[NeededSource]
) -> tuple[list[GitRepository], list[tuple[Path, NeededSource]]]:
    """The clones among the paths, and the files with the source that each is. One error names all that are neither."""
    known = {need.identity: need for need in needs if need.kind == "url"}
    repositories, files = [], []
    faults, unknown = [], []
    for path in paths:
        if path.is_dir():
            if (repository := open_repository(path)) is None:
                faults.append(f"{path}: is a folder, but not a git repository")
            else:
                repositories.append(repository)
        elif not path.is_file():
            faults.append(f"{path}: no such file or folder")
        elif (need := known.get(sha256 := sha256_of_file(path))) is None:
            unknown.append(f"{path}: no recipe of the tree names its sha256 {sha256}")
        else:
            files.append((path, need))
    if not faults and not unknown:
        return repositories, files
    message = "\n".join([*faults, *unknown])
    if len(paths) > 1:
        message = (
            f"nothing was added: {len(faults) + len(unknown)} of {counted(len(paths), 'path')} cannot be\n{message}"
        )
    if not unknown:
        raise UsageError(message, hint="name a clone, bare or not, or a file")
    wanted = "\n".join(map(in_words, known.values())) or "  no recipe has a source with a sha256"
    hint = "it is truncated, changed or another release: download it again, or correct the recipe's sha256"
    raise IntegrityError(f"{message}\nrecipes name:\n{wanted}", hint=hint)


def fetch_needed(
    settings: Settings, request: SourcesRequest, *, dry_run: bool, jobs: int, progress: Progress
) -> list[NeededSource]:
    """Download the request's sources that the store lacks; returns what was, or would be, downloaded.

    Raises as fetch_sources does.
    """
    store = SourceStore(folder=settings.sources)
    missing = [need for need in needed_by_tree(settings, request, progress) if store.find(need) is None]
    if not dry_run:
        fetch_missing(settings, missing, jobs=jobs, progress=progress)
    return missing


def fetch_missing(settings: Settings, missing: Sequence[NeededSource], *, jobs: int, progress: Progress) -> None:
    """Download sources into the user's store, with the user's proxies and credentials, from the tree's mirrors first.

    Raises as fetch_sources does, and ConfigError for faults in site.yaml.
    """
    if not missing:
        return
    # slow to import, and most builds have all their sources
    from channel_tools.conda.clients import make_http_client  # noqa: PLC0415
    from channel_tools.sources.fetch import SOURCE_RETRY, fetch_sources  # noqa: PLC0415
    from channel_tools.sources.model import SourceMirrors  # noqa: PLC0415

    fetch_sources(
        missing,
        SourceStore(folder=settings.sources),
        client=make_http_client(settings.environ, retry=SOURCE_RETRY),
        jobs=jobs,
        progress=progress,
        debian=debian_sources(settings),
        mirrors=SourceMirrors(places=read_source_mirrors(settings.tree)),
    )


def fetch_new(settings: Settings, urls: Sequence[str], progress: Progress) -> NeededSource:
    """Download a file that no recipe names yet into the user's store, as fetch_missing. Raises as fetch_unknown."""
    from channel_tools.conda.clients import make_http_client  # noqa: PLC0415 - as in fetch_missing
    from channel_tools.sources.fetch import SOURCE_RETRY, fetch_unknown  # noqa: PLC0415
    from channel_tools.sources.model import SourceMirrors  # noqa: PLC0415

    return fetch_unknown(
        urls,
        SourceStore(folder=settings.sources),
        client=make_http_client(settings.environ, retry=SOURCE_RETRY),
        progress=progress,
        mirrors=SourceMirrors(places=read_source_mirrors(settings.tree)),
    )


def debian_sources(settings: Settings) -> tuple[DebianSources, ...]:
    """Debian's source packages in the registry foundation's suite and in later ones, each with a state folder."""
    from channel_tools.foundation.apt import DEB_ARCHITECTURES  # noqa: PLC0415 - as in fetch_missing
    from channel_tools.foundation.table import load_table  # noqa: PLC0415
    from channel_tools.sources.fetch import DebianSources  # noqa: PLC0415

    subdir = current_platform()
    return tuple(
        DebianSources(
            state=settings.downloads / "apt" / f"{suite}-source",
            suite=suite,
            architecture=DEB_ARCHITECTURES[subdir],
        )
        for suite in (load_table(subdir=subdir).suite, *_LATER_SUITES)
    )


def export_sources(
    settings: Settings, destination: Path, request: SourcesRequest | None, *, dry_run: bool, progress: Progress
) -> tuple[Path, list[Path]]:
    """Write the whole store, or with a request what it needs, to one file; returns the file and the entries in it.

    Raises NetworkError listing what the request needs and the store lacks, and as export_entries does.
    """
    store = SourceStore(folder=settings.sources)
    if request is None:
        entries = stored_entries(store)
    else:
        needs = needed_by_tree(settings, request, progress)
        if missing := [need for need in needs if store.find(need) is None]:
            raise missing_error(missing, store)
        entries = sorted({store.entry(need) for need in needs})
    if not entries:
        message = f"{store.folder}: the store is empty, so there is nothing to export"
        raise UsageError(message, hint="fill it with channel_tools sources fetch, or sources add FILE")
    from channel_tools.sources.transfer import DEFAULT_NAME, export_entries  # noqa: PLC0415 - builds do without

    target = destination / DEFAULT_NAME if destination.is_dir() else destination
    return (target if dry_run else export_entries(store, entries, target, progress)), entries


@dataclass(frozen=True, kw_only=True, slots=True)
class SuppliedSources:
    """The store as the sources of builds: checked, and complete for the plan."""

    store: SourceStore

    def entries_for(self, package: PlannedPackage) -> list[dict[str, YamlValue]]:
        """The package's sources in the recipe's order; those that a store can have are taken from it."""
        excludes = source_excludes(package.rendered.recipe)
        return [self._entry(source, excludes) for source in package.rendered.sources]

    def origins_of(self, package: PlannedPackage) -> list[YamlValue]:
        """The value of ``extra.channel_tools.sources``: each source's identity and upstream's addresses."""
        origins: list[YamlValue] = []
        for source in package.rendered.sources:
            if source.kind != "path":
                upstream: list[YamlValue] = [source.location, *source.mirrors]
                identity = {"sha256": source.sha256} if source.kind == "url" else {"rev": source.revision}
                origins.append({source.kind: upstream, **identity})
        return origins

    def _entry(self, source: RecipeSource, excludes: tuple[str, ...]) -> dict[str, YamlValue]:
        need = need_of(source, excludes)
        entry = dict(source.entry)
        if need is None:
            return entry
        stored = self.store.known(need)
        name = stored.path.name if need.kind == "git" else file_name_of(source.location)
        options = {key: value for key, value in entry.items() if key in _KEPT_KEYS}
        address = self.store.supply(need, name).as_uri()
        return {"url": address, "sha256": stored.sha256, **options}


def provide_sources(settings: Settings, plan: Plan, *, offline: bool, progress: Progress) -> SuppliedSources:
    """The store as the sources of the plan's builds: complete, hashed, and with patches that apply.

    Missing sources are downloaded; if ``offline``, one NetworkError lists all of them. Raises the errors of
    fetch_sources and check_patches, before anything is built.
    """
    store = SourceStore(folder=settings.sources)
    needs = needed_sources(package.rendered for package in plan.to_build)
    missing = [need for need in needs if not _is_sound(store, need, progress)]
    if missing and offline:
        raise missing_error(missing, store)
    fetch_missing(settings, missing, jobs=_DOWNLOADS_AT_ONCE, progress=progress)
    _check_patches(store, settings.tree, plan)
    return SuppliedSources(store=store)


def _check_patches(store: SourceStore, tree: Tree, plan: Plan) -> None:
    """Try the patches of every source; variants of a recipe share most of them."""
    seen: set[str] = set()
    for package in plan.to_build:
        if any(source.patches for source in package.rendered.sources):
            sources = patched_sources(store, tree, package.rendered, package.files)
            if (key := repr(sources)) not in seen:
                seen.add(key)
                from channel_tools.sources.patches import check_patches  # noqa: PLC0415 - few packages have patches

                check_patches(sources)


def patched_sources(
    store: SourceStore, tree: Tree, package: RenderedPackage, files: Sequence[BuildFile]
) -> list[PatchedSource]:
    """The sources of a package, which the store has, with their patches; ``files`` are those of its build."""
    return [_patched_source(store, tree, package, files, source) for source in package.sources]


def _patched_source(
    store: SourceStore, tree: Tree, package: RenderedPackage, files: Sequence[BuildFile], source: RecipeSource
) -> PatchedSource:
    folder = package.recipe_file.folder
    need = need_of(source, source_excludes(package.recipe))
    content_path = path_named_by(tree, folder, source.location) if need is None else store.known(need).path
    file_name = source.entry.get("file_name")
    own = content_path.name if need is None else store.name_of(need, file_name_of(source.location))
    name = str(file_name or own)
    content: Path | dict[str, Path] = {name: content_path.resolve()}
    if need is None and content_path.is_dir():
        is_whole = source.entry.get("use_gitignore") is False
        inside = [
            file.path for file in files if file.path.is_relative_to(content_path) and (is_whole or not file.is_ignored)
        ]
        content = {path.relative_to(content_path).as_posix(): path for path in inside}
    elif source.kind == "git" or (file_name is None and is_archive(name)):
        content = content_path
    from channel_tools.sources.patches import PatchedSource  # noqa: PLC0415 - as in _check_patches

    return PatchedSource(
        name=f"{source.location} of {package.name} {package.version}",
        content=content,
        patches=tuple(path_named_by(tree, folder, name) for name in source.patches),
        folder=_target_folder(package, source),
    )


def _target_folder(package: RenderedPackage, source: RecipeSource) -> str:
    """The source's ``target_directory``. Raises ConfigError (file, line) for one outside the work folder."""
    folder = PurePosixPath(source.target_directory or "")
    if folder.is_absolute() or ".." in folder.parts:
        message = f"target_directory {folder} is outside the build's work folder"
        document = package.recipe_file.document
        raise document.error(message, "source", hint="name a folder relative to it, without ..")
    return folder.as_posix()


def _is_sound(store: SourceStore, need: NeededSource, progress: Progress) -> bool:
    """Whether the store has the source undamaged; a damaged one is moved aside and counts as missing."""
    if store.find(need) is None:
        return False
    try:
        store.check(need)
    except IntegrityError as err:
        progress.note(f"{err}; moved aside to {store.move_aside(store.entry(need))}")
        return False
    return True


def missing_error(missing: Sequence[NeededSource], store: SourceStore) -> NetworkError:
    """The error for all missing sources, with the ways to supply them."""
    lines = "\n".join(in_words(need) for need in missing)
    message = f"not in the source store {store.folder}, but needed ({len(missing)}):\n{lines}"
    return NetworkError(message, hint=SUPPLY_HINT)


def _add_commit(store: SourceStore, need: NeededSource, searched: Sequence[GitRepository]) -> StoredSource:
    def find(path: str, commit: str, url: str) -> GitRepository:
        repository = next((repository for repository in searched if repository.holds(commit)), None)
        if repository is None:
            message = f"{need.urls[0]} at {need.identity}: its submodule {path} ({url}) is at {commit}, which is absent"
            hint = "also name a clone that has it: channel_tools sources add REPOSITORY SUBMODULE_REPOSITORY"
            raise IntegrityError(message, hint=hint)
        return repository

    return store.add_commit(need, find, origin=f"added from {find('', need.identity, '').folder.name}")


def in_words(need: NeededSource) -> str:
    """A source as one line of an error message."""
    return f"  {need.word} {need.identity}  {need.urls[0]}  for {', '.join(need.packages)}"
