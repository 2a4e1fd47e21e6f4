# SPDX-License-Identifier: BSD-3-Clause
"""Registries in folders: apt and pip (or something quicker) read them, nothing goes over a network."""

from __future__ import annotations

import contextlib
import shutil
import zipfile
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
from packaging.metadata import parse_email
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

from channel_tools.foundation.apt import Apt
from channel_tools.foundation.downloads import DownloadStore, Sources
from channel_tools.foundation.pypi import Pip
from channel_tools.system.files import sha256_of_file
from channel_tools.system.processes import CommandResult
from tests.support.programs import has
from tests.unit.foundation.archives import write_apt_repository, write_deb, write_wheel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from packaging.version import Version

    from channel_tools.foundation.model import LockedArtifact

_UNREACHABLE = ("--index-url", "http://127.0.0.1:9/simple", "--retries", "1")
needs_apt = pytest.mark.skipif(not has("apt-get"), reason="this host has no apt")


@dataclass(frozen=True, kw_only=True)
class Registries:
    """A folder of .debs, one of wheels, and the sources that read them."""

    debs: Path
    wheels: Path
    sources: Sources

    def add_deb(self, name: str, files: Mapping[str, str | bytes], *, version: str = "1.0-1") -> Path:
        """Offer a .deb, replacing other versions of it."""
        for old in self.debs.glob(f"{name}_*.deb"):
            old.unlink()
        path = write_deb(self.debs, name, files, version=version)
        write_apt_repository(self.debs)
        return path

    def add_wheel(
        self,
        name: str,
        files: Mapping[str, str | bytes],
        *,
        version: str = "1.0",
        requires: tuple[str, ...] = (),
        tag: str = "py3-none-any",
    ) -> Path:
        """Offer a wheel, by default for every platform, replacing other versions of it."""
        for old in self.wheels.glob(f"{name}-*.whl"):
            old.unlink()
        return write_wheel(self.wheels, name, files, version=version, requires=requires, tag=tag)

    def without_pip(self) -> Registries:
        """The same, with something that is quicker than pip."""
        pip = self.sources.pip
        quick = FolderPip(python=pip.python, glibc=pip.glibc, machine=pip.machine, wheels=self.wheels)
        return replace(self, sources=replace(self.sources, pip=quick))

    def unreachable(self) -> Sources:
        """The same store, and registries that nothing answers for."""
        pip = self.sources.pip
        return replace(
            self.sources,
            apt=replace(self.sources.apt, sources="Types: deb\nURIs: http://127.0.0.1:9/\nSuites: ./\nTrusted: yes\n"),
            pip=Pip(python=pip.python, glibc=pip.glibc, machine=pip.machine, options=_UNREACHABLE),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class FolderPip(Pip):
    """Answers from the folder of wheels as pip does, without starting it each time."""

    wheels: Path

    def download(
        self,
        files: Sequence[LockedArtifact],
        folder: Path,
        *,
        poll: Callable[[], None],
        on_large: Callable[[str, int], None],
    ) -> CommandResult:
        """Copy those that are still offered under their hash."""
        del poll, on_large
        for taken in files:
            offered = self.wheels / taken.file_name
            if offered.is_file() and sha256_of_file(offered) == taken.sha256:
                shutil.copyfile(offered, folder / taken.file_name)
        return CommandResult(command=("pip",), returncode=0, stdout="", stderr="")

    def _offered(self, stated: str, *more: str, limit_s: float | None = None) -> list[Version]:
        del more, limit_s
        name = canonicalize_name(Requirement(stated).name)
        wheels = [parse_wheel_filename(path.name) for path in self.wheels.glob("*.whl")]
        return [version for project, version, _build, _tags in wheels if project == name]

    def _report(self, requirements: Sequence[str], more: Sequence[str]) -> dict[str, Any]:
        del requirements, more
        return {"install": [_report_item(path) for path in sorted(self.wheels.glob("*.whl"))]}


def _report_item(wheel: Path) -> dict[str, Any]:
    with zipfile.ZipFile(wheel) as opened:
        name = next(name for name in opened.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = parse_email(opened.read(name))[0]
    hashes = {"sha256": sha256_of_file(wheel)}
    return {"metadata": metadata, "download_info": {"url": wheel.as_uri(), "archive_info": {"hashes": hashes}}}


def make_registries(root: Path, monkeypatch: pytest.MonkeyPatch) -> Registries:
    """Empty registries below ``root``; the host's configuration of pip is set aside."""
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    for variable in ("PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(variable, raising=False)
    (root / "no-delay.conf").write_text('Acquire::Retries::Delay "false";\n')
    monkeypatch.setenv("APT_CONFIG", str(root / "no-delay.conf"))
    debs, wheels = root / "debs", root / "wheels"
    debs.mkdir(exist_ok=True)
    wheels.mkdir(exist_ok=True)
    repository = write_apt_repository(debs)
    sources = Sources(
        apt=Apt(state=root / "apt", suite="toy", architecture="amd64", sources=repository),
        pip=Pip(python="3.11", glibc="2.36", machine="x86_64", options=("--no-index", "--find-links", str(wheels))),
        store=DownloadStore(folder=root / "store"),
    )
    return Registries(debs=debs, wheels=wheels, sources=sources)


class NotedProgress:
    """Keeps what was noted."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.advanced: dict[str, int] = {}

    @contextlib.contextmanager
    def task(self, description: str, *, total: int | None, unit: str = "items") -> Iterator[_NotedTask]:
        """Count what is advanced under the description."""
        del total, unit
        yield _NotedTask(self.advanced, description)

    def note(self, message: str) -> None:
        """Keep the line."""
        self.notes.append(message)


class _NotedTask:
    def __init__(self, advanced: dict[str, int], description: str) -> None:
        self._advanced = advanced
        self._description = description

    def advance(self, amount: int = 1, *, detail: str | None = None) -> None:
        del detail
        self._advanced[self._description] = self._advanced.get(self._description, 0) + amount

    def show(self, state: str) -> None:
        """Nothing is noted of it."""

    def follow(self, state: Callable[[], str]) -> None:
        del state
