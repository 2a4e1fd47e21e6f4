# SPDX-License-Identifier: BSD-3-Clause
"""Finds the credentials for an OCI registry: those stored for channels, else what docker and podman have stored.

Docker's config.json is as ``docker login`` and ``podman login`` write it: per registry a name and password in base64,
or the name of a program ``docker-credential-NAME`` that gives them. Instead of a password it may have an identity token
(https://docs.docker.com/reference/cli/docker/login), which a registry's server of tokens takes as an OAuth 2 refresh
token alone. python-dxf does not do that, so such a token is an error here, and is never sent as a password.
"""

from __future__ import annotations

import base64
import binascii
import re
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from channel_tools.conda.addresses import host_of
from channel_tools.conda.clients import stored_authorization
from channel_tools.system.document import decode_json
from channel_tools.system.errors import CommandError, ConfigError
from channel_tools.system.http.client import basic_authorization
from channel_tools.system.processes import run_command

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from channel_tools.publish.oci.layout import RegistryAddress

_Value = TypeVar("_Value")
_HELPER = re.compile(r"[A-Za-z0-9_.-]+")
_HELPER_S = 30.0
_SCHEME = re.compile(r"^https?://")
_API_VERSION = re.compile(r"/v[12]/?$")
_NAMELESS = "<token>"
"""The name that a credential helper gives for an identity token (docker/docker-credential-helpers)."""


class _Entry(msgspec.Struct):
    auth: str = ""
    username: str = ""
    password: str = ""
    identitytoken: str = ""


class _DockerConfig(msgspec.Struct, rename="camel"):
    auths: dict[str, _Entry] = {}
    cred_helpers: dict[str, str] = {}
    creds_store: str = ""


class _HelpersAnswer(msgspec.Struct, rename="pascal"):
    username: str
    secret: str


def authorization_for(address: RegistryAddress, environ: Mapping[str, str]) -> str | None:
    """The Authorization header for the registry; None without credentials.

    It is from rattler's file or .netrc, as for reading, else from docker's. Raises ConfigError for a file or a program
    of credentials that cannot be used.
    """
    stored = stored_authorization(host_of(f"https://{address.host}"), environ)
    if stored is not None:
        return stored
    for path in _docker_files(environ):
        authorization = _in_docker_file(path, address)
        if authorization is not None:
            return authorization
    return None


def _docker_files(environ: Mapping[str, str]) -> Iterator[Path]:
    if named := environ.get("REGISTRY_AUTH_FILE"):
        yield Path(named)
    folder = environ.get("DOCKER_CONFIG") or Path(environ.get("HOME", "/"), ".docker")
    yield Path(folder, "config.json")
    if runtime := environ.get("XDG_RUNTIME_DIR"):
        yield Path(runtime, "containers", "auth.json")


def _in_docker_file(path: Path, address: RegistryAddress) -> str | None:
    try:
        config = decode_json(path.read_bytes(), _DockerConfig)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError):  # the content may be a secret, so it is not shown
        hint = "docker login writes it; REGISTRY_AUTH_FILE or DOCKER_CONFIG names another"
        raise ConfigError("cannot be read as docker's configuration", path=path, hint=hint) from None
    helper = _of_place(config.cred_helpers, address)
    entry = _of_place(config.auths, address)
    if helper is None and entry is not None and entry.identitytoken:
        raise _identity_token_error(path, address)
    if helper is None and entry is not None and (entry.auth or entry.username):
        return _inline(entry, path)
    if (chosen := helper or config.creds_store) and (helper is not None or entry is not None):
        return _ask_helper(chosen, path, address)
    return None


def _of_place(entries: Mapping[str, _Value], address: RegistryAddress) -> _Value | None:
    """The entry of the longest key that the channel is below: a host, or with podman a host and a path."""
    path = f"{address.host}/{address.path}/"
    matching = [key for key in entries if path.startswith(_plain(key) + "/")]
    return entries[max(matching, key=len)] if matching else None


def _plain(key: str) -> str:
    """A key as docker compares it: without a scheme, and without the version of an API at its end."""
    return _API_VERSION.sub("", _SCHEME.sub("", key)).rstrip("/").lower()


def _inline(entry: _Entry, path: Path) -> str:
    if not entry.auth:
        return basic_authorization(entry.username, entry.password)
    try:
        user, colon, password = base64.b64decode(entry.auth, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        colon = user = password = ""
    if not colon:
        message = "auth is not a name and a password in base64"
        raise ConfigError(message, path=path, hint="log in again: docker login HOST")
    return basic_authorization(user, password.rstrip("\0"))


def _ask_helper(name: str, path: Path, address: RegistryAddress) -> str | None:
    """What ``docker-credential-NAME get`` answers; None if it has nothing for the registry."""
    if not _HELPER.fullmatch(name):
        raise ConfigError(f"{name[:80]!r} is not the name of a credential helper", path=path)
    try:
        done = run_command(
            [f"docker-credential-{name}", "get"], content=address.host.encode(), timeout_s=_HELPER_S, check=False
        )
    except CommandError as err:
        raise ConfigError(f"its credential helper cannot be used: {err.message}", path=path, hint=err.hint) from None
    if done.returncode != 0:
        return None
    try:
        answer = decode_json(done.stdout, _HelpersAnswer)
    except msgspec.DecodeError:
        message = f"docker-credential-{name} did not answer with Username and Secret"
        raise ConfigError(message, path=path, hint="log in again: docker login HOST") from None
    if answer.username == _NAMELESS:
        raise _identity_token_error(path, address)
    return basic_authorization(answer.username, answer.secret)


def _identity_token_error(path: Path, address: RegistryAddress) -> ConfigError:
    message = f"has an identity token for {address.host}, which this program cannot use; expected a name and a password"
    hint = "log in with a password or an access token of the registry: docker login -u NAME HOST, or rattler auth login"
    return ConfigError(message, path=path, hint=hint)
