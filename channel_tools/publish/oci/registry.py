# SPDX-License-Identifier: BSD-3-Clause
"""Reads and writes blobs and manifests of an OCI registry, through python-dxf.

The library sends files as streams and asks us for credentials when the registry wants them; the rules for these, for
repeated attempts and for messages are here. oras-py 0.2, by its source, reads a whole package into memory to send it,
repeats a request with a wrong password for two minutes, and gives the password to whichever host a redirect leads to.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import ssl
import time
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus
from typing import TYPE_CHECKING, TypeVar, cast

import requests
from dxf import DXF
from dxf.exceptions import DXFAuthInsecureError, DXFDigestMismatchError, DXFError, DXFUnauthorizedError

from channel_tools.conda.addresses import parse_address
from channel_tools.conda.repodata import INDEX_LIMIT_BYTES
from channel_tools.conda.user_settings import find_user_settings
from channel_tools.publish.oci.docker_config import authorization_for
from channel_tools.publish.oci.layout import decode_manifest
from channel_tools.system.errors import ChannelError, IntegrityError, NetworkError, UsageError
from channel_tools.system.http.client import TEMPORARY_STATUSES
from channel_tools.system.http.pace import Retry, TransientError, retry_after_s

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from dxf import DXFBase

    from channel_tools.publish.oci.layout import Descriptor, ImageManifest, RegistryAddress

_Result = TypeVar("_Result")
_READ_S = 60.0
_BEARER = "Bearer "
_CHUNK_BYTES = 1 << 18
_DAMAGED = "run the same command again; if it fails again, the registry is damaged"
_CHECK_ADDRESS = "check the address: oci://HOST/PATH, as in docker pull HOST/PATH"
_FAULTS = (requests.RequestException, DXFError, KeyError, ValueError, TypeError, AttributeError)
"""What python-dxf raises; the last four for headers or fields that the answer of a registry must have."""
_DENIED = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})


@dataclass(frozen=True, kw_only=True, slots=True)
class TaggedManifest:
    """A manifest, and the digest of its bytes."""

    manifest: ImageManifest
    digest: str


@dataclass(frozen=True, kw_only=True)
class Registry:
    """The registry at an address, with what ``environ`` has of credentials and settings."""

    address: RegistryAddress
    environ: Mapping[str, str] = field(repr=False)
    retry: Retry = field(default_factory=Retry)

    @cached_property
    def authorization(self) -> str | None:
        """As authorization_for; a credential helper is asked once, not for each package."""
        return authorization_for(self.address, self.environ)

    @contextlib.contextmanager
    def repository(self, name: str) -> Iterator[Repository]:
        """A repository, with connections that are kept until the block ends.

        Raises ConfigError for settings or credentials that cannot be read.
        """
        settings = find_user_settings(self.environ)
        os.environ.update(settings.variables())  # the library reads proxies there
        authorization = self.authorization

        def answer(client: DXFBase, response: requests.Response) -> None:
            # a host that the registry redirected to is given nothing
            if parse_address(response.url).netloc.lower() == self.address.host:
                client.authenticate(authorization=authorization, response=response)

        certificates = None if {"SSL_CERT_FILE", "SSL_CERT_DIR"} & self.environ.keys() else settings.certificates
        verify = _platforms_certificates() if certificates is None else str(certificates)
        client = DXF(
            self.address.host,
            name,
            auth=answer,
            insecure=not self.address.secure,
            tlsverify=verify if settings.verifies else False,
            timeout=_READ_S,
        )
        if authorization is not None and authorization.startswith(_BEARER) and self.address.secure:
            client.token = authorization.removeprefix(_BEARER)
        with client:
            yield Repository(
                client=client,
                where=f"{self.address.host}/{name}",
                retry=self.retry,
                has_credentials=authorization is not None,
            )


def _platforms_certificates() -> str | bool:
    """What Python's ssl trusts, as the other clients of this program do, instead of the library's own list."""
    paths = ssl.get_default_verify_paths()
    return paths.cafile or paths.capath or True


@dataclass(frozen=True, kw_only=True, slots=True)
class Repository:
    """One repository of a registry; ``where`` names it in messages.

    All methods raise NetworkError (unreachable, no permission, an answer that is not a registry's) and UsageError
    (credentials for a registry without TLS).
    """

    client: DXF
    where: str
    retry: Retry
    has_credentials: bool

    def manifest(self, tag: str) -> TaggedManifest | None:
        """The manifest of a tag, None if there is none.

        Raises ChannelError if it is another kind of manifest, IntegrityError if the registry gives it another digest.
        """
        where = f"{self.where}:{tag}"
        answer = self._tried(lambda: self.client.get_manifest_and_response(tag), where)
        if answer is None:
            return None
        text, response = answer
        digest = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
        stated = response.headers.get("Docker-Content-Digest", digest)
        if stated != digest:
            message = f"{where}: the registry says that its manifest has the digest {stated[:80]}; received {digest}"
            raise IntegrityError(message, hint=_DAMAGED)
        return TaggedManifest(manifest=decode_manifest(text, where=where), digest=digest)

    def put_manifest(self, tag: str, content: bytes) -> None:
        """Give the tag this manifest, whatever it had."""
        self._required(lambda: self.client.set_manifest(tag, content.decode()), f"{self.where}:{tag}")

    def send_file(self, path: Path, sha256: str) -> None:
        """Send a file as a blob, unless the repository has it. Raises IntegrityError if it has other bytes by now."""
        sent = self._required(lambda: self.client.push_blob(str(path)), f"{self.where}: {path.name}")
        if sent != f"sha256:{sha256}":
            message = f"{path}: changed while it was being published (it has {sent}; expected sha256:{sha256})"
            raise IntegrityError(message, hint="run the same command again")

    def send(self, blob: Descriptor, content: bytes) -> None:
        """Send these bytes as a blob, unless the repository has it."""
        self._required(
            lambda: self.client.push_blob(data=io.BytesIO(content), digest=blob.digest), f"{self.where}@{blob.digest}"
        )

    def read(self, blob: Descriptor) -> bytes:
        """The bytes of a blob. Raises IntegrityError if they are others, or more than an index may have."""
        where = f"{self.where}@{blob.digest}"
        if blob.size > INDEX_LIMIT_BYTES:
            message = f"{where}: an index of {blob.size} bytes; expected at most {INDEX_LIMIT_BYTES}"
            raise IntegrityError(message, hint="the registry's index is damaged: publish to another path")

        def received() -> bytes:
            content = bytearray()
            chunks = cast("Iterable[bytes]", self.client.pull_blob(blob.digest, chunk_size=_CHUNK_BYTES))
            for chunk in chunks:
                content += chunk
                if len(content) > blob.size:
                    break
            return bytes(content)

        blob_content = self._required(received, where)
        if len(blob_content) != blob.size:
            message = (
                f"{where}: received {'more' if len(blob_content) > blob.size else 'less'} than its {blob.size} bytes"
            )
            raise IntegrityError(message, hint=_DAMAGED)
        return blob_content

    def copy(self, blob: Descriptor, begin: Callable[[], Callable[[bytes], object]]) -> None:
        """Pass the bytes of a blob to what ``begin`` returns, in pieces; ``begin`` is called again for each attempt.

        Raises IntegrityError if they are others, or not as many as the blob has.
        """
        where = f"{self.where}@{blob.digest}"

        def pass_on() -> int:
            write, remaining = begin(), blob.size
            for chunk in cast("Iterable[bytes]", self.client.pull_blob(blob.digest, chunk_size=_CHUNK_BYTES)):
                remaining -= len(chunk)
                if remaining < 0:
                    break
                write(chunk)
            return remaining

        if remaining := self._required(pass_on, where):
            message = f"{where}: received {'more' if remaining < 0 else 'less'} than its {blob.size} bytes"
            raise IntegrityError(message, hint=_DAMAGED)

    def _required(self, call: Callable[[], _Result], where: str) -> _Result:
        """As _tried, for what must be there."""
        done: list[_Result] = []

        def is_stored() -> bool:
            done.append(call())
            return True

        if self._tried(is_stored, where) is None:
            raise NetworkError(f"{where}: the registry has no such thing (HTTP 404)", hint=_CHECK_ADDRESS)
        return done[-1]

    def _tried(self, call: Callable[[], _Result], where: str) -> _Result | None:
        """What the call returns, tried again while a retry may help; None if the registry answers that it has nothing.

        Everything that the library raises becomes an error of ours here.
        """
        failures = 0
        while True:
            try:
                return call()
            except requests.HTTPError as err:
                response = err.response
                if response is not None and response.status_code == HTTPStatus.NOT_FOUND:
                    return None
                problem = TransientError("no answer") if response is None else self._of_status(response, where)
            except _FAULTS as err:
                problem = self._of_fault(err, where)
            failures += 1
            if self.retry.is_last(failures, problem.retry_after_s):
                hint = "run the same command again; what has arrived is not sent again"
                raise NetworkError(f"{where}: {problem}", hint=hint) from None
            time.sleep(self.retry.wait_s(failures, problem.retry_after_s))

    def _of_fault(self, err: Exception, where: str) -> TransientError:
        """The reason to try again. Raises the error for a fault with which that cannot help."""
        match err:
            case requests.exceptions.SSLError():
                message = f"{where}: its certificate cannot be verified: {_reason(err)}"
                hint = "check the address; SSL_CERT_FILE names the certificates to trust"
                raise NetworkError(message, hint=hint) from None
            case requests.exceptions.JSONDecodeError():
                raise self._not_a_registry(where) from None
            case requests.RequestException():
                return TransientError(_reason(err))
            case DXFUnauthorizedError():
                raise self._denied(where, HTTPStatus.UNAUTHORIZED) from None
            case DXFAuthInsecureError():
                message = f"{where}: it asks for credentials, which are sent over https only"
                hint = "give the registry a certificate, and its address as oci://HOST/PATH"
                raise UsageError(message, hint=hint) from None
            case DXFDigestMismatchError():
                message = f"{where}: the registry sent other bytes ({err})"
                raise IntegrityError(message, hint=_DAMAGED) from None
        raise self._not_a_registry(where) from None

    def _of_status(self, response: requests.Response, where: str) -> TransientError:
        """The reason to try again. Raises the error for a status by which that cannot help."""
        status = response.status_code
        if status in TEMPORARY_STATUSES:
            return TransientError(f"HTTP status {status}", retry_after_s=retry_after_s(response.headers))
        if status in _DENIED:
            raise self._denied(where, status) from None
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            raise ChannelError(f"{where}: the registry is read-only (HTTP {status})", hint=_CHECK_ADDRESS) from None
        raise NetworkError(f"{where}: the registry answered with HTTP status {status}", hint=_CHECK_ADDRESS) from None

    def _denied(self, where: str, status: int) -> NetworkError:
        hint = "docker login HOST stores credentials, as does rattler auth login; .netrc is read, too"
        if self.has_credentials:
            return NetworkError(f"{where}: these credentials do not permit it (HTTP {status})", hint=hint)
        return NetworkError(f"{where}: it asks for credentials, and none are stored (HTTP {status})", hint=hint)

    def _not_a_registry(self, where: str) -> NetworkError:
        return NetworkError(f"{where}: the answer is not that of an OCI registry", hint=_CHECK_ADDRESS)


def _reason(err: Exception) -> str:
    """Why a request failed, without addresses, which may have secrets of proxies."""
    cause: BaseException | None = err
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror and not isinstance(cause, requests.RequestException):
            return cause.strerror
        if isinstance(cause, ssl.SSLError):
            return str(cause.reason)
        cause = cause.__cause__ or cause.__context__
    return f"the registry cannot be reached ({type(err).__name__})"
