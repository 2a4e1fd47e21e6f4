# SPDX-License-Identifier: BSD-3-Clause
"""Publishing to third-party servers: Artifactory, Anaconda, prefix.dev, quetz, Cloudsmith.

They accept packages one by one and show each at once, so a set cannot appear as a whole there. Instead, the set is
compared with the server's index beforehand, and no package is sent before its dependencies. A new service is a row of
``SERVICES``, which says how rattler-build uploads to it.

Keys are never in an address: they come from the environment variable that rattler-build's own command line uses, else
from rattler's credentials. ``python -m channel_tools.publish.third_party`` makes one upload, given as JSON on standard
input: a separate process, since the engine holds the interpreter's lock and has no time limit.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

import msgspec
import rattler
from rattler.exceptions import FetchRepoDataError, GatewayError
from rattler.networking import AuthenticationMiddleware, Client, MirrorMiddleware, RetryMiddleware

from channel_tools.channel.model import Foundation
from channel_tools.conda.addresses import parse_address, scheme_of
from channel_tools.conda.clients import KeyCredentials, make_http_client, relayed_by
from channel_tools.conda.package import PackageKey, names_of_files
from channel_tools.conda.solving import gateway_error, one_line
from channel_tools.publish.folder import checked_row, other_bytes
from channel_tools.publish.model import MAIN_LABEL, Comparison, PublishPlan, PublishReport
from channel_tools.system.document import decode_json
from channel_tools.system.errors import ChannelError, ChannelToolsError, NetworkError, UsageError
from channel_tools.system.processes import run_command
from channel_tools.system.work_folder import temporary_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from channel_tools.publish.model import PackageFile, PackageSet
    from channel_tools.system.progress import Progress

UploadArguments = dict[str, str | list[str]]
_SETTINGS = ("api", "read")
_READ_S = 300.0
_UPLOAD_S = 120
_SLOWEST_BYTES_PER_S = 50_000
_MESSAGE_CHARACTERS = 300
_AGAIN_HINT = (
    "run the same command again: what was accepted is skipped as soon as the server's index lists it, "
    "until then the server may say that it exists"
)
_STATUS = re.compile(r"HTTP (\d{3})")
_NOT_THERE = re.compile(r"\b404\b|could not find subdir")
_UNAUTHORISED = re.compile(r"\b40[13]\b")
_NO_KEY = re.compile(r"none (was )?found in|or found in the keychain")
_UNREACHED = re.compile(r"error sending request|connection|timed out", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceAddress:
    """A channel on a third-party server: packages are sent to ``api``; clients read label main at ``read``."""

    service: Service
    names: tuple[str, ...]
    api: str
    read: str

    def label_address(self, label: str) -> str:
        """The label's address for clients. Raises UsageError if the service has no labels."""
        if label == MAIN_LABEL:
            return self.read
        if not self.service.has_labels:
            message = (
                f"{self.read}: {self.service.name} has no labels, so publishing to label {label!r} is not possible"
            )
            raise UsageError(message, hint=f"leave out --label, or publish to another channel there for {label!r}")
        return f"{self.read}/label/{label}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Service:
    """The properties of one kind of server.

    ``form`` is the form of an address, ``api`` where packages are sent (None: the address says it), ``read`` where a
    channel is read, with ``{api}`` and the names in the address by number. ``upload`` names the function of
    rattler_build, ``key_argument`` its parameter for the key, ``arguments`` makes the others from address and label.
    ``variable`` is the environment variable with the key, ``key_header`` how the key is sent for reading (None: only
    rattler's credentials are used).
    """

    name: str
    form: str
    api: str | None
    read: str
    upload: str
    variable: str
    key_argument: str
    key_header: tuple[str, str] | None
    arguments: Callable[[ServiceAddress, str], UploadArguments]
    has_labels: bool = False


