# SPDX-License-Identifier: BSD-3-Clause
"""What a recipe declares about the audit of its package, read from what the engine put into info/.

    extra:
      audit:
        allow:
          - {rule: needed, files: [lib/libxyz.so*], reason: the site's XRT brings libxrt_core}
        runtime_dispatch:
          - {files: [lib/libfast.so*], reason: kernels are chosen by cpuid, see src/values.cpp}

There is no way to leave a whole package or a rule out: patterns that match every file are faults.
"""

from __future__ import annotations

import fnmatch
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from channel_tools.audit.facts import Declared, DeclaredException
from channel_tools.audit.model import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FOUNDATION_TABLE = Path(__file__).with_name("data") / "foundation.yaml"
_KEYS = frozenset({"allow", "runtime_dispatch"})
_NOT_EXCUSABLE = frozenset({Rule.PACKAGE, Rule.ELF, Rule.METADATA, Rule.EXCEPTION, Rule.MODE})
_PROBES = ("lib/libanything.so.1", "bin/program", "share/anything/text.txt")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def declared_by(about: Mapping[str, Any], rendered_recipe: bytes | None, *, name: str | None = None) -> Declared:
    """The declarations of about.json's ``extra.audit`` and of the rendered recipe's ``build.dynamic_linking``.

    A package of the registry foundation has no recipe: what is known of ``name`` stands in this program's own table.
    """
    faults: list[str] = []
    exceptions: list[DeclaredException] = []
    extra = about.get("extra")
    audit = extra.get("audit", {}) if isinstance(extra, dict) else {}
    if name is not None and _is_of_foundation(extra):
        audit = foundation_table().get(name, {})
    if not isinstance(audit, dict) or not audit.keys() <= _KEYS:
        faults.append(f"extra.audit is {audit!r}; expected a mapping with {' or '.join(sorted(_KEYS))}")
        audit = {}
    for row in _rows(audit, "allow", faults):
        exceptions += _exception(row, str(row.get("rule")), "allow", faults)
    for row in _rows(audit, "runtime_dispatch", faults):
        exceptions += _exception({**row, "rule": Rule.INSTRUCTIONS}, Rule.INSTRUCTIONS, "runtime_dispatch", faults)
    linking = _dynamic_linking(rendered_recipe)
    return Declared(
        exceptions=tuple(exceptions),
        missing_dso=_narrow(linking, "missing_dso_allowlist", faults),
        rpaths=_narrow(linking, "rpath_allowlist", faults),
        faults=tuple(faults),
    )


@functools.cache
def foundation_table() -> Mapping[str, Any]:
    """What is declared for packages of the registry foundation, by name."""
    table = yaml.load(FOUNDATION_TABLE.read_bytes(), Loader=_LOADER)  # noqa: S506 - a safe loader, the fast one
    return table if isinstance(table, dict) else {}


def _is_of_foundation(extra: object) -> bool:
    """Packages of the foundation name the wheels and Debian packages that they were made from."""
    ours = extra.get("channel_tools") if isinstance(extra, dict) else None
    return isinstance(ours, dict) and "taken" in ours


def _rows(audit: Mapping[str, Any], key: str, faults: list[str]) -> Iterator[dict[str, Any]]:
    rows = audit.get(key) or []
    for row in rows if isinstance(rows, list) else [rows]:
        if isinstance(row, dict):
            yield row
        else:
            faults.append(f"extra.audit.{key} holds {row!r}; expected a mapping with files and reason")


def _exception(row: Mapping[str, Any], rule: str, key: str, faults: list[str]) -> Iterator[DeclaredException]:
    where = f"extra.audit.{key}: {dict(row)!r}"
    files, reason = _globs(row.get("files")), row.get("reason")
    known = {one.value for one in Rule} - {one.value for one in _NOT_EXCUSABLE}
    if row.keys() - {"rule", "files", "reason"}:
        faults.append(f"{where} has more keys than rule, files and reason")
    elif rule not in known:
        faults.append(f"{where} names the rule {rule}; expected one of {', '.join(sorted(known))}")
    elif not isinstance(reason, str) or not reason.strip():
        faults.append(f"{where} gives no reason")
    elif not files:
        faults.append(f"{where} names no files")
    elif wide := [glob for glob in files if all(fnmatch.fnmatchcase(probe, glob) for probe in _PROBES)]:
        faults.append(f"{where} means every file by {wide[0]}")
    else:
        yield DeclaredException(rule=rule, files=files, reason=" ".join(reason.split()))


def _dynamic_linking(rendered_recipe: bytes | None) -> Mapping[str, Any]:
    try:
        found: Any = yaml.load(rendered_recipe or b"", Loader=_LOADER)  # noqa: S506 - a safe loader, the fast one
    except yaml.YAMLError:
        return {}
    for key in ("recipe", "build", "dynamic_linking"):
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def _narrow(linking: Mapping[str, Any], key: str, faults: list[str]) -> tuple[str, ...]:
    globs = _globs(linking.get(key))
    wide = [glob for glob in globs if not glob.strip("*?/")]
    faults += [f"build.dynamic_linking.{key} means everything by {glob}" for glob in wide]
    return tuple(glob for glob in globs if glob not in wide)


def _globs(value: object) -> tuple[str, ...]:
    rows = value if isinstance(value, list) else [value] if isinstance(value, str) else []
    return tuple(str(row) for row in rows)
