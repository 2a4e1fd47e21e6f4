# SPDX-License-Identifier: BSD-3-Clause
"""The script that installs this program from a bundle: it needs Python alone, and installs what it has the hashes of.

What it installs here is a small program; tests/integration/mirror/test_mirror.py has it install this one.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

import channel_tools.mirror
from channel_tools.mirror.exporting.extras import ToolWheel, bootstrap_script
from channel_tools.system.files import sha256_of_file
from channel_tools.system.work_folder import temporary_folder
from tests.support.processes import TEST_TIMEOUT_S
from tests.support.wheelhouse import repacked

TEMPLATE = Path(channel_tools.mirror.__file__).parent / "data" / "bootstrap.py"
HERE = f"{sys.version_info.major}.{sys.version_info.minor} {os.uname().machine}"
ENTRY_POINT = "[console_scripts]\nchannel_tools = toy:main\n"
PROGRAM = "import sys\n\n\ndef main():\n    print(sys.argv[1:])\n    sys.exit(7)\n"
"""Says how it was called, and ends with a code of its own."""


def test_it_needs_nothing_but_python() -> None:
    command = [sys.executable, "-I", "-S", "-c", f"import runpy; runpy.run_path({str(TEMPLATE)!r})"]
    assert subprocess.run(command, check=False, capture_output=True).returncode == 0


WAITING = f"""
import contextlib, runpy, sys
with contextlib.ExitStack() as stack:
    print(runpy.run_path({str(TEMPLATE)!r})["temporary_folder"](stack), flush=True)
    sys.stdin.read()
"""


def test_wheels_that_it_left_when_it_was_killed_are_removed_by_the_next_command(tmp_path: Path) -> None:
    command, environ = [sys.executable, "-c", WAITING], os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ) as process:
        assert process.stdout is not None
        left = Path(process.stdout.readline().strip())
        with temporary_folder(tmp_path):
            assert left.parent == tmp_path
            assert left.is_dir()
        process.kill()
        process.wait()
        with temporary_folder(tmp_path) as folder:
            assert list(tmp_path.iterdir()) == [folder]


def wheel(path: Path, members: Mapping[str, str], metadata: str = "") -> Path:
    name, version = path.name.split("-")[:2]
    info = f"{name}-{version}.dist-info"
    listed = {
        **members,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{metadata}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for member, text in listed.items():
            archive.writestr(member, text)
        archive.writestr(f"{info}/RECORD", "".join(f"{member},,\n" for member in (*listed, f"{info}/RECORD")))
    return path


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[ToolWheel]:
    """A program of the name, what it requires, and pip as it is installed here."""
    folder = tmp_path_factory.mktemp("wheels")
    program = {"toy.py": PROGRAM, "channel_tools-1.dist-info/entry_points.txt": ENTRY_POINT}
    own = wheel(folder / "channel_tools-1-py3-none-any.whl", program, "Requires-Dist: toydep\nProvides-Extra: s3\n")
    needed = wheel(folder / "toydep-1.0-py3-none-any.whl", {"toydep.py": ""})
    pip = repacked(importlib.metadata.distribution("pip"), folder)
    return [
        ToolWheel(requirement="channel-tools[s3]==1", path=own, sha256=sha256_of_file(own)),
        ToolWheel(requirement="toydep==1.0", path=needed, sha256=sha256_of_file(needed)),
        ToolWheel(requirement=f"pip=={pip.version}", path=folder / pip.file_name, sha256=pip.sha256),
    ]


@pytest.fixture
def bundle(tmp_path: Path, wheels: list[ToolWheel]) -> Path:
    """The part of a bundle that the script reads."""
    folder = tmp_path / "bundle"
    (folder / "tool").mkdir(parents=True)
    for one in wheels:
        shutil.copy(one.path, folder / "tool")
    (folder / "bootstrap.py").write_bytes(bootstrap_script({HERE: wheels}))
    return folder


def run(bundle: Path, *words: str, script: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The script as a user runs it, by default the one in the bundle, to install below ``destination``."""
    to = ("--root-sha256", "f" * 64, "--to", str(bundle.parent / "destination"))
    command = [sys.executable, "-I", str(script or bundle / "bootstrap.py"), *to, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=TEST_TIMEOUT_S)


