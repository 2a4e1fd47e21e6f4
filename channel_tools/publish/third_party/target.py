# SPDX-License-Identifier: BSD-3-Clause
"""Publishing to third-party servers: Artifactory, Anaconda, prefix.dev, quetz, Cloudsmith.

They accept packages one by one and show each at once, so a set cannot appear as a whole there. Instead, everything is
compared beforehand, and no package is sent before its dependencies.
"""

from __future__ import annotations

import re
import signal
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from channel_tools.channel.model import Foundation
from channel_tools.conda.solving import one_line
from channel_tools.publish.folder import checked_row, other_bytes
from channel_tools.publish.model import Comparison, PublishPlan, PublishReport
from channel_tools.publish.third_party.services import ServiceReader, parse_service_address
from channel_tools.publish.third_party.worker import UploadJob
from channel_tools.system.document import decode_json
from channel_tools.system.errors import ChannelError, ChannelToolsError, NetworkError, UsageError
from channel_tools.system.processes import run_command

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from channel_tools.publish.model import PackageFile, PackageSet
    from channel_tools.system.progress import Progress

_UPLOAD_S = 120
_SLOWEST_BYTES_PER_S = 50_000
_MESSAGE_CHARACTERS = 300
_STATUS = re.compile(r"HTTP (\d{3})")
_NO_KEY = re.compile(r"none (was )?found in|or found in the keychain")
_UNREACHED = re.compile(r"error sending request|connection|timed out", re.IGNORECASE)


def open_third_party(address: str, environ: Mapping[str, str]) -> ThirdPartyTarget:
    """The target for an address of a third-party server; nothing is contacted. Raises UsageError."""
    parsed = parse_service_address(address)
    key = environ.get(parsed.service.variable) or None
    return ThirdPartyTarget(reader=ServiceReader(address=parsed, key=key))


