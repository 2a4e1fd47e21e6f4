# SPDX-License-Identifier: BSD-3-Clause
"""This program as wheels, with all that it requires, for the Pythons of a far side.

Our own wheel is put together from the files that run here: it is the same program, and neither a build tool nor a
source tree is needed. What it requires is resolved by pip once per version of ours, and kept.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import importlib.metadata
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from packaging.requirements import Requirement

import channel_tools
from channel_tools.errors import FoundationError, IntegrityError, NetworkError
from channel_tools.files import atomic_path, sha256_of_file, write_bytes_atomically
from channel_tools.foundation.model import TakenFile
from channel_tools.foundation.pypi import MACHINES, Pip, pip_error
from channel_tools.locks import exclusive_lock
from channel_tools.mirror.contents import ExtraFile
from channel_tools.mirror.model import TOOL_FOLDER, ToolWheels

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from channel_tools.progress import Progress

DISTRIBUTION = "channel-tools"
GLIBC = "2.28"
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)
_WHEEL = "Wheel-Version: 1.0\nGenerator: channel_tools\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_HINT = "leave the program out with --without-tool, or make the index reachable for pip (pip config list)"
_LOCK_WAIT_S = 600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelRequest:
    """For which Pythons (``3.12``) and platforms (``linux-64``), and where wheels are kept."""

    pythons: tuple[str, ...]
    platforms: tuple[str, ...]
    cache: Path

    @property
    def machines(self) -> tuple[str, ...]:
        """The platforms' machines as wheels name them."""
        return tuple(MACHINES[platform] for platform in self.platforms)


def tool_wheels(request: WheelRequest, progress: Progress) -> tuple[ToolWheels, list[ExtraFile]]:
    """The wheels, ours first; those of others are downloaded unless they are kept from before.

    Raises NetworkError when the package index cannot be reached, FoundationError when it has no wheels for these
    Pythons, IntegrityError for other bytes than it says.
    """
    found = {}
    with exclusive_lock(request.cache / ".lock", what=f"the wheels in {request.cache}", timeout_s=_LOCK_WAIT_S):
        own = own_wheel(request.cache)
        found[own.name] = own
        for python in request.pythons:
            for machine in request.machines:
                found |= {path.name: path for path in _required(request, python, machine, progress)}
    wheels = ToolWheels(version=channel_tools.__version__, pythons=request.pythons, machines=request.machines)
    extras = [
        ExtraFile(path=f"{TOOL_FOLDER}/{name}", file=path, size_bytes=path.stat().st_size, sha256=sha256_of_file(path))
        for name, path in sorted(found.items())
    ]
    return wheels, extras


def own_wheel(folder: Path) -> Path:
    """Write our own wheel to ``folder``; the same files give the same bytes."""
    version = channel_tools.__version__
    distribution = importlib.metadata.distribution(DISTRIBUTION)
    info = f"channel_tools-{version}.dist-info"
    members = dict(_own_files())
    members[f"{info}/METADATA"] = (distribution.read_text("METADATA") or "").encode()
    members[f"{info}/WHEEL"] = _WHEEL.encode()
    members[f"{info}/entry_points.txt"] = (distribution.read_text("entry_points.txt") or "").encode()
    members[f"{info}/RECORD"] = _record(members, f"{info}/RECORD")
    destination = folder / f"channel_tools-{version}-py3-none-any.whl"
    destination.unlink(missing_ok=True)
    with atomic_path(destination) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name, content in members.items():
            member = zipfile.ZipInfo(name, _ZIP_TIME)
            member.compress_type = zipfile.ZIP_DEFLATED
            member.external_attr = 0o644 << 16
            archive.writestr(member, content)
    return destination


def _own_files() -> Iterator[tuple[str, bytes]]:
    package = Path(channel_tools.__file__).parent
    for path in sorted(package.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield f"channel_tools/{path.relative_to(package).as_posix()}", path.read_bytes()


def _record(members: dict[str, bytes], own_name: str) -> bytes:
    lines = []
    for name, content in members.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(content)}")
    return ("\n".join([*lines, f"{own_name},,"]) + "\n").encode()


def own_requirements() -> list[str]:
    """What our own metadata requires, extras left out."""
    stated = [Requirement(text) for text in importlib.metadata.requires(DISTRIBUTION) or ()]
    return sorted(str(item) for item in stated if item.marker is None or "extra" not in str(item.marker))


def wheel_folder(cache: Path, python: str, machine: str) -> Path:
    """Where the wheels for one Python are kept: another folder for other requirements of ours."""
    key = "\n".join([channel_tools.__version__, python, machine, GLIBC, *own_requirements()])
    return cache / hashlib.sha256(key.encode()).hexdigest()[:16]


def _required(request: WheelRequest, python: str, machine: str, progress: Progress) -> list[Path]:
    """The wheels that one Python needs, in a folder of the cache that holds exactly these."""
    folder = wheel_folder(request.cache, python, machine)
    listing = folder / "wheels.json"
    pip = Pip(python=python, glibc=GLIBC, machine=machine)
    with _own_hints():
        if listing.is_file():
            taken = msgspec.json.decode(listing.read_bytes(), type=list[TakenFile])
        else:
            progress.note(f"looking for the wheels of channel_tools for Python {python} on {machine}")
            taken = pip.resolve(own_requirements())
            folder.mkdir(parents=True, exist_ok=True)
        missing = [item for item in taken if not _is_there(folder / item.file_name, item.sha256)]
        if missing:
            _download(pip, missing, folder, progress)
        if not listing.is_file():
            write_bytes_atomically(listing, msgspec.json.encode(taken))
    return [folder / item.file_name for item in taken]


def _download(pip: Pip, missing: Sequence[TakenFile], folder: Path, progress: Progress) -> None:
    with progress.task("wheels of channel_tools", total=len(missing)) as task:
        result = pip.download(missing, folder, poll=lambda: None, on_large=lambda _name, _size: None)
        if result.returncode != 0:
            raise pip_error(result, "the wheels of channel_tools")
        for item in missing:
            if not _is_there(folder / item.file_name, item.sha256):
                message = f"{folder / item.file_name}: is not what the package index says it is"
                raise IntegrityError(message, hint="run the same command again")
            task.advance()


def _is_there(path: Path, sha256: str) -> bool:
    return path.is_file() and sha256_of_file(path) == sha256


@contextlib.contextmanager
def _own_hints() -> Iterator[None]:
    """pip's failures are told to those who make foundations elsewhere; here another thing is to be done."""
    try:
        yield
    except (FoundationError, NetworkError) as err:
        raise type(err)(err.message, hint=_HINT) from err
