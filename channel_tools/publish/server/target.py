# SPDX-License-Identifier: BSD-3-Clause
"""Publishing to a channel_tools server: a set is opened, its missing files are sent, and it is published as a whole.

After any failure the set stays open there for a day: the same call finds it by its content and sends only what is still
missing, each file from where it was cut off.

Requests have time limits and are repeated if that can help. The token comes from the environment, a file, the address
or the user's credentials, and is never printed; redirects are not followed, so that it is sent only to the server that
it was given for.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeVar, cast

from channel_tools.conda.addresses import NOT_SENT, is_confidential, is_web, parse_address, without_credentials
from channel_tools.conda.clients import (
    RATTLER_FILE,
    RATTLER_VARIABLE,
    make_http_client,
    split_credential,
    stored_authorization,
)
from channel_tools.publish.model import PublishPlan, PublishReport, check_label, label_address
from channel_tools.publish.server.protocol import (
    API,
    ErrorResponse,
    HotfixRequest,
    JobResponse,
    LabelsResponse,
    PackagesResponse,
    PlanResponse,
    PromoteRequest,
    ReceivedBytes,
    RetainRequest,
    YankRequest,
    encode,
    from_error_response,
    instructions_of,
    set_request,
)
from channel_tools.system.document import decode_json
from channel_tools.system.errors import ChannelError, ConfigError, IntegrityError, NetworkError, UsageError
from channel_tools.system.files import sha256_of_file
from channel_tools.system.http.client import TEMPORARY_STATUSES
from channel_tools.system.http.pace import Timeouts, TransientError, retry_after_s
from channel_tools.system.progress import SilentProgress
from channel_tools.system.workers import run_in_threads

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from channel_tools.channel import Foundation
    from channel_tools.channel.listing import Patch
    from channel_tools.channel.maintenance import Retention, RetentionPlan
    from channel_tools.publish.model import LabelPackage, PackageFile, PackageSet
    from channel_tools.publish.server.protocol import JobKind, ReportResponse
    from channel_tools.system.http.client import HttpClient, Response
    from channel_tools.system.progress import Progress, Task

_AT_ONCE = 4
_KEEP_ALL = 1 << 40
"""Versions, and seconds: more than any channel has."""
_ATTEMPTS = 6
_COMMITS = 4
_JOB_LIMIT_S = 2 * 3600.0
_WAIT_S = 20
TOKEN_VARIABLE = "CHANNEL_TOOLS_TOKEN"  # noqa: S105 - a name
TOKEN_FILE_VARIABLE = "CHANNEL_TOOLS_TOKEN_FILE"  # noqa: S105
WHERE = (
    f"set {TOKEN_VARIABLE} or {TOKEN_FILE_VARIABLE} (a file with the token), "
    f"or store it in rattler's credentials ({RATTLER_VARIABLE}, else ~/{RATTLER_FILE}) or .netrc"
)
SERVER_TIMEOUTS = Timeouts(read_s=90.0)
_RESPONSE_S = 300.0
_RESPONSE_LIMIT_BYTES = 16 << 20
_UNAUTHORISED = frozenset({401, 403})
_OUT_OF_STEP = frozenset({"OffsetError", "PartBusyError"})
"""Server errors that mean that it has another part of a file, or is receiving it at the moment."""
_OK_LIMIT = 300

_Message = TypeVar("_Message")


class TemporaryError(NetworkError):
    """The server could not be reached, or is temporarily unavailable."""

    def __init__(self, message: str, *, hint: str | None, retry_after_s: float = 0.0) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerAddress:
    """The address of a server's channel without credentials, and the headers to send with every request."""

    url: str
    authorization: str | None = field(repr=False)


