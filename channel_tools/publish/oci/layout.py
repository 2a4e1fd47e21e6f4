# SPDX-License-Identifier: BSD-3-Clause
"""How a channel is laid out in an OCI registry: names, tags, media types and manifests. Pure.

It is the layout of conda-oci-mirror, which rattler (``oci_middleware.rs``), pixi and mamba (``OCIMirror``) read: a
package is ``PATH/SUBDIR/NAME:VERSION-BUILD`` with its file, its ``info`` folder and its index.json as layers, the index
is ``PATH/SUBDIR/repodata.json:latest``. The CEP that is proposed (https://github.com/conda/ceps/pull/115) calls this
version 0 and names things in another way (``cNAME``, ``mrepodata.json``), which no client reads yet.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from channel_tools.conda.addresses import parse_address
from channel_tools.conda.package import OLD_SUFFIX, split_file_name
from channel_tools.publish.model import MAIN_LABEL, label_path
from channel_tools.system.document import decode_json
from channel_tools.system.errors import ChannelError, UsageError

if TYPE_CHECKING:
    from channel_tools.conda.package import PackageKey

MANIFEST_TYPE: Final = "application/vnd.oci.image.manifest.v1+json"
CONFIG_TYPE: Final = "application/vnd.unknown.config.v1+json"
PACKAGE_TYPE: Final = "application/vnd.conda.package.v2"
OLD_PACKAGE_TYPE: Final = "application/vnd.conda.package.v1"
INFO_TYPE: Final = "application/vnd.conda.info.v1.tar+gzip"
INDEX_JSON_TYPE: Final = "application/vnd.conda.info.index.v1+json"
REPODATA_TYPE: Final = "application/vnd.conda.repodata.v1+json"
REPODATA_GZ_TYPE: Final = f"{REPODATA_TYPE}+gzip"
REPODATA_ZST_TYPE: Final = f"{REPODATA_TYPE}+zst"
TITLE: Final = "org.opencontainers.image.title"
LATEST: Final = "latest"
CONFIG: Final = b"{}"
"""What a manifest without a configuration of its own names as such."""
_FORM = "oci://HOST/PATH"
_HTTP_SCHEME = "oci+http"
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_NAME = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_NAME_LIMIT = 255
"""What many clients accept of host and name (OCI Distribution Specification, 1.1)."""
_IN_TAGS = (("+", "__p__"), ("!", "__e__"), ("=", "__eq__"))


class Descriptor(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A blob: its media type, its digest (``sha256:...``) and its size."""

    media_type: str
    digest: str
    size: int
    annotations: dict[str, str] = {}

    @classmethod
    def of(cls, content: bytes, media_type: str, *, title: str | None = None) -> Descriptor:
        """That of these bytes."""
        return cls(
            media_type=media_type,
            digest=f"sha256:{hashlib.sha256(content).hexdigest()}",
            size=len(content),
            annotations={} if title is None else {TITLE: title},
        )


class ImageManifest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The manifest of one tag (OCI Image Specification, 1.1)."""

    schema_version: int = 2
    media_type: str = ""
    config: Descriptor
    layers: list[Descriptor]
    annotations: dict[str, str] = {}

    def layer(self, media_type: str) -> Descriptor | None:
        """Its layer of this type, None if it has none."""
        return next((layer for layer in self.layers if layer.media_type == media_type), None)


def manifest_of(layers: list[Descriptor], annotations: dict[str, str]) -> bytes:
    """The bytes of a manifest."""
    manifest = ImageManifest(
        media_type=MANIFEST_TYPE, config=Descriptor.of(CONFIG, CONFIG_TYPE), layers=layers, annotations=annotations
    )
    return msgspec.json.encode(manifest)


def decode_manifest(content: str, *, where: str) -> ImageManifest:
    """Read a manifest. Raises ChannelError for one of another kind, such as an image's or an index of images."""
    try:
        manifest = decode_json(content, ImageManifest)
    except msgspec.DecodeError as err:
        raise _not_ours(where, f"its manifest cannot be read: {err}") from None
    if manifest.media_type not in {"", MANIFEST_TYPE}:
        raise _not_ours(
            where, f"its manifest has the media type {manifest.media_type[:80]!r}; expected {MANIFEST_TYPE}"
        )
    return manifest


