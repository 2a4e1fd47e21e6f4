# SPDX-License-Identifier: BSD-3-Clause
"""Constraints for pip: the versions of Python packages that conda installed, so that pip takes no others.

A lock names conda packages; of those for Python, the name on the Python index is nearly always the same. The packages
that build others (pip, setuptools, wheel) are left out: pip applies constraints where it builds a package, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from channel_tools.conda.specs import spec_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from channel_tools.pins.lock import LockedPackage

_OTHER_NAMES = {"pytorch": "torch", "matplotlib-base": "matplotlib"}
_BUILDING = frozenset({"pip", "setuptools", "wheel"})
_PYTHONS = frozenset({"python", "python_abi", "python-gil", "python-freethreading", "cpython"})
EXCLUDES_PYTORCH = "pytorch <0.0a0"
"""The run constraint of a package that has PyTorch's files itself."""


def stated_distributions(packages: Iterable[LockedPackage]) -> dict[str, str]:
    """The Python packages among those of a lock, as names on the Python index and versions."""
    stated = {}
    for package in packages:
        needs_python = bool(_PYTHONS & {*spec_names(package.depends, package.file_name)})
        if package.name not in _PYTHONS and (needs_python or package.noarch == "python"):
            stated[_OTHER_NAMES.get(package.name, package.name)] = package.version
        if EXCLUDES_PYTORCH in package.constrains:
            stated["torch"] = package.version
    return stated


def render_constraints(distributions: Mapping[str, str], *, about: str) -> str:
    """The file, in order of name."""
    named = {canonicalize_name(name): version for name, version in distributions.items()}
    lines = [f"{name}=={version}" for name, version in sorted(named.items()) if name not in _BUILDING]
    header = f"# Written by channel_tools pins for the stack {about}.\n" if about else ""
    return header + "".join(f"{line}\n" for line in lines)
