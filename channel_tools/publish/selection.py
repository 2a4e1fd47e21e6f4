# SPDX-License-Identifier: BSD-3-Clause
"""Which packages of a label people mean: by MatchSpec, by file name."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from channel_tools.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from channel_tools.publish.model import LabelPackage

_SUFFIX = ".conda"


def select_packages(packages: Iterable[LabelPackage], spec: str) -> list[LabelPackage]:
    """The packages that ``spec`` names: a MatchSpec, a file name, or ``subdir/file name``.

    Raises UsageError for what is no MatchSpec.
    """
    found = sorted(packages)
    if spec.endswith(_SUFFIX):
        return [package for package in found if spec in {package.key, package.file_name}]
    return _matching(found, spec)


def insist(found: Sequence[LabelPackage], spec: str, packages: Iterable[LabelPackage], *, where: str) -> None:
    """Raise UsageError when nothing was ``found``, with the nearest names."""
    if found:
        return
    names = sorted({package.file_name if spec.endswith(_SUFFIX) else package.name for package in packages})
    near = difflib.get_close_matches(spec.rpartition("/")[2].split("=")[0].split()[0], names, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(names[:8]) or 'no packages'}"
    raise UsageError(f"{where}: no package there matches {spec!r}", hint=hint)


def _matching(packages: Sequence[LabelPackage], spec: str) -> list[LabelPackage]:
    from rattler import BuildString, MatchSpec, PackageRecord  # noqa: PLC0415 - slow to import
    from rattler.exceptions import InvalidMatchSpecError  # noqa: PLC0415

    try:
        wanted = MatchSpec(spec)
    except InvalidMatchSpecError as err:
        hint = "for example libswitchml, libswitchml=1.0.0, libswitchml=1.0.0=udp*, or a file name"
        raise UsageError(f"{spec!r} is no MatchSpec ({err})", hint=hint) from None
    return [
        package
        for package in packages
        if wanted.matches(
            PackageRecord(
                name=package.name,
                version=package.version,
                build=BuildString(package.build),
                build_number=package.build_number,
                subdir=package.subdir,
            )
        )
    ]
