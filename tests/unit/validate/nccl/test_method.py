# SPDX-License-Identifier: BSD-3-Clause
"""What is installed, compared and judged, with a GPU and without."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from channel_tools.doctor.libraries import PluginAbis
from channel_tools.ranks.hosts import Host
from channel_tools.ranks.plan import Placement, placement_here, plan_ranks
from channel_tools.system.errors import ConfigError, UsageError, ValidationError
from channel_tools.system.processes import Deadline
from channel_tools.system.progress import SilentProgress
from channel_tools.validate.distributed.method import read_distributed_options
from channel_tools.validate.model import MethodContext
from channel_tools.validate.nccl.method import (
    NcclLog,
    NcclMethod,
    NcclOptions,
    PluginFacts,
    allreduce_options,
    judge_logs,
    judge_plugin,
    read_nccl_log,
)
from tests.support.fabric_profile import installed_activation
from tests.unit.doctor.test_nccl import FABRIC_OF, NCCL_OF, PLUGIN, compile_library
from tests.unit.validate.nccl.test_log import CLASSIC

OPTIONS: dict[str, object] = {
    "plugin": "libnccl-net.so",
    "network": "AWS Libfabric",
    "without_gpu": ["nccl-ofi", "nccl"],
}
FACTS = PluginFacts(
    plugin=PluginAbis(net=(5, 6), tuner=()),
    nccl=PluginAbis(net=(6, 7), tuner=(5,)),
    providers=("cxi", "tcp"),
)


def machine(folder: Path, *, gpus: int) -> NcclMethod:
    (folder / "dev").mkdir()
    for name in ("nvidiactl", *(f"nvidia{number}" for number in range(gpus))):
        (folder / "dev" / name).touch()
    return NcclMethod(root=folder)


def test_a_machine_without_a_gpu_gets_what_can_be_compared(tmp_path: Path) -> None:
    method = machine(tmp_path, gpus=0)
    method.check(stack="toy", ranks=4, options=OPTIONS)
    assert method.specs(["pytorch=*=cuda*"], stack="toy", options=OPTIONS) == ("nccl-ofi", "nccl")


def test_each_rank_needs_a_gpu_of_its_own(tmp_path: Path) -> None:
    method = machine(tmp_path, gpus=2)
    assert method.specs(["pytorch=*=cuda*"], stack="toy", options=OPTIONS) == ("pytorch=*=cuda*",)
    method.check(stack="toy", ranks=2, options=OPTIONS)
    with pytest.raises(UsageError, match=r"^3 ranks: stack toy needs a GPU for each rank, and this machine has 2$"):
        method.check(stack="toy", ranks=3, options=OPTIONS)


def test_options_that_are_none_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="stack toy: validate: backend: "):
        machine(tmp_path, gpus=0).check(stack="toy", ranks=2, options={**OPTIONS, "backend": "nccl"})


def test_ranks_of_several_hosts_alone_have_to_use_the_network(tmp_path: Path) -> None:
    hosts = tuple(Host(name=name, ranks=1, is_local=False) for name in ("nid1", "nid2"))
    here, method = placement_here(tmp_path, 2, variables={}), machine(tmp_path, gpus=0)

    def variables(placement: Placement) -> dict[str, str]:
        settings = method.start_settings(placement, stack="toy", options=OPTIONS)
        plan = plan_ranks(placement, settings, stack="toy", words=["train.py"], folder=tmp_path)
        return {name: value for name, value in plan.exported.items() if name.startswith("NCCL_")}

    assert variables(here) == {}
    assert variables(replace(here, hosts=hosts[:1])) == {}
    assert variables(replace(here, hosts=hosts)) == {"NCCL_NET": "AWS Libfabric"}
    own = {"NCCL_NET": "Socket"}
    assert variables(replace(here, hosts=hosts, variables=own, environ=own)) == own


def test_ranks_of_several_hosts_get_what_the_profile_has_for_them_on_its_fabric(tmp_path: Path) -> None:
    hosts = tuple(Host(name=name, ranks=1, is_local=False) for name in ("nid1", "nid2"))
    prefix = installed_activation(tmp_path, "frontier")
    placement = replace(placement_here(prefix, 2, variables={}), hosts=hosts)
    for root, network in ((tmp_path / "root", "OFI"), (tmp_path, "AWS Libfabric")):
        settings = NcclMethod(root=root).start_settings(placement, stack="toy", options=OPTIONS)
        assert settings.variables == {"NCCL_NET": network}


def test_what_the_environment_lacks_is_named(tmp_path: Path) -> None:
    context = MethodContext(
        stack="toy", prefix=tmp_path / "env", variables={}, ranks=2, options=OPTIONS, folder=tmp_path,
        deadline=Deadline.after(10.0), progress=SilentProgress(),
    )  # fmt: skip
    with pytest.raises(ValidationError, match=r"lib/libnccl-net\.so: not in the environment") as caught:
        machine(tmp_path, gpus=0).run(context)
    assert caught.value.hint == "install nccl-ofi into it"


AMD: dict[str, object] = {"vendor": "amd", "plugin": "librccl-net.so", "network": "AWS Libfabric"}


def rccl(folder: Path, abi: str = "") -> MethodContext:
    """An environment with RCCL's plugin alone, on a site whose RCCL, if it has one, knows this net ABI."""
    prefix, site = folder / "env", folder / "site"
    compile_library(prefix / "lib/libfabric.so.1", FABRIC_OF.replace("PROVIDER", "cxi"))
    compile_library(prefix / "lib/librccl-net.so", PLUGIN, prefix / "lib/libfabric.so.1", rpath="$ORIGIN")
    if abi:
        compile_library(site / "librccl.so.1", NCCL_OF.replace("WHOSE", "the site's").replace("ABI", abi))
    variables = {"LD_LIBRARY_PATH": f"{site}:{prefix / 'lib'}", "PATH": os.environ["PATH"]}
    return MethodContext(
        stack="toy", prefix=prefix, variables=variables, ranks=2, options=AMD, folder=folder,
        deadline=Deadline.after(10.0), progress=SilentProgress(),
    )  # fmt: skip