@pytest.mark.slow
def test_the_installed_program_is_handed_the_bundle(tmp_path: Path, bundle: Path) -> None:
    result = run(bundle, "--venv", str(tmp_path / "venv"))
    assert result.returncode == 7, result.stderr
    words = ["mirror", "import", str(bundle), "--to", str(tmp_path / "destination"), "--root-sha256", "f" * 64]
    assert result.stdout == f"{words}\n"
    assert (tmp_path / "venv" / "bin" / "channel_tools").is_file()
    # a copy of conda's Python does not find its libpython
    assert (tmp_path / "venv" / "bin" / "python").samefile(sys._base_executable)  # type: ignore[attr-defined]


def test_a_wheel_that_differs_is_not_installed(tmp_path: Path, bundle: Path) -> None:
    """Not even a good one: the same name and version, and a program that does something else."""
    changed = {"toy.py": PROGRAM + "# more\n", "channel_tools-1.dist-info/entry_points.txt": ENTRY_POINT}
    wheel(bundle / "tool" / "channel_tools-1-py3-none-any.whl", changed, "Requires-Dist: toydep\nProvides-Extra: s3\n")
    result = run(bundle)
    assert result.returncode == 1
    assert result.stdout == ""
    assert "DO NOT MATCH THE HASHES" in result.stderr
    assert result.stderr.splitlines()[-1].endswith("pip did not install the wheels; its output is above")
    assert not (tmp_path / "destination" / "tool" / "venv" / "bin" / "channel_tools").exists()


def test_a_pip_that_differs_is_not_run(tmp_path: Path, bundle: Path, wheels: list[ToolWheel]) -> None:
    with zipfile.ZipFile(bundle / "tool" / wheels[-1].path.name, "w") as archive:
        archive.writestr("pip/__main__.py", f"open({str(tmp_path / 'proof')!r}, 'w')")
    refused(run(bundle), f"tool/{wheels[-1].path.name} is not the file with sha256 {wheels[-1].sha256}")
    assert not (tmp_path / "proof").exists()


def refused(result: subprocess.CompletedProcess[str], words: str) -> None:
    assert (result.returncode, result.stdout) == (1, "")
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_what_cannot_be_installed_is_one_line(tmp_path: Path, bundle: Path, wheels: list[ToolWheel]) -> None:
    refused(run(bundle, script=TEMPLATE), "this script is not from a bundle")
    (bundle / "bootstrap.py").write_bytes(bootstrap_script({"3.99 riscv64": wheels}))
    refused(run(bundle), f"for Python 3.99 riscv64; this is Python {HERE}")
    (bundle / "bootstrap.py").write_bytes(bootstrap_script({HERE: wheels}))
    (bundle / "tool" / "toydep-1.0-py3-none-any.whl").unlink()
    refused(run(bundle), "tool/toydep-1.0-py3-none-any.whl is not in the bundle; updates leave it out")
    (tmp_path / "bundle.tar").write_bytes(b"x" * 2000)
    refused(run(bundle, "--bundle", str(tmp_path / "bundle.tar")), "bundle.tar: damaged or unreadable")
    refused(run(bundle, "--bundle", str(tmp_path / "nowhere")), "nowhere: damaged or unreadable")
    assert not (tmp_path / "destination").exists()


def test_a_folder_with_something_else_is_left_alone(tmp_path: Path, bundle: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter").write_text("dear")
    refused(run(bundle, "--venv", str(tmp_path / "home")), "is not a virtual environment")
    assert (tmp_path / "home" / "letter").read_text() == "dear"
