# SPDX-License-Identifier: BSD-3-Clause
"""Wheels through pip: one resolution for all rows, then downloads by version and sha256.

pip runs as a program with the user's own configuration (indexes, mirrors, certificates); its report is read, but
addresses are not kept. pip evaluates markers for the interpreter that it runs on, so its result is checked here for the
foundation's python: what is missing is requested, what is not needed is left out.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from channel_tools.conda.addresses import file_name_of, local_path
from channel_tools.foundation.apt import OTHER_FOUNDATION
from channel_tools.foundation.model import LockedArtifact
from channel_tools.system.errors import FoundationError, IntegrityError, NetworkError
from channel_tools.system.processes import run_command, watch_command
from channel_tools.system.work_folder import temporary_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from channel_tools.system.processes import CommandResult

MACHINES: Mapping[str, str] = {"linux-64": "x86_64", "linux-aarch64": "aarch64"}
_OLDEST_MANYLINUX_MINOR = 5
_LEGACY_MANYLINUX = ("manylinux2014", "manylinux2010", "manylinux1")
_MAX_ROUNDS = 5
_NO_ROUTE = re.compile(
    r"NewConnectionError|NameResolutionError|Max retries exceeded|Temporary failure"
    r"|Connection (?:refused|reset|aborted)|ConnectTimeout|ReadTimeout|ProxyError"
    r"|SSLError|Network is unreachable|Could not fetch URL"
)
_DAMAGED = re.compile(r"DO NOT MATCH THE HASHES|BadZipFile|is invalid\.|has an invalid wheel|IncompleteDownload")
_ANNOUNCED = re.compile(r"\s*Downloading (?P<name>\S+\.whl)\S* \((?P<size>[\d.]+) (?P<unit>[kMG]?B)\)")
_UNITS = {"B": 1, "kB": 1000, "MB": 1000**2, "GB": 1000**3}


@dataclass(frozen=True, kw_only=True, slots=True)
class Pip:
    """pip, for wheels for the foundation's python rather than for the one that it runs on."""

    python: str
    glibc: str
    machine: str
    options: tuple[str, ...] = ()
    """More options for pip, such as ``--no-index``."""

    def resolve(self, requirements: Sequence[str]) -> list[LockedArtifact]:
        """A consistent set of wheels for ``requirements`` and all that they require, sorted by project name.

        Raises NetworkError if the index cannot be reached, FoundationError if there is no such set.
        """
        roots = list(requirements)
        for _ in range(_MAX_ROUNDS):
            report = self._report(roots)
            items: dict[str, Any] = {canonicalize_name(item["metadata"]["name"]): item for item in report["install"]}
            needed = self._needed(requirements, items)
            missing = sorted(needed.keys() - items.keys())
            if not missing:
                return [_resolved(items[name], needed[name]) for name in sorted(needed)]
            roots += missing
        raise FoundationError(f"pip finds no set of wheels with {', '.join(missing)} for python {self.python}")

    def download(
        self,
        files: Sequence[LockedArtifact],
        folder: Path,
        *,
        poll: Callable[[], None],
        on_large: Callable[[str, int], None],
    ) -> CommandResult:
        """Download exactly these wheels into ``folder``; ``on_large`` gets each size before the download starts.

        The caller checks what arrived (the result has pip's output).
        """
        with tempfile.TemporaryDirectory(prefix=".tmp-", dir=folder) as temporary:
            requirements = Path(temporary) / "requirements.txt"
            lines = (f"{artifact.name}=={artifact.version} --hash=sha256:{artifact.sha256}\n" for artifact in files)
            requirements.write_text("".join(lines), encoding="utf-8")
            command = self._command("download", "--no-deps", "--require-hashes", "--dest", str(folder))
            return watch_command(
                [*command, "--requirement", str(requirements)],
                cwd=folder,
                env={**os.environ, "TMPDIR": temporary},
                poll=poll,
                on_line=lambda line: _announce(line, on_large),
            )

    def _report(self, requirements: Sequence[str]) -> dict[str, Any]:
        with temporary_folder() as temporary:
            report = temporary / "report.json"
            target = ["--dry-run", "--ignore-installed", "--target", str(temporary), "--report", str(report)]
            result = run_command([*self._command("install", *target), *requirements], check=False)
            if result.returncode != 0:
                raise pip_error(result, f"wheels for {', '.join(requirements)} on python {self.python}")
            loaded: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
            return loaded

    def _command(self, verb: str, *words: str) -> list[str]:
        tags = [word for platform in self._platforms() for word in ("--platform", platform)]
        return [
            *(sys.executable, "-m", "pip", verb, "--disable-pip-version-check", "--no-input", "--no-color"),
            *(
                "--retries",
                "2",
                "--no-cache-dir",
                "--only-binary",
                ":all:",
                "--implementation",
                "cp",
                "--python-version",
                self.python,
            ),
            *tags,
            *self.options,
            *words,
        ]

    def _platforms(self) -> Iterator[str]:
        newest = int(self.glibc.removeprefix("2."))
        for minor in range(newest, _OLDEST_MANYLINUX_MINOR - 1, -1):
            yield f"manylinux_2_{minor}_{self.machine}"
        for name in (*_LEGACY_MANYLINUX, "linux"):
            yield f"{name}_{self.machine}"

    def _needed(self, requirements: Sequence[str], items: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
        """Every project that the requirements need, directly or indirectly, with its own requirements."""
        needed: dict[str, tuple[str, ...]] = {}
        waiting = [(canonicalize_name(root.name), frozenset(root.extras)) for root in map(Requirement, requirements)]
        seen = set(waiting)
        while waiting:
            name, extras = waiting.pop()
            applying = self._applying(name, extras, items)
            plain = {_without_extras(requirement) for requirement in applying}
            needed[name] = tuple(sorted({*needed.get(name, ()), *plain}))
            for requirement in applying:
                step = (canonicalize_name(requirement.name), frozenset(requirement.extras))
                if step not in seen:
                    seen.add(step)
                    waiting.append(step)
        return {name: self._flattened(name, items, needed) for name in needed}

    def _flattened(self, name: str, items: Mapping[str, Any], needed: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
        """A project's requirements, including those of the extras that it requests: conda has no extras."""
        requirements = set(needed[name])
        for requirement in self._applying(name, frozenset(), items):
            other = canonicalize_name(requirement.name)
            if requirement.extras:
                with_extras = self._applying(other, frozenset(requirement.extras), items)
                requirements |= {
                    _without_extras(inner) for inner in with_extras if canonicalize_name(inner.name) != name
                }
        return tuple(sorted(requirements))

    def _applying(self, name: str, extras: frozenset[str], items: Mapping[str, Any]) -> list[Requirement]:
        stated = items[name]["metadata"].get("requires_dist", ()) if name in items else ()
        try:
            requirements = [Requirement(text) for text in stated]
        except InvalidRequirement as err:
            raise FoundationError(f"wheel {name}: a requirement cannot be read: {err}") from None
        environments = [{**self._environment(), "extra": extra} for extra in ("", *sorted(extras))]
        return [
            requirement
            for requirement in requirements
            if requirement.marker is None or any(requirement.marker.evaluate(each) for each in environments)
        ]

    def _environment(self) -> dict[str, str]:
        return {
            "implementation_name": "cpython",
            "implementation_version": f"{self.python}.0",
            "os_name": "posix",
            "platform_machine": self.machine,
            "platform_python_implementation": "CPython",
            "platform_release": "",
            "platform_system": "Linux",
            "platform_version": "",
            "python_full_version": f"{self.python}.0",
            "python_version": self.python,
            "sys_platform": "linux",
        }


def pip_error(result: CommandResult, request: str) -> FoundationError | NetworkError | IntegrityError:
    """The error for a failed pip."""
    lines = [line for line in result.stderr.splitlines() if line.startswith("ERROR:")]
    output = "\n".join(lines[:6]) or result.tail()
    everything = result.stdout + result.stderr  # pip does not treat an index that does not respond as an error
    if _DAMAGED.search(everything):
        return IntegrityError(
            f"{request}: a wheel does not match its hash, or is damaged:\n{output}", hint="run it again"
        )
    if _NO_ROUTE.search(everything):
        hint = f"check the network and pip's configuration (pip config list), or {OTHER_FOUNDATION}"
        return NetworkError(f"{request}: the package index could not be reached:\n{output}", hint=hint)
    return FoundationError(
        f"{request}: not found by pip:\n{output}", hint=f"check the table's rows, or {OTHER_FOUNDATION}"
    )


def _resolved(item: Mapping[str, Any], requires: tuple[str, ...]) -> LockedArtifact:
    url = item["download_info"]["url"]
    name, version = canonicalize_name(item["metadata"]["name"]), item["metadata"]["version"]
    sha256 = item["download_info"].get("archive_info", {}).get("hashes", {}).get("sha256")
    if sha256 is None:
        raise FoundationError(f"wheel {name} {version}: the package index has no sha256 for it")
    path = local_path(url)
    return LockedArtifact(
        kind="wheel",
        name=name,
        version=version,
        file_name=file_name_of(url),
        sha256=sha256,
        size_bytes=path.stat().st_size if path is not None and path.is_file() else 0,
        requires=requires,
    )


def _without_extras(requirement: Requirement) -> str:
    """A requirement in a form that conda can read: no extras, no marker, versions sorted and without local versions."""
    versions = ",".join(sorted(str(part).split("+")[0] for part in requirement.specifier))
    return f"{canonicalize_name(requirement.name)}{versions}"


def _announce(line: str, on_large: Callable[[str, int], None]) -> None:
    if match := _ANNOUNCED.match(line):
        on_large(match["name"], round(float(match["size"]) * _UNITS[match["unit"]]))
