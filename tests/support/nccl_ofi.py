# SPDX-License-Identifier: BSD-3-Clause
"""nccl-ofi's activation without its package, on a stand-in for a machine with a Slingshot NIC."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "recipes" / "nccl-ofi" / "activation"
NET = "OFI"
_OF_FABRICS = re.compile(r"(NCCL|FI)_.*")


def installed_activation(folder: Path) -> Path:
    """An environment in ``folder`` with the scripts as build.sh installs them; beside it ``cxi``, which has a NIC."""
    (folder / "cxi" / "cxi0").mkdir(parents=True)
    prefix = folder / "an environment"
    for kind in ("activate", "deactivate"):
        script = prefix / "etc" / "conda" / f"{kind}.d" / f"{kind}-nccl-ofi.sh"
        script.parent.mkdir(parents=True)
        script.write_text((SOURCES / f"{kind}.sh").read_text().replace("@NET_NAME@", NET))
    return prefix


def activation_line(prefix: Path) -> str:
    """Shell code that activates the environment and prints its variables, each ended by NUL."""
    script = prefix / "etc" / "conda" / "activate.d" / "activate-nccl-ofi.sh"
    cxi = prefix.parent / "cxi"
    return f"set -eu; export CHANNEL_CXI_CLASS={shlex.quote(str(cxi))}; . {shlex.quote(str(script))}; env -0"


def read_variables(printed: str) -> dict[str, str]:
    """The variables of NCCL and libfabric among what ``env -0`` has printed."""
    pairs = (line.partition("=") for line in printed.split("\0") if line)
    return {name: value for name, _, value in pairs if _OF_FABRICS.fullmatch(name)}


def variables_set(prefix: Path, shell: Sequence[str], job: Mapping[str, str]) -> dict[str, str]:
    """The variables of NCCL and libfabric after the activation in a job; it must print nothing."""
    done = subprocess.run(
        [*shell, "-c", activation_line(prefix)],
        env={"PATH": "/usr/bin:/bin", **job},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return read_variables(done.stdout)
