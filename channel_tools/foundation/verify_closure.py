# SPDX-License-Identifier: BSD-3-Clause
"""Which packages stand in an environment with a given one: its dependency closure within the channel.

Where several packages meet a requirement, all of them are taken: the solver may choose any.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from rattler import BuildString, MatchSpec, PackageRecord
from rattler.exceptions import InvalidMatchSpecError, InvalidVersionError

from channel_tools.foundation.verify_model import Finding, Rule

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from channel_tools.foundation.verify_scan import PackageScan

_VIRTUAL_PREFIX = "__"


class Closures:
    """The requirements of a set of packages, resolved once; ``findings`` are those that nothing meets."""

    def __init__(self, scans: Iterable[PackageScan]) -> None:
        self.findings: list[Finding] = []
        self._by_name: dict[str, list[PackageScan]] = defaultdict(list)
        every = list(scans)
        for scan in every:
            self._by_name[scan.name].append(scan)
        self._records = {_key(scan): self._record(scan) for scan in every}
        self._direct = {_key(scan): self._resolve(scan) for scan in every}

    def of(self, scan: PackageScan) -> Sequence[PackageScan]:
        """The package itself and everything that it depends on, also indirectly."""
        found = {_key(scan): scan}
        todo = [scan]
        while todo:
            for other in self._direct[_key(todo.pop())]:
                if _key(other) not in found:
                    found[_key(other)] = other
                    todo.append(other)
        return list(found.values())

    def _resolve(self, scan: PackageScan) -> list[PackageScan]:
        met: list[PackageScan] = []
        for text in scan.index.get("depends", ()):
            if text.startswith(_VIRTUAL_PREFIX):
                continue
            candidates = self._by_name.get(text.split()[0], [])
            try:
                matching = self._matching(MatchSpec(text), candidates)
            except InvalidMatchSpecError as err:
                self._note(scan, f"{text!r} is no MatchSpec ({err})")
                continue
            if not matching:
                have = ", ".join(sorted(other.file_name for other in candidates)) or "no package of that name"
                self._note(scan, f"nothing in the channel meets {text!r}; there is {have}")
            met += matching
        return met

    def _matching(self, spec: MatchSpec, candidates: Iterable[PackageScan]) -> list[PackageScan]:
        return [other for other in candidates if (record := self._records[_key(other)]) and spec.matches(record)]

    def _record(self, scan: PackageScan) -> PackageRecord | None:
        index = scan.index
        try:
            return PackageRecord(
                name=scan.name,
                version=str(index.get("version")),
                build=BuildString(str(index.get("build"))),
                build_number=int(index.get("build_number", 0)),
                subdir=scan.subdir,
            )
        except InvalidVersionError as err:
            self._note(scan, f"version {index.get('version')!r} is none that conda can order ({err})")
            return None

    def _note(self, scan: PackageScan, message: str) -> None:
        finding = Finding(package=scan.file_name, file="info/index.json", rule=Rule.DEPENDS, message=message)
        self.findings.append(finding)


def _key(scan: PackageScan) -> str:
    return f"{scan.subdir}/{scan.file_name}"
