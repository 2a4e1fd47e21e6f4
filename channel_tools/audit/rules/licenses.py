# SPDX-License-Identifier: BSD-3-Clause
"""The rule about others' licences: what was compiled in brings its texts.

Which parts of a host environment are in a package is not recorded anywhere, and symbols are stripped. Known is what
host packages have to offer: static archives, and headers without a shared library. If the package is not needed at run
time, too (then it is installed beside with its own texts), the recipe has to decide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from channel_tools.audit.model import Requirement, Rule
from channel_tools.conda.compiled_in import FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from channel_tools.audit.model import Dependencies, Finding, PackageFacts

_TEXTS = Requirement(
    rule=Rule.LICENSE,
    expected=f"the licence texts of what is compiled in, in info/{FOLDER}NAME",
    fix="have build.sh copy them to compiled-in/NAME and name compiled-in/ in about.license_file; if nothing of it is "
    "in the package, declare that with the reason (extra.audit.allow)",
)


def license_rule(package: PackageFacts, dependencies: Dependencies) -> Iterator[Finding]:
    """Host packages with something to compile in have their licence texts in the package."""
    for name, origin in sorted(dependencies.compilable.items()):
        if name not in package.licensed:
            problem = f"no licence text of {name}, which was in the host environment with {origin}"
            yield _TEXTS.violation(package.file_name, f"info/{FOLDER}{name}", problem, subject=name)
