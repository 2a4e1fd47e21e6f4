# SPDX-License-Identifier: BSD-3-Clause
"""The commands of the pages on environments after the first day, as they stand."""

from __future__ import annotations

import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.integration.conftest import ROOT
from tests.support.processes import TEST_TIMEOUT_S
from tests.support.programs import program
from tests.support.shell_blocks import shell_blocks

pytestmark = [pytest.mark.integration, pytest.mark.slow]
_WHEEL = "transformers-1.0-py3-none-any.whl"


def commands(page: str) -> str:
    """What a page has to type, but for stacks that the channel of these tests lacks."""
    blocks = shell_blocks((ROOT / "docs/how-to" / page).read_text(encoding="utf-8"))
    lines = [line for block in blocks for line in block.text.splitlines() if "cray-mpich" not in line]
    assert lines
    return "\n".join(["set -e", *lines, ""])


def typed(script: str, home: Path, channel: Path, **variables: str) -> str:
    environ = {
        **os.environ,
        "HOME": str(home),
        "CHANNEL_TOOLS_ROOT": str(ROOT),
        "CHANNEL_TOOLS_OUTPUT": str(home / "output"),
        **variables,
    }
    (home / "output").mkdir(exist_ok=True)
    if not (home / "output/channel").exists():
        (home / "output/channel").symlink_to(channel)
    done = subprocess.run(
        ["bash", "-c", script], cwd=home, env=environ, capture_output=True, text=True, check=False,
        timeout=TEST_TIMEOUT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_an_environment_is_changed_described_and_made_again(tmp_path: Path, stack_channel: Path) -> None:
    said = typed(commands("environments.md"), tmp_path, stack_channel)
    assert "wrote: conda-lock.yml" in said
    typed(commands("paper.md"), tmp_path, stack_channel)
    records = [
        sorted(path.name for path in tmp_path.glob(f"envs/{name}/conda-meta/*.json")) for name in ("job", "again")
    ]
    assert records[0] == records[1] != []


def test_pip_keeps_our_torch(tmp_path: Path, stack_channel: Path) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    with zipfile.ZipFile(wheels / _WHEEL, "w") as wheel:
        folder = "transformers-1.0.dist-info"
        wheel.writestr(
            f"{folder}/METADATA", "Metadata-Version: 2.1\nName: transformers\nVersion: 1.0\nRequires-Dist: torch\n"
        )
        wheel.writestr(
            f"{folder}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{folder}/RECORD", "")
        wheel.writestr("transformers.py", "")
    typed("channel_tools env create ~/envs/job --variant udp", tmp_path, stack_channel)
    pip = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels), "PIP_CONFIG_FILE": os.devnull}
    script = commands("pip.md")
    lost = "rm -r ~/envs/job/lib/python3*/site-packages/torch-*.dist-info"
    script = script.replace("channel_tools doctor", f"{lost}\nchannel_tools doctor").replace(
        "doctor ~/envs/job", "doctor ~/envs/job || true"
    )
    refused = "python -m pip install torch==2.5 2>&1 | grep 'user requested (constraint) torch=='"
    more = f"{refused}\nchannel_tools env list ~/envs/job"
    said = typed(script + more, tmp_path, stack_channel, **pip)
    assert [line.split()[:4] for line in said.splitlines() if "pypi_0" in line] == [
        ["transformers", "1.0", "pypi_0", "pypi"]
    ]


def test_an_image_is_made_validated_and_used(tmp_path: Path, stack_channel: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\nprint(torch.__file__)\n")
    programs = {
        "CHANNEL_TOOLS_MKSQUASHFS": program("mksquashfs"),
        "CHANNEL_TOOLS_UNSQUASHFS": program("unsquashfs"),
        "PATH": f"{Path(program('mount')).parent}:{os.environ['PATH']}",
    }
    if os.geteuid() != 0:
        pytest.skip("the kernel mounts images only for root")
    said = typed(commands("image.md"), tmp_path, stack_channel, **programs)
    assert "PASSED" in said
    assert said.count(f"{tmp_path}/mnt/lib/python3") == 2
    assert list((tmp_path / "mnt").iterdir()) == []


def test_the_wheel_is_made_and_installed_with_what_environments_need(tmp_path: Path, stack_channel: Path) -> None:
    (lines,) = [text for text in shell_blocks((ROOT / "docs/how-to/get.md").read_text()) if "pip wheel" in text.text]
    script = f"""\
set -e
python -m venv --system-site-packages ~/own
python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > ~/own/lib/python3.11/site-packages/deps.pth
git clone --quiet {ROOT} ~/clone && cd ~/clone && . ~/own/bin/activate
{lines.text}
cd && ~/own/bin/python -P -c 'import channel_tools; print(channel_tools.__file__)'
"""
    said = typed(script, tmp_path, stack_channel)
    assert said.splitlines()[-1].startswith(str(tmp_path / "own"))