SERVICES: Mapping[str, Service] = {
    "artifactory": Service(
        name="Artifactory",
        form="artifactory+https://HOST/CHANNEL",
        api=None,
        read="{api}/{0}",
        upload="upload_package_to_artifactory",
        variable="ARTIFACTORY_TOKEN",
        key_argument="token",
        key_header=("Authorization", "Bearer {key}"),
        arguments=lambda address, _label: {"url": address.api, "channels": address.names[0]},
    ),
    "quetz": Service(
        name="quetz",
        form="quetz+https://HOST/CHANNEL",
        api=None,
        read="{api}/get/{0}",
        upload="upload_package_to_quetz",
        variable="QUETZ_API_KEY",
        key_argument="api_key",
        key_header=("X-API-Key", "{key}"),
        arguments=lambda address, _label: {"url": address.api, "channels": address.names[0]},
    ),
    "prefix": Service(
        name="prefix.dev",
        form="prefix://CHANNEL",
        api="https://prefix.dev",
        read="https://prefix.dev/{0}",
        upload="upload_package_to_prefix",
        variable="PREFIX_API_KEY",
        key_argument="api_key",
        key_header=("Authorization", "Bearer {key}"),
        arguments=lambda address, _label: {"url": address.api, "channels": address.names[0]},
    ),
    "anaconda": Service(
        name="Anaconda",
        form="anaconda://OWNER",
        api="https://api.anaconda.org",
        read="https://conda.anaconda.org/{0}",
        upload="upload_package_to_anaconda",
        variable="ANACONDA_API_KEY",
        key_argument="api_key",
        key_header=None,
        arguments=lambda address, label: {"url": address.api, "owner": address.names[0], "channel": [label]},
        has_labels=True,
    ),
    "cloudsmith": Service(
        name="Cloudsmith",
        form="cloudsmith://OWNER/REPOSITORY",
        api="https://api.cloudsmith.io/v1",
        read="https://conda.cloudsmith.io/{0}/{1}",
        upload="upload_package_to_cloudsmith",
        variable="CLOUDSMITH_API_KEY",
        key_argument="api_key",
        key_header=None,
        arguments=lambda address, _label: {"url": address.api, "owner": address.names[0], "repo": address.names[1]},
    ),
}
"""By the scheme of their addresses; each must be in KINDS of ``publish/target.py``, too."""


def parse_service_address(text: str) -> ServiceAddress:
    """Parse the address of a channel on a third-party server. Raises UsageError if it is not in a known form."""
    scheme, _plus, protocol = scheme_of(text).partition("+")
    service = SERVICES[scheme]
    parts = parse_address(text, forms=service.form)
    if "@" in parts.netloc:
        raise UsageError(
            "a server's address must not contain credentials", hint="set the service's key in the environment"
        )
    if service.api is None:  # a server of the site's own, whose address says where packages are sent
        folder, _slash, channel = parts.path.rstrip("/").rpartition("/")
        if not parts.netloc or not channel or parts.query or parts.fragment:
            raise UsageError(f"{text}: not a valid channel address; expected {service.form}")
        api = f"{protocol}://{parts.netloc}{folder}"
        return ServiceAddress(service=service, names=(channel,), api=api, read=service.read.format(channel, api=api))
    names = tuple(name for name in (parts.netloc, *parts.path.strip("/").split("/")) if name)
    options = parse_qs(parts.query, keep_blank_values=True)
    expected = service.form.partition("://")[2].count("/") + 1
    if len(names) != expected or parts.fragment or options.keys() - set(_SETTINGS):
        message = f"{text}: not a valid {service.name} address; expected {service.form}"
        raise UsageError(message, hint=f"for your own server: {service.form}?api=https://HOST&read=https://HOST")
    if any("@" in value for values in options.values() for value in values):
        raise UsageError("a server's address must not contain credentials", hint=f"set {service.variable}")
    stated_api, stated_read = (options[key][-1].rstrip("/") if options.get(key) else None for key in _SETTINGS)
    for address in filter(None, (stated_api, stated_read)):
        parse_address(address, forms="https://HOST")
    read = stated_read or service.read.format(*names)
    return ServiceAddress(service=service, names=names, api=stated_api or service.api, read=read)


def open_third_party(address: str, environ: Mapping[str, str]) -> ThirdPartyTarget:
    """The target for an address of a third-party server; nothing is contacted. Raises UsageError."""
    parsed = parse_service_address(address)
    return ThirdPartyTarget(server=parsed, key=environ.get(parsed.service.variable) or None)


