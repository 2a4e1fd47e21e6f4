# SPDX-License-Identifier: BSD-3-Clause
"""Fetching commits with git: only the commit itself, without history, and never the files that a recipe leaves out.

Where files are left out, the commit comes without contents first and the wanted ones are asked for by their names, so
that what must not be taken is not even downloaded (servers that cannot filter send all of it; it is not stored).
"""

from __future__ import annotations

import errno
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from channel_tools.commands import CommandResult, run_command
from channel_tools.errors import NetworkError
from channel_tools.foundation.watched import run_watched
from channel_tools.sources.gitarchive import exclusion
from channel_tools.sources.gitobjects import SUBMODULE_MODE, GitRepository, git_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

_SHA256_DIGITS = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class GitFetcher:
    """One repository that takes in the commits of a source and of its submodules."""

    folder: Path
    urls: tuple[str, ...]
    excludes: tuple[str, ...]
    poll: Callable[[], None]
    """Called a few times a second while git fetches; what it raises ends that."""

    def find(self, path: str, commit: str, url: str) -> GitRepository:
        """The repository with ``commit`` in it, fetched where it is not yet; as write_archive asks for it.

        Raises NetworkError naming every address that was tried and why it did not serve.
        """
        repository = GitRepository(folder=self.folder)
        if not self.folder.exists():
            kind = "sha256" if len(commit) == _SHA256_DIGITS else "sha1"
            self.folder.mkdir(parents=True)
            self._git("init", "--quiet", "--bare", f"--object-format={kind}", ".")
        problems = []
        for address in self._addresses(url):
            problem = self._fetch(repository, address, commit, path)
            if problem is None:
                return repository
            problems.append(f"  {address}: {problem}")
        what = f"commit {commit}" + (f" of the submodule {path}" if path else "")
        raise NetworkError(f"{what} cannot be fetched:\n" + "\n".join(problems))

    def _addresses(self, url: str) -> list[str]:
        """The source's own addresses, or a submodule's, which may be relative to any of them."""
        if not url:
            return list(self.urls)
        if not url.startswith(("./", "../")):
            return [url]
        return [_joined(base, url) for base in self.urls]

    def _fetch(self, repository: GitRepository, address: str, commit: str, path: str) -> str | None:
        remote = "source"
        self._git("remote", "remove", remote, check=False)
        self._git("remote", "add", "--", remote, address)
        words = ["--quiet", "--no-tags", "--no-write-fetch-head", "--recurse-submodules=no", "--depth=1"]
        if self.excludes:
            self._git("config", f"remote.{remote}.promisor", "true")
            self._git("config", f"remote.{remote}.partialclonefilter", "blob:none")
            words.append("--filter=blob:none")
        result = self._watched(["fetch", *words, remote, commit])
        if result.returncode == 0 and self.excludes:
            result = self._fetch_contents(repository, remote, commit, path)
        return None if result.returncode == 0 else " ".join(result.tail().split())

    def _fetch_contents(self, repository: GitRepository, remote: str, commit: str, path: str) -> CommandResult:
        """Ask for the contents of all files that are kept."""
        is_excluded = exclusion(self.excludes)
        prefix = f"{path}/" if path else ""
        kept = {
            entry.object
            for entry in repository.entries(commit)
            if entry.mode != SUBMODULE_MODE and not is_excluded(prefix + entry.path)
        }
        words = [
            "-c", "fetch.negotiationAlgorithm=noop", "fetch", "--quiet", "--no-tags", "--no-write-fetch-head",
            "--recurse-submodules=no", "--filter=blob:none", "--stdin", remote,
        ]  # fmt: skip
        return self._fetch_with_input(words, sorted(kept))

    def _fetch_with_input(self, words: Sequence[str], lines: Sequence[str]) -> CommandResult:
        with tempfile.TemporaryFile() as wanted:
            wanted.write("".join(f"{line}\n" for line in lines).encode())
            wanted.seek(0)
            return self._watched(words, stdin=wanted.fileno())

    def _watched(self, words: Sequence[str], *, stdin: int = subprocess.DEVNULL) -> CommandResult:
        """Run a fetch that is ended with us, and by whatever ``poll`` raises."""
        result = run_watched(["git", *words], cwd=self.folder, env=git_environment(), poll=self.poll, stdin=stdin)
        if os.strerror(errno.ENOSPC) in result.stderr:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.folder))
        return result

    def _git(self, *words: str, check: bool = True) -> CommandResult:
        return run_command(["git", *words], cwd=self.folder, env=git_environment(), check=check)


def _joined(base: str, relative: str) -> str:
    if "://" in base:
        return urljoin(base.rstrip("/") + "/", relative)
    head, found, tail = base.partition(":")  # user@host:path
    place = PurePosixPath(tail if found else head)
    for part in PurePosixPath(relative).parts:
        place = place.parent if part == ".." else place / part
    return f"{head}:{place}" if found else str(place)
