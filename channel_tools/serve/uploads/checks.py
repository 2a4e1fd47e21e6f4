# SPDX-License-Identifier: BSD-3-Clause
"""What a request about sets may say; checked before anything is written."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.channel.model import PACKAGE_SUFFIX
from channel_tools.errors import UsageError
from channel_tools.publish.labels import check_label
from channel_tools.publish.wire import WIRE_SCHEMA
from channel_tools.serve.addresses import FILE_NAME, SUBDIR_NAME

if TYPE_CHECKING:
    from collections.abc import Collection

    from channel_tools.publish.wire import (
        HotfixRequest,
        PromoteRequest,
        RetainRequest,
        SetRequest,
        WireFile,
        YankRequest,
    )

_SHA256 = re.compile(r"[0-9a-f]{64}")
_NAME_LIMIT = 200
_REASON_LIMIT = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """How much may be sent."""

    file_bytes: int = 16 << 30
    set_bytes: int = 64 << 30
    files: int = 20_000
    document_bytes: int = 16 << 20
    at_once: int = 32
    """Files that one process receives; others wait."""


def check_set(request: SetRequest, limits: Limits) -> None:
    """Raise UsageError for a set that cannot be, or is beyond the limits."""
    _check_schema(request.schema)
    check_label(request.label)
    if len(request.name) > _NAME_LIMIT:
        raise UsageError(f"the set's name has {len(request.name)} characters; at most {_NAME_LIMIT} are taken")
    if not request.files or len(request.files) > limits.files:
        raise UsageError(f"the set has {len(request.files)} files; expected 1 to {limits.files}")
    keys = set()
    for file in request.files:
        check_file(file, limits)
        if file.key in keys:
            raise UsageError(f"{file.key} is in the set twice")
        keys.add(file.key)
    if (total := sum(file.size_bytes for file in request.files)) > limits.set_bytes:
        raise UsageError(f"the set has {total} bytes; this server takes at most {limits.set_bytes}")


def check_file(file: WireFile, limits: Limits) -> None:
    """Raise UsageError for a file that cannot be a package, or is too big."""
    check_key(file.key)
    if not _SHA256.fullmatch(file.sha256):
        raise UsageError(f"{file.key}: {file.sha256!r} is no sha256; expected 64 hexadecimal digits in small letters")
    if not 0 < file.size_bytes <= limits.file_bytes:
        raise UsageError(
            f"{file.key}: {file.size_bytes} bytes; this server takes 1 to {limits.file_bytes} for one file"
        )


def check_promotion(request: PromoteRequest, limits: Limits) -> None:
    """Raise UsageError for a promotion that cannot be."""
    _check_schema(request.schema)
    check_label(request.source)
    check_label(request.label)
    _check_count(request.keys, "packages are to be promoted", limits)
    for key in request.keys:
        check_key(key)


def check_yank(request: YankRequest, limits: Limits) -> None:
    """Raise UsageError for packages that cannot be."""
    _check_schema(request.schema)
    check_label(request.label)
    _check_count(request.keys, "packages are named", limits)
    for key in request.keys:
        check_key(key)
    if request.reason is not None and len(request.reason) > _REASON_LIMIT:
        raise UsageError(f"the reason has {len(request.reason)} characters; at most {_REASON_LIMIT} are taken")


def check_hotfix(request: HotfixRequest, limits: Limits) -> None:
    """Raise UsageError for subdirs that cannot be; the patches themselves are checked when they are read."""
    _check_schema(request.schema)
    check_label(request.label)
    _check_count(request.patches, "subdirs are patched", limits)
    for subdir in request.patches:
        check_key(f"{subdir}/x{PACKAGE_SUFFIX}")


def check_retention(request: RetainRequest, _limits: Limits) -> None:
    """Raise UsageError for a rule that cannot be."""
    _check_schema(request.schema)
    check_label(request.label)
    if request.keep < 1 or request.older_than_s < 0 or request.grace_s < 0:
        raise UsageError("the rule keeps less than one version of a package, or has a negative time")


def _check_count(named: Collection[str], what: str, limits: Limits) -> None:
    if not named or len(named) > limits.files:
        raise UsageError(f"{len(named)} {what}; expected 1 to {limits.files}")


def check_key(key: str) -> None:
    """Raise UsageError unless it is ``subdir/name.conda``."""
    subdir, _slash, name = key.partition("/")
    if SUBDIR_NAME.fullmatch(subdir) and FILE_NAME.fullmatch(name) and name.endswith(PACKAGE_SUFFIX):
        return
    raise UsageError(f"{key!r} names no package file", hint=f"expected SUBDIR/NAME-VERSION-BUILD{PACKAGE_SUFFIX}")


def _check_schema(schema: int) -> None:
    if schema != WIRE_SCHEMA:
        message = f"the request has schema {schema}; this server speaks schema {WIRE_SCHEMA}"
        raise UsageError(message, hint="use the version of channel_tools that the server has")
