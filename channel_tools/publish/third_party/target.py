# SPDX-License-Identifier: BSD-3-Clause
"""Publishing to third-party servers: Artifactory, Anaconda, prefix.dev, quetz, Cloudsmith.

They take packages one by one and show each as it comes, so a set cannot appear as a whole there. What can be done is
done: everything is compared beforehand, and no package is sent before its dependencies.
"""

from __future__ import annotations

import re
import signal
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from channel_tools.conda.solving import one_line
from channel_tools.publish.channels import checked_row, other_bytes
from channel_tools.publish.model import PublishPlan, PublishReport
from channel_tools.publish.third_party.services import ServiceReader, parse_service_address
from channel_tools.publish.third_party.worker import UploadJob
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
    """The channel on a third-party server that an address names; nothing is contacted. Raises UsageError."""
    parsed = parse_service_address(address)
    key = environ.get(parsed.service.variable) or None
    return ThirdPartyTarget(reader=ServiceReader(address=parsed, key=key))


@dataclass(frozen=True, kw_only=True, slots=True)
class ThirdPartyTarget:
    """A channel on a third-party server; see Target, except that readers may see a part of a set while it is sent."""

    reader: ServiceReader
    upload_s: int = _UPLOAD_S
    """How long an upload may take beside the time for its bytes."""

    @property
    def address(self) -> str:
        """Where clients read label ``main``."""
        return self.reader.address.read

    def plan(self, packages: PackageSet, *, label: str) -> PublishPlan:
        """Compare with the server's index. Raises ChannelError (a name has other bytes), UsageError (no labels)."""
        files = packages.by_name()
        listed = self.reader.listed(label, files)
        for key, sha256 in listed.items():
            if (found := sha256 or self.reader.sha256_of(label, key)) != files[key].sha256:
                raise self._other_bytes(files[key], label, found)
        missing = [key for key in files if key not in listed]
        return packages.plan(label, upload=missing, link=(), present=[key for key in files if key in listed])

    def publish(self, plan: PublishPlan, *, progress: Progress) -> PublishReport:
        """Send the files one by one, dependencies first; what was taken before an error is skipped next time."""
        started = time.monotonic()
        files = dependencies_first(plan.upload)
        if len(files) > 1:
            progress.note(
                f"{self.reader.address.service.name} shows packages one by one: readers may see a part of the "
                f"{len(files)} until all are there; none comes before its dependencies"
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
        """Not possible from here: raises UsageError."""
        del keys, progress
        message = f"{self.address}: packages there cannot be promoted from {source} to {label} from here"
        raise UsageError(message, hint=f"use what {self.reader.address.service.name} itself offers for that")

    def _send(self, file: PackageFile, label: str) -> None:
        if self.reader.address.service.overwrites and self._is_there(file, label):
            return
        error = self._upload(file, label)
        if error is None:
            return
        # the server may have taken it and said so too late, or an earlier run sent it and the index lags behind
        if not isinstance(error, UsageError) and self._is_there(file, label):
            return
        raise error

    def _is_there(self, file: PackageFile, label: str) -> bool:
        """Whether the server hands out these bytes under the name. Raises ChannelError when it has others."""
        found = self.reader.sha256_of(label, str(file.key))
        if found is not None and found != file.sha256:
            raise self._other_bytes(file, label, found)
        return found is not None

    def _upload(self, file: PackageFile, label: str) -> ChannelToolsError | None:
        """Let a process send the file; returns what is wrong."""
        service = self.reader.address.service
        arguments = service.arguments(self.reader.address, label)
        if self.reader.key is not None:
            arguments[service.key_argument] = self.reader.key
        limit_s = self.upload_s + file.size_bytes // _SLOWEST_BYTES_PER_S
        job = UploadJob(function=service.upload, path=str(file.path), arguments=arguments, limit_s=limit_s)
        worker = [sys.executable, "-m", "channel_tools.publish.third_party.worker"]
        done = run_command(worker, content=msgspec.json.encode(job), check=False)
        if done.returncode == 0:
            said = msgspec.json.decode(done.stdout, type=str | None)
            return None if said is None else self._error(file, said)
        where = f"{self.reader.address.api}: {file.file_name}"
        if done.returncode == -signal.SIGALRM:
            return NetworkError(f"{where} was not taken within {limit_s} s", hint="run the same command again")
        message = f"{where}: the upload ended with status {done.returncode}"
        return NetworkError(message, hint="run the same command again")

    def _error(self, file: PackageFile, said: str) -> ChannelToolsError:
        """What the engine's words mean; a key never stands in the message."""
        service = self.reader.address.service
        words = one_line(ValueError(said))
        if self.reader.key:
            words = words.replace(self.reader.key, "***")
        where = f"{self.reader.address.api}: {file.file_name}"
        hint = f"set {service.variable}, or keep the key with: rattler-build auth login"
        found = _STATUS.search(words)
        if _NO_KEY.search(words):
            return UsageError(f"{self.reader.address.api}: no key for uploading to {service.name}", hint=hint)
        if found is not None and found[1] in {"401", "403"}:
            return NetworkError(f"{where}: the key may not upload there (HTTP {found[1]})", hint=hint)
        if _UNREACHED.search(words):
            return NetworkError(f"{where}: the server cannot be reached", hint="check the address and the network")
        hint = f"check channel and key ({service.variable}); what was taken is skipped when you run it again"
        return NetworkError(f"{where} was not taken by {service.name}: {words[:_MESSAGE_CHARACTERS]}", hint=hint)

    def _other_bytes(self, file: PackageFile, label: str, found: str | None) -> ChannelError:
        return other_bytes(f"{self.reader.address.label_address(label)}/{file.key}", found or "unknown", file.sha256)


def dependencies_first(files: Sequence[PackageFile]) -> list[PackageFile]:
    """The files, each after those of the set that it depends on as far as they do not depend on each other.

    All are read in full first. Raises IntegrityError for one that is damaged or not the one that was planned.
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
