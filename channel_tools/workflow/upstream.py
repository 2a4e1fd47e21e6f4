# SPDX-License-Identifier: BSD-3-Clause
"""Copies the trees that a site's tree builds on into ``upstreams/``, and records what was copied."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from channel_tools.conda.addresses import text_without_credentials
from channel_tools.matrix.site import (
    RECORD_NAME,
    RecordedUpstream,
    Upstream,
    all_files,
    files_to_copy,
    is_copied,
    is_recipe,
    named_elsewhere,
    read_site,
    read_upstream_record,
    unknown_upstream,
    upstream_record_text,
    upstream_tree,
)
from channel_tools.sources.git import SUBMODULE_MODE, GitFetcher, clash_in, git_environment_for, link_target_of
from channel_tools.system.archives import UnsafeMemberError, check_link, check_links
from channel_tools.system.errors import ConfigError, IntegrityError, NetworkError
from channel_tools.system.files import TEMPORARY_PREFIX, atomic_path, located, write_text_atomically
from channel_tools.system.locks import exclusive_lock
from channel_tools.system.processes import CommandTimeoutError, run_command
from channel_tools.system.source_files import copy_source_file, source_digest, write_source_file
from channel_tools.system.work_folder import temporary_folder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from channel_tools.sources.git import GitRepository, TreeEntry
    from channel_tools.system.progress import Progress
    from channel_tools.system.settings import Tree

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_STACKS = "variants/stacks.yaml"
_LISTING_S = 300.0


@dataclass(frozen=True, kw_only=True, slots=True)
class UpstreamChange:
    """What an update did: the files that were added, removed or changed, by path below the upstream."""

    name: str
    commit: str | None
    moved_from: str | None
    """The commit that a tag named before, if the tag names another now."""
    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]


def update_upstreams(
    tree: Tree, names: Sequence[str], *, progress: Progress, start: Path | None = None
) -> list[UpstreamChange]:
    """Copy the named upstreams of ``site.yaml`` (none: all), and record them in ``locks/upstreams.json``.

    Relative paths in that file are relative to ``start`` (None: to the tree).

    Raises ConfigError for a tree without upstreams, for a name that none has and for a folder or revision that is no
    tree of recipes, NetworkError for a repository that cannot be read, IntegrityError (which names the entry) for a
    revision with entries of which no files may be made.
    """
    upstreams = {item.name: item for item in read_site(tree)}
    for name in names:
        if name not in upstreams:
            raise unknown_upstream(tree, name, upstreams)
    if not upstreams:
        message = f"{tree.site_file} names no upstream"
        raise ConfigError(message, hint="write  upstreams: [{name: NAME, git: ADDRESS, rev: TAG}]  into it")
    with exclusive_lock(tree.upstreams / ".lock", resource=f"the upstreams of {tree.root}"):
        recorded = {name: item for name, item in read_upstream_record(tree).items() if name in upstreams}
        changes = []
        for upstream in (upstreams[name] for name in dict.fromkeys(names or upstreams)):
            with progress.task(f"copying {upstream.name}", total=None):
                new, is_tag = _copy(tree, upstream, start or tree.root, progress)
            old = recorded.get(upstream.name)
            before = {} if old is None else old.files
            is_moved = is_tag and old is not None and (old.address, old.rev) == (new.address, new.rev)
            changes.append(
                UpstreamChange(
                    name=new.name,
                    commit=new.commit,
                    moved_from=old.commit if old is not None and is_moved and old.commit != new.commit else None,
                    added=tuple(sorted(new.files.keys() - before.keys())),
                    changed=tuple(
                        sorted(path for path in new.files.keys() & before.keys() if new.files[path] != before[path])
                    ),
                    removed=tuple(sorted(before.keys() - new.files.keys())),
                )
            )
            recorded[upstream.name] = new
            tree.locks.mkdir(exist_ok=True)
            write_text_atomically(tree.locks / RECORD_NAME, upstream_record_text(recorded))
    return changes


def _copy(tree: Tree, upstream: Upstream, start: Path, progress: Progress) -> tuple[RecordedUpstream, bool]:
    """Copy an upstream; returns what to record, and whether its revision is a tag."""
    destination = upstream_tree(tree, upstream.name).root
    with atomic_path(destination) as temporary:
        temporary.mkdir(parents=True)
        if upstream.rev is None:
            commit, is_tag = None, False
            _copy_folder(tree, upstream, start, temporary)
        else:
            commit, is_tag = _copy_revision(tree, upstream, start, temporary, progress)
        if not (temporary / _STACKS).is_file():
            message = (
                f"the upstream {upstream.name!r} ({upstream.address}) has no {_STACKS}, so it is no tree of recipes"
            )
            raise ConfigError(
                message, path=tree.site_file, hint="name the folder or repository that has recipes/ and variants/"
            )
        files = {path: source_digest(temporary / path) for path in all_files(temporary)}
        if destination.is_dir():
            # a folder cannot be replaced in one step: the old one is moved away first and then removed
            destination.rename(temporary.with_name(TEMPORARY_PREFIX + destination.name))
    new = RecordedUpstream(name=upstream.name, address=upstream.address, rev=upstream.rev, commit=commit, files=files)
    return new, is_tag


def _copy_folder(tree: Tree, upstream: Upstream, start: Path, destination: Path) -> None:
    folder = located(start, upstream.address)
    if not folder.is_dir():
        message = f"the upstream {upstream.name!r} is {folder}, which is not a folder"
        raise ConfigError(message, path=tree.site_file, hint="correct path, which is relative to site.yaml")
    for path in files_to_copy(folder):
        copy_source_file(folder / path, destination / path)


def _copy_revision(
    tree: Tree, upstream: Upstream, start: Path, destination: Path, progress: Progress
) -> tuple[str, bool]:
    """Copy the files of a git revision; returns its commit, and whether it is a tag."""
    local = located(start, upstream.address)
    address = str(local) if local.is_dir() else upstream.address
    commit, is_tag = _commit_of(tree, upstream, address)
    progress.note(f"{upstream.name}: {upstream.address} at {upstream.rev}")
    with temporary_folder() as folder:
        fetcher = GitFetcher(folder=folder / "repository.git", urls=(address,), excludes=(), poll=lambda: None)
        repository = fetcher.find("", commit, "")
        try:
            every = list(repository.entries(commit))
            recipes = [entry for entry in every if entry.is_file and is_recipe(entry.path)]
            texts = repository.read_contents([entry.object for entry in recipes])
            named = named_elsewhere({entry.path: text for entry, text in zip(recipes, texts, strict=True)})
            entries = [entry for entry in every if is_copied(entry.path, named)]
            _check_together(repository, commit, entries)
        except IntegrityError as err:
            raise err.with_message(f"the upstream {upstream.name!r} ({upstream.address}): {err.message}") from None
        files = [entry for entry in entries if entry.is_file or entry.is_link]
        waiting = iter(files)

        def write(_name: str, size: int, stream: IO[bytes]) -> None:
            entry = next(waiting)
            link = link_target_of(entry.path, size, stream) if entry.is_link else None
            write_source_file(destination / entry.path, stream, executable=entry.is_program, link=link)

        repository.read_objects([entry.object for entry in files], write)
    return commit, is_tag


def _check_together(repository: GitRepository, commit: str, entries: Sequence[TreeEntry]) -> None:
    """Raise IntegrityError for links that lead out, submodules, and two paths that some systems take for one."""
    hint = "nothing of it was written; tell those who keep the repository, and name a revision without it"
    if submodule := next((entry for entry in entries if entry.mode == SUBMODULE_MODE), None):
        message = f"commit {commit} has the submodule {submodule.path!r}, whose files a copy would lack"
        raise IntegrityError(message, hint="clone it with its submodules, and name the folder by path: in site.yaml")
    links = [entry for entry in entries if entry.is_link]
    waiting, targets = iter(links), dict[str, str]()

    def take(_name: str, size: int, stream: IO[bytes]) -> None:
        path = next(waiting).path
        targets[path] = link_target_of(path, size, stream)

    repository.read_objects([link.object for link in links], take)
    try:
        for name, target in targets.items():
            check_link(name, target)
        check_links(targets, ())
    except UnsafeMemberError as err:
        raise IntegrityError(f"commit {commit}: {err}", hint=hint) from None
    if (clash := clash_in(entry.path for entry in entries)) is not None:
        message = f"commit {commit}: its entries {clash[0]!r} and {clash[1]!r} are one on systems that do not tell case"
        raise IntegrityError(message, hint=hint)


def _commit_of(tree: Tree, upstream: Upstream, address: str) -> tuple[str, bool]:
    """The commit that a tag or branch of the repository names now, and whether it is a tag; a full commit is itself."""
    rev = upstream.rev or ""
    if _COMMIT.fullmatch(rev):
        return rev, False
    with git_environment_for(address) as environ:
        words = ["git", "ls-remote", "--", address, rev, f"{rev}^{{}}"]
        try:
            result = run_command(words, env=environ, check=False, timeout_s=_LISTING_S)
        except CommandTimeoutError:
            message = (
                f"the upstream {upstream.name!r}: {upstream.address} did not list its revisions in {_LISTING_S:g} s"
            )
            raise NetworkError(message, hint="check the address in site.yaml and the network") from None
    if result.returncode != 0:
        problem = text_without_credentials(" ".join(result.tail().split()))
        message = f"the upstream {upstream.name!r} cannot be read from {upstream.address}: {problem}"
        raise NetworkError(message, hint="check the address in site.yaml, the network and git's credentials")
    lines = (line.partition("\t") for line in result.stdout.splitlines())
    commits = {name: commit for commit, _, name in lines}
    for name in (f"refs/tags/{rev}^{{}}", f"refs/tags/{rev}", f"refs/heads/{rev}", rev):
        if name in commits:
            return commits[name], name.startswith("refs/tags/")
    message = f"the upstream {upstream.name!r} has no tag or branch {rev!r} at {upstream.address}"
    raise ConfigError(message, path=tree.site_file, hint="name a tag, a branch, or the 40 digits of a commit")
