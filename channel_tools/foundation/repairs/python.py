# SPDX-License-Identifier: BSD-3-Clause
"""Debian's python as a conda prefix's python.

Debian moves third-party modules to ``dist-packages`` and ``local/``, in files and inside the frozen ``site`` module of
the programs. Both are set back: text by text, and in the programs byte by byte, which works because ``site-packages``
is exactly as long.
"""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

from channel_tools.foundation.model import PREFIX_PLACEHOLDER
from channel_tools.foundation.repairs.layout import files_in, relative_to_tree, step_error

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.foundation.model import Repair, RepairContext

VERSION = 1
"""Raised with each change of what a step here makes of a tree."""

_DEBIAN_SITE, _SITE = b"dist-packages", b"site-packages"
# The first of site's folders, which tools take for the one to install into; as long, and the same folder as ``lib``
_DEBIAN_LOCAL, _LOCAL = b"local/lib", b"./././lib"
# A frozen module's own text: up to Python 3.11 compiled in, later marshalled, with its length before it
_FROZEN_LOCAL = re.compile(rb"(\0|[zZ]\t)local/lib(?=\0|[zZ])")
# Debian's own: modules of its policy, and extension modules whose libraries the foundation does not have
_DEBIAN_ONLY = (
    "lib/python{python}/EXTERNALLY-MANAGED",
    "lib/python{python}/_distutils_system_mod.py",
    "lib/python{python}/sitecustomize.py",
)
_DROPPED_MODULES = re.compile(
    r"lib/python[\d.]+/lib-dynload/(?:_test.*|_xxtest.*|xxlimited.*|_ctypes_test.*|nis|_dbm)\..*"
)
_HOST_PYTHON = re.compile(rb"#! ?/usr/(?:local/)?bin/python[\d.]*")
_ENSUREPIP_CHECK = "def _ensurepip_is_disabled_in_debian_for_system():\n"
_SCHEME_DEFAULT = "            prefix_scheme = 'posix_local'\n"
_BUILD_PATH = re.compile(r"/build/[^\s'\"]*")
# not below the prefix: programs that any host has, and the host's time zones
_HOST_WORDS = {"/usr/bin/install": "install", "/usr/bin/dtrace": "dtrace"}
_DISTUTILS_LOCAL = 'self.select_scheme("unix_local")'
_SCRIPT = """\
#!{prefix}/bin/python{python}
import {module}

if __name__ == "__main__":
    {module}.{function}()
"""


def prepare_python(tree: Path, context: RepairContext) -> None:
    """Before Debian's folders are flattened: the real pyconfig.h over the one that chooses by architecture."""
    include = tree / "usr" / "include"
    real = include / context.multiarch / f"python{context.python_version}" / "pyconfig.h"
    chooser = include / f"python{context.python_version}" / "pyconfig.h"
    if not (real.is_file() and chooser.is_file()):
        raise step_error(context, f"expected pyconfig.h in usr/include and in usr/include/{context.multiarch}")
    real.replace(chooser)
    shutil.rmtree(include / context.multiarch)
    wheels = tree / "usr" / "share" / "python-wheels"
    if not any(wheels.glob("pip-*.whl")):
        raise step_error(context, "expected pip's wheel in usr/share/python-wheels, for ensurepip and venv")


def relocate_python(tree: Path, context: RepairContext) -> None:
    """After flattening: ``site-packages`` again, no Debian policy, paths that follow the prefix."""
    library = tree / "lib" / f"python{context.python_version}"
    for name in _DEBIAN_ONLY:
        path = tree / name.format(python=context.python_version)
        if not path.exists() and not path.is_symlink() and path.name != "sitecustomize.py":
            raise step_error(context, f"expected {relative_to_tree(path, tree)}, which Debian adds")
        path.unlink(missing_ok=True)
    for path in list(files_in(tree)):
        if _DROPPED_MODULES.fullmatch(str(relative_to_tree(path, tree))):
            path.unlink()
    _fix_programs(tree, context)
    _fix_schemes(library, context)
    _fix_first_lines(library)
    _fix_sysconfig(library, context)
    _add_programs(tree, context)


