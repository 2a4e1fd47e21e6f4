# SPDX-License-Identifier: BSD-3-Clause
"""Absolute paths in the strings of an ELF file: what it opens on the machine, beside its prefix.

A library that another machine's build configured with ``/opt/vendor`` looks for plugins and settings there, wherever it
is installed: whoever can write there runs code in every process that loads it. Paths of the operating system that
every program may name are left out, and so are names of source files, which only messages have.
"""

from __future__ import annotations

import fnmatch
import io
import mmap
import posixpath
import re
from typing import TYPE_CHECKING, BinaryIO, Literal

from channel_tools.audit.model import Occurrence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import Section

Owner = Literal["system", "site", "host"]

_ALLOCATED, _EXECUTABLE = 2, 4
_DEVICE_CODE = frozenset({".nv_fatbin", "__nv_relfatbin", ".hip_fatbin"})
"""Sections of gigabytes that the processor never reads strings from."""
_PATH = re.compile(rb"(?<![^\0:;=])/[\w.][\w.+@%~*?{}$,/-]*(?=[\0:;\s]|\Z)")
"""A path that is a whole string, an element of a list of paths, the value of a setting, or a command's program."""
_SOURCE = re.compile(
    r".*/\.cargo/registry/src/.*|.*\.(?:[chSs]|cc|cpp|cxx|cu|cuh|c\+\+|hh|hpp|hxx|inc|inl|ipp|tcc|rs|go|py|pyx|f|f90|proto|def)$"
)

_SYSTEM_FOLDERS = (
    *("/dev", "/proc", "/sys", "/run", "/var/run", "/tmp", "/var/tmp", "/usr/tmp"),  # noqa: S108 - names, not used
    *("/bin", "/sbin", "/usr/bin", "/usr/sbin"),
    *("/usr/share/locale", "/usr/share/terminfo", "/usr/share/zoneinfo", "/usr/lib/debug", "/usr/lib64/debug"),
)
_SYSTEM_FILES = (
    *("/usr", "/usr/local/bin", "/usr/local/sbin", "/usr/lib/os-release", "/usr/lib/sendmail"),
    *("/etc", "/home", "/lib", "/lib64", "/libx32", "/opt", "/root", "/usr/lib", "/usr/lib32", "/usr/lib64", "/var"),
    *("/lib/ld*.so.*", "/lib64/ld*.so.*", "/libx32/ld*.so.*", "/usr/lib*/ld*.so.*"),
    *("/etc/fstab", "/etc/group", "/etc/host.conf", "/etc/hostname", "/etc/hosts", "/etc/inputrc", "/etc/ld.so.c*"),
    *("/etc/localtime", "/etc/machine-id", "/etc/mtab", "/etc/networks", "/etc/nsswitch.conf", "/etc/os-release"),
    *("/etc/passwd", "/etc/protocols", "/etc/resolv.conf", "/etc/rpc", "/etc/services", "/etc/shells"),
    *("/etc/svc.conf", "/etc/terminfo", "/etc/timezone", "/etc/zoneinfo"),
)
_SITE = re.compile(
    r"/(?:opt|home|root|srv|mnt|media|export|sw|nfs|gpfs|lustre|cvmfs|scratch)/.|/usr/(?:local|etc)(?:/|$)"
    # plugins and programs of one library in the system's folders: what it loads is not what it was built with
    r"|/usr/lib(?:exec|32|64|x32)?/(?!\w+-linux-gnu\w*(?:/[^/]*\.so[^/]*)?$|[^/]*\.so)."
)
_HOST = re.compile(r"/(?:boot|etc|lib|lib32|lib64|usr|var)/.")


def elf_paths(content: BinaryIO, elf: ELFFile, *, own: Sequence[str]) -> Iterator[Occurrence]:
    """The paths of the machine in a file's strings, each once, by offset; not those of the prefixes ``own``."""
    buffer: memoryview | mmap.mmap
    if isinstance(content, io.BytesIO):
        buffer = content.getbuffer()
    else:
        buffer = mmap.mmap(content.fileno(), 0, access=mmap.ACCESS_READ)
    with buffer:
        found: dict[str, int] = {}
        for section in _sections_with_strings(elf):
            start = section["sh_offset"]
            for match in _PATH.finditer(buffer, start, start + section["sh_size"]):
                found.setdefault(match[0].decode(errors="replace"), match.start())
    for text, offset in sorted(found.items(), key=lambda item: item[1]):
        if not _is_own(text, own) and owner_of(text) in {"site", "host"}:
            yield Occurrence(text=text, offset=offset)


def _sections_with_strings(elf: ELFFile) -> Iterator[Section]:
    for section in elf.iter_sections("SHT_PROGBITS"):
        flags = section["sh_flags"]
        if flags & _ALLOCATED and not flags & _EXECUTABLE and section.name not in _DEVICE_CODE:
            yield section


def _is_own(text: str, own: Iterable[str]) -> bool:
    return any(text == prefix or text.startswith(f"{prefix.rstrip('/')}/") for prefix in own)


def owner_of(path: str) -> Owner | None:
    """Whose a path is: every system's, a site's (code and settings are loaded from there) or else the host's.

    None for what is no path of a machine: ``/CMakeFiles``, the end of a longer name.

    >>> owner_of("/opt/vendor/lib/plugins"), owner_of("/etc/vendor.conf"), owner_of("/etc/hosts")
    ('site', 'host', 'system')
    """
    path = posixpath.normpath(path)
    if _SOURCE.match(path) or any(fnmatch.fnmatchcase(path, pattern) for pattern in _SYSTEM_FILES):
        return "system"
    if any(path == folder or path.startswith(f"{folder}/") for folder in _SYSTEM_FOLDERS):
        return "system"
    if _SITE.match(path):
        return "site"
    return "host" if _HOST.match(path) else None
