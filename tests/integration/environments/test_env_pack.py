# SPDX-License-Identifier: BSD-3-Clause
"""``env pack``: an environment as one file, unpacked where there is no conda, no Python and no network."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from channel_tools.environments import create_environment
from channel_tools.system.progress import SilentProgress
from channel_tools.system.settings import Settings
from tests.support.command_line import run_tool
from tests.support.programs import in_namespaces, program
from tests.support.stacks import SUBDIR

pytestmark = pytest.mark.integration
_LIMIT_S = 300
PROGRAMS = ("bash", "basename", "dirname", "env", "gzip", "ls", "mkdir", "tar")
# every C program of a machine has them, and a loader finds what is beside a program by /proc
C_LIBRARY = ("libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1", "libresolv.so.2")
IN_THE_ROOT = """
mount=$1 root=$2
"$mount" --rbind /proc "$root/proc"
"$mount" --rbind /dev "$root/dev"
exec env -i PATH=/bin "$3" "$root" /bin/bash -ec "$4"
"""
UNPACKS = """
mkdir -p /opt/elsewhere
tar -xzf /env.tar.gz -C /opt/elsewhere
. /opt/elsewhere/bin/activate
conda-unpack
python -c 'import json, ssl, sysconfig; print(sysconfig.get_path("stdlib"))'
"""


def test_a_packed_environment_works_where_nothing_else_is(
    tmp_path: Path, own_settings: Settings, stack_channel: Path
) -> None:
    alone, mount = in_namespaces("net", "mount"), program("mount")
    prefix, root = tmp_path / "made here", tmp_path / "root"
    asyncio.run(create_environment(
        prefix, ["python"], [str(stack_channel)],
        package_cache=own_settings.package_cache, subdir=SUBDIR, progress=SilentProgress(),
    ))  # fmt: skip
    root.mkdir()
    packed = run_tool("env", "pack", prefix, "-o", root / "env.tar.gz", cwd=tmp_path, environ=os.environ)
    assert packed.returncode == 0, packed.stderr
    _copy_programs(root)
    shutil.rmtree(prefix)
    chroot = shutil.which("chroot", path="/usr/sbin:/sbin:/usr/bin:/bin") or "chroot"
    result = subprocess.run(
        [*alone, "bash", "-ec", IN_THE_ROOT, "bash", mount, root, chroot, UNPACKS],
        capture_output=True, text=True, check=False, timeout=_LIMIT_S,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("/opt/elsewhere/lib/python3.")


def _copy_programs(root: Path) -> None:
    """A folder to change the root to, with a shell, tar and gzip, what these load, and nothing else."""
    for name in PROGRAMS:
        path = shutil.which(name, path="/usr/bin:/bin")
        assert path is not None, name
        (root / "bin").mkdir(exist_ok=True)
        shutil.copy(path, root / "bin" / name)
        listed = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
        for word in listed.split():
            beside = [Path(word).with_name(one) for one in C_LIBRARY] if "/libc.so" in word else []
            for file in [Path(word), *beside] if word.startswith("/") else []:
                target = root / str(file).lstrip("/")
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, target)
    (root / "proc").mkdir()
    (root / "dev").mkdir()
    (root / "usr" / "bin").mkdir(parents=True)
    (root / "usr" / "bin" / "env").symlink_to("/bin/env")
