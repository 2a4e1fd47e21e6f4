# SPDX-License-Identifier: BSD-3-Clause
"""Publishing to servers of others: Artifactory, Anaconda, prefix.dev, quetz, Cloudsmith.

They take packages one by one and show each as it comes, so a set cannot appear as a whole there. What can be done is
done: everything is compared beforehand, and no package is sent before what it needs.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from channel_tools.channel.publish import check_package
from channel_tools.commands import end_process_group, start_command
from channel_tools.errors import ChannelError, ChannelToolsError, IntegrityError, NetworkError, UsageError
from channel_tools.publish.foreign_read import ForeignReader
from channel_tools.publish.foreign_services import ForeignAddress, parse_foreign_address
from channel_tools.publish.foreign_worker import UploadJob, UploadOutcome
from channel_tools.publish.model import PublishPlan, PublishReport
from channel_tools.solving import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from channel_tools.progress import Progress
    from channel_tools.publish.model import PackageFile, PackageSet

_PATIENCE_S = 120
_SLOWEST_BYTES_PER_S = 50_000
_TOLD_CHARACTERS = 300
_STATUS = re.compile(r"HTTP (\d{3})")
_NO_KEY = re.compile(r"none (was )?found in|or found in the keychain")
_UNREACHED = re.compile(r"error sending request|connection|timed out", re.IGNORECASE)
_NAME_END = re.compile(r"[\s=<>!~\[]")


def open_foreign(address: str, environ: Mapping[str, str]) -> ForeignTarget:
    """The channel on a server of others that an address names; nothing is contacted. Raises UsageError."""
    parsed = parse_foreign_address(address)
    key = environ.get(parsed.service.variable) or None
    return ForeignTarget(place=parsed, reader=ForeignReader(address=parsed, key=key))


@dataclass(frozen=True, kw_only=True, slots=True)
class ForeignTarget:
    """A channel on a server of others; see Target, except that readers may see a part of a set while it is sent."""

    place: ForeignAddress
    reader: ForeignReader
    patience_s: int = _PATIENCE_S
    """How long an upload may take beside the time that its bytes need."""

    @property
    def address(self) -> str:
        """Where clients read label ``main``."""
        return self.place.read

    def plan(self, packages: PackageSet, *, label: str) -> PublishPlan:
        """Compare with the server's index. Raises ChannelError (a name has other bytes), UsageError (no labels)."""
        listed = self.reader.listed(label, (file.key for file in packages.files))
        for file in packages.files:
            if file.key in listed and (listed[file.key] or self.reader.sha256_of(label, file.key)) != file.sha256:
                raise self._other_bytes(file, label)
        return PublishPlan(
            packages=packages,
            label=label,
            upload=tuple(file for file in packages.files if file.key not in listed),
            link=(),
            present=tuple(file for file in packages.files if file.key in listed),
        )

    def publish(self, plan: PublishPlan, *, progress: Progress) -> PublishReport:
        """Send the files one by one, what others need first; what was taken before an error is skipped next time."""
        started = time.monotonic()
        files = in_order_of_need(plan.upload)
        if len(files) > 1:
            progress.note(
                f"{self.place.service.name} shows packages one by one: readers may see a part of the {len(files)} "
                "until all are there; none comes before what it needs"
            )
        with progress.task("uploading packages", total=plan.upload_bytes, unit="bytes") as task:
            for file in files:
                self._send(file, plan.label)
                task.advance(file.size_bytes, detail=file.file_name)
        return PublishReport(
            address=self.place.label_address(plan.label),
            label=plan.label,
            uploaded=tuple(sorted(file.key for file in files)),
            linked=(),
            seconds=time.monotonic() - started,
        )

    def promote(self, keys: tuple[str, ...], *, source: str, label: str, progress: Progress) -> PublishReport:
        """Not possible from here: raises UsageError."""
        del keys, progress
        message = f"{self.address}: packages there cannot be promoted from {source} to {label} from here"
        raise UsageError(message, hint=f"use what {self.place.service.name} itself offers for that")

    def _send(self, file: PackageFile, label: str) -> None:
        if self.place.service.overwrites and self._is_there(file, label):
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
        found = self.reader.sha256_of(label, file.key)
        if found is not None and found != file.sha256:
            raise self._other_bytes(file, label)
        return found is not None

    def _upload(self, file: PackageFile, label: str) -> ChannelToolsError | None:
        """Let a process send the file; returns what is wrong."""
        service = self.place.service
        arguments = service.arguments(self.place, label)
        if self.reader.key is not None:
            arguments[service.key_argument] = self.reader.key
        limit_s = self.patience_s + file.size_bytes // _SLOWEST_BYTES_PER_S
        job = UploadJob(function=service.upload, path=str(file.path), arguments=arguments, limit_s=limit_s)
        status, output = _run_worker(job)
        if status == 0:
            outcome = msgspec.json.decode(output, type=UploadOutcome)
            return None if outcome.error is None else self._refusal(file, outcome.error)
        where = f"{self.place.api}: {file.file_name}"
        if status == -signal.SIGALRM:
            return NetworkError(f"{where} was not taken within {limit_s} s", hint="run the same command again")
        return NetworkError(f"{where}: the upload ended with status {status}", hint="run the same command again")

    def _refusal(self, file: PackageFile, said: str) -> ChannelToolsError:
        """What the engine's words mean; a key never stands in what is told."""
        service = self.place.service
        words = one_line(ValueError(said))
        if self.reader.key:
            words = words.replace(self.reader.key, "***")
        where = f"{self.place.api}: {file.file_name}"
        hint = f"set {service.variable}, or keep the key with: rattler-build auth login"
        found = _STATUS.search(words)
        if _NO_KEY.search(words):
            return UsageError(f"{self.place.api}: there is no key to upload to {service.name} with", hint=hint)
        if found is not None and found[1] in {"401", "403"}:
            return NetworkError(f"{where} was refused: the key may not upload there (HTTP {found[1]})", hint=hint)
        if _UNREACHED.search(words):
            return NetworkError(f"{where}: the server cannot be reached", hint="check the address and the network")
        hint = f"check channel and key ({service.variable}); what was taken is skipped when you run it again"
        return NetworkError(f"{where} was not taken by {service.name}: {words[:_TOLD_CHARACTERS]}", hint=hint)

    def _other_bytes(self, file: PackageFile, label: str) -> ChannelError:
        message = (
            f"{self.place.label_address(label)}/{file.key}: the server holds other bytes under this name than "
            f"{file.path} (sha256 {file.sha256})"
        )
        return ChannelError(message, hint="published files never change: raise the recipe's build number")


