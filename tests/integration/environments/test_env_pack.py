# SPDX-License-Identifier: BSD-3-Clause
"""``env pack``: an environment as one file, unpacked where there is no conda, no Python and no network."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from channel_tools.environments import create_environment
from channel_tools.system.processes import run_command
from channel_tools.system.progress import SilentProgress
from channel_tools.system.settings import Settings
from tests.integration.conftest import ROOT
from tests.support.command_line import run_tool
from tests.support.programs import in_namespaces, program
from tests.support.stacks import SUBDIR
from tests.support.switch import SUM_SCRIPT, SUMMED_BY_TWO

pytestmark = [pytest.mark.integration, pytest.mark.slow]
_LIMIT_S = 300
PROGRAMS = ("bash", "basename", "dirname", "env", "ls", "mkdir", "tar")
# every C program of a machine has them, and a loader finds what is beside a program by /proc
C_LIBRARY = ("libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1", "libresolv.so.2")
IN_THE_ROOT = """
ip=$1 mount=$2 chroot=$3 root=$4
"$ip" link set lo up
"$mount" --rbind /proc "$root/proc"
"$mount" --rbind /dev "$root/dev"
exec env -i PATH=/bin "$chroot" "$root" /bin/bash -ec "$5"
"""
UNPACKS = """
mkdir -p /opt/elsewhere /tmp
tar -xf /env.tar -C /opt/elsewhere
. /opt/elsewhere/bin/activate
conda-unpack
"""
RANKS = (
    UNPACKS
    + """
coproc switchml-switch --address 127.0.0.1
trap 'kill $(jobs -p)' EXIT
read -r ready <&"${COPROC[0]}"
ready=${ready#*'"controller": "'}
export SWITCHML_CONTROLLER=${ready%%'"'*} SWITCHML_HOST_REDUCTION=off GLOO_SOCKET_IFNAME=lo
export MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 WORLD_SIZE=2
RANK=0 python /script.py & first=$!
RANK=1 python /script.py
wait $first
"""
)


def test_a_packed_environment_works_where_nothing_else_is(
    tmp_path: Path, own_settings: Settings, stack_channel: Path
) -> None:
    in_namespaces("net", "mount")
    prefix, root = tmp_path / "made here", tmp_path / "root"
    asyncio.run(create_environment(
        prefix, ["python"], [str(stack_channel)],
        package_cache=own_settings.package_cache, subdir=SUBDIR, progress=SilentProgress(),
    ))  # fmt: skip
    script = UNPACKS + "python -c 'import json, ssl, sysconfig; print(sysconfig.get_path(\"stdlib\"))'"
    assert _in_bare_root(prefix, root, script).startswith("/opt/elsewhere/lib/python3.")


def test_a_packed_stack_carries_allreduces_where_nothing_else_is(tmp_path: Path, stack_channel: Path) -> None:
    in_namespaces("net", "mount")
    prefix, root = tmp_path / "made here", tmp_path / "root"
    words = ("env", "create", prefix, "--variant", "udp", "--channel", stack_channel)
    created = run_tool(*words, cwd=tmp_path, environ=os.environ)
    assert created.returncode == 0, created.stderr
    root.mkdir()
    (root / "script.py").write_text(SUM_SCRIPT)
    assert _in_bare_root(prefix, root, RANKS).splitlines() == SUMMED_BY_TWO


def test_the_containerfile_of_the_page_makes_an_image_that_runs(tmp_path: Path, stack_channel: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("buildah as it is called here needs root")
    page = (ROOT / "docs/how-to/container.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"^```dockerfile\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (base,) = re.findall(r"^FROM (.*)$", text, re.MULTILINE)
    (tmp_path / "Containerfile").write_text(text)
    prefix, root = tmp_path / "made here", tmp_path / "root"
    root.mkdir()
    _copy_programs(root)
    (root / "bin" / "sh").symlink_to("bash")
    (root / "script.py").write_text("import sys, torch, torch_switchml\nprint(sys.prefix, torch.ones(3).sum())\n")
    for words in (
        ("env", "create", prefix, "--variant", "udp", "--channel", stack_channel),
        ("env", "pack", prefix, "-o", tmp_path / "udp.tar.gz"),
    ):
        done = run_tool(*words, cwd=tmp_path, environ=os.environ)
        assert done.returncode == 0, done.stderr
    shutil.rmtree(prefix)
    (tmp_path / "registries.conf").write_text("unqualified-search-registries = []\n")
    variables = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "TMPDIR": str(tmp_path),
        "STORAGE_DRIVER": "vfs",
        "BUILDAH_ISOLATION": "chroot",
        "CONTAINERS_REGISTRIES_CONF": str(tmp_path / "registries.conf"),
    }

    def buildah(*words: str | Path) -> str:
        places = ("--root", str(tmp_path / "images"), "--runroot", str(tmp_path / "running"))
        command = ("unshare", "--mount", program("buildah"), *places, *map(str, words))
        return run_command(command, cwd=tmp_path, env=variables, timeout_s=_LIMIT_S).stdout.strip()

    scratch = buildah("from", "scratch")
    buildah("add", scratch, root, "/")
    allowed = ("--signature-policy", tmp_path / "policy.json")
    (tmp_path / "policy.json").write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
    buildah("commit", *allowed, "--rm", scratch, base)
    buildah("bud", *allowed, "--pull-never", "--tag", "udp", ".")
    container = buildah("from", *allowed, "--pull-never", "udp")
    stated = json.loads(buildah("inspect", container))["OCIv1"]["config"]
    said = buildah("run", container, "--", *stated["Entrypoint"], *stated["Cmd"], "/script.py")
    assert said == "/opt/udp tensor(3.)"


def _in_bare_root(prefix: Path, root: Path, script: str) -> str:
    """Pack the environment to ``root/env.tar``, remove it, and return what bash prints for the lines in ``root``."""
    root.mkdir(exist_ok=True)
    packed = run_tool("env", "pack", prefix, "-o", root / "env.tar", cwd=root, environ=os.environ)
    assert packed.returncode == 0, packed.stderr
    shutil.rmtree(prefix)
    _copy_programs(root)
    chroot = shutil.which("chroot", path="/usr/sbin:/sbin:/usr/bin:/bin") or "chroot"
    command = [*in_namespaces("net", "mount"), "bash", "-ec", IN_THE_ROOT, "bash"]
    command += [program("ip"), program("mount"), chroot, str(root), script]
    return run_command(command, env=os.environ, timeout_s=_LIMIT_S).stdout


def _copy_programs(root: Path) -> None:
    """A folder to change the root to, with a shell and tar, what these load, and nothing else."""
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
