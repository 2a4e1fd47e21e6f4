# SPDX-License-Identifier: BSD-3-Clause
"""Fetching sources into the store: several at once, each from the first of its addresses that has the correct bytes.

An archive that no address of the recipe has is looked up in Debian's source packages by its hash. What was fetched is
kept if other sources fail; the next run continues partial files.

Debian keeps upstream's release tarballs unchanged if it can, and its signed index has the sha256 of each. So a tarball
is found there by its hash, whatever Debian calls it. The addresses and keyrings are the host's.
"""

from __future__ import annotations

import re
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from debian.deb822 import Deb822

from channel_tools.conda.addresses import is_web, local_path
from channel_tools.foundation.apt import Apt, complaints, host_sources
from channel_tools.sources.git import GitFetcher
from channel_tools.sources.model import SUPPLY_HINT, NeededSource, SourceMirrors, file_name_of
from channel_tools.system.beneath import Beneath
from channel_tools.system.counting import counted
from channel_tools.system.errors import ChannelToolsError, CommandError, FoundationError, IntegrityError, NetworkError
from channel_tools.system.files import disk_full_reported, sha256_of_file
from channel_tools.system.http.download import Cancelled, Download, download
from channel_tools.system.http.pace import Retry
from channel_tools.system.locks import exclusive_lock
from channel_tools.system.processes import run_command
from channel_tools.system.work_folder import temporary_folder
from channel_tools.system.workers import completed

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from channel_tools.sources.store import SourceStore
    from channel_tools.system.http.client import HttpClient
    from channel_tools.system.progress import Progress, Task

_HELPER = "/usr/lib/apt/apt-helper"
_DEBIAN_PART = re.compile(r"\.(?:debian\.tar|diff)\.\w+$")
"""The file with Debian's own changes (dsc(5)), which apt downloads apart from upstream's tarballs."""
_LOCK_WAIT_S = 1800.0


@dataclass(frozen=True, kw_only=True, slots=True)
class DebianFile:
    """A file of a Debian source package."""

    package: str
    version: str
    file_name: str

    def __str__(self) -> str:
        return f"{self.file_name} of Debian's source package {self.package} {self.version}"


@dataclass(frozen=True, kw_only=True, slots=True)
class DebianSources:
    """Debian's source packages of one suite, through apt with a separate state folder."""

    state: Path
    suite: str
    architecture: str
    sources: str | None = None
    """The apt sources, in the deb822 format of sources.list(5); None: the host's sources for the suite."""

    def find(self, hashes: Collection[str]) -> dict[str, DebianFile]:
        """The files with these sha256 values, from a freshly fetched index.

        Raises NetworkError if the index cannot be fetched, FoundationError on a host without apt or Debian's sources.
        """
        self.state.mkdir(parents=True, exist_ok=True)
        with exclusive_lock(self.state / ".lock", resource="the index of Debian's sources", timeout_s=_LOCK_WAIT_S):
            sources = self.sources or re.sub(r"(?m)^Types: deb$", "Types: deb-src", host_sources(self.suite))
            Apt(state=self.state, suite=self.suite, architecture=self.architecture, sources=sources).update()
            words = ["indextargets", "--format", "$(FILENAME)", "Created-By: Sources"]
            listed = run_command(["apt-get", "-c", self._configuration, *words]).stdout
            files: dict[str, DebianFile] = {}
            for index in listed.split():
                text = run_command([_HELPER, "-c", self._configuration, "cat-file", index]).stdout
                files |= {sha256: item for sha256 in hashes if (item := _find(text, sha256)) is not None}
        return files

    def download(self, file: DebianFile, folder: Path) -> Path:
        """Download ``file`` into ``folder``; apt checks it against its index. Raises NetworkError."""
        part = "--diff-only" if _DEBIAN_PART.search(file.file_name) else "--tar-only"
        words: list[str | Path] = ["apt-get", "-c", self._configuration, "-q", "source", "--download-only", part]
        result = run_command([*words, f"{file.package}={file.version}"], cwd=folder, check=False)
        path = folder / file.file_name
        if not path.is_file():
            raise NetworkError(f"{file} could not be downloaded: {complaints(result)}")
        return path

    @property
    def _configuration(self) -> Path:
        return self.state / "apt.conf"


