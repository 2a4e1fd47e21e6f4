# SPDX-License-Identifier: BSD-3-Clause
"""Wheels through pip: one resolution for all rows, then downloads by version and sha256.

Of PyTorch's wheels, the one for the CPU is taken unless CUDA's was asked for, from PyTorch's own index if pip finds
none: the default index has only CUDA's, ten times as large. Their versions tell them apart: none is downloaded for it.

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
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from channel_tools.conda.addresses import file_name_of, has_secret, is_web, local_path, parse_address, shown_address
from channel_tools.foundation.apt import OTHER_FOUNDATION
from channel_tools.foundation.model import LockedArtifact
from channel_tools.system.errors import FoundationError, IntegrityError, NetworkError, UsageError
from channel_tools.system.processes import CommandTimeoutError, run_command, watch_command
from channel_tools.system.settings import PYTORCH_INDEX_VARIABLE
from channel_tools.system.work_folder import temporary_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from channel_tools.system.processes import CommandResult

_PIP = (sys.executable, "-m", "pip")
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
_OFFERED = re.compile(r"^Available versions: (.+)$", re.MULTILINE)
_INDEX_SETTING = re.compile(r"^\S*\.(index-url|pypi-url|no-index)=", re.MULTILINE)
"""The lines of ``pip config list`` by which pip asks no index but the user's."""
_INDEX_FORMS = "https://HOST/whl/cpu without a password"
TORCH = "torch"
_CPU = "cpu"
_UNITS = {"B": 1, "kB": 1000, "MB": 1000**2, "GB": 1000**3}


class NoPytorchError(FoundationError):
    """No wheel of PyTorch for the CPU is found."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PytorchChoice:
    """Which of the wheels of a PyTorch is taken: the one for the CPU, or with ``cuda`` one with CUDA."""

    cuda: bool = False
    index: str | None = None
    """PyTorch's own index for the CPU, for a wheel that pip does not find otherwise; None: it is not asked."""
    answer_s: float = 5.0
    """How long that index may take to answer."""

    def __post_init__(self) -> None:
        """Raise UsageError for an index that cannot be asked."""
        if self.index is None:
            return
        parse_address(self.index, forms=_INDEX_FORMS)
        if not is_web(self.index) or has_secret(self.index):
            message = f"{PYTORCH_INDEX_VARIABLE}={shown_address(self.index)}: expected {_INDEX_FORMS}, or no"
            raise UsageError(message, hint="pip takes passwords from ~/.netrc")


