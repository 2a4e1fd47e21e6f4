# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from channel_tools.foundation.model import PREFIX_PLACEHOLDER
from channel_tools.foundation.wheel import unpack_wheel, write_record
from channel_tools.system.errors import IntegrityError
from tests.unit.foundation.archives import write_wheel

if TYPE_CHECKING:
    from pathlib import Path

ENTRY_POINTS = "[console_scripts]\ndemo = demo.cli:main [extra]\nDemo2 = demo:Cls.run\n[other]\nx = y:z\n"
COMPILED = "cp311-cp311-manylinux_2_28_x86_64"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


def test_a_pure_wheel_becomes_a_noarch_tree(tmp_path: Path, root: Path) -> None:
    wheel = write_wheel(
        tmp_path,
        "demo",
        {
            "demo/__init__.py": "",
            "demo-1.0.data/scripts/run": "#!python\nprint(1)\n",
            "demo-1.0.data/data/share/x": "1",
        },
        entry_points=ENTRY_POINTS,
    )
    content = unpack_wheel(wheel, root, python="3.11")
    assert content.is_pure
    assert content.entry_points == ("Demo2 = demo:Cls.run", "demo = demo.cli:main")
    assert (root / "site-packages/demo/__init__.py").is_file()
    assert (root / "site-packages/demo-1.0.dist-info/INSTALLER").read_text() == "conda\n"
    assert (root / "python-scripts/run").read_text() == f"#!{PREFIX_PLACEHOLDER}/bin/python\nprint(1)\n"
    assert (root / "share/x").read_text() == "1"
    assert not (root / "bin").exists()


def test_a_compiled_wheel_gets_scripts_of_its_own(tmp_path: Path, root: Path) -> None:
    wheel = write_wheel(tmp_path, "demo", {"demo/x.so": b"\x7fELF"}, tag=COMPILED, entry_points=ENTRY_POINTS)
    content = unpack_wheel(wheel, root, python="3.11")
    assert content.entry_points == ()
    assert (root / "lib/python3.11/site-packages/demo/x.so").is_file()
    script = (root / "bin/Demo2").read_text()
    assert script.startswith(f"#!{PREFIX_PLACEHOLDER}/bin/python3.11\n")
    assert "from demo import Cls" in script
    assert "Cls.run()" in script
    assert (root / "bin/Demo2").stat().st_mode & 0o111


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"demo/__init__.py": "sha256=AAAA"}, r"demo/__init__\.py: RECORD says sha256=AAAA"),
        ({"demo/__init__.py": None}, r"demo/__init__\.py is not in RECORD"),
        ({"demo/__init__.py": ""}, r"demo/__init__\.py is not in RECORD, or without a hash"),
        ({"demo/__init__.py": "md5=AAAA"}, "expected sha256, sha384, sha512"),
    ],
    ids=["another-hash", "not-listed", "no-hash", "weak-hash"],
)
def test_a_file_that_record_does_not_vouch_for_is_refused(
    tmp_path: Path, root: Path, changes: dict[str, str | None], expected: str
) -> None:
    wheel = write_wheel(tmp_path, "demo", {"demo/__init__.py": "x = 1\n"}, record_changes=changes)
    with pytest.raises(IntegrityError, match=expected):
        unpack_wheel(wheel, root, python="3.11")


@pytest.mark.parametrize("name", ["../escape.py", "/etc/passwd", "demo/../../x.py"])
def test_a_member_that_would_leave_the_tree_is_refused(tmp_path: Path, root: Path, name: str) -> None:
    wheel = write_wheel(tmp_path, "demo", {name: "x"})
    with pytest.raises(IntegrityError, match="outside the folder"):
        unpack_wheel(wheel, root, python="3.11")


@pytest.mark.parametrize("share", [0.1, 0.5, 0.95])
def test_a_wheel_cut_short_is_an_integrity_error(tmp_path: Path, root: Path, share: float) -> None:
    wheel = write_wheel(tmp_path, "demo", {"demo/__init__.py": "x = 1\n" * 999})
    content = wheel.read_bytes()
    wheel.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(IntegrityError, match=r"demo-1\.0-py3-none-any\.whl: no complete wheel"):
        unpack_wheel(wheel, root, python="3.11")


def test_an_unknown_kind_of_data_is_refused(tmp_path: Path, root: Path) -> None:
    wheel = write_wheel(tmp_path, "demo", {"demo-1.0.data/secrets/x": "1"})
    with pytest.raises(IntegrityError, match=r"not contained in a valid \.data subdirectory"):
        unpack_wheel(wheel, root, python="3.11")


@pytest.mark.parametrize("name", ["demo-1.0.data", "demo-1.0.data/scripts", "./demo-1.0.data/scripts/x", "demo//a.py"])
def test_a_member_that_cannot_be_placed_is_refused(tmp_path: Path, root: Path, name: str) -> None:
    wheel = write_wheel(tmp_path, "demo", {name: "x"})
    with pytest.raises(IntegrityError, match=r"expected a folder of data|empty or dotted parts"):
        unpack_wheel(wheel, root, python="3.11")


def test_byte_code_stays_packed(tmp_path: Path, root: Path) -> None:
    wheel = write_wheel(tmp_path, "demo", {"demo/__init__.py": "", "demo/__pycache__/__init__.cpython-311.pyc": "x"})
    unpack_wheel(wheel, root, python="3.11")
    assert not (root / "site-packages/demo/__pycache__").exists()


@pytest.mark.parametrize(
    ("entry_points", "expected"),
    [("[console_scripts]\ndemo = no function\n", "not a valid wheel"), ("[console_scripts", "not a valid wheel")],
    ids=["entry", "file"],
)
def test_entry_points_that_name_no_function_are_refused(
    tmp_path: Path, root: Path, entry_points: str, expected: str
) -> None:
    wheel = write_wheel(tmp_path, "demo", {"demo.py": ""}, entry_points=entry_points)
    with pytest.raises(IntegrityError, match=expected):
        unpack_wheel(wheel, root, python="3.11")


def test_the_rewritten_record_lists_what_is_left(tmp_path: Path, root: Path) -> None:
    wheel = write_wheel(tmp_path, "demo", {"demo/a.py": "", "demo/b.py": ""})
    content = unpack_wheel(wheel, root, python="3.11")
    (root / "site-packages/demo/b.py").unlink()
    write_record(root, content.dist_info)
    listed = [line.split(",")[0] for line in (root / content.dist_info / "RECORD").read_text().splitlines()]
    assert "demo/a.py" in listed
    assert "demo/b.py" not in listed
    assert "demo-1.0.dist-info/INSTALLER" in listed
