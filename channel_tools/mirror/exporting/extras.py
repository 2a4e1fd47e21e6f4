# SPDX-License-Identifier: BSD-3-Clause
"""The content of a bundle besides packages: this program, and what an importing site needs for building.

Our own wheel is made from the installed files: it is the same program, and neither a build tool nor a source tree is
needed. Its requirements are resolved by pip once per version of ours, and cached. Each source is a separate tar file,
as ``sources export`` writes it, so that an update brings only new ones; the tree of recipes is one more.
The same content gives the same bytes.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import importlib.metadata
import importlib.resources
import json
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from packaging.requirements import Requirement

import channel_tools
from channel_tools.foundation.model import LockedArtifact
from channel_tools.foundation.pypi import MACHINES, Pip, pip_error
from channel_tools.matrix.site import files_to_export
from channel_tools.mirror.exporting.plan import ExtraFile
from channel_tools.mirror.format import SOURCES_FOLDER, TOOL_FOLDER, ToolWheels
from channel_tools.sources.transfer import export_entries
from channel_tools.system.beneath import Beneath
from channel_tools.system.document import decode_json
from channel_tools.system.errors import FoundationError, IntegrityError, NetworkError
from channel_tools.system.extras import AIR_GAPPED
from channel_tools.system.files import atomic_path, open_regular, sha256_of_file, write_bytes_atomically
from channel_tools.system.locks import exclusive_lock
from channel_tools.system.source_files import is_program, link_target

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from channel_tools.sources.store import SourceStore
    from channel_tools.system.progress import Progress
    from channel_tools.system.settings import Tree

DISTRIBUTION = "channel-tools"
GLIBC = "2.28"
TREE = f"{SOURCES_FOLDER}/tree.tar"
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)
_WHEEL = "Wheel-Version: 1.0\nGenerator: channel_tools\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_HINT = "leave the program out with --without-tool, or make the index reachable for pip (pip config list)"
_LOCK_WAIT_S = 600.0
_NO_WHEELS = "WHEELS: dict[str, list[Wheel]] = {}"
"""The line of bootstrap.py that is replaced."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tool:
    """This program as a bundle has it: the wheels, and the script that installs them and imports the bundle."""

    wheels: ToolWheels
    files: Sequence[ExtraFile]
    script: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolWheel:
    """A wheel, and the requirement by which pip installs it."""

    requirement: str
    path: Path
    sha256: str


def make_tool(pythons: Sequence[str], platforms: Sequence[str], *, cache: Path, progress: Progress) -> Tool:
    """This program's wheels for Pythons (``3.12``) and platforms (``linux-64``); wheels in ``cache`` are reused.

    Raises NetworkError if the package index cannot be reached, FoundationError if it has no wheels for these Pythons,
    IntegrityError if a wheel's bytes differ from its hash in the index.
    """
    machines = tuple(MACHINES[platform] for platform in platforms)
    wheels_by_machine = {}
    with exclusive_lock(cache / ".lock", resource=f"the wheels in {cache}", timeout_s=_LOCK_WAIT_S):
        path = own_wheel(cache)
        requirement = f"{DISTRIBUTION}[{','.join(AIR_GAPPED)}]=={channel_tools.__version__}"
        own = ToolWheel(requirement=requirement, path=path, sha256=sha256_of_file(path))
        for python in pythons:
            for machine in machines:
                wheels_by_machine[f"{python} {machine}"] = [own, *_required(cache, python, machine, progress)]
    files = {wheel.path.name: wheel.path for wheels in wheels_by_machine.values() for wheel in wheels}
    return Tool(
        wheels=ToolWheels(version=channel_tools.__version__, pythons=tuple(pythons), machines=machines),
        files=[_extra(f"{TOOL_FOLDER}/{name}", path) for name, path in sorted(files.items())],
        script=bootstrap_script(wheels_by_machine),
    )


def bootstrap_script(wheels: Mapping[str, Sequence[ToolWheel]]) -> bytes:
    """The script that installs one of the lists of wheels, which are by Python and machine (``3.12 x86_64``)."""
    template = (importlib.resources.files("channel_tools.mirror") / "data" / "bootstrap.py").read_text("utf-8")
    listed = {
        key: [{"requirement": wheel.requirement, "file": wheel.path.name, "sha256": wheel.sha256} for wheel in items]
        for key, items in wheels.items()
    }
    before, after = template.split(_NO_WHEELS)
    return f"{before}{_NO_WHEELS.removesuffix('{}')}{json.dumps(listed, indent=2)}{after}".encode()


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
    """The requirements in our own metadata, including the extras that bundles have."""
    stated = [Requirement(text) for text in importlib.metadata.requires(DISTRIBUTION) or ()]
    applicable = [item for item in stated if any(_applies(item, extra) for extra in ("", *AIR_GAPPED))]
    return sorted({str(Requirement(str(item).partition(";")[0])) for item in applicable})


