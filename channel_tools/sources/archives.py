# SPDX-License-Identifier: BSD-3-Clause
"""Reading every member of an archive before any engine unpacks it.

An archive that is cut short, or whose members would be written outside of the destination folder, is rejected with the
member's name. Files whose names are not those of archives (a patch, a single file) are accepted unchecked.
"""

from __future__ import annotations

import stat
import zipfile
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from channel_tools.system.archives import TAR_FAULTS, UnsafeMemberError, check_link, check_member_path, members_of_tar
from channel_tools.system.errors import IntegrityError
from channel_tools.system.tarstream import unpacked_limit

if TYPE_CHECKING:
    from pathlib import Path

_ZIP = (".zip",)
_UNCHECKED = (".7z",)
_TAR_SUFFIXES = (
    ".tar", ".tar.gz", ".tgz", ".taz", ".tar.xz", ".txz", ".tar.lzma", ".tlz",
    ".tar.bz2", ".tbz", ".tbz2", ".tar.zst", ".tzst",
)  # fmt: skip
_CHUNK_BYTES = 1 << 20
_LINK_BYTES = 4096
_HINT = "do not build from it: compare it with upstream's release by hand, then correct the recipe's url and sha256"


def check_archive(path: Path, *, name: str | None = None) -> None:
    """Read ``path`` to its end. Raises IntegrityError that names an unsafe member, or says where the archive is cut.

    ``name`` gives the kind of archive if the file itself has another name.
    """
    file_name = (name or path.name).lower()
    if file_name.endswith(_UNCHECKED):
        raise _refused(path, "an archive of a kind whose members cannot be checked (.7z)")
    try:
        if is_zip(file_name):
            _check_zip(path)
        elif file_name.endswith(_TAR_SUFFIXES):
            _check_tar(path)
    except (*TAR_FAULTS, zipfile.BadZipFile, NotImplementedError, RuntimeError) as err:  # zip: unknown, encrypted
        raise _refused(path, f"not a complete archive: {str(err) or type(err).__name__}") from None
    except UnsafeMemberError as err:
        raise _refused(path, str(err)) from None


def is_zip(name: str) -> bool:
    """Whether a file of this name is a zip archive."""
    return name.lower().endswith(_ZIP)


def is_archive(name: str) -> bool:
    """Whether engines unpack a file of this name, which no ``file_name`` of the recipe gives another one."""
    return name.lower().endswith((*_ZIP, *_UNCHECKED, *_TAR_SUFFIXES))


class _Members:
    """Checks members in the order in which they are unpacked."""

    def __init__(self) -> None:
        self._links: set[PurePosixPath] = set()
        self._count = 0

    def take(self, name: str) -> PurePosixPath:
        """Check a member's own path."""
        self._count += 1
        check_member_path(name)
        member_path = PurePosixPath(name)
        below = next((parent for parent in member_path.parents if parent in self._links), None)
        if below is not None:
            raise UnsafeMemberError(f"member {name!r} would be written through the link {str(below)!r}")
        return member_path

    def take_link(self, name: str, target: str) -> None:
        """Check a symbolic link."""
        link = self.take(name)
        check_link(name, target)
        self._links.add(link)

    def finish(self) -> None:
        if self._count == 0:
            raise UnsafeMemberError("the archive has no members")


def _check_tar(path: Path) -> None:
    members = _Members()
    for member, _stream in members_of_tar(path):
        if member.issym():
            members.take_link(member.name, member.linkname)
            continue
        members.take(member.name)
        if member.islnk():
            members.take(member.linkname)
        elif not (member.isreg() or member.isdir()):
            raise UnsafeMemberError(f"member {member.name!r} is neither a file, a folder nor a link")
    members.finish()


def _check_zip(path: Path) -> None:
    members, left = _Members(), unpacked_limit(path.stat().st_size)
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            is_link = stat.S_ISLNK(info.external_attr >> 16)
            with archive.open(info) as stream:
                target = stream.read(_LINK_BYTES) if is_link else b""
                while chunk := stream.read(_CHUNK_BYTES):
                    left -= len(chunk)
                    if left < 0:  # members may also share their bytes
                        raise zipfile.BadZipFile("unpacks to far more bytes than any archive of its size")
            if is_link:
                members.take_link(info.filename, target.decode(errors="surrogateescape"))
            else:
                members.take(info.filename)
    members.finish()


def _refused(path: Path, reason: str) -> IntegrityError:
    return IntegrityError(f"{path}: {reason}", hint=_HINT)