def _fix_programs(tree: Path, context: RepairContext) -> None:
    """Replace the folders' names in the frozen modules."""
    python = context.python_version
    for name in (f"bin/python{python}", f"lib/libpython{python}.so.1.0"):
        content = (tree / name).read_bytes()
        if _DEBIAN_SITE not in content or len(_FROZEN_LOCAL.findall(content)) != 1:
            raise step_error(context, f"the site module frozen into {name} is not as expected")
        content = content.replace(_DEBIAN_SITE, _SITE)
        (tree / name).write_bytes(_FROZEN_LOCAL.sub(rb"\1" + _LOCAL, content))


def _fix_schemes(library: Path, context: RepairContext) -> None:
    """Where modules are installed: the prefix, in every description of it that the standard library has."""
    is_module = (library / "sysconfig.py").is_file()  # a package since Python 3.13
    sysconfig = library / "sysconfig.py" if is_module else library / "sysconfig" / "__init__.py"
    _replace(sysconfig, _SCHEME_DEFAULT, _SCHEME_DEFAULT.replace("local", "prefix"), context)
    if _has_distutils(context):
        local = _DISTUTILS_LOCAL
        _replace(library / "distutils" / "command" / "install.py", local, local.replace("local", "prefix"), context)
    _replace(library / "ensurepip" / "__init__.py", _ENSUREPIP_CHECK, _ENSUREPIP_CHECK + "    return\n", context)
    for name in ("site.py", "pydoc.py"):
        path = library / name
        content = path.read_bytes().replace(_DEBIAN_SITE, _SITE)
        path.write_bytes(content.replace(b'"' + _DEBIAN_LOCAL + b'"', b'"' + _LOCAL + b'"'))


def _has_distutils(context: RepairContext) -> bool:
    """Whether this Python has distutils, and 2to3 in a package of Debian's own: 3.12 has lost the one, 3.13 both."""
    return tuple(map(int, context.python_version.split("."))) < (3, 12)


def _fix_first_lines(library: Path) -> None:
    """Modules that are programs too start whatever python the user has first, as upstream has it."""
    for path in library.rglob("*.py"):
        content = path.read_bytes()
        if match := _HOST_PYTHON.match(content):
            path.write_bytes(b"#!/usr/bin/env python3" + content[match.end() :])


def _replace(path: Path, old: str, new: str, context: RepairContext) -> None:
    text = path.read_text(encoding="utf-8")
    if text.count(old) != 1:
        raise step_error(context, f"{path.name} holds {old.strip()!r} {text.count(old)} times, expected once")
    path.write_text(text.replace(old, new), encoding="utf-8")


def _fix_sysconfig(library: Path, context: RepairContext) -> None:
    """What python says about its own build: the prefix for /usr, plain tool names, no path of Debian's builders."""
    data = library / f"_sysconfigdata__{context.multiarch}.py"
    makefiles = sorted(library.glob("config-*/Makefile"))
    if not data.is_file() or len(makefiles) != 1:
        raise step_error(context, f"expected {data.name} and one config-*/Makefile")
    for path in (data, *makefiles):
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        path.write_text("".join(_relocatable(line, context) for line in lines), encoding="utf-8")


def _relocatable(line: str, context: RepairContext) -> str:
    if "zoneinfo" in line:
        return line
    for word, replacement in _HOST_WORDS.items():
        line = line.replace(word, replacement)
    line = _BUILD_PATH.sub(PREFIX_PLACEHOLDER, line.replace(f"{context.multiarch}-gcc", "gcc"))
    line = line.replace(f"{context.multiarch}-g++", "g++").replace(f"{context.multiarch}-", "")
    line = line.replace(f"/usr/lib/{context.multiarch}", f"{PREFIX_PLACEHOLDER}/lib")
    return re.sub(r"(?<![\w.])/usr\b", PREFIX_PLACEHOLDER, line)


def _add_programs(tree: Path, context: RepairContext) -> None:
    python = context.python_version
    for name in ("python", "python3"):
        (tree / "bin" / name).symlink_to(f"python{python}")
    programs = [("pydoc", "pydoc", "cli")]
    if _has_distutils(context):
        programs.append(("2to3", "lib2to3.main", "main"))
    for name, module, function in programs:
        script = tree / "bin" / f"{name}{python}" if name == "pydoc" else tree / "bin" / f"{name}-{python}"
        text = _SCRIPT.format(prefix=PREFIX_PLACEHOLDER, python=python, module=module, function=function)
        script.write_text(text, encoding="ascii")
        script.chmod(0o755)


STEPS: dict[str, Repair] = {
    "prepare_python": prepare_python,
    "relocate_python": relocate_python,
}