def in_order_of_need(files: Sequence[PackageFile]) -> list[PackageFile]:
    """The files, each after those of the set that it depends on as far as they do not need each other.

    All are read in full first. Raises IntegrityError for one that is damaged or not the one that was planned.
    """
    by_name: dict[str, list[PackageFile]] = {}
    needs: dict[str, list[str]] = {}
    for file in sorted(files):
        row = check_package(file.path)
        if row.sha256 != file.sha256:
            message = f"{file.path}: has sha256 {row.sha256}; {file.sha256} was to be published"
            raise IntegrityError(message, hint="run the same command again")
        by_name.setdefault(row.name, []).append(file)
        depends = row.record.get("depends")
        specs = depends if isinstance(depends, list) else []
        needs[file.key] = [_NAME_END.split(str(spec).strip(), maxsplit=1)[0].lower() for spec in specs]
    ordered: dict[str, PackageFile] = {}
    begun: set[str] = set()

    def visit(file: PackageFile) -> None:
        if file.key in begun:
            return
        begun.add(file.key)
        for name in needs[file.key]:
            for needed in by_name.get(name, ()):
                visit(needed)
        ordered[file.key] = file

    for file in sorted(files):
        visit(file)
    return list(ordered.values())


def _run_worker(job: UploadJob) -> tuple[int, bytes]:
    command = [sys.executable, "-m", "channel_tools.publish.foreign_worker"]
    process = start_command(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        output, _ = process.communicate(msgspec.json.encode(job))
    except BaseException:
        end_process_group(process)
        raise
    return process.returncode, output