@dataclass(frozen=True, kw_only=True, slots=True)
class Pip:
    """pip, for wheels for the foundation's python rather than for the one that it runs on."""

    python: str
    glibc: str
    machine: str
    options: tuple[str, ...] = ()
    """More options for pip, such as ``--no-index``."""
    pytorch: PytorchChoice = PytorchChoice()

    def resolve(self, requirements: Sequence[str]) -> list[LockedArtifact]:
        """A consistent set of wheels for ``requirements`` and all that they require, sorted by project name.

        Raises NetworkError if the index cannot be reached, FoundationError if there is no such set, and either, before
        any wheel is downloaded, if there is no wheel of PyTorch for the CPU, or with CUDA if that was chosen.
        """
        roots, more = self._with_pytorch(requirements)
        for _ in range(_MAX_ROUNDS):
            report = self._report(roots, more)
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

        PyTorch's own index is asked for its wheel for the CPU if pip does not find it otherwise. The caller checks what
        arrived (the result has pip's output).
        """
        result = self._download(files, folder, poll=poll, on_large=on_large)
        page = self._cpu_page()
        if result.returncode == 0 or page is None or not any(map(_is_for_the_cpu, files)) or self._index_setting():
            return result
        return self._download(files, folder, "--find-links", page, poll=poll, on_large=on_large)

    def _download(
        self,
        files: Sequence[LockedArtifact],
        folder: Path,
        *more: str,
        poll: Callable[[], None],
        on_large: Callable[[str, int], None],
    ) -> CommandResult:
        first = sorted(files, key=lambda artifact: artifact.name != TORCH)  # the one that may be found elsewhere only
        with tempfile.TemporaryDirectory(prefix=".tmp-", dir=folder) as temporary:
            requirements = Path(temporary) / "requirements.txt"
            lines = (f"{artifact.name}=={artifact.version} --hash=sha256:{artifact.sha256}\n" for artifact in first)
            requirements.write_text("".join(lines), encoding="utf-8")
            command = self._command("download", *more, "--no-deps", "--require-hashes", "--dest", str(folder))
            return watch_command(
                [*command, "--requirement", str(requirements)],
                cwd=folder,
                env={**_without_constraints(), "TMPDIR": temporary},
                poll=poll,
                on_line=lambda line: _announce(line, on_large),
            )

    def _with_pytorch(self, requirements: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
        """The requirements, that on PyTorch being on the very wheel that was chosen, and options to find it."""
        stated = next((text for text in requirements if canonicalize_name(Requirement(text).name) == TORCH), None)
        if stated is None:
            return list(requirements), ()
        started = time.monotonic()
        offered = self._offered(stated)
        took_s = time.monotonic() - started
        exact = [text for text in requirements if text != stated]
        if chosen := self._chosen(offered):
            return [*exact, chosen], ()
        if self.pytorch.cuda:
            message = f"pip finds no wheel with CUDA of {stated} for Python {self.python}, only {_listed(offered)}"
            raise FoundationError(message, hint="check pip's configuration (pip config list), or do without --cuda")
        page = self._cpu_page()
        problem = self._not_asked(page)
        if page is not None and not problem:
            # pip itself takes as long to start as it did before
            elsewhere, problem = self._offered_by(page, stated, limit_s=self.pytorch.answer_s + took_s)
            if chosen := self._chosen(elsewhere):
                return [*exact, chosen], ("--find-links", page)
        message = (
            f"there is no PyTorch for the CPU: of {stated} for Python {self.python} pip finds {_listed(offered)}, "
            f"and none of these is a build for the CPU (+{_CPU}); {problem}"
        )
        hint = (
            f"let this machine reach that index, or name a copy of it: {PYTORCH_INDEX_VARIABLE}=URL; or put the wheel "
            "into a folder that pip's find-links names; or take CUDA's, some 2.7 GB: --cuda; or where glibc is 2.41 or "
            f"later, give a new channel the base that has its own: --base debian-13; or {OTHER_FOUNDATION}"
        )
        raise NoPytorchError(message, hint=hint)

    def _chosen(self, versions: Sequence[Version]) -> str | None:
        """The requirement for the newest of ``versions`` that is of the kind that was chosen."""

        def fits(local: str | None) -> bool:
            return local is None or local.startswith("cu") if self.pytorch.cuda else local == _CPU

        fitting = [version for version in versions if fits(version.local)]
        # a version without a local part is also met by those that have one, unless it is compared as text
        return f"{TORCH}==={max(fitting)}" if fitting else None

    def _offered(self, stated: str, *more: str, limit_s: float | None = None) -> list[Version]:
        """The versions that meet the requirement for which pip finds a wheel; no wheel is downloaded.

        Raises NetworkError if an index cannot be reached, CommandTimeoutError.
        """
        requirement = Requirement(stated)
        command = self._command("index", *more, "versions", requirement.name)
        result = run_command(command, check=False, timeout_s=limit_s, env=_without_constraints())
        if result.returncode != 0:
            error = pip_error(result, stated)
            if isinstance(error, NetworkError):
                raise error
            return []
        texts = [text for line in _OFFERED.findall(result.stdout) for text in line.split(", ")]
        return [version for version in map(Version, texts) if requirement.specifier.contains(version, prereleases=True)]

    def _cpu_page(self) -> str | None:
        """The page of PyTorch's own index that lists its wheels for the CPU."""
        return None if self.pytorch.index is None else f"{self.pytorch.index.rstrip('/')}/{TORCH}/"

    def _not_asked(self, page: str | None) -> str:
        """Why PyTorch's own index is not asked; empty if it is."""
        if page is None:
            return f"PyTorch's own index is not asked ({PYTORCH_INDEX_VARIABLE}=no)"
        setting = self._index_setting()
        return setting and f"PyTorch's own index is not asked, because pip's settings have {setting}"

    def _index_setting(self) -> str:
        """The setting by which pip asks no index but the user's; empty if there is none."""
        result = run_command([*_PIP, "config", "list"], check=False, env=_without_constraints())
        match = _INDEX_SETTING.search(result.stdout)
        return match[1] if match else ""

    def _offered_by(self, page: str, stated: str, *, limit_s: float) -> tuple[list[Version], str]:
        """The versions that meet the requirement which the page lists, and what is wrong if none is for the CPU."""
        shown, answer_s = f"PyTorch's own index {shown_address(page)}", f"{self.pytorch.answer_s:g}"
        words = ("--no-index", "--find-links", page, "--timeout", answer_s, "--retries", "0")
        try:
            offered = self._offered(stated, *words, limit_s=limit_s)
        except CommandTimeoutError:
            return [], f"{shown} did not answer within {answer_s} s"
        except NetworkError as err:
            return [], f"{shown} cannot be read: {err.message.rpartition(chr(10))[2]}"
        return offered, f"{shown} lists none that fits, or cannot be read"

    def _report(self, requirements: Sequence[str], more: Sequence[str]) -> dict[str, Any]:
        with temporary_folder() as temporary:
            report = temporary / "report.json"
            target = ["--dry-run", "--ignore-installed", "--target", str(temporary), "--report", str(report)]
            command = [*self._command("install", *more, *target), *requirements]
            result = run_command(command, check=False, env=_without_constraints())
            if result.returncode != 0:
                raise pip_error(result, f"wheels for {', '.join(requirements)} on python {self.python}")
            loaded: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
            return loaded

    def _command(self, verb: str, *words: str) -> list[str]:
        tags = [word for platform in self._platforms() for word in ("--platform", platform)]
        return [
            *(*_PIP, verb, "--disable-pip-version-check", "--no-input", "--no-color"),
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


def _is_for_the_cpu(artifact: LockedArtifact) -> bool:
    return artifact.name == TORCH and Version(artifact.version).local == _CPU


def _listed(versions: Sequence[Version]) -> str:
    return ", ".join(map(str, versions)) or "no wheel"


def _without_constraints() -> dict[str, str]:
    """This program's variables for pip: constraints of the environment that is active are not meant for wheels here."""
    return {name: value for name, value in os.environ.items() if name != "PIP_CONSTRAINT"}


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
        on_large(file_name_of(match["name"]), round(float(match["size"]) * _UNITS[match["unit"]]))
