# SPDX-License-Identifier: BSD-3-Clause
"""Versions as conda writes them, and the ``{...}`` of the table's rows (listed at model.Entry)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from channel_tools.foundation.model import TakenFile

_TEMPLATE = re.compile(r"\{([^{}]*)\}")
_CUDA_RUNTIME = re.compile(r"nvidia-cuda-runtime(?:-cu\d+)?==(\d+)\.(\d+)\.")
_SEGMENTS = re.compile(r"x(\.x)*")
# What Debian appends to an upstream version when it repacked the sources or took a later snapshot of them.
_DEBIAN_SUFFIX = re.compile(r"(?:[.+~](?:dfsg|ds|debian|really|git|repack)|[+~]).*$")


class TemplateError(Exception):
    """A ``{...}`` that means nothing; the caller knows the row."""


def conda_version(taken: TakenFile) -> str:
    """The version of a conda package made from a .deb or wheel: upstream's, without epoch, revision or local part."""
    if taken.kind == "wheel":
        return taken.version.split("+")[0]
    upstream = taken.version.partition(":")[2] or taken.version
    upstream = upstream.rpartition("-")[0] or upstream
    return _DEBIAN_SUFFIX.sub("", upstream).replace("-", "_")


def flavour(taken: TakenFile) -> str:
    """``cpu`` or ``cuda130``: a wheel's local version (``+cpu``, ``+cu130``), else the CUDA runtime that it requires.

    PyTorch's wheels on PyPI have no local version; those for CUDA require NVIDIA's wheels.
    """
    local = taken.version.partition("+")[2]
    if local:
        return f"cuda{local.removeprefix('cu')}" if local.startswith("cu") else local
    for requirement in taken.requires:
        if match := _CUDA_RUNTIME.match(requirement):
            return f"cuda{match[1]}{match[2]}"
    return "cpu"


def pin_range(version: str, segments: str) -> str:
    """``>=1.51.1,<1.52.0a0`` for 1.51.1 and ``x.x``: the range in which so many segments stay (as conda-build's pins).

    Raises TemplateError when the version's last held segment is no number or ``segments`` is no ``x.x``.
    """
    if not _SEGMENTS.fullmatch(segments):
        raise TemplateError(f"{segments!r} is no pin, expected x, x.x or x.x.x")
    held = version.split(".")[: segments.count("x")]
    if not held[-1].isdigit():
        raise TemplateError(f"version {version} cannot be pinned at {segments}: {held[-1]!r} is no number")
    upper = [*held[:-1], str(int(held[-1]) + 1), "0a0"]
    return f">={version},<{'.'.join(upper)}"


def expand(text: str, *, version_of: Callable[[str | None], str], build_of: Callable[[str], str]) -> str:
    """``text`` with each ``{...}`` replaced; ``version_of(None)`` is the row's own version.

    Raises TemplateError for an unknown one; the two functions raise their own errors for unknown rows.
    """

    def replacement(match: re.Match[str]) -> str:
        match match[1].split(":"):
            case ["version"]:
                return version_of(None)
            case ["version", name]:
                return version_of(name)
            case ["build", name]:
                return build_of(name)
            case ["pin", segments]:
                return pin_range(version_of(None), segments)
            case ["pin", name, segments]:
                return pin_range(version_of(name), segments)
            case _:
                raise TemplateError(
                    f"{match[0]} means nothing; known: {{version}}, {{version:NAME}}, {{build:NAME}}, {{pin:x.x}}, "
                    "{pin:NAME:x.x}"
                )

    return _TEMPLATE.sub(replacement, text)