def test_rccls_plugin_is_compared_with_the_sites_and_its_allreduces_are_left_out_by_name(tmp_path: Path) -> None:
    method = machine(tmp_path, gpus=0)
    method.check(stack="toy", ranks=2, options=AMD)
    assert method.specs(["nccl-ofi=*=rocm*"], stack="toy", options=AMD) == ("nccl-ofi=*=rocm*",)
    result = method.run(rccl(tmp_path, "6"))
    assert [(check.name, check.passed, check.found) for check in result.checks] == [
        ("RCCL and the plugin share a net ABI", True, "v6"),
        ("RCCL can use the plugin's tuner, if it has one", True, "none"),
        ("libfabric has a provider here", True, "cxi"),
    ]
    assert {case.reason for case in result.omitted} == {"the PyTorch that does them is the site's, not this stack's"}
    assert len(result.omitted) > 10


def test_without_the_sites_rccl_that_is_said_and_the_plugin_is_loaded_all_the_same(tmp_path: Path) -> None:
    result = machine(tmp_path, gpus=0).run(rccl(tmp_path))
    assert [check.name for check in result.checks] == ["libfabric has a provider here"]
    *_, last = result.omitted
    assert last.name == "RCCL and the plugin share a net ABI"
    assert "librccl.so.1: cannot open shared object file" in last.reason
    assert "CHANNEL_ROCM_DIR=DIR" in last.reason


def test_an_rccl_that_cannot_use_the_plugin_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="it knows net ABIs v9, the plugin has v6"):
        machine(tmp_path, gpus=0).run(rccl(tmp_path, "9"))


def test_a_plugin_without_the_sites_rocm_is_one_error(tmp_path: Path) -> None:
    context = rccl(tmp_path)
    plugin = context.prefix / "lib/librccl-net.so"
    hip = tmp_path / "libamdhip64.so.6"
    compile_library(hip, "int hip;\n")
    compile_library(plugin, f"extern int hip; int uses_hip(void) {{ return hip; }}\n{PLUGIN}", hip)
    with pytest.raises(ValidationError, match=r"cannot be loaded: libamdhip64\.so\.6: ") as caught:
        machine(tmp_path, gpus=0).run(context)
    assert "CHANNEL_ROCM_DIR=DIR" in (caught.value.hint or "")


def test_the_allreduces_cannot_pass_the_network_by(tmp_path: Path) -> None:
    options = read_distributed_options("toy", allreduce_options(NcclOptions(**OPTIONS), tmp_path))  # type: ignore[arg-type]
    assert (options.backend, options.device, options.libraries) == ("nccl", "cuda", ("libnccl-net.so",))
    assert options.environment["NCCL_P2P_DISABLE"] == options.environment["NCCL_SHM_DISABLE"] == "1"
    assert options.environment["NCCL_DEBUG_FILE"] == f"{tmp_path}/nccl-%p.log"


@pytest.mark.parametrize(
    ("facts", "failed"),
    [
        pytest.param(FACTS, set(), id="fits"),
        pytest.param(replace(FACTS, providers=()), {"libfabric has a provider here"}, id="no-provider"),
        pytest.param(
            replace(FACTS, plugin=PluginAbis(net=(6,), tuner=(1, 2))),
            {"NCCL can use the plugin's tuner, if it has one"},
            id="tuner",
        ),
    ],
)
def test_plugin_and_nccl_are_compared(facts: PluginFacts, failed: set[str]) -> None:
    assert {check.name for check in judge_plugin(facts) if not check.passed} == failed


def test_a_log_of_each_rank_that_names_the_plugin_alone_passes() -> None:
    log = read_nccl_log(CLASSIC)
    checks = judge_logs([log, log], FACTS, ranks=2, network="AWS Libfabric")
    assert [(check.passed, check.found) for check in checks] == [
        (True, "2"),
        (True, "8 connections via NET/AWS Libfabric, ABI v6"),
    ]


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        pytest.param({"networks": ("Socket",)}, "log 1: network Socket", id="sockets"),
        pytest.param({"networks": ()}, "log 1: network unknown", id="silent"),
        pytest.param({"abi": None}, "log 1: ABI unknown", id="abi"),
        pytest.param(
            {"connections": {"NET/AWS Libfabric": 3, "SHM": 1}}, "log 1: 1 connections via SHM", id="shared-memory"
        ),
        pytest.param({"connections": {}}, "log 1: no connection", id="no-connection"),
    ],
)
def test_what_passed_the_plugin_by_is_named(changes: dict[str, object], found: str) -> None:
    log = read_nccl_log(CLASSIC)
    spoilt: NcclLog = replace(log, **changes)  # type: ignore[arg-type]
    _, check = judge_logs([log, spoilt], FACTS, ranks=2, network="AWS Libfabric")
    assert not check.passed
    assert re.search(re.escape(found), check.found)


def test_a_rank_without_a_log_fails() -> None:
    check, _ = judge_logs([read_nccl_log(CLASSIC)], FACTS, ranks=2, network="AWS Libfabric")
    assert (check.passed, check.found, check.expected) == (False, "1", "2")
