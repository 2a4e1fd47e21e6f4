# SPDX-License-Identifier: BSD-3-Clause
"""Folders that are compiled into programs and libraries: found below the prefix, wherever it is."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from channel_tools.conda.metadata import BINARY_PLACEHOLDER
from channel_tools.foundation.repairs import paths
from channel_tools.foundation.repairs.paths import place_openssl_settings, relocate_folders
from channel_tools.system.elf import read_elf_file
from channel_tools.system.errors import FoundationError
from channel_tools.system.processes import run_command
from tests.support.trees import make_tree
from tests.unit.foundation.elf_files import real_library
from tests.unit.foundation.repairs.trees import context

MESSAGE = b"\0Input data was truncated\0"
"""A message of msgspec's library: its code names it, so what it reads instead shows in the error that it raises."""
OPENED = b"/opt/demo/lib/plugins"
LIBRARY = f"lib/{real_library().name}"
DECODE = "import msgspec\ntry: msgspec.json.decode(b'{')\nexcept msgspec.DecodeError as err: print(err)"


def make_library(root: Path, text: bytes = OPENED, *, elsewhere: bytes = b"") -> Path:
    """A library that names ``text`` where it had its message; ``elsewhere`` is a string that nothing refers to."""
    content = real_library().read_bytes()
    assert content.count(MESSAGE) == 1
    content = content.replace(MESSAGE, b"\0" + text.ljust(len(MESSAGE) - 1, b"\0"))
    if elsewhere:
        documentation = b"\nmessage. Note that the underlying memory buffer"
        assert content.count(documentation) == 1
        content = content.replace(documentation, (b"\0" + elsewhere).ljust(len(documentation), b"\0"))
    path = root / LIBRARY
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    return path


@pytest.fixture(autouse=True)
def _folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "FOLDERS", {"demo": {"/opt/demo": "", "/etc/demo": "etc/demo"}})


def said_by(library: Path, folder: Path) -> str:
    """What a process says that reads the library's string."""
    package = shutil.copytree(real_library().parent, folder / "msgspec")
    shutil.copy(library, package / library.name)
    command = [sys.executable, "-B", "-I", "-c", f"import sys; sys.path.insert(0, {str(folder)!r})\n{DECODE}"]
    return run_command(command).stdout.strip()


def test_code_reads_a_folder_of_the_prefix(tmp_path: Path) -> None:
    library = make_library(tmp_path, elsewhere=b"built with --prefix=/etc/demo")
    rpaths = read_elf_file(library).rpaths
    assert said_by(library, tmp_path / "before") == OPENED.decode()
    relocate_folders(tmp_path, context("demo"))
    content = library.read_bytes()
    assert said_by(library, tmp_path / "after") == f"{BINARY_PLACEHOLDER}/lib/plugins"
    assert OPENED not in content
    assert read_elf_file(library).rpaths == (rpaths or ("$ORIGIN",))


def test_installation_writes_the_prefix_into_it(tmp_path: Path) -> None:
    library = make_library(tmp_path, elsewhere=b"--prefix=/etc/demo")
    relocate_folders(tmp_path, context("demo"))
    text = f"{BINARY_PLACEHOLDER}/lib/plugins\0".encode()
    content = library.read_bytes()
    assert content.count(text) == 1
    library.write_bytes(content.replace(text, b"/my/own/prefix/lib/plugins".ljust(len(text), b"\0")))
    assert said_by(library, tmp_path / "installed") == "/my/own/prefix/lib/plugins"


@pytest.mark.parametrize(
    ("text", "elsewhere", "problem"),
    [
        (OPENED, b"", "no program or library names /etc/demo"),
        (b"/opt/demonstration", b"--with=/etc/demo", "no program or library names /opt/demo"),
        (b"/mnt/opt/demo/lib", b"--with=/etc/demo", "no program or library names /opt/demo"),
        (OPENED, b"/etc/demo/settings", "nothing in lib/.* is seen to refer to /etc/demo/settings"),
    ],
    ids=["not-named", "longer-name", "deeper", "nothing-refers"],
)
def test_what_cannot_be_led_to_the_prefix_is_said(text: bytes, elsewhere: bytes, problem: str, tmp_path: Path) -> None:
    make_library(tmp_path, text, elsewhere=elsewhere)
    with pytest.raises(FoundationError, match=problem):
        relocate_folders(tmp_path, context("demo"))


def test_openssl_has_its_settings_beside_the_certificates(tmp_path: Path) -> None:
    make_tree(tmp_path, {"etc/ssl/openssl.cnf": "settings"})
    place_openssl_settings(tmp_path, context("openssl"))
    assert (tmp_path / "ssl" / "openssl.cnf").read_text() == "settings"
    with pytest.raises(FoundationError, match=r"expected etc/ssl/openssl\.cnf"):
        place_openssl_settings(tmp_path, context("openssl"))