class ServerConnection:
    """Requests to one channel of a server; may be used by several threads."""

    def __init__(self, address: ServerAddress, client: HttpClient) -> None:
        self.address = address.url
        parts = parse_address(address.url)
        if not is_web(address.url) or parts.path.count("/") != 1 or parts.query:
            shown = without_credentials(address.url)
            message = f"{shown}: not the address of a channel on a server; expected https://HOST/CHANNEL"
            raise UsageError(message, hint="give a label with --label, not in the address")
        self.channel = parts.path[1:]
        self._base = f"{parts.scheme}://{parts.netloc}"
        self._client = client
        self._authorization = {} if address.authorization is None else {"Authorization": address.authorization}

    def ask(self, method: str, path: str, kind: type[_Message], message: object | None = None) -> _Message:
        """Send a message and return the response, asking again a few times while the server is unavailable.

        Raises NetworkError, and what the server reports.
        """
        headers = {} if message is None else {"Content-Type": "application/json"}
        body = None if message is None else encode(message)
        failures = 0
        while True:
            try:
                return self.understood(*self.send_once(method, path, body=body, headers=headers), kind)
            except TemporaryError as err:
                failures += 1
                if self._client.retry.is_last(failures, err.retry_after_s):
                    raise
                self.pause(failures, err.retry_after_s)

    def send_once(
        self, method: str, path: str, *, body: bytes | IO[bytes] | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """One request; returns the status and body of the response.

        Raises TemporaryError if a retry may succeed, NetworkError for an endless response.
        """
        hint = "run the same command again: what was sent is kept"
        own = {**self._authorization, **(headers or {})}
        try:
            with self._client.open(method, self._base + path, body=body, headers=own, follow=False) as response:
                status, content = response.status, self._read(response)
        except TransientError as err:
            message = f"{self.address}: the server cannot be reached, or stopped responding: {err}"
            raise TemporaryError(message, hint=hint) from None
        if status in TEMPORARY_STATUSES:
            message = f"{self.address}: the server is temporarily unavailable (HTTP status {status})"
            raise TemporaryError(message, hint=hint, retry_after_s=retry_after_s(response.headers))
        return status, content

    def pause(self, failures: int, retry_after_s: float = 0.0) -> None:
        """Wait before another attempt, longer after each failure."""
        time.sleep(self._client.retry.wait_s(failures, retry_after_s))

    def _read(self, response: Response) -> bytes:
        """The body of a response, which is small and complete at once if this is a channel_tools server."""
        deadline_s = time.monotonic() + _RESPONSE_S
        content = b""
        while chunk := response.read1():
            content += chunk
            if len(content) > _RESPONSE_LIMIT_BYTES or time.monotonic() > deadline_s:
                message = f"{self.address}: not a channel_tools server (its response does not end)"
                raise NetworkError(message, hint="give the address of a channel_tools server")
        return content

    def understood(self, status: int, content: bytes, kind: type[_Message]) -> _Message:
        """The message of a response. Raises the error that the server reports, NetworkError if it is not a message."""
        if status in _UNAUTHORISED:
            raise self._unauthorised(status)
        try:
            if status < _OK_LIMIT:
                return decode_json(content, kind)
            error = decode_json(content, ErrorResponse)
        except ValueError:
            response = "a redirect" if status in range(300, 400) else f"HTTP status {status}"
            message = f"{self.address}: not a channel_tools server (got {response} instead of a message of its API)"
            raise NetworkError(message, hint="give the address of a channel_tools server") from None
        if error.kind in _OUT_OF_STEP:
            raise TemporaryError(f"{self.address}: {error.message}", hint=error.hint)
        reported = from_error_response(error)
        raise reported.with_message(f"{self.address}: {reported.message}")

    def _unauthorised(self, status: int) -> UsageError:
        if status == 403:  # noqa: PLR2004
            message = f"{self.address}: the token may only read there"
            return UsageError(message, hint="ask the server's operator for a token with --write")
        if self._authorization:
            message = f"{self.address}: the token is not valid for this channel and label"
            return UsageError(message, hint="it may be for another one, expired or revoked; ask the server's operator")
        hint = WHERE if is_confidential(self.address) else f"{WHERE}; {NOT_SENT}"
        return UsageError(f"{self.address}: a token is required", hint=hint)


def server_address(address: str, environ: Mapping[str, str]) -> ServerAddress:
    """The address of a channel on a server, with the credentials found for it, if any.

    They are looked up in this order: CHANNEL_TOOLS_TOKEN, the file named by CHANNEL_TOOLS_TOKEN_FILE, the address
    itself, rattler's credentials, .netrc (the last two not for plain http addresses of other machines).
    Raises ConfigError if a named file cannot be read.
    """
    plain, credential = split_credential(address)
    plain = plain.rstrip("/")
    if token := environ.get(TOKEN_VARIABLE, "").strip():
        return ServerAddress(url=plain, authorization=f"Bearer {token}")
    if file := environ.get(TOKEN_FILE_VARIABLE, ""):
        return ServerAddress(url=plain, authorization=f"Bearer {_read_token(Path(file))}")
    if credential is not None:
        return ServerAddress(url=plain, authorization=credential.authorization)
    return ServerAddress(url=plain, authorization=stored_authorization(plain, environ))


def _read_token(path: Path) -> str:
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as err:
        reason = err.strerror if isinstance(err, OSError) else "not a token"
        message = f"named by {TOKEN_FILE_VARIABLE}, cannot be read: {reason}"
        raise ConfigError(message, path=path, hint="write the token into it, and nothing else") from None
    if not token or any(character.isspace() for character in token):
        message = f"named by {TOKEN_FILE_VARIABLE}, does not contain a token"
        raise ConfigError(message, path=path, hint="write the token into it, and nothing else")
    return token


def open_server(address: str, environ: Mapping[str, str]) -> ServerTarget:
    """The channel of a server that ``https://HOST/CHANNEL`` names. Raises UsageError, ConfigError."""
    client = make_http_client(environ, timeouts=SERVER_TIMEOUTS, writes=True)
    return ServerTarget(connection=ServerConnection(server_address(address, environ), client))


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerTarget:
    """A channel on a channel_tools server; see MaintainedTarget for what its methods guarantee."""

    connection: ServerConnection

    @property
    def address(self) -> str:
        """The address of label ``main`` for clients, without credentials."""
        return self.connection.address

    def foundation(self) -> Foundation | None:
        """None: the server compares the one of a set with its channel's, and does not tell it."""
        return None

    def plan(self, packages: PackageSet, *, label: str) -> PublishPlan:
        """Ask the server what publishing would do; it changes nothing."""
        comparison = self.connection.ask("POST", f"{self._channel}/plan", PlanResponse, set_request(packages, label))
        named = [*comparison.upload, *comparison.link, *comparison.present]
        if sorted(named) != sorted(packages.by_name()):
            raise NetworkError(f"{self.address}: the server's plan names other files than the request")
        return PublishPlan(packages=packages, label=label, comparison=comparison)

    def publish(self, plan: PublishPlan, *, progress: Progress) -> PublishReport:
        """Send what is missing and have the set published in one step."""
        started = time.monotonic()
        request = replace(set_request(plan.packages, plan.label, attested=True), upload=plan.comparison.upload)
        files = plan.packages.by_name()
        for _commit in range(_COMMITS):
            job = self.connection.ask("POST", f"{self._channel}/sets", JobResponse, request)
            if job.state == "open":
                self._send_all([files[key] for key in job.missing if key in files], job, progress)
                job = self.connection.ask("POST", f"{self._channel}/sets/{job.id}/commit", JobResponse)
            job = self._ended(job, progress, f"publish {plan.packages.name}")
            if job.state != "open":
                return self._published(self._reported(job), plan.label, started)
        raise self._stopped(f"publish {plan.packages.name}")

    def promote(self, keys: tuple[str, ...], *, source: str, label: str, progress: Progress) -> PublishReport:
        """Have packages of label ``source`` added to ``label``."""
        started = time.monotonic()
        request = PromoteRequest(source=source, label=label, keys=tuple(sorted(set(keys))))
        return self._published(self._changed("promote", request, progress), label, started)

    def labels(self) -> list[str]:
        """The existing labels that the token may write to, main first."""
        return list(self.connection.ask("GET", f"{self._channel}/labels", LabelsResponse).labels)

    def packages(self, label: str) -> tuple[LabelPackage, ...]:
        """All packages of the label, including hidden ones, sorted."""
        path = f"{self._channel}/labels/{check_label(label)}/packages"
        return self.connection.ask("GET", path, PackagesResponse).packages

    def yank(self, keys: tuple[str, ...], *, label: str, reason: str | None) -> None:
        """Hide packages from new solves; their files stay for lock files. With ``reason`` None, undo that."""
        self._changed("yank", YankRequest(label=label, keys=keys, reason=reason))

    def hotfix(self, patches: Mapping[str, Patch], *, label: str, replace: bool) -> None:
        """Patch the records of subdirs, in addition to earlier patches or (``replace``) instead of them."""
        instructions = {subdir: instructions_of(patch) for subdir, patch in patches.items()}
        self._changed("hotfix", HotfixRequest(label=label, patches=instructions, replace=replace))

    def retain(self, rule: Retention, *, label: str, dry_run: bool) -> RetentionPlan:
        """Hide packages as ``rule`` says and delete those hidden long enough; with ``dry_run`` only return the plan."""
        from channel_tools.channel.maintenance import RetentionPlan  # noqa: PLC0415 - imports rattler

        request = RetainRequest(
            label=label,
            # a server before 0.3 knows no ``removed``: by these it hides nothing, instead of all that is old
            keep=_KEEP_ALL if rule.removed else rule.keep,
            older_than_s=_KEEP_ALL if rule.removed else rule.older_than_s,
            locked_files=tuple(sorted(rule.locked_files)),
            locked_hashes=tuple(sorted(rule.locked_hashes)),
            grace_s=rule.grace_s,
            dry_run=dry_run,
            removed=tuple(sorted(rule.removed)),
        )
        report = self._changed("retain", request)
        if ignored := rule.removed - {*report.retired, *report.deleted, *report.kept}:
            self._check_gone(ignored, label)
        return RetentionPlan(retire=report.retired, delete=report.deleted, keep=report.kept)

    def _check_gone(self, keys: AbstractSet[str], label: str) -> None:
        """Raise ChannelError for what the server did not say to remove, unless it was hidden before."""
        listed = [str(package.key) for package in self.packages(label) if package.hidden is None]
        if ignored := sorted(keys & {*listed}):
            message = f"{self.address}, label {label}: the server did not remove {', '.join(ignored)}"
            hint = "it may be older than this command: upgrade it to 0.3 or later; or hide them: channel_tools yank"
            raise ChannelError(message, hint=hint)

    @property
    def _channel(self) -> str:
        return f"{API}/{self.connection.channel}"

    def _send_all(self, files: list[PackageFile], job: JobResponse, progress: Progress) -> None:
        total = sum(file.size_bytes - job.missing[str(file.key)] for file in files)
        with progress.task("upload", total=total, unit="bytes") as task:
            run_in_threads(lambda file: self._send(file, job, task), files, threads=_AT_ONCE)

    def _send(self, file: PackageFile, job: JobResponse, task: Task) -> None:
        """Send the rest of one file, again after failures as long as the server gets more of it each time."""
        path = f"{self._channel}/sets/{job.id}/files/{file.key}"
        offset, failures = job.missing[str(file.key)], 0
        while True:
            try:
                received = self._send_from(offset, file, path, task)
            except TemporaryError:
                failures += 1
                if failures == _ATTEMPTS:
                    raise
                self.connection.pause(failures)
                received = self.connection.ask("GET", path, ReceivedBytes)
            if received.complete:
                return
            if received.received > offset:
                failures = 0
            elif failures == 0:
                raise NetworkError(f"{self.address}: {file.key} was sent, but the server did not receive more of it")
            offset = received.received

    def _send_from(self, offset: int, file: PackageFile, path: str, task: Task) -> ReceivedBytes:
        """Send the rest of a file in one request."""
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(file.size_bytes - offset)}
        if offset:
            headers["Content-Range"] = f"bytes {offset}-{file.size_bytes - 1}/{file.size_bytes}"
        with file.path.open("rb") as stream:
            stream.seek(offset)
            body = cast("IO[bytes]", _ReportedReads(stream, task, file.file_name))
            status, content = self.connection.send_once("PUT", path, body=body, headers=headers)
        try:
            return self.connection.understood(status, content, ReceivedBytes)
        except IntegrityError:
            sha256 = sha256_of_file(file.path)
            if sha256 == file.sha256:
                raise
            message = f"{file.path}: its sha256 is {sha256}, but the local channel's index says {file.sha256}"
            raise IntegrityError(message, hint="channel_tools channel verify") from None

    def _ended(self, job: JobResponse, progress: Progress, action: str) -> JobResponse:
        """Wait for the job to end; returns its final state."""
        deadline_s = time.monotonic() + _JOB_LIMIT_S
        with progress.task(action, total=None):
            while job.state in {"waiting", "running"}:
                if time.monotonic() > deadline_s:
                    raise NetworkError(f"{self.address}: {action} did not finish within {_JOB_LIMIT_S / 3600:g} hours")
                job = self.connection.ask(
                    "GET", f"{self._channel}/jobs/{job.id}?wait={_WAIT_S}&run={job.run}", JobResponse
                )
        return job

    def _stopped(self, action: str) -> NetworkError:
        message = f"{self.address}: the server was stopped {_COMMITS} times during: {action}"
        return NetworkError(message, hint="run the same command again: what was sent is kept")

    def _published(self, report: ReportResponse, label: str, started: float) -> PublishReport:
        return PublishReport(
            address=label_address(self.address, label),
            label=label,
            uploaded=report.uploaded,
            linked=report.linked,
            seconds=time.monotonic() - started,
        )

    def _changed(self, kind: JobKind, request: object, progress: Progress | None = None) -> ReportResponse:
        """Have the server run a job that needs no files."""
        for _attempt in range(_COMMITS):
            job = self.connection.ask("POST", f"{self._channel}/{kind}", JobResponse, request)
            job = self._ended(job, progress or SilentProgress(), kind)
            if job.state != "open":
                return self._reported(job)
        raise self._stopped(kind)

    def _reported(self, job: JobResponse) -> ReportResponse:
        if job.error is not None:
            error = from_error_response(job.error)
            raise error.with_message(f"{self.address}: {error.message}")
        if job.report is None:
            raise NetworkError(f"{self.address}: the server reported neither a result nor an error")
        return job.report


class _ReportedReads:
    """A file that reports its progress while it is sent."""

    def __init__(self, stream: IO[bytes], task: Task, name: str) -> None:
        self._stream = stream
        self._task = task
        self._name = name

    def read(self, size: int = -1) -> bytes:
        chunk = self._stream.read(size)
        self._task.advance(len(chunk), detail=self._name)
        return chunk
