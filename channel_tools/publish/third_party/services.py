# SPDX-License-Identifier: BSD-3-Clause
"""The third-party servers: the form of their addresses, how rattler-build uploads to them, and what they have.

A new service is a row of the table here. Keys are never in an address: they come from the environment variable that
rattler-build's own command line uses, else from rattler's credentials. What a server has is read from its index, and if
the index is out of date, from the file itself.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, parse_qs

import rattler
from rattler.exceptions import FetchRepoDataError, GatewayError
from rattler.networking import AddHeadersMiddleware, AuthenticationMiddleware, Client, RetryMiddleware
from rattler.package_streaming import download_to_path

from channel_tools.conda.addresses import host_of, parse_address, scheme_of
from channel_tools.conda.package import PackageKey, names_of_files
from channel_tools.conda.solving import gateway_error, one_line
from channel_tools.publish.model import MAIN_LABEL
from channel_tools.system.errors import NetworkError, UsageError
from channel_tools.system.files import sha256_of_file
from channel_tools.system.work_folder import temporary_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from channel_tools.publish.third_party.worker import UploadArguments

_SETTINGS = ("api", "read")


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
    rattler's credentials are used). ``overwrites`` says that an upload replaces a file of the same name.
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
    overwrites: bool = False


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
        overwrites=True,
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
    if service.api is None:
        return _on_premises(parts, service, protocol, text)
    return _hosted(parts, service, service.api, text)


def _on_premises(parts: SplitResult, service: Service, protocol: str, text: str) -> ServiceAddress:
    folder, _slash, channel = parts.path.rstrip("/").rpartition("/")
    if not parts.netloc or not channel or parts.query or parts.fragment:
        raise UsageError(f"{text}: not a valid channel address; expected {service.form}")
    api = f"{protocol}://{parts.netloc}{folder}"
    return ServiceAddress(service=service, names=(channel,), api=api, read=service.read.format(channel, api=api))


def _hosted(parts: SplitResult, service: Service, default_api: str, text: str) -> ServiceAddress:
    names = tuple(name for name in (parts.netloc, *parts.path.strip("/").split("/")) if name)
    options = parse_qs(parts.query, keep_blank_values=True)
    expected = service.form.partition("://")[2].count("/") + 1
    if len(names) != expected or parts.fragment or options.keys() - set(_SETTINGS):
        message = f"{text}: not a valid {service.name} address; expected {service.form}"
        raise UsageError(message, hint=f"for your own server: {service.form}?api=https://HOST&read=https://HOST")
    if any("@" in value for values in options.values() for value in values):
        raise UsageError("a server's address must not contain credentials", hint=f"set {service.variable}")
    api, read = (options[key][-1].rstrip("/") if options.get(key) else None for key in _SETTINGS)
    for address in filter(None, (api, read)):
        parse_address(address, forms="https://HOST")
    return ServiceAddress(
        service=service, names=names, api=api or default_api, read=read or service.read.format(*names)
    )


_NOT_THERE = re.compile(r"\b404\b|could not find subdir")
_UNAUTHORISED = re.compile(r"\b40[13]\b")


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceReader:
    """Reads a channel of a third-party server, with the ``key`` for uploading or rattler's credentials."""

    address: ServiceAddress
    key: str | None
    limit_s: float = 300.0

    def listed(self, label: str, keys: Iterable[str]) -> dict[str, str | None]:
        """Those of the names (``subdir/file name``) that the label's index lists, with their sha256 if it is there.

        A channel without an index lists nothing. Raises NetworkError or ChannelError if it cannot be read.
        """
        # targets of all kinds share an interface that is not asynchronous
        return asyncio.run(self._listed(self.address.label_address(label), sorted(keys)))

    async def _listed(self, channel: str, keys: list[str]) -> dict[str, str | None]:
        hashes: dict[str, str | None] = {}
        with temporary_folder() as cache:
            gateway = rattler.Gateway(cache_dir=cache, client=self._client())
            parsed = [PackageKey.parse(key) for key in keys]
            for subdir in sorted({key.subdir for key in parsed}):
                names = names_of_files(key.file_name for key in parsed if key.subdir == subdir)
                records = await self._records(gateway, channel, subdir, names)
                for record in records:
                    hashes[f"{record.subdir}/{record.file_name}"] = record.sha256.hex() if record.sha256 else None
        return {key: hashes[key] for key in keys if key in hashes}

    async def _records(
        self, gateway: rattler.Gateway, channel: str, subdir: str, names: list[str]
    ) -> list[rattler.RepoDataRecord]:
        try:
            async with asyncio.timeout(self.limit_s):
                groups = await gateway.query(
                    [channel], [rattler.Subdir(subdir)], names, recursive=False, channel_relations="disabled"
                )
        except TimeoutError:
            raise NetworkError(f"{channel}: downloading its index timed out") from None
        except (GatewayError, FetchRepoDataError) as err:
            if _NOT_THERE.search(str(err)):
                return []
            if _UNAUTHORISED.search(str(err)):
                hint = f"set {self.address.service.variable} to a key that does"
                raise NetworkError(f"{channel}: these credentials do not permit reading it", hint=hint) from None
            raise gateway_error(err, channels=[channel]) from None
        return [record for group in groups for record in group]

    def sha256_of(self, label: str, key: str) -> str | None:
        """The sha256 of the file that the server has under a name, None if there is none.

        Raises NetworkError if it cannot be read.
        """
        # as in listed
        return asyncio.run(self._sha256_of(f"{self.address.label_address(label)}/{key}"))

    async def _sha256_of(self, url: str) -> str | None:
        with temporary_folder() as folder:
            path = folder / "package"
            try:
                async with asyncio.timeout(self.limit_s):
                    await download_to_path(self._client(), url, path)
            except TimeoutError:
                raise NetworkError(f"{url}: the download timed out") from None
            except (RuntimeError, OSError) as err:
                if _NOT_THERE.search(str(err)):
                    return None
                raise NetworkError(f"{url}: cannot be read: {one_line(err)}") from None
            return sha256_of_file(path)

    def _client(self) -> Client:
        header, key = self.address.service.key_header, self.key
        host = host_of(self.address.read)

        def key_for(asked_host: str, _path: str) -> dict[str, str] | None:
            if header is None or key is None or asked_host != host:
                return None
            return {header[0]: header[1].format(key=key)}

        return Client([RetryMiddleware(), AuthenticationMiddleware(), AddHeadersMiddleware(key_for)])