def _find(text: str, sha256: str) -> DebianFile | None:
    """The file with this hash in a stanza of a Sources index."""
    at = text.find(f" {sha256} ")
    if at < 0:
        return None
    start, end = text.rfind("\n\n", 0, at) + 1, text.find("\n\n", at)
    stanza = Deb822(text[start : end if end >= 0 else None].strip("\n").splitlines())
    for line in stanza.get("Checksums-Sha256", "").splitlines():
        words = line.split()
        if words[:1] == [sha256]:
            return DebianFile(package=stanza["Package"], version=stanza["Version"], file_name=words[-1])
    return None


SOURCE_RETRY = Retry(attempts=3)
"""Fewer attempts than elsewhere, since a source has other addresses."""
NO_MIRRORS = SourceMirrors()


class ByHash(Protocol):
    """A place where files can be found by their sha256, such as Debian's source packages."""

    def find(self, hashes: Collection[str]) -> dict[str, DebianFile]:
        """The files with these hashes."""

    def download(self, file: DebianFile, folder: Path) -> Path:
        """Download one into ``folder``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Failure:
    """Why a source could not be fetched: an error for each place that was tried, which names the place."""

    need: NeededSource
    reasons: tuple[ChannelToolsError, ...]

    def __str__(self) -> str:
        head = f"{self.need.word} {self.need.identity} for {', '.join(self.need.packages)}:"
        return "\n".join([head, *(f"  {error}" for error in self.reasons)])


def fetch_sources(
    needs: Sequence[NeededSource],
    store: SourceStore,
    *,
    client: HttpClient,
    jobs: int,
    progress: Progress,
    debian: Sequence[ByHash] = (),
    mirrors: SourceMirrors = NO_MIRRORS,
) -> None:
    """Fetch what the store lacks of ``needs``, at most ``jobs`` at once.

    A source's ``mirrors`` are tried first, then its own addresses, then ``debian``: releases of it, in order.

    At the end, raises one error for all that could not be fetched: IntegrityError if any place has other bytes, else
    NetworkError. DiskFullError and an interrupt end it at once; partial files are kept.
    """
    missing = [need for need in needs if store.find(need) is None]
    if not missing:
        return
    with progress.task(counted(len(missing), "source"), total=None, unit="bytes") as task:
        run = _Run(store=store, client=client, progress=progress, task=task, mirrors=mirrors)
        failures = run.fetch_all(missing, jobs)
        for release in debian:
            failures = run.ask_debian(failures, release)
    if failures:
        wrong = any(isinstance(error, IntegrityError) for failure in failures for error in failure.reasons)
        kind: type[ChannelToolsError] = IntegrityError if wrong else NetworkError
        message = f"sources that could not be fetched ({len(failures)}):\n" + "\n".join(map(str, failures))
        raise kind(message, hint=SUPPLY_HINT)


def fetch_unknown(
    urls: Sequence[str],
    store: SourceStore,
    *,
    client: HttpClient,
    progress: Progress,
    mirrors: SourceMirrors = NO_MIRRORS,
) -> NeededSource:
    """Fetch a file whose sha256 nobody has recorded yet, from the first of its addresses that has it, into the store.

    Nothing vouches for the bytes but the address that they came from. Raises NetworkError or IntegrityError with the
    reason at each address.
    """
    name = file_name_of(urls[0])
    reasons: list[ChannelToolsError] = []
    with disk_full_reported(store.folder):
        store.incoming.mkdir(parents=True, exist_ok=True)
    with progress.task(name, total=None, unit="bytes") as task, temporary_folder(store.incoming) as folder:
        run = _Run(store=store, client=client, progress=progress, task=task, mirrors=mirrors)
        for url in mirrors.addresses(urls):
            try:
                path, named = run.receive(url, folder / "new.part", None)
                need = NeededSource(kind="url", identity=sha256_of_file(path), urls=tuple(urls), names=(name,))
                with store.locked_entry(store.entry(need)):
                    store.put_file(path, need, origin=url, name=named)
            except (NetworkError, IntegrityError) as err:
                reasons.append(err if url in str(err) else _placed(url, err))
                (folder / "new.part").unlink(missing_ok=True)
            else:
                return need
    kind = IntegrityError if any(isinstance(err, IntegrityError) for err in reasons) else NetworkError
    raise kind("\n".join(map(str, reasons)), hint="check the version and the network")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Run:
    store: SourceStore
    client: HttpClient
    progress: Progress
    task: Task
    mirrors: SourceMirrors
    stopped: threading.Event = field(default_factory=threading.Event)

    def fetch_all(self, needs: Sequence[NeededSource], jobs: int) -> list[_Failure]:
        pool = ThreadPoolExecutor(max_workers=jobs)
        try:
            results = [pool.submit(self._fetch, need) for need in needs]
            for done in completed(results):
                done.result()  # an error ends it at once
            return [failure for result in results if (failure := result.result()) is not None]
        finally:
            # after an interrupt do not wait for a silent server; a partial file may be left at any moment
            self.stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)

    def ask_debian(self, failures: Sequence[_Failure], debian: ByHash) -> list[_Failure]:
        """Get the failed files that Debian has; returns those that still fail."""
        files = [failure for failure in failures if failure.need.kind == "url"]
        others = [failure for failure in failures if failure.need.kind != "url"]
        if not files:
            return list(failures)
        try:
            known = debian.find({failure.need.identity for failure in files})
        except (NetworkError, FoundationError, CommandError) as err:
            error = _placed("Debian's source packages", err)
            return [_with_reason(failure, error) for failure in files] + others
        remaining = []
        for failure in files:
            file = known.get(failure.need.identity)
            if file is None:
                remaining.append(failure)
                continue
            try:
                with temporary_folder(self.store.incoming) as folder:
                    path = debian.download(file, folder)
                    self.store.add_file(path, failure.need, origin=str(file))
                self.progress.note(f"{failure.need.names[0]}: {file}")
            except (NetworkError, IntegrityError) as err:
                remaining.append(_with_reason(failure, _placed(str(file), err)))
        return remaining + others

    def _fetch(self, need: NeededSource) -> _Failure | None:
        self._end_if_stopped()
        with disk_full_reported(self.store.folder):
            self.store.incoming.mkdir(parents=True, exist_ok=True)
        with self.store.locked_entry(self.store.entry(need)):
            if self.store.find(need) is not None:  # another process has fetched it in the meantime
                return None
            return self._fetch_commit(need) if need.kind == "git" else self._fetch_file(need)

    def _end_if_stopped(self) -> None:
        if self.stopped.is_set():
            raise Cancelled

    def _fetch_file(self, need: NeededSource) -> _Failure | None:
        reasons: list[ChannelToolsError] = []
        for url in self.mirrors.addresses(need.urls):
            try:
                self._fetch_from(url, need)
            except (NetworkError, IntegrityError) as err:
                reasons.append(err)
            else:
                self.progress.note(f"{need.names[0]}: {self.client.credentials.redact(url)}")
                return None
        return _Failure(need=need, reasons=tuple(reasons))

    def _fetch_from(self, url: str, need: NeededSource) -> None:
        """Fetch the file from one address. Raises NetworkError or IntegrityError; both name the address."""
        part = self.store.incoming / f"{need.identity}.part"
        path, name = self.receive(url, part, need.identity)
        try:
            self.store.put_file(path, need, origin=url, move=path == part, name=name)
        except IntegrityError as err:
            raise _placed(url, err) from None

    def receive(self, url: str, part: Path, sha256: str | None) -> tuple[Path, str | None]:
        """Download a file to ``part``, whatever it is without ``sha256``; its path, the file's own if it is local.

        With it comes the name that a server gives the file.
        """
        local, name = local_path(url), None
        if local is None and not is_web(url):
            where = self.client.credentials.redact(url)
            raise NetworkError(f"{where}: sources are read from addresses of http, https and file")
        if local is None:
            request = Download(
                url=url,
                folder=Beneath(root=part.parent),
                part=part.name,
                sha256=sha256,
                on_bytes=self.task.advance,
                cancelled=self.stopped,
            )
            name = download(self.client, request)
        elif not local.is_file():
            raise NetworkError(f"{url}: there is no such file")
        return local or part, name

    def _fetch_commit(self, need: NeededSource) -> _Failure | None:
        folder = self.store.incoming / f"{self.store.entry(need).name}.git"
        shutil.rmtree(folder, ignore_errors=True)
        fetcher = GitFetcher(
            folder=folder, urls=need.urls, excludes=need.excludes, poll=self._end_if_stopped, mirrors=self.mirrors
        )
        try:
            self.store.put_commit(need, fetcher.find, origin=need.urls[0])
        except (NetworkError, IntegrityError, CommandError) as err:
            return _Failure(need=need, reasons=(_placed(need.urls[0], err),))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        self.progress.note(f"{need.names[0]}: {need.urls[0]}")
        return None


def _placed(url: str, error: ChannelToolsError) -> ChannelToolsError:
    """The same error, with its message starting with the place that was tried."""
    return error.with_message(f"{url}: {error.message}")


def _with_reason(failure: _Failure, error: ChannelToolsError) -> _Failure:
    return replace(failure, reasons=(*failure.reasons, error))