@dataclass(frozen=True, kw_only=True, slots=True)
class ThirdPartyTarget:
    """A channel on a third-party server; like Target, but readers may see a part of a set while it is sent."""

    reader: ServiceReader
    upload_s: int = _UPLOAD_S
    """How long an upload may take in addition to the time for its bytes."""

    @property
    def address(self) -> str:
        """The address of label ``main`` for clients."""
        return self.reader.address.read

    def foundation(self) -> Foundation | None:
        """conda-forge, for all: such a server records none, and any package may be sent there."""
        return Foundation(kind="conda-forge")

    def plan(self, packages: PackageSet, *, label: str) -> PublishPlan:
        """Compare with the server's index. Raises ChannelError (a name has other bytes), UsageError (no labels)."""
        files = packages.by_name()
        listed = self.reader.listed(label, files)
        for key, sha256 in listed.items():
            if (stored := sha256 or self.reader.sha256_of(label, key)) != files[key].sha256:
                raise self._other_bytes(files[key], label, stored)
        missing = [key for key in files if key not in listed]
        present = tuple(key for key in files if key in listed)
        comparison = Comparison(upload=tuple(missing), link=(), present=present)
        return PublishPlan(packages=packages, label=label, comparison=comparison)

    def publish(self, plan: PublishPlan, *, progress: Progress) -> PublishReport:
        """Send the files one by one, dependencies first; what was accepted before an error is skipped the next time."""
        started = time.monotonic()
        files = dependencies_first(plan.upload)
        if len(files) > 1:
            progress.note(
                f"{self.reader.address.service.name} publishes packages one by one: readers may see only some of the "
                f"{len(files)} until all are sent; each is sent after its dependencies"
            )
        with progress.task("uploading packages", total=plan.upload_bytes, unit="bytes") as task:
            for file in files:
                self._send(file, plan.label)
                task.advance(file.size_bytes, detail=file.file_name)
        return PublishReport(
            address=self.reader.address.label_address(plan.label),
            label=plan.label,
            uploaded=tuple(sorted(str(file.key) for file in files)),
            linked=(),
            seconds=time.monotonic() - started,
        )

    def promote(self, keys: tuple[str, ...], *, source: str, label: str, progress: Progress) -> PublishReport:
        """Not supported: raises UsageError."""
        del keys, progress
        message = f"{self.address}: channel_tools cannot promote packages there from {source} to {label}"
        raise UsageError(message, hint=f"use {self.reader.address.service.name}'s own tools for that")

    def _send(self, file: PackageFile, label: str) -> None:
        if self.reader.address.service.overwrites and self._is_there(file, label):
            return
        error = self._upload(file, label)
        if error is None:
            return
        # the server may have accepted it and responded too late, or an earlier run sent it and the index lags behind
        if not isinstance(error, UsageError) and self._is_there(file, label):
            return
        raise error

    def _is_there(self, file: PackageFile, label: str) -> bool:
        """Whether the server has these bytes under the name. Raises ChannelError if it has others."""
        sha256 = self.reader.sha256_of(label, str(file.key))
        if sha256 is not None and sha256 != file.sha256:
            raise self._other_bytes(file, label, sha256)
        return sha256 is not None

    def _upload(self, file: PackageFile, label: str) -> ChannelToolsError | None:
        """Send the file in a separate process; returns the error, None if it succeeded."""
        service = self.reader.address.service
        arguments = service.arguments(self.reader.address, label)
        if self.reader.key is not None:
            arguments[service.key_argument] = self.reader.key
        limit_s = self.upload_s + file.size_bytes // _SLOWEST_BYTES_PER_S
        job = UploadJob(function=service.upload, path=str(file.path), arguments=arguments, limit_s=limit_s)
        worker = [sys.executable, "-m", "channel_tools.publish.third_party.worker"]
        done = run_command(worker, content=msgspec.json.encode(job), check=False)
        if done.returncode == 0:
            output = decode_json(done.stdout)
            return None if output is None else self._error(file, str(output))
        where = f"{self.reader.address.api}: {file.file_name}"
        if done.returncode == -signal.SIGALRM:
            return NetworkError(f"{where} was not accepted within {limit_s} s", hint="run the same command again")
        output = self._without_key(done.tail())
        message = f"{where}: the upload ended with status {done.returncode}" + (f"\n{output}" if output else "")
        return NetworkError(message, hint="run the same command again")

    def _error(self, file: PackageFile, output: str) -> ChannelToolsError:
        """The error for the engine's message; it never contains a key."""
        service = self.reader.address.service
        words = self._without_key(one_line(ValueError(output)))
        where = f"{self.reader.address.api}: {file.file_name}"
        hint = f"set {service.variable}, or store the key in the credentials file that RATTLER_AUTH_FILE names"
        match = _STATUS.search(words)
        if _NO_KEY.search(words):
            return UsageError(f"{self.reader.address.api}: no key for uploading to {service.name}", hint=hint)
        if match is not None and match[1] in {"401", "403"}:
            return NetworkError(f"{where}: the key may not upload there (HTTP {match[1]})", hint=hint)
        if _UNREACHED.search(words):
            return NetworkError(f"{where}: the server cannot be reached", hint="check the address and the network")
        hint = f"check channel and key ({service.variable}); what was accepted is skipped when you run it again"
        return NetworkError(f"{where} was not accepted by {service.name}: {words[:_MESSAGE_CHARACTERS]}", hint=hint)

    def _without_key(self, words: str) -> str:
        return words.replace(self.reader.key, "***") if self.reader.key else words

    def _other_bytes(self, file: PackageFile, label: str, sha256: str | None) -> ChannelError:
        return other_bytes(f"{self.reader.address.label_address(label)}/{file.key}", sha256 or "unknown", file.sha256)


def dependencies_first(files: Sequence[PackageFile]) -> list[PackageFile]:
    """The files, each after its dependencies in the set, except where dependencies are circular.

    All are read completely first. Raises IntegrityError for one that is damaged or not the planned one.
    """
    by_name: dict[str, list[PackageFile]] = {}
    dependencies: dict[PackageFile, tuple[str, ...]] = {}
    for file in sorted(files):
        row = checked_row(file)
        by_name.setdefault(row.name, []).append(file)
        dependencies[file] = row.dependency_names
    ordered: list[PackageFile] = []
    begun: set[PackageFile] = set()

    def visit(file: PackageFile) -> None:
        if file in begun:
            return
        begun.add(file)
        for name in dependencies[file]:
            for dependency in by_name.get(name, ()):
                visit(dependency)
        ordered.append(file)

    for file in sorted(files):
        visit(file)
    return ordered
