# SPDX-License-Identifier: BSD-3-Clause
"""The policy: applies all rules to one package and separates what its recipe declares. Reads only its own table.

A recipe declares what the audit cannot know, and the build engine copies it to info/:

    extra:
      audit:
        allow:
          - {rule: needed, files: [lib/libxyz.so*], reason: the site's XRT brings libxrt_core}
          - {rule: site-path, files: [lib/libxyz.so*], paths: [/opt/xilinx/*], reason: where XRT is installed}
        runtime_dispatch:
          - {files: [lib/libfast.so*], reason: kernels are chosen by cpuid, see src/values.cpp}

A whole package or rule cannot be exempted: patterns that match every file are faults.
"""

from __future__ import annotations

import fnmatch
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from channel_tools.audit.model import Declared, DeclaredException, Excused, Finding, Rule
from channel_tools.audit.rules import files, loader
from channel_tools.conda.platforms import without_platform
from channel_tools.system.yamlfile import load_plain_yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from channel_tools.audit.model import Dependencies, PackageFacts
    from channel_tools.conda.compiled_in import RenderedRecipe

    RuleFunction = Callable[[PackageFacts, Dependencies], Iterator[Finding]]
    from collections.abc import Iterator, Mapping

PACKAGE_RULES: tuple[RuleFunction, ...] = (
    files.package_rule,
    files.name_rule,
    loader.elf_rule,
    loader.rpath_rule,
    loader.needed_rule,
    files.build_path_rule,
    loader.site_path_rule,
    loader.host_path_rule,
    files.placeholder_rule,
    files.self_locating_rule,
    files.interpreter_rule,
    files.link_rule,
    files.noarch_link_rule,
    files.link_script_rule,
    files.mode_rule,
    loader.glibc_rule,
    loader.libstdcxx_rule,
    loader.instructions_rule,
    files.license_rule,
    files.metadata_rule,
    files.installable_rule,
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
"""The rules that apply to an installed package: its prefixes have been replaced and its modes are the client's."""
_FOUNDATION_ONLY = frozenset({Rule.DEPENDS, Rule.OWNER, Rule.LEFTOVER})
FOUNDATION_TABLE = Path(__file__).with_name("data") / "foundation.yaml"
_KEYS = frozenset({"allow", "runtime_dispatch"})
_NOT_EXCUSABLE = frozenset({Rule.PACKAGE, Rule.ELF, Rule.METADATA, Rule.EXCEPTION, Rule.MODE})
_LEAST_PATH = 3
_OF_PATHS = frozenset({Rule.SITE_PATH, Rule.HOST_PATH})
"""Rules that are excused path by path, since a file that may name one may not name every other."""
_PROBES = ("lib/libanything.so.1", "bin/program", "share/anything/text.txt")


def judge(
    package: PackageFacts, dependencies: Dependencies, rules: Sequence[RuleFunction] = PACKAGE_RULES
) -> tuple[tuple[Finding, ...], tuple[Excused, ...]]:
    """The findings about a package, and those that its recipe declares to be intended; both sorted."""
    findings = sorted({finding for rule in rules for finding in rule(package, dependencies)})
    return split_declared(findings, package.declared)


def split_declared(
    all_findings: Iterable[Finding], declared: Declared
) -> tuple[tuple[Finding, ...], tuple[Excused, ...]]:
    """Separate the findings that an exception covers from the others."""
    findings, excused = [], []
    for finding in all_findings:
        reason = _reason(finding, declared)
        if reason is None:
            findings.append(finding)
        else:
            excused.append(Excused(finding=finding, reason=reason))
    return tuple(findings), tuple(excused)


def _reason(finding: Finding, declared: Declared) -> str | None:
    for exception in declared.exceptions:
        if exception.rule == finding.rule and any(_is_meant(finding.file, glob) for glob in exception.files):
            if exception.paths and not any(fnmatch.fnmatchcase(finding.subject, glob) for glob in exception.paths):
                continue
            return exception.reason
    key, globs = _ALLOWLISTS.get(finding.rule, ("", lambda _declared: ()))
    if any(fnmatch.fnmatchcase(finding.subject, glob) for glob in globs(declared)):
        return f"listed in the recipe's build.dynamic_linking.{key}"
    return None


def _is_meant(file: str, glob: str) -> bool:
    """Whether a pattern matches a file; one that matches an archive also matches its members, ``lib/libx.a(m.o)``."""
    archive = file.rpartition("(")[0] if file.endswith(")") else file
    return fnmatch.fnmatchcase(file, glob) or fnmatch.fnmatchcase(archive, glob)


_ALLOWLISTS: Mapping[Rule, tuple[str, Callable[[Declared], Sequence[str]]]] = {
    Rule.NEEDED: ("missing_dso_allowlist", lambda declared: [glob.rpartition("/")[2] for glob in declared.missing_dso]),
    Rule.RPATH: ("rpath_allowlist", lambda declared: declared.rpaths),
}


def declared_by(about: Mapping[str, Any], rendered: RenderedRecipe, *, name: str | None = None) -> Declared:
    """The declarations of about.json's ``extra.audit`` and of the rendered recipe's ``build.dynamic_linking``.

    Packages of the registry foundation have no recipe: the declarations for ``name`` are in this program's own table.
    """
    faults: list[str] = []
    exceptions: list[DeclaredException] = []
    extra = about.get("extra")
    audit = extra.get("audit", {}) if isinstance(extra, dict) else {}
    if name is not None and is_of_foundation(extra):
        audit = foundation_table().get(without_platform(name), {})
    if not isinstance(audit, dict) or not audit.keys() <= _KEYS:
        faults.append(f"extra.audit is {audit!r}; expected a mapping with {' or '.join(sorted(_KEYS))}")
        audit = {}
    for row in _rows(audit, "allow", faults):
        exceptions += _exception(row, str(row.get("rule")), "allow", faults)
    for row in _rows(audit, "runtime_dispatch", faults):
        exceptions += _exception({**row, "rule": Rule.INSTRUCTIONS}, Rule.INSTRUCTIONS, "runtime_dispatch", faults)
    if rendered.fault:
        faults.append(rendered.fault)
    section = rendered.value
    for key in ("recipe", "build", "dynamic_linking"):
        section = section.get(key) if isinstance(section, dict) else None
    linking = section if isinstance(section, dict) else {}
    return Declared(
        exceptions=tuple(exceptions),
        missing_dso=_narrow(linking, "missing_dso_allowlist", faults),
        rpaths=_narrow(linking, "rpath_allowlist", faults),
        faults=tuple(faults),
    )


@functools.cache
def foundation_table() -> Mapping[str, Any]:
    """The declarations for packages of the registry foundation, by name, as without_platform gives it."""
    table = load_plain_yaml(FOUNDATION_TABLE.read_bytes())
    return table if isinstance(table, dict) else {}


def is_of_foundation(extra: object) -> bool:
    """Whether about.json's ``extra`` names wheels or Debian packages as sources, as the registry foundation's does."""
    ours = extra.get("channel_tools") if isinstance(extra, dict) else None
    return isinstance(ours, dict) and "taken" in ours


def _rows(audit: Mapping[str, Any], key: str, faults: list[str]) -> Iterator[dict[str, Any]]:
    rows = audit.get(key) or []
    for row in rows if isinstance(rows, list) else [rows]:
        if isinstance(row, dict):
            yield row
        else:
            faults.append(f"extra.audit.{key} contains {row!r}; expected a mapping with files and reason")


def _exception(row: Mapping[str, Any], rule: str, key: str, faults: list[str]) -> Iterator[DeclaredException]:
    where = f"extra.audit.{key}: {dict(row)!r}"
    files, paths, reason = _globs(row.get("files")), _globs(row.get("paths")), row.get("reason")
    known = {member.value for member in Rule} - {member.value for member in _NOT_EXCUSABLE | _FOUNDATION_ONLY}
    keys = ("rule", "files", "paths", "reason") if rule in _OF_PATHS else ("rule", "files", "reason")
    if row.keys() - set(keys):
        faults.append(f"{where} has keys other than {', '.join(keys[:-1])} and reason")
    elif rule not in known:
        faults.append(f"{where} names the rule {rule}; expected one of {', '.join(sorted(known))}")
    elif not isinstance(reason, str) or not reason.strip():
        faults.append(f"{where} gives no reason")
    elif not files:
        faults.append(f"{where} names no files")
    elif rule in _OF_PATHS and not paths:
        faults.append(f"{where} names no paths; the rule {rule} is excused for each path by its name")
    elif wide := [glob for glob in paths if len(glob.replace("*", "").strip("/")) < _LEAST_PATH]:
        faults.append(f"{where} matches every path by {wide[0]}")
    elif wide := [glob for glob in files if all(fnmatch.fnmatchcase(probe, glob) for probe in _PROBES)]:
        faults.append(f"{where} matches every file by {wide[0]}")
    else:
        yield DeclaredException(rule=rule, files=files, reason=" ".join(reason.split()), paths=paths)


def _narrow(linking: Mapping[str, Any], key: str, faults: list[str]) -> tuple[str, ...]:
    globs = _globs(linking.get(key))
    wide = [glob for glob in globs if not glob.strip("*?/")]
    faults += [f"build.dynamic_linking.{key} matches everything by {glob}" for glob in wide]
    return tuple(glob for glob in globs if glob not in wide)


def _globs(value: object) -> tuple[str, ...]:
    rows = value if isinstance(value, list) else [value] if isinstance(value, str) else []
    return tuple(str(row) for row in rows)
