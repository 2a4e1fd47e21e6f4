# SPDX-License-Identifier: BSD-3-Clause
"""The tutorials, typed as they stand: what takes no network and no minutes always, all of it where that is asked for.

All three are typed one after the other in one folder, since the second and third go on with what the first made.
"""

from __future__ import annotations

import ast
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.shell_blocks import ShellBlock, shell_blocks

pytestmark = [pytest.mark.integration, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
TUTORIALS = {name: ROOT / "docs" / "tutorials" / f"{name}.md" for name in ("site-engineer", "researcher", "air-gapped")}
_LIMIT_S = 3600
_NO_NETWORK = "without a network"


def blocks_of(name: str) -> list[ShellBlock]:
    return list(shell_blocks(TUTORIALS[name].read_text(encoding="utf-8")))


def typed(text: str, folder: Path, *, home: Path, before: tuple[str, ...] = (), limit_s: float = 120) -> str:
    """What a shell prints for these lines, which all have to succeed; the variable ``clone`` is this clone.

    Unset variables are no errors, as in users' shells: conda-pack's ``activate`` uses some.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CHANNEL_TOOLS_", "CONDA"))}
    environ = {
        **kept, "HOME": str(home), "clone": str(ROOT), "CHANNEL_TOOLS_CACHE": str(home / "cache"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }  # fmt: skip
    command = [*before, "bash", "-eo", "pipefail", "-c", text]
    result = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=limit_s
    )
    assert result.returncode == 0, f"{text}\n{result.stdout}\n{result.stderr}"
    return result.stdout


@pytest.mark.parametrize("name", TUTORIALS)
def test_every_line_is_one_for_a_shell(name: str) -> None:
    blocks = blocks_of(name)
    assert any(not block.heavy for block in blocks)
    for block in blocks:
        subprocess.run(["bash", "-n"], input=block.text, text=True, check=True)


def test_what_is_not_heavy_works_as_it_stands(tmp_path: Path) -> None:
    """A tree on this one, with a stack of its own; an update; keys. Nothing is fetched, solved or built."""
    text = "".join(block.text for block in blocks_of("site-engineer") if not block.heavy)
    said = typed(text, tmp_path, home=tmp_path)
    assert "torch-mpi" in said.partition("mysite: a tree")[2]
    assert "hello 1.0.0 -> 1.1" in said
    patched = tmp_path / "patched" / "torch_mpi"
    shutil.copytree(ROOT / "recipes" / "torch-mpi" / "src" / "torch_mpi", patched)
    (patch,) = (tmp_path / "mysite" / "patches" / "torch-mpi").iterdir()
    subprocess.run(["git", "apply", patch], cwd=patched.parent, check=True)
    assert "SITE = 'mysite'" in ast.unparse(ast.parse((patched / "__init__.py").read_text()))
    (script,) = [block.text for block in blocks_of("researcher") if not block.heavy]
    typed(script, tmp_path, home=tmp_path)
    compile((tmp_path / "train.py").read_text(), "train.py", "exec")
    typed("".join(block.text for block in blocks_of("air-gapped") if not block.heavy), tmp_path, home=tmp_path)
    assert len((tmp_path / "fingerprint").read_text().strip()) == 64


def test_all_of_it_works_as_it_stands(tmp_path: Path, without_network: tuple[str, ...]) -> None:
    """The ways of the site engineer, the researcher and the administrator, with the time that each took."""
    started = time.monotonic()
    path = 'export PATH="$PWD/tools/bin:$PATH"\n'
    text = "".join(block.text for block in blocks_of("site-engineer"))
    try:
        # the server goes on after the shell that started it
        typed(text + "\necho $! > ../server.pid\n", tmp_path, home=tmp_path, limit_s=_LIMIT_S)
        took = {"site-engineer": time.monotonic() - started}
        text = path + "".join(block.text for block in blocks_of("researcher"))
        said = typed(text, tmp_path, home=tmp_path, limit_s=_LIMIT_S)
        assert (tmp_path / "carried.txt").read_text() == "carried by MPI: 10 with mysite blue\n"
        assert "PASSED" in said
        assert (tmp_path / "carried-elsewhere.txt").read_text() == (tmp_path / "carried.txt").read_text()
        took["researcher"] = time.monotonic() - started - sum(took.values())
        for block in blocks_of("air-gapped"):
            before = without_network if _NO_NETWORK in block.heavy else ()
            typed(path + block.text, tmp_path, home=tmp_path, before=before, limit_s=_LIMIT_S)
        took["air-gapped"] = time.monotonic() - started - sum(took.values())
        installed = [path.name for path in (tmp_path / "inside-2" / "conda-meta").glob("hello-*")]
        assert min(installed).startswith("hello-1.2-")
    finally:
        if (tmp_path / "server.pid").is_file():
            os.kill(int((tmp_path / "server.pid").read_text()), signal.SIGTERM)
    sys.stderr.write(f"seconds: {took}\n")
