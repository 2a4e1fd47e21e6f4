# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from channel_tools.foundation.model import PREFIX_PLACEHOLDER
from channel_tools.foundation.repairs.python import prepare_python, relocate_python
from channel_tools.system.errors import FoundationError
from tests.support.trees import make_tree
from tests.unit.foundation.repairs.trees import MULTIARCH, context

if TYPE_CHECKING:
    from pathlib import Path

LIBRARY = "lib/python3.11"
FROZEN = b"\x7fELF\0local/lib\0dist-packages\0end of /usr/local/lib/x"
SYSCONFIGDATA = f"""\
build_time_vars = {{'CC': '{MULTIARCH}-gcc',
 'CXX': '{MULTIARCH}-g++',
 'AR': '{MULTIARCH}-gcc-ar',
 'INSTALL': '/usr/bin/install -c',
 'LIBDIR': '/usr/lib/{MULTIARCH}',
 'MULTIARCH': '{MULTIARCH}',
 'TZPATH': '/usr/share/zoneinfo:/etc/zoneinfo',
 'WASM': './usr',
 'abs_builddir': '/build/reproducible-path/python3.11-3.11.2/build-shared',
 'prefix': '/usr'}}
"""


def make_python(root: Path) -> Path:
    """Debian's python after its folders were flattened, in small."""
    return make_tree(
        root,
        {
            "bin/python3.11": FROZEN,
            "lib/libpython3.11.so.1.0": FROZEN,
            f"{LIBRARY}/EXTERNALLY-MANAGED": "",
            f"{LIBRARY}/_distutils_system_mod.py": "",
            f"{LIBRARY}/site.py": 'join("local/lib", "dist-packages")',
            f"{LIBRARY}/pydoc.py": "dist-packages",
            f"{LIBRARY}/uu.py": "#! /usr/bin/python3.11\nimport x\n",
            f"{LIBRARY}/sysconfig.py": "        else:\n            prefix_scheme = 'posix_local'\n",
            f"{LIBRARY}/distutils/command/install.py": 'self.select_scheme("unix_local")\n',
            f"{LIBRARY}/ensurepip/__init__.py": (
                "def _ensurepip_is_disabled_in_debian_for_system():\n    print('no')\n"
            ),
            f"{LIBRARY}/_sysconfigdata__{MULTIARCH}.py": SYSCONFIGDATA,
            f"{LIBRARY}/config-3.11-{MULTIARCH}/Makefile": "prefix=\t/usr\n",
            f"{LIBRARY}/lib-dynload/nis.cpython-311.so": b"\x7fELF",
            f"{LIBRARY}/lib-dynload/_testcapi.cpython-311.so": b"\x7fELF",
            f"{LIBRARY}/lib-dynload/_ssl.cpython-311.so": b"\x7fELF",
        },
    )


@pytest.fixture
def flattened(tmp_path: Path) -> Path:
    return make_python(tmp_path)


def test_the_frozen_site_module_names_site_packages_and_keeps_its_length(flattened: Path) -> None:
    relocate_python(flattened, context("python"))
    for name in ("bin/python3.11", "lib/libpython3.11.so.1.0"):
        content = (flattened / name).read_bytes()
        assert len(content) == len(FROZEN)
        assert content == b"\x7fELF\0./././lib\0site-packages\0end of /usr/local/lib/x"


def test_modules_install_into_the_prefix(flattened: Path) -> None:
    relocate_python(flattened, context("python"))
    library = flattened / LIBRARY
    assert "prefix_scheme = 'posix_prefix'" in (library / "sysconfig.py").read_text()
    assert (library / "distutils/command/install.py").read_text() == 'self.select_scheme("unix_prefix")\n'
    assert (library / "site.py").read_text() == 'join("./././lib", "site-packages")'
    assert "    return\n" in (library / "ensurepip/__init__.py").read_text()


def test_what_python_says_of_its_build_follows_the_prefix(flattened: Path) -> None:
    relocate_python(flattened, context("python"))
    scope: dict[str, dict[str, str]] = {}
    exec((flattened / LIBRARY / f"_sysconfigdata__{MULTIARCH}.py").read_text(), scope)  # noqa: S102 - our own text
    assert scope["build_time_vars"] == {
        "CC": "gcc",
        "CXX": "g++",
        "AR": "gcc-ar",
        "INSTALL": "install -c",
        "LIBDIR": f"{PREFIX_PLACEHOLDER}/lib",
        "MULTIARCH": MULTIARCH,
        "TZPATH": "/usr/share/zoneinfo:/etc/zoneinfo",
        "WASM": "./usr",
        "abs_builddir": PREFIX_PLACEHOLDER,
        "prefix": PREFIX_PLACEHOLDER,
    }


def test_debians_own_and_what_lacks_its_libraries_go(flattened: Path) -> None:
    relocate_python(flattened, context("python"))
    left = {path.name for path in (flattened / LIBRARY).rglob("*")}
    assert "_ssl.cpython-311.so" in left
    assert not left & {
        "EXTERNALLY-MANAGED",
        "_distutils_system_mod.py",
        "nis.cpython-311.so",
        "_testcapi.cpython-311.so",
    }


def test_programs_start_the_prefixs_python(flattened: Path) -> None:
    relocate_python(flattened, context("python"))
    assert (flattened / "bin/python").readlink().as_posix() == "python3.11"
    assert (flattened / "bin/pydoc3.11").read_text().startswith(f"#!{PREFIX_PLACEHOLDER}/bin/python3.11\n")
    assert (flattened / LIBRARY / "uu.py").read_text() == "#!/usr/bin/env python3\nimport x\n"


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("bin/python3.11", b"\x7fELF", "frozen into bin/python3.11 is not as expected"),
        (f"{LIBRARY}/sysconfig.py", b"", r"sysconfig\.py holds .* 0 times"),
        (f"{LIBRARY}/EXTERNALLY-MANAGED", None, "expected lib/python3.11/EXTERNALLY-MANAGED"),
    ],
)
def test_a_python_of_another_shape_is_an_error(
    flattened: Path, name: str, content: bytes | None, expected: str
) -> None:
    (flattened / name).unlink() if content is None else (flattened / name).write_bytes(content)
    with pytest.raises(FoundationError, match=expected):
        relocate_python(flattened, context("python"))


def test_the_real_pyconfig_takes_the_place_of_the_chooser(tmp_path: Path) -> None:
    make_tree(
        tmp_path,
        {
            "usr/include/python3.11/pyconfig.h": "chooser",
            f"usr/include/{MULTIARCH}/python3.11/pyconfig.h": "real",
            "usr/share/python-wheels/pip-23-py3-none-any.whl": b"",
        },
    )
    prepare_python(tmp_path, context("python"))
    assert (tmp_path / "usr/include/python3.11/pyconfig.h").read_text() == "real"
    assert not (tmp_path / "usr/include" / MULTIARCH).exists()


def test_a_python_without_wheels_for_venv_is_an_error(tmp_path: Path) -> None:
    make_tree(
        tmp_path,
        {
            "usr/include/python3.11/pyconfig.h": "",
            f"usr/include/{MULTIARCH}/python3.11/pyconfig.h": "",
        },
    )
    with pytest.raises(FoundationError, match="expected pip's wheel"):
        prepare_python(tmp_path, context("python"))
