# SPDX-License-Identifier: BSD-3-Clause
"""Modules compiled by a python in a prefix: a script that starts this one's."""

from __future__ import annotations

import importlib.util
import marshal
import sys
from pathlib import Path
from types import CodeType

import pytest

from channel_tools.conda.metadata import PREFIX_PLACEHOLDER
from channel_tools.foundation.bytecode import compile_modules
from channel_tools.system.errors import FoundationError
from tests.support.trees import make_tree

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
STARTS_THIS_PYTHON = f'#!/bin/sh\nexec {sys.executable} "$@"\n'
SITE = f"lib/python{PYTHON}/site-packages"
MODULE = "def double(x):\n    return 2 * x if x in {'a', 'b', 'c'} else x\n"
CHECKED_HASH = 0b11
"""The flags of PEP 552."""


@pytest.fixture
def compiler(tmp_path: Path) -> Path:
    return _with_python(tmp_path / "compiler")


def _with_python(prefix: Path) -> Path:
    make_tree(prefix, {f"bin/python{PYTHON}": STARTS_THIS_PYTHON})
    (prefix / "bin" / f"python{PYTHON}").chmod(0o755)
    return prefix


def _compiled(tree: Path, compiler: Path) -> dict[str, bytes]:
    """The byte code after compiling, by the names of its modules' files."""
    compile_modules(tree, compiler, python=PYTHON)
    tag = sys.implementation.cache_tag
    return {path.name.removesuffix(f".{tag}.pyc"): path.read_bytes() for path in tree.rglob("__pycache__/*")}


def test_byte_code_holds_the_hash_of_its_source_and_no_path_of_the_machine(tmp_path: Path, compiler: Path) -> None:
    tree = make_tree(tmp_path / "tree", {f"{SITE}/demo.py": MODULE, "share/other.py": MODULE})
    compiled = _compiled(tree, compiler)
    assert list(compiled) == ["demo"]
    content = compiled["demo"]
    assert content[:4] == importlib.util.MAGIC_NUMBER
    assert int.from_bytes(content[4:8], "little") == CHECKED_HASH
    assert content[8:16] == importlib.util.source_hash(MODULE.encode())
    code = marshal.loads(content[16:])  # noqa: S302 - written by this test
    assert isinstance(code, CodeType)
    assert code.co_filename == f"{SITE}/demo.py"


def test_the_same_modules_give_the_same_bytes_wherever_they_are_compiled(tmp_path: Path, compiler: Path) -> None:
    files: dict[str, str | bytes] = {f"{SITE}/demo.py": MODULE, f"{SITE}/pack/__init__.py": "import demo\n"}
    first = _compiled(make_tree(tmp_path / "one", files), compiler)
    again = _compiled(make_tree(tmp_path / "another" / "and deeper", files), compiler)
    assert first.keys() == {"demo", "__init__"}
    assert first == again


def test_what_is_of_another_python_or_names_the_prefix_stays_alone(tmp_path: Path, compiler: Path) -> None:
    names = {"demo": MODULE, "template": "def {{ name }}(): pass\n", "data": f"prefix = '{PREFIX_PLACEHOLDER}'\n"}
    tree = make_tree(tmp_path / "tree", {f"{SITE}/{name}.py": text for name, text in names.items()})
    assert list(_compiled(tree, compiler)) == ["demo"]


def test_pythons_own_tree_compiles_itself(tmp_path: Path) -> None:
    tree = _with_python(make_tree(tmp_path / "tree", {f"lib/python{PYTHON}/demo.py": MODULE}))
    assert list(_compiled(tree, tmp_path / "libraries")) == ["demo"]


def test_a_python_that_does_not_run_is_an_error(tmp_path: Path, compiler: Path) -> None:
    tree = make_tree(tmp_path / "tree", {f"{SITE}/demo.py": MODULE})
    (compiler / "bin" / f"python{PYTHON}").write_text("#!/bin/sh\necho no such glibc >&2\nexit 1\n")
    with pytest.raises(FoundationError, match="no such glibc"):
        _compiled(tree, compiler)
