# SPDX-License-Identifier: BSD-3-Clause
"""The servers of others: how their addresses look, where they are read, and how rattler-build uploads to them.

A new service is a row of the table here. Keys never stand in an address: they come from the environment variable that
rattler-build's own command line uses, else from the credentials that rattler keeps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from channel_tools.errors import UsageError
from channel_tools.publish.model import MAIN_LABEL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

UploadArguments = dict[str, str | list[str]]
_SETTINGS = ("api", "read")


@dataclass(frozen=True, kw_only=True, slots=True)
class ForeignAddress:
    """A channel on a server of others: ``api`` is where packages are sent, ``read`` where clients read label main."""

    service: Service
    names: tuple[str, ...]
    api: str
    read: str

    def label_address(self, label: str) -> str:
        """Where clients read the label. Raises UsageError where the service has no labels."""
        if label == MAIN_LABEL:
            return self.read
        if not self.service.has_labels:
            message = f"{self.read}: {self.service.name} has no labels, so {label!r} cannot be published to"
            raise UsageError(message, hint=f"leave --label out, or publish to another channel there for {label!r}")
        return f"{self.read}/label/{label}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Service:
    """What is particular about one kind of server.

    ``upload`` names the function of rattler_build, ``key_argument`` its parameter for the key, ``arguments`` makes the
    others from address and label. ``key_header`` is how the key is sent for reading (None: only credentials that
    rattler keeps are). ``overwrites`` says that an upload replaces a file of that name.
    """

    name: str
    variable: str
    upload: str
    key_argument: str
    arguments: Callable[[ForeignAddress, str], UploadArguments]
    key_header: tuple[str, str] | None
    has_labels: bool = False
    overwrites: bool = False


ARTIFACTORY = Service(
    name="Artifactory",
    variable="ARTIFACTORY_TOKEN",
    upload="upload_package_to_artifactory",
    key_argument="token",
    arguments=lambda address, _label: {"url": address.api, "channels": address.names[0]},
    key_header=("Authorization", "Bearer {key}"),
    overwrites=True,
)
QUETZ = Service(
    name="quetz",
    variable="QUETZ_API_KEY",
    upload="upload_package_to_quetz",
    key_argument="api_key",
    arguments=lambda address, _label: {"url": address.api, "channels": address.names[0]},
    key_header=("X-API-Key", "{key}"),
)
PREFIX = Service(
    name="prefix.dev",
    variable="PREFIX_API_KEY",
    upload="upload_package_to_prefix",
    key_argument="api_key",
    arguments=lambda address, _label: {"url": address.api, "channels": address.names[0]},
    key_header=("Authorization", "Bearer {key}"),
)
ANACONDA = Service(
    name="Anaconda",
    variable="ANACONDA_API_KEY",
    upload="upload_package_to_anaconda",
    key_argument="api_key",
    arguments=lambda address, label: {"url": address.api, "owner": address.names[0], "channel": [label]},
    key_header=None,
    has_labels=True,
)
CLOUDSMITH = Service(
    name="Cloudsmith",
    variable="CLOUDSMITH_API_KEY",
    upload="upload_package_to_cloudsmith",
    key_argument="api_key",
    arguments=lambda address, _label: {"url": address.api, "owner": address.names[0], "repo": address.names[1]},
    key_header=None,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Hosted:
    """A service that has one known place: the names in its address, and where packages are sent and read."""

    service: Service
    form: str
    count: int
    api: str
    read: str


_HOSTED: Mapping[str, _Hosted] = {
    "anaconda": _Hosted(
        service=ANACONDA, form="anaconda://OWNER", count=1,
        api="https://api.anaconda.org", read="https://conda.anaconda.org/{0}",
    ),
    "prefix": _Hosted(
        service=PREFIX, form="prefix://CHANNEL", count=1, api="https://prefix.dev", read="https://prefix.dev/{0}"
    ),
    "cloudsmith": _Hosted(
        service=CLOUDSMITH, form="cloudsmith://OWNER/REPOSITORY", count=2,
        api="https://api.cloudsmith.io/v1", read="https://conda.cloudsmith.io/{0}/{1}",
    ),
}  # fmt: skip
_ON_PREMISES: Mapping[str, tuple[Service, str]] = {
    # service, and how a channel is read below the server's address
    "artifactory": (ARTIFACTORY, "{api}/{channel}"),
    "quetz": (QUETZ, "{api}/get/{channel}"),
}


def parse_foreign_address(text: str) -> ForeignAddress:
    """Take the address of a channel on a server of others apart. Raises UsageError when it is in no known form."""
    parts = urlsplit(text)
    if "@" in parts.netloc:
        raise UsageError("an address of a server holds no credentials", hint="set the service's key in the environment")
    service, _plus, scheme = parts.scheme.partition("+")
    if service in _ON_PREMISES and scheme in {"http", "https"}:
        return _on_premises(text, service, scheme)
    return _hosted(text)


def _on_premises(text: str, kind: str, scheme: str) -> ForeignAddress:
    parts = urlsplit(text)
    folder, _slash, channel = parts.path.rstrip("/").rpartition("/")
    if not parts.netloc or not channel or parts.query or parts.fragment:
        raise UsageError(f"{text}: no channel of a server; expected {kind}+https://HOST/CHANNEL")
    service, read = _ON_PREMISES[kind]
    api = f"{scheme}://{parts.netloc}{folder}"
    return ForeignAddress(service=service, names=(channel,), api=api, read=read.format(api=api, channel=channel))


def _hosted(text: str) -> ForeignAddress:
    parts = urlsplit(text)
    hosted = _HOSTED[parts.scheme]
    names = tuple(name for name in (parts.netloc, *parts.path.strip("/").split("/")) if name)
    options = parse_qs(parts.query, keep_blank_values=True)
    if len(names) != hosted.count or parts.fragment or options.keys() - set(_SETTINGS):
        message = f"{text}: no address of {hosted.service.name}; expected {hosted.form}"
        raise UsageError(message, hint=f"for a server of your own: {hosted.form}?api=https://HOST&read=https://HOST")
    if any("@" in value for values in options.values() for value in values):
        raise UsageError("an address of a server holds no credentials", hint=f"set {hosted.service.variable}")
    api, read = (options[key][-1].rstrip("/") if options.get(key) else None for key in _SETTINGS)
    return ForeignAddress(
        service=hosted.service, names=names, api=api or hosted.api, read=read or hosted.read.format(*names)
    )
