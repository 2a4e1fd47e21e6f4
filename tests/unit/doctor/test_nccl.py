# SPDX-License-Identifier: BSD-3-Clause
"""NCCL beside its plugin, in an environment whose Python says what the loader would find."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from channel_tools.doctor.libraries import FABRIC, NCCL_PLUGIN, find_nccl
from channel_tools.doctor.model import Diagnosis, ExaminedStack
from tests.unit.validate.fakes import write_program


def found(prefix: Path, known: bytes) -> Diagnosis:
    """What is said of a plugin with the net ABIs 6 and 7 beside an NCCL that holds these names."""
    loaded = {
        NCCL_PLUGIN: {"name": NCCL_PLUGIN, "file": "/env/lib/libnccl-net.so", "error": "", "net_abis": [6, 7]},
        FABRIC: {"name": FABRIC, "file": "/env/lib/libfabric.so.1", "error": "", "providers": ["cxi"]},
    }
    lines = {name: json.dumps([library]) for name, library in loaded.items()}
    write_program(prefix / "bin/python", f"import sys\nprint({lines!r}[sys.argv[-1]])\n")
    (prefix / "lib").mkdir()
    (prefix / "lib/libnccl.so.2").write_bytes(bytes(100) + known)
    subject = ExaminedStack(stack="toy", backend="nccl", settings={}, prefix=prefix, variables={}, installed={})
    (finding,) = [one for one in find_nccl(subject) if one.subject == "NCCL's plugin"]
    return finding


@pytest.mark.parametrize(
    ("known", "level", "text"),
    [
        pytest.param(b"ncclNetPlugin_v5\0ncclNetPlugin_v6\0", "ok", "NCCL uses its net ABI v6", id="fits"),
        pytest.param(
            b"ncclNetPlugin_v8\0ncclNetPlugin_v9\0",
            "fault",
            "NCCL cannot use the plugin: it knows net ABIs v8, v9, the plugin has v6, v7",
            id="none-in-common",
        ),
        pytest.param(b"", "fault", "names no ncclNetPlugin_v<number>", id="no-nccl"),
    ],
)
def test_the_net_abis_of_both_sides_are_compared(tmp_path: Path, known: bytes, level: str, text: str) -> None:
    finding = found(tmp_path, known)
    assert (finding.level, text in finding.found) == (level, True)