def required_layer(manifest: ImageManifest, media_types: tuple[str, ...], *, where: str) -> Descriptor:
    """The first of these layers that the manifest has. Raises ChannelError if it has none."""
    for media_type in media_types:
        if (layer := manifest.layer(media_type)) is not None:
            return layer
    media_types_text = ", ".join(sorted({layer.media_type[:80] for layer in manifest.layers})) or "none"
    raise _not_ours(where, f"its layers have the types {media_types_text}; expected {media_types[0]}")


def _not_ours(where: str, problem: str) -> ChannelError:
    hint = "give a path of the registry that nothing but a conda channel is kept below"
    return ChannelError(f"{where}: {problem}", hint=hint)


@dataclass(frozen=True, kw_only=True, slots=True)
class RegistryAddress:
    """The place of a channel: below ``path`` of the registry at ``host``, which may have a port."""

    host: str
    path: str
    secure: bool = True

    def __str__(self) -> str:
        return f"oci://{self.host}/{self.path}"

    @property
    def readable(self) -> bool:
        """Whether clients can read it: rattler and mamba drop the port and always use https."""
        return self.secure and ":" not in self.host

    def label(self, label: str) -> str:
        """The path of a label's channel. Raises UsageError for a label that no name in a registry can have."""
        path = self.path if label == MAIN_LABEL else f"{self.path}/{label_path(label)}"
        if not _NAME.fullmatch(path):
            message = (
                f"{label!r}: not a label in an OCI registry, whose names have small letters, digits and single . _ -"
            )
            raise UsageError(message, hint="for example testing")
        return path

    def label_address(self, label: str) -> str:
        """The address of a label's channel for clients."""
        return f"oci://{self.host}/{self.label(label)}"

    def place_of(self, key: PackageKey, *, label: str) -> tuple[str, str]:
        """The repository and the tag of a package. Raises UsageError for one that no registry can hold."""
        parts = split_file_name(key.file_name, old_format=True)
        if parts is None:
            raise UsageError(f"{key}: not the name of a package")
        name, version, build = parts
        tag = f"{version}-{build}"
        for character, code in _IN_TAGS:
            tag = tag.replace(character, code)
        repository = f"{self.label(label)}/{key.subdir}/{f'zzz{name}' if name.startswith('_') else name}"
        if not _NAME.fullmatch(repository) or not _TAG.fullmatch(tag):
            message = f"{key}: no OCI registry can hold it: {repository}:{tag} is not a valid name and tag"
            raise UsageError(message, hint="publish it to a folder, a bucket or a server instead")
        if len(f"{self.host}/{repository}") > _NAME_LIMIT:
            message = f"{key}: {self.host}/{repository} is longer than the {_NAME_LIMIT} characters that clients accept"
            raise UsageError(message, hint="give a shorter path")
        return repository, tag


def parse_registry_address(text: str) -> RegistryAddress:
    """Parse an ``oci://`` address. Raises UsageError, which shows the expected form, if it is not valid."""
    parts = parse_address(text, forms=_FORM)
    if "@" in parts.netloc:
        hint = "docker login (or podman login) stores them, and so does rattler auth login"
        raise UsageError("an oci:// address must not contain credentials", hint=hint)
    path = parts.path.strip("/")
    if parts.query or parts.fragment or not _NAME.fullmatch(path):
        message = f"{text}: not a valid address of a channel in an OCI registry; expected {_FORM}"
        raise UsageError(message, hint="PATH has small letters and digits, with single . _ - or / between them")
    return RegistryAddress(host=parts.netloc.lower(), path=path, secure=parts.scheme != _HTTP_SCHEME)


def package_type(key: PackageKey) -> str:
    """The media type of a package's file."""
    return OLD_PACKAGE_TYPE if key.file_name.endswith(OLD_SUFFIX) else PACKAGE_TYPE
