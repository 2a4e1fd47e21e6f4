# SPDX-License-Identifier: BSD-3-Clause
"""Resolves a name beneath an open folder: by openat2 in one call, else part by part.

Linux resolves a name without links in one call, openat2 (since 5.6; openat2(2), RESOLVE_BENEATH). Where it has none, or
a sandbox forbids it, and for names with links, it is resolved part by part, each opened with O_NOFOLLOW.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_OPENAT2 = 437
"""The number of the system call, the same on every architecture."""
_RESOLVE_NO_MAGICLINKS, _RESOLVE_NO_SYMLINKS, _RESOLVE_BENEATH = 0x02, 0x04, 0x08
_NOT_THERE = frozenset({errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.E2BIG})
"""How a kernel without openat2, and sandboxes that do not know it, refuse it."""
_LINKS_LIMIT = 40
"""As many links as Linux itself follows in one path (path_resolution(7))."""
FOLDER_FLAGS = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
"""How a folder is opened that only names are resolved beneath."""


class _OpenHow(ctypes.Structure):
    """``struct open_how`` of openat2(2)."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_HOW_BYTES = ctypes.sizeof(_OpenHow)


@functools.cache
def _system_call() -> Callable[..., int]:
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    call.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)
    return call


@functools.cache
def _how(flags: int) -> tuple[_OpenHow, int]:
    """How to open names without links with these flags, and where in memory that stands."""
    how = _OpenHow(flags, 0, _RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS | _RESOLVE_NO_MAGICLINKS)
    return how, ctypes.addressof(how)


def _open_plainly(folder: int, name: str, flags: int) -> int | None:
    """Open a name without links by openat2; None if that is not available, or there is a link. Raises OSError."""
    descriptor = _system_call()(_OPENAT2, folder, os.fsencode(name), _how(flags)[1], _HOW_BYTES)
    if descriptor >= 0:
        return descriptor
    number = ctypes.get_errno()
    if number in _NOT_THERE or number in {errno.ELOOP, errno.EXDEV, errno.EAGAIN}:
        return None
    raise OSError(number, os.strerror(number), name)


class LinkError(OSError):
    """A symbolic link that is not followed; the text says why."""


def _open_by_parts(folder: int, name: str, flags: int) -> int:
    """Open a name part by part, following the links that the module allows. Raises OSError, LinkError."""
    stack, waiting, links, linked = [os.dup(folder)], _parts(name, linked=False), 0, False
    try:
        while waiting:
            part, linked = waiting.pop()
            if part == "..":
                os.close(stack.pop())
                if not stack:
                    raise LinkError(errno.EXDEV, "is a symbolic link out of the folder")
            elif linked and part.startswith("."):
                raise LinkError(errno.EXDEV, "is a symbolic link to a name that begins with a dot")
            elif (target := _link_at(stack[-1], part)) is not None:
                links += 1
                _check_link(target, links)
                waiting += _parts(target, linked=True)
            elif waiting:
                stack.append(os.open(part, FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=stack[-1]))
            else:
                return os.open(part, flags | os.O_NOFOLLOW, dir_fd=stack[-1])
        return os.open(".", flags, dir_fd=stack[-1])
    except FileNotFoundError:
        if linked:
            raise LinkError(errno.ENOENT, "is a symbolic link to something that does not exist") from None
        raise
    finally:
        for descriptor in stack:
            os.close(descriptor)


def _parts(name: str, *, linked: bool) -> list[tuple[str, bool]]:
    """The parts of a name, the last one first, each with whether a link named it."""
    return [(part, linked) for part in reversed(name.split("/")) if part not in {"", "."}]


def _link_at(folder: int, name: str) -> str | None:
    """Where the symbolic link of that name leads; None if it is none."""
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError as err:
        if err.errno == errno.EINVAL:
            return None
        raise


def _check_link(target: str, links: int) -> None:
    if links > _LINKS_LIMIT:
        raise LinkError(errno.ELOOP, "is a circular symbolic link")
    if target.startswith("/"):
        raise LinkError(errno.EXDEV, f"is a symbolic link to {target}, out of the folder")


def open_below(folder: int, name: str, flags: int) -> int:
    """A descriptor of ``name`` beneath the open folder. Raises OSError as os.open does, EXDEV for a link out of it."""
    if not name:
        return os.open(".", flags, dir_fd=folder)
    descriptor = _open_plainly(folder, name, flags)
    return _open_by_parts(folder, name, flags) if descriptor is None else descriptor
