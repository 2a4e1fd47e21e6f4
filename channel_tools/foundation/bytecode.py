# SPDX-License-Identifier: BSD-3-Clause
"""Byte code for the modules of packages that are for one Python, as conda-forge's packages have it.

Without it the first import in every new environment compiles, and every import where nothing may be written. The
foundation's own python compiles, so that the host's decides nothing; paths in the byte code are relative to the prefix,
and Python puts the module's real place there when it imports it.

A file holds its source's hash (PEP 552, checked): times of installed files are the client's affair, and a module that a
user edits is compiled anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from channel_tools.conda.metadata import PREFIX_PLACEHOLDER
from channel_tools.system.errors import FoundationError
from channel_tools.system.files import tree_files
from channel_tools.system.processes import run_command

if TYPE_CHECKING:
    from pathlib import Path

_PROGRAM = """\
import py_compile, sys
for name in sys.stdin.read().splitlines():
    try:
        py_compile.compile(name, doraise=True, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)
    except py_compile.PyCompileError:
        pass  # for another Python, or a template: fails when it is imported, as it does without byte code
"""


def compile_modules(tree: Path, compiler: Path, *, python: str) -> None:
    """Write byte code beside each module of ``python`` (major and minor) below ``tree`` that can be compiled.

    ``compiler`` is a prefix with the foundation's python and what that needs; python's own tree compiles itself, with
    the libraries there. Modules that hold the prefix placeholder stay alone: no client replaces it in byte code.
    Raises FoundationError when python does not run on this machine.
    """
    modules = [name for name in tree_files(tree) if name.startswith(f"lib/python{python}/") and name.endswith(".py")]
    plain = [name for name in modules if PREFIX_PLACEHOLDER.encode() not in (tree / name).read_bytes()]
    program = f"bin/python{python}"
    own = (tree / program).is_file()
    result = run_command(
        [(tree if own else compiler) / program, "-I", "-S", "-B", "-W", "ignore", "-c", _PROGRAM],
        cwd=tree,
        env={"LD_LIBRARY_PATH": str(compiler / "lib")},
        content="".join(f"{name}\n" for name in plain).encode(),
        check=False,
    )
    if result.returncode != 0:
        message = (
            f"the foundation's python does not run on this machine, so its modules are not compiled: {result.tail()}"
        )
        raise FoundationError(message, hint="make the foundation on a machine with the glibc that it is for, or newer")
