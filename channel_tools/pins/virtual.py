# SPDX-License-Identifier: BSD-3-Clause
"""The virtual packages that a lock assumes (CEP 30): what the machine is assumed to have.

A lock is for other machines too, so ``__archspec`` (this processor) is assumed only on request, and the kernel is an
old one. For platforms other than this machine's, the values are those that conda-forge builds for.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING

import rattler
from rattler.exceptions import InvalidVersionError

from channel_tools.conda.solving import detect_virtual_packages
from channel_tools.system.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_TEXT = re.compile(r"(?:(?P<platform>[a-z0-9-]+):)?(?P<name>__[a-z0-9_]+)=(?P<value>|[^\s=]+(?:=[^\s=]+)?)")
_LEFT_OUT = frozenset({"__archspec"})
_KERNEL = "4.18"
_ELSEWHERE = {"__unix": "0", "__linux": _KERNEL, "__glibc": "2.28"}
_HINT = "write __cuda=12.9, __glibc=2.28=0, linux-64:__cuda=12.9, or __cuda= for a machine without it"


def assumed_virtual_packages(
    platforms: Sequence[str],
    overrides: Sequence[str] = (),
    *,
    earlier: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> dict[str, tuple[str, ...]]:
    """The assumed virtual packages of each platform as ``name=version=build``, in order of name.

    ``overrides`` are ``[PLATFORM:]NAME=VERSION[=BUILD]``; an empty version removes the package. Platforms in
    ``earlier`` start from those values. Raises UsageError.
    """
    chosen = [_parse_override(text, platforms) for text in overrides]
    assumed = {}
    for platform in platforms:
        values = _by_name(earlier[platform]) if platform in earlier else _defaults(platform)
        for only, name, value in chosen:
            if only in {None, platform}:
                values[name] = value
        assumed[platform] = tuple(_checked(f"{name}={value}") for name, value in sorted(values.items()) if value)
    return assumed


def to_generic(packages: Iterable[str]) -> list[rattler.GenericVirtualPackage]:
    """The solver's form of ``name=version=build`` texts. Raises UsageError."""
    generic = []
    for text in packages:
        name, version, build = split_virtual_package(text)
        try:
            parsed = rattler.Version(version)
        except InvalidVersionError as err:
            raise UsageError(f"{text}: {version!r} is not a version: {err}", hint=_HINT) from None
        generic.append(rattler.GenericVirtualPackage(rattler.PackageName(name), parsed, rattler.BuildString(build)))
    return generic


def machine_virtual_packages(overrides: Sequence[str] = ()) -> list[rattler.GenericVirtualPackage]:
    """The virtual packages of this machine, with ``overrides`` as in assumed_virtual_packages. Raises UsageError."""
    subdir = str(rattler.Subdir.current())
    assumed = assumed_virtual_packages([subdir], overrides, earlier={subdir: detected_virtual_packages()})
    return to_generic(assumed[subdir])


def detected_virtual_packages() -> tuple[str, ...]:
    """The virtual packages of this machine, as ``name=version=build``."""
    return tuple(str(package) for package in detect_virtual_packages())


def split_virtual_package(text: str) -> tuple[str, str, str]:
    """Name, version and build of ``name=version[=build]``; the build is ``0`` if none is given."""
    name, _, version_and_build = text.partition("=")
    version, _, build = version_and_build.partition("=")
    return name, version, build or "0"


def _checked(text: str) -> str:
    to_generic([text])
    return "=".join(split_virtual_package(text))


def _defaults(platform: str) -> dict[str, str]:
    if platform != str(rattler.Subdir.current()):
        return dict(_ELSEWHERE)
    packages = {name: value for name, value in _by_name(detected_virtual_packages()).items() if name not in _LEFT_OUT}
    if "__linux" in packages:
        packages["__linux"] = min(packages["__linux"].partition("=")[0], _KERNEL, key=rattler.Version)
    return packages


def _by_name(packages: Iterable[str]) -> dict[str, str]:
    return {text.partition("=")[0]: text.partition("=")[2] for text in packages}


def _parse_override(text: str, platforms: Sequence[str]) -> tuple[str | None, str, str]:
    match = _TEXT.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is not a virtual package", hint=_HINT)
    parts: Mapping[str, str | None] = match.groupdict()
    platform = parts["platform"]
    if platform is not None and platform not in platforms:
        message = f"{text}: {platform} is not among the platforms to lock ({', '.join(platforms)})"
        raise UsageError(message, hint=f"add --platform {platform}")
    return platform, str(parts["name"]), str(parts["value"])
