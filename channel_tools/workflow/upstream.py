# SPDX-License-Identifier: BSD-3-Clause
"""Copies the trees that a site's tree builds on into ``upstreams/``, and records what was copied."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from channel_tools.conda.addresses import text_without_credentials
from channel_tools.matrix.site import (
    RECORD_NAME,
    RecordedUpstream,
    Upstream,
    digest_of,
    files_to_copy,
    is_copied,
    read_site,
    read_upstream_record,
    unknown_upstream,
    upstream_record_text,
    upstream_tree,
)
from channel_tools.sources.git import GitFetcher, git_environment_for
from channel_tools.sources.gittree import clash_in
from channel_tools.system.archives import UnsafeMemberError, check_link
from channel_tools.system.errors import ConfigError, IntegrityError, NetworkError
from channel_tools.system.files import TEMPORARY_PREFIX, atomic_path, exclusive_lock, located, write_text_atomically
from channel_tools.system.processes import run_command
from channel_tools.system.work_folder import temporary_folder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from channel_tools.sources.git import GitRepository
    from channel_tools.sources.gittree import TreeEntry
    from channel_tools.system.progress import Progress
    from channel_tools.system.settings import Tree

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_STACKS = "variants/stacks.yaml"


@dataclass(frozen=True, kw_only=True, slots=True)
class UpstreamChange:
    """What an update did: the files that were added, removed or changed, by path below the upstream."""

    name: str
    commit: str | None
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
                new = _copy(tree, upstream, start or tree.root, progress)
            changes.append(_change(recorded.get(upstream.name), new))
            recorded[upstream.name] = new
            tree.locks.mkdir(exist_ok=True)
            write_text_atomically(tree.locks / RECORD_NAME, upstream_record_text(recorded))
    return changes


def _copy(tree: Tree, upstream: Upstream, start: Path, progress: Progress) -> RecordedUpstream:
    destination = upstream_tree(tree, upstream.name).root
    with atomic_path(destination) as temporary:
        temporary.mkdir(parents=True)
        if upstream.rev is None:
            commit = None
            _copy_folder(tree, upstream, start, temporary)
        else:
            commit = _copy_revision(tree, upstream, start, temporary, progress)
        if not (temporary / _STACKS).is_file():
            message = (
                f"the upstream {upstream.name!r} ({upstream.address}) has no {_STACKS}, so it is no tree of recipes"
            )
            raise ConfigError(
                message, path=tree.site_file, hint="name the folder or repository that has recipes/ and variants/"
            )
        files = {path: digest_of(temporary / path) for path in files_to_copy(temporary)}
        if destination.is_dir():
            # a folder cannot be replaced in one step: the old one is moved away first and then removed
            destination.rename(temporary.with_name(TEMPORARY_PREFIX + destination.name))
    return RecordedUpstream(name=upstream.name, address=upstream.address, rev=upstream.rev, commit=commit, files=files)


def _copy_folder(tree: Tree, upstream: Upstream, start: Path, destination: Path) -> None:
    folder = located(start, upstream.address)
    if not folder.is_dir():
        message = f"the upstream {upstream.name!r} is {folder}, which is not a folder"
        raise ConfigError(message, path=tree.site_file, hint="correct path, which is relative to site.yaml")
    for path in files_to_copy(folder):
        (destination / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / path, destination / path)
        (destination / path).chmod(0o755 if os.access(folder / path, os.X_OK) else 0o644)


def _copy_revision(tree: Tree, upstream: Upstream, start: Path, destination: Path, progress: Progress) -> str:
    """Copy the files of a git revision; returns its commit."""
    local = located(start, upstream.address)
    address = str(local) if local.is_dir() else upstream.address
    commit = _commit_of(tree, upstream, address)
    progress.note(f"{upstream.name}: {upstream.address} at {upstream.rev}")
    with temporary_folder() as folder:
        fetcher = GitFetcher(folder=folder / "repository.git", urls=(address,), excludes=(), poll=lambda: None)
        repository = fetcher.find("", commit, "")
        try:
            entries = [entry for entry in repository.entries(commit) if is_copied(entry.path)]
            _check_together(repository, commit, entries)
        except IntegrityError as err:
            raise err.with_message(f"the upstream {upstream.name!r} ({upstream.address}): {err.message}") from None
        files = [entry for entry in entries if entry.is_file]
        waiting = iter(files)

        def write(_name: str, size: int, stream: IO[bytes]) -> None:
            entry = next(waiting)
            target = destination / entry.path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(stream.read(size))
            target.chmod(0o755 if entry.is_program else 0o644)

        repository.read_objects([entry.object for entry in files], write)
    return commit


def _check_together(repository: GitRepository, commit: str, entries: Sequence[TreeEntry]) -> None:
    """Raise IntegrityError for links that lead out of the tree, and for two paths that some systems take for one."""
    hint = "nothing of it was written; tell those who keep the repository, and name a revision without it"
    links = [entry for entry in entries if entry.is_link]
    targets = repository.read_contents([link.object for link in links])
    try:
        for link, target in zip(links, targets, strict=True):
            check_link(link.path, os.fsdecode(target))
    except UnsafeMemberError as err:
        raise IntegrityError(f"commit {commit}: {err}", hint=hint) from None
    if (clash := clash_in(entry.path for entry in entries)) is not None:
        message = f"commit {commit}: its entries {clash[0]!r} and {clash[1]!r} are one on systems that do not tell case"
        raise IntegrityError(message, hint=hint)


def _commit_of(tree: Tree, upstream: Upstream, address: str) -> str:
    """The commit that a tag or branch of the repository names now; a full commit is itself."""
    rev = upstream.rev or ""
    if _COMMIT.fullmatch(rev):
        return rev
    with git_environment_for(address) as environ:
        result = run_command(["git", "ls-remote", "--", address, rev, f"{rev}^{{}}"], env=environ, check=False)
    if result.returncode != 0:
        problem = text_without_credentials(" ".join(result.tail().split()))
        message = f"the upstream {upstream.name!r} cannot be read from {upstream.address}: {problem}"
        raise NetworkError(message, hint="check the address in site.yaml, the network and git's credentials")
    lines = (line.partition("\t") for line in result.stdout.splitlines())
    commits = {name: commit for commit, _, name in lines}
    for name in (f"refs/tags/{rev}^{{}}", f"refs/tags/{rev}", f"refs/heads/{rev}", rev):
        if name in commits:
            return commits[name]
    message = f"the upstream {upstream.name!r} has no tag or branch {rev!r} at {upstream.address}"
    raise ConfigError(message, path=tree.site_file, hint="name a tag, a branch, or the 40 digits of a commit")


def _change(old: RecordedUpstream | None, new: RecordedUpstream) -> UpstreamChange:
    before = {} if old is None else old.files
    return UpstreamChange(
        name=new.name,
        commit=new.commit,
        added=tuple(sorted(new.files.keys() - before.keys())),
        changed=tuple(sorted(path for path in new.files.keys() & before.keys() if new.files[path] != before[path])),
        removed=tuple(sorted(before.keys() - new.files.keys())),
    )