def _applies(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def wheel_folder(cache: Path, python: str, machine: str) -> Path:
    """The folder with the wheels for one Python; it differs if our requirements differ."""
    key = "\n".join([channel_tools.__version__, python, machine, GLIBC, *own_requirements()])
    return cache / hashlib.sha256(key.encode()).hexdigest()[:16]


def _required(cache: Path, python: str, machine: str, progress: Progress) -> list[ToolWheel]:
    """The wheels that one Python needs, in a folder of the cache that has exactly these."""
    folder = wheel_folder(cache, python, machine)
    listing = folder / "wheels.json"
    pip = Pip(python=python, glibc=GLIBC, machine=machine)
    with _own_hints():
        if listing.is_file():
            wheels = decode_json(listing.read_bytes(), list[LockedArtifact])
        else:
            progress.note(f"looking for the wheels of channel_tools for Python {python} on {machine}")
            wheels = pip.resolve(own_requirements())
            folder.mkdir(parents=True, exist_ok=True)
        missing = [item for item in wheels if not _is_there(folder / item.file_name, item.sha256)]
        if missing:
            _download(pip, missing, folder, progress)
        if not listing.is_file():
            write_bytes_atomically(listing, msgspec.json.encode(wheels))
    return [
        ToolWheel(requirement=f"{item.name}=={item.version}", path=folder / item.file_name, sha256=item.sha256)
        for item in wheels
    ]


def _download(pip: Pip, missing: Sequence[LockedArtifact], folder: Path, progress: Progress) -> None:
    with progress.task("wheels of channel_tools", total=len(missing)) as task:
        result = pip.download(missing, folder, poll=lambda: None, on_large=lambda _name, _size: None)
        if result.returncode != 0:
            raise pip_error(result, "the wheels of channel_tools")
        for item in missing:
            if not _is_there(folder / item.file_name, item.sha256):
                message = f"{folder / item.file_name}: its bytes differ from the hash in the package index"
                raise IntegrityError(message, hint="run the same command again")
            task.advance()


def _is_there(path: Path, sha256: str) -> bool:
    return path.is_file() and sha256_of_file(path) == sha256


@contextlib.contextmanager
def _own_hints() -> Iterator[None]:
    """Replace the hints of pip's errors, which are about building foundations, with ours."""
    try:
        yield
    except (FoundationError, NetworkError) as err:
        raise type(err)(err.message, hint=_HINT) from err


def export_sources(store: SourceStore, entries: Sequence[Path], folder: Path, progress: Progress) -> list[ExtraFile]:
    """Write one tar file per entry of the store below ``folder``. Raises as export_entries."""
    files = []
    for entry in entries:
        path = f"{SOURCES_FOLDER}/{entry.parent.name}-{entry.name}.tar"
        if Beneath(root=folder).file_stat(path) is None:  # else an interrupted run wrote it; files appear whole
            export_entries(store, [entry], folder / path, progress)
        files.append(_extra(path, folder / path))
    return files


def export_tree(tree: Tree, folder: Path) -> ExtraFile:
    """Write the tree to one tar file below ``folder``: what another site needs to plan and build what it does."""
    with (
        atomic_path(folder / TREE) as temporary,
        tarfile.open(temporary, mode="w", format=tarfile.GNU_FORMAT, errors="surrogateescape") as tar,
    ):
        for name in files_to_export(tree):
            path, member = tree.root / name, tarfile.TarInfo(name)
            if (link := link_target(path)) is not None:
                member.type, member.linkname, member.mode = tarfile.SYMTYPE, link, 0o777
                tar.addfile(member)
                continue
            with open_regular(path) as stream:
                member.size, member.mode = path.stat().st_size, 0o755 if is_program(path) else 0o644
                tar.addfile(member, stream)
    return _extra(TREE, folder / TREE)


def _extra(path: str, file: Path) -> ExtraFile:
    return ExtraFile(path=path, file=file, size_bytes=file.stat().st_size, sha256=sha256_of_file(file))
