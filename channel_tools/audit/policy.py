# SPDX-License-Identifier: BSD-3-Clause
"""The policy: all rules over one package, what its recipe declares set apart. Pure."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING

from channel_tools.audit.model import Excused, Finding, Rule
from channel_tools.audit.rules import files, loader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from channel_tools.audit.facts import Declared, PackageFacts, Surroundings

    RuleFunction = Callable[[PackageFacts, Surroundings], Iterator[Finding]]

PACKAGE_RULES: tuple[RuleFunction, ...] = (
    files.package_rule,
    loader.elf_rule,
    loader.rpath_rule,
    loader.needed_rule,
    files.build_path_rule,
    files.placeholder_rule,
    files.self_locating_rule,
    files.interpreter_rule,
    files.link_rule,
    files.mode_rule,
    loader.glibc_rule,
    loader.libstdcxx_rule,
    loader.instructions_rule,
    files.metadata_rule,
    files.exception_rule,
)
INSTALLED_RULES: tuple[RuleFunction, ...] = (
    files.package_rule,
    loader.elf_rule,
    loader.rpath_rule,
    loader.needed_rule,
    files.build_path_rule,
    files.placeholder_rule,
    files.link_rule,
    files.mode_rule,
)
"""What can be asked of a package that is installed: its prefixes are replaced, its modes are the client's."""


def judge(
    package: PackageFacts, around: Surroundings, rules: Sequence[RuleFunction] = PACKAGE_RULES
) -> tuple[tuple[Finding, ...], tuple[Excused, ...]]:
    """What is wrong with a package, and what its recipe declares to be so on purpose; both sorted."""
    found = sorted({finding for rule in rules for finding in rule(package, around)})
    return split_declared(found, package.declared)


def split_declared(found: Iterable[Finding], declared: Declared) -> tuple[tuple[Finding, ...], tuple[Excused, ...]]:
    """Set apart the findings that an exception covers."""
    findings, excused = [], []
    for finding in found:
        reason = _reason(finding, declared)
        if reason is None:
            findings.append(finding)
        else:
            excused.append(Excused(finding=finding, reason=reason))
    return tuple(findings), tuple(excused)


def _reason(finding: Finding, declared: Declared) -> str | None:
    for exception in declared.exceptions:
        if exception.rule == finding.rule and any(_is_meant(finding.file, glob) for glob in exception.files):
            return exception.reason
    key, globs = _ALLOWLISTS.get(finding.rule, ("", _no_globs))
    if any(fnmatch.fnmatchcase(finding.subject, glob) for glob in globs(declared)):
        return f"listed in the recipe's build.dynamic_linking.{key}"
    return None


def _is_meant(file: str, glob: str) -> bool:
    """Whether a pattern means a file; one that means an archive means its members, ``lib/libx.a(member.o)``."""
    archive = file.rpartition("(")[0] if file.endswith(")") else file
    return fnmatch.fnmatchcase(file, glob) or fnmatch.fnmatchcase(archive, glob)


def _no_globs(_declared: Declared) -> Sequence[str]:
    return ()


def _library_globs(declared: Declared) -> Sequence[str]:
    return [glob.rpartition("/")[2] for glob in declared.missing_dso]


def _rpath_globs(declared: Declared) -> Sequence[str]:
    return declared.rpaths


_ALLOWLISTS = {
    Rule.NEEDED: ("missing_dso_allowlist", _library_globs),
    Rule.RPATH: ("rpath_allowlist", _rpath_globs),
}