@dataclass(frozen=True, kw_only=True, slots=True)
class ThirdPartyTarget:
    """A channel on a third-party server; like Target, but readers may see a part of a set while it is sent.

    ``key`` is for uploading, and for reading where the service takes it; None: rattler's credentials are used.
    """

    server: ServiceAddress
    key: str | None
    upload_s: int = _UPLOAD_S
    """How long an upload may take in addition to the time for its bytes."""

    @property
    def address(self) -> str:
        """The address of label ``main`` for clients."""
        return self.server.read

    def foundation(self) -> Foundation | None:
        """conda-forge, for all: such a server records none, and any package may be sent there."""
        return Foundation(kind="conda-forge")

    def plan(self, packages: PackageSet, *, label: str) -> PublishPlan:
        """Compare with the server's index.

        Raises ChannelError (a name has other bytes, or no sha256 in the index), UsageError (no labels; a package whose
        record is not made from it), NetworkError.
        """
        files = packages.by_name()
        if corrected := next((f"{s}/{n}" for s, patch in packages.patches.items() for n in patch.names()), None):
            message = f"{corrected}: the channel that it is in lists other requirements than it has itself"
            hint = (
                f"{self.server.service.name} makes records from the packages, so the correction would be lost: publish "
                "to a folder or to a channel_tools server, or have the package built again"
            )
            raise UsageError(message, hint=hint)
        channel = self.server.label_address(label)
        # targets of all kinds share an interface that is not asynchronous
        listed = asyncio.run(self._listed(channel, sorted(files)))
        for key, sha256 in listed.items():
            if sha256 is None:
                message = f"{channel}/{key}: the server's index lists it without a sha256, so it cannot be compared"
                raise ChannelError(message, hint="have the server index the channel again, or remove the package there")
            if sha256 != files[key].sha256:
                raise other_bytes(f"{channel}/{key}", sha256, files[key].sha256)
        missing = tuple(key for key in files if key not in listed)
        present = tuple(key for key in files if key in listed)
        comparison = Comparison(upload=missing, link=(), present=present)
        return PublishPlan(packages=packages, label=label, comparison=comparison)

    async def _listed(self, channel: str, keys: Iterable[str]) -> dict[str, str | None]:
        """Those of the names that the channel's index lists, with their sha256 if it has one; none without an index."""
        hashes: dict[str, str | None] = {}
        parsed = [PackageKey.parse(key) for key in keys]
        with temporary_folder() as cache:
            gateway = rattler.Gateway(cache_dir=cache, client=self._client())
            for subdir in sorted({key.subdir for key in parsed}):
                names = names_of_files(key.file_name for key in parsed if key.subdir == subdir)
                for record in await self._records(gateway, channel, subdir, names):
                    hashes[f"{record.subdir}/{record.file_name}"] = record.sha256.hex() if record.sha256 else None
        return {key: hashes[key] for key in map(str, parsed) if key in hashes}

    async def _records(
        self, gateway: rattler.Gateway, channel: str, subdir: str, names: list[str]
    ) -> list[rattler.RepoDataRecord]:
        try:
            async with asyncio.timeout(_READ_S):
                groups = await gateway.query(
                    [channel], [rattler.Subdir(subdir)], names, recursive=False, channel_relations="disabled"
                )
        except TimeoutError:
            raise NetworkError(f"{channel}: downloading its index timed out") from None
        except (GatewayError, FetchRepoDataError) as err:
            if _NOT_THERE.search(str(err)):
                return []
            if _UNAUTHORISED.search(str(err)):
                hint = f"set {self.server.service.variable} to a key that does"
                raise NetworkError(f"{channel}: these credentials do not permit reading it", hint=hint) from None
            raise gateway_error(err, channels=[channel]) from None
        return [record for group in groups for record in group]

    def _client(self) -> Client:
        header, key = self.server.service.key_header, self.key
        if header is None or key is None:
            return Client([RetryMiddleware(), AuthenticationMiddleware()])
        # rattler's client sends a header to wherever the server redirects, and over plain http to the same host
        read = self.server.read.rstrip("/") + "/"
        credentials = KeyCredentials(read, (header[0], header[1].format(key=key)))
        mirrors = relayed_by(make_http_client(dict(os.environ), credentials=credentials), {read: read})
        return Client([RetryMiddleware(), MirrorMiddleware(mirrors), AuthenticationMiddleware()])

    def publish(self, plan: PublishPlan, *, progress: Progress) -> PublishReport:
        """Send the files one by one, dependencies first; what was accepted before an error is skipped the next time."""
        started = time.monotonic()
        files = dependencies_first(plan.upload)
        if len(files) > 1:
            progress.note(
                f"{self.server.service.name} publishes packages one by one: readers may see only some of the "
                f"{len(files)} until all are sent; each is sent after its dependencies"
            )
        with progress.task("uploading packages", total=plan.upload_bytes, unit="bytes") as task:
            for file in files:
                self._upload(file, plan.label)
                task.advance(file.size_bytes, detail=file.file_name)
        return PublishReport(
            address=self.server.label_address(plan.label),
            label=plan.label,
            uploaded=tuple(sorted(str(file.key) for file in files)),
            linked=(),
            seconds=time.monotonic() - started,
        )

    def promote(self, keys: tuple[str, ...], *, source: str, label: str, progress: Progress) -> PublishReport:
        """Not supported: raises UsageError."""
        del keys, progress
        message = f"{self.address}: channel_tools cannot promote packages there from {source} to {label}"
        raise UsageError(message, hint=f"use {self.server.service.name}'s own tools for that")

    def _upload(self, file: PackageFile, label: str) -> None:
        """Send the file in a separate process."""
        service = self.server.service
        arguments = service.arguments(self.server, label)
        if self.key is not None:
            arguments[service.key_argument] = self.key
        limit_s = self.upload_s + file.size_bytes // _SLOWEST_BYTES_PER_S
        job = UploadJob(function=service.upload, path=str(file.path), arguments=arguments, limit_s=limit_s)
        worker = [sys.executable, "-m", "channel_tools.publish.third_party"]
        done = run_command(worker, content=msgspec.json.encode(job), check=False)
        if done.returncode == 0:
            if (refusal := decode_json(done.stdout)) is not None:
                raise self._error(file, str(refusal))
            return
        where = f"{self.server.api}: {file.file_name}"
        if done.returncode == -signal.SIGALRM:
            raise NetworkError(f"{where} was not accepted within {limit_s} s", hint=_AGAIN_HINT)
        output = self._without_key(done.tail())
        message = f"{where}: the upload ended with status {done.returncode}" + (f"\n{output}" if output else "")
        raise NetworkError(message, hint=_AGAIN_HINT)

    def _error(self, file: PackageFile, output: str) -> ChannelToolsError:
        """The error for the engine's message; it never contains a key."""
        service = self.server.service
        words = self._without_key(one_line(ValueError(output)))
        where = f"{self.server.api}: {file.file_name}"
        hint = f"set {service.variable}, or store the key in the credentials file that RATTLER_AUTH_FILE names"
        match = _STATUS.search(words)
        if _NO_KEY.search(words):
            return UsageError(f"{self.server.api}: no key for uploading to {service.name}", hint=hint)
        if match is not None and match[1] in {"401", "403"}:
            return NetworkError(f"{where}: the key may not upload there (HTTP {match[1]})", hint=hint)
        if match is not None and match[1].startswith("5"):
            message = f"{where}: {service.name} failed while it took the package (HTTP {match[1]})"
            return NetworkError(message, hint=f"whoever runs the server finds the cause in its log; {_AGAIN_HINT}")
        if _UNREACHED.search(words):
            return NetworkError(f"{where}: the server cannot be reached", hint="check the address and the network")
        hint = f"check channel and key ({service.variable}), then {_AGAIN_HINT}"
        return NetworkError(f"{where} was not accepted by {service.name}: {words[:_MESSAGE_CHARACTERS]}", hint=hint)

    def _without_key(self, words: str) -> str:
        return words.replace(self.key, "***") if self.key else words


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


@dataclass(frozen=True, kw_only=True, slots=True)
class UploadJob:
    """Which function of rattler_build to call, its arguments, and the time limit."""

    function: str
    path: str
    arguments: UploadArguments
    limit_s: int


def main() -> None:
    """Make the upload; prints the engine's error message, null if it succeeded."""
    job = decode_json(sys.stdin.buffer.read(), UploadJob)
    signal.alarm(job.limit_s)  # its default action ends the process, whatever the engine is doing
    sys.stdout.buffer.write(msgspec.json.encode(_upload(job)))


def _upload(job: UploadJob) -> str | None:
    from rattler_build import RattlerBuildError, upload  # noqa: PLC0415 - after the time limit was set

    try:
        getattr(upload, job.function)([job.path], **job.arguments)
    except RattlerBuildError as err:  # one class for everything; the parent tells it apart
        return str(err)
    return None


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # the engine's runtime threads sometimes crash the interpreter at exit
