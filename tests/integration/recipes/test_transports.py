# SPDX-License-Identifier: BSD-3-Clause
"""libswitchml's transports: alike to whoever links them, whatever is inside.

Others than the default stack's are built first, where the source store has what they are made from.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from channel_tools.system.elf import read_elf_file
from channel_tools.system.settings import Settings
from tests.integration.conftest import ROOT
from tests.support.processes import TEST_TIMEOUT_S
from tests.support.stacks import build_from_upstream, install
from tests.support.switch import running_switch

pytestmark = pytest.mark.integration

OTHERS = ("dummy", "dpdk", "dpdk_mlx5", "dpdk_mlx4", "rdma")
TRANSPORTS = ["udp", *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)]


def installed(channel: Path, settings: Settings, transport: str, prefix: Path) -> Path:
    if transport in OTHERS:
        build_from_upstream(settings, transport.replace("_", "-"), "libswitchml")
    return install(settings, channel, prefix, [f"libswitchml=*={transport}_h*"])


def exported(library: Path) -> dict[str, str]:
    """The dynamic symbols that the library defines, and what each is."""
    with library.open("rb") as stream:
        table = ELFFile(stream).get_section_by_name(".dynsym")
        assert isinstance(table, SymbolTableSection)
        return {
            symbol.name: symbol["st_info"]["type"]
            for symbol in table.iter_symbols()
            # absolute: the name of the version itself
            if symbol["st_shndx"] not in ("SHN_UNDEF", "SHN_ABS") and symbol["st_info"]["bind"] != "STB_LOCAL"
        }


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_transport_shows_the_c_abi_and_nothing_else(
    stack_channel: Path, own_settings: Settings, tmp_path: Path, transport: str
) -> None:
    prefix = installed(stack_channel, own_settings, transport, tmp_path / "env")
    header = (prefix / "include" / "switchml.h").read_text(encoding="utf-8")
    declared = set(re.findall(r"^SWITCHML_API .*?(switchml_\w+)\(", header, re.MULTILINE))
    library = prefix / "lib" / "libswitchml.so.1"
    symbols = exported(library)
    assert symbols == dict.fromkeys(declared, "STT_FUNC")
    elf = read_elf_file(library)
    assert elf.soname == "libswitchml.so.1"
    assert not [name for name in elf.needed if name.startswith(("librte_", "libdpdk"))]
    assert header == (ROOT / "recipes/libswitchml/src/include/switchml.h").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_dummy_transport_reduces_without_a_network(
    stack_channel: Path, own_settings: Settings, tmp_path: Path
) -> None:
    prefix = installed(stack_channel, own_settings, "dummy", tmp_path / "env")
    command = [str(prefix / "bin" / "switchml-bench"), "--rank", "0", "--workers", "1", "--numel", "1000003"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SWITCHML_")}
    for options in (["--dtype", "int32"], ["--dtype", "float32", "--in-place"]):
        result = subprocess.run(
            [*command, *options], env=environment, capture_output=True, text=True, check=False, timeout=TEST_TIMEOUT_S
        )
        assert result.returncode == 0, result.stderr
        report = json.loads(result.stdout)
        assert report["transport"] == "dummy"
        assert report["wrong"] == 0
        assert report["packets_received"] > 0


def test_lossy_allreduces_are_right_and_take_no_more_memory(
    stack_channel: Path, own_settings: Settings, tmp_path: Path
) -> None:
    """100 million elements in all, with 2 % of the packets lost each way."""
    prefix = install(own_settings, stack_channel, tmp_path / "env", ["libswitchml=*=udp_h*", "switchml-switch"])
    iterations, numel = 1000, 100_000
    command = [str(prefix / "bin" / "switchml-bench"), "--workers", "2", "--iterations", str(iterations)]
    with running_switch(prefix, "--drop-rate", "0.02", "--drop-result-rate", "0.02") as switch:
        environment = {**os.environ, "SWITCHML_CONTROLLER": switch.controller}
        ranks = [
            subprocess.Popen(
                [*command, "--rank", str(rank), "--numel", str(numel)],
                env=environment,
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(2)
        ]
        reports = [json.loads(rank.communicate(timeout=TEST_TIMEOUT_S)[0]) for rank in ranks]
    for report in reports:
        assert report["wrong"] == 0
        assert report["elements_reduced"] == iterations * numel
        assert report["packets_retransmitted"] > 0.02 * report["packets_sent"]
        assert report["peak_kib"] - report["peak_kib_after_first"] < 2048
