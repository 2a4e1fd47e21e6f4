# SPDX-License-Identifier: BSD-3-Clause
""" """

from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.matrix import load_tree
from channel_tools.ranks.services import ServiceOptions, filled
from channel_tools.system.errors import ConfigError
from channel_tools.system.settings import Tree
from channel_tools.validate.distributed.options import (
    DistributedOptions,
    read_distributed_options,
)
from channel_tools.validate.nccl.method import read_nccl_options
from channel_tools.validate.switchml.plan import read_options


def test_a_backend_is_enough() -> None:
    options = read_distributed_options("toy", {"backend": "mpi"})
    assert options == DistributedOptions(backend="mpi")
    assert (options.launcher, options.device, options.ddp, options.max_ranks) == ("torchrun", "cpu", True, 32)


def test_every_stack_of_this_tree_is_understood() -> None:
    read = {"distributed": read_distributed_options, "nccl": read_nccl_options, "switchml": read_options}
    loaded = load_tree(Tree(root=Path(__file__).parents[4]))
    understood = [
        read[str(stack.validation["method"])](
            stack.name, {name: value for name, value in stack.validation.items() if name != "method"}
        )
        for stack in loaded.stacks.values()
        if stack.validation
    ]
    assert len(understood) > 2


def test_lists_and_mappings_of_the_file_are_taken() -> None:
    options = read_distributed_options(
        "toy",
        {
            "backend": "ccl",
            "launcher": "mpiexec",
            "imports": ["oneccl_bindings_for_pytorch"],
            "environment": {"FI_PROVIDER": "tcp"},
            "libraries": ["libccl.so.1"],
            "needs": ["gpu", "library:libxrt_core.so.2"],
            "dtypes": ["float32", "int32"],
        },
    )
    assert options.imports == ("oneccl_bindings_for_pytorch",)
    assert options.environment == {"FI_PROVIDER": "tcp"}
    assert options.dtypes == ("float32", "int32")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        pytest.param({}, "backend: ", id="no-backend"),
        pytest.param({"backend": "C++"}, "backend: String should match", id="backend"),
        pytest.param({"backend": "mpi", "launcher": "rsh"}, "launcher: Input should be 'mpiexec' or", id="launcher"),
        pytest.param({"backend": "mpi", "launchre": "torchrun"}, "launchre: ", id="unknown"),
        pytest.param({"backend": "mpi", "needs": ["fpga"]}, "needs.0: String should match", id="need"),
        pytest.param({"backend": "mpi", "libraries": ["lib/libmpi.so"]}, "libraries.0: ", id="path"),
        pytest.param({"backend": "mpi", "dtypes": ["float8"]}, "dtypes.0: Input should be", id="dtype"),
        pytest.param({"backend": "mpi", "max_ranks": 64}, "max_ranks: ", id="ranks"),
        pytest.param({"backend": "mpi", "environment": {"A B": "1"}}, "environment.A B.", id="variable"),
    ],
)
def test_what_cannot_be_used_is_named(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match="stack toy: validate: ") as caught:
        read_distributed_options("toy", values)
    assert message in str(caught.value)
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("the method distributed has the keys: backend, launcher,")


GOOD: dict[str, object] = {"command": ["server", "--port", "{port}"], "ready_port": "{port}"}


def read(**changes: object) -> ServiceOptions:
    values = {"backend": "toy", "services": [{**GOOD, **changes}]}
    (service,) = read_distributed_options("toy", values).services
    return service


def test_a_command_and_a_sign_of_readiness_are_enough() -> None:
    service = read(command=["sbin/server"])
    assert (service.name, service.ready_timeout_s, service.carried_line) == ("server", 60.0, None)


def test_placeholders_are_filled() -> None:
    assert filled("{prefix}/{port}:{port}", {"prefix": "/env", "port": "7"}) == "/env/7:7"
    service = read(ready_port="", ready_line=r"at (?P<where>\S+)", rank_environment={"WHERE": "{where}"})
    assert service.rank_environment == {"WHERE": "{where}"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param({"command": []}, "services.0.command: ", id="no command"),
        pytest.param({"ready_port": ""}, "one of ready_line and ready_port", id="no readiness"),
        pytest.param({"ready_line": "ready"}, "one of ready_line and ready_port", id="two readinesses"),
        pytest.param({"ready_port": "http"}, "services.0.ready_port: String should match", id="port"),
        pytest.param({"ready_port": "", "ready_line": "("}, "services.0.ready_line: ", id="expression"),
        pytest.param({"carried_line": "call"}, "carried_line needs a group (?P<rank>...)", id="no rank"),
        pytest.param({"carried_bytes": 64}, "carried_bytes needs carried_line", id="bytes of nothing"),
        pytest.param(
            {"command": ["server", "{rank}"]}, "{rank} is not a known placeholder; known are port, pre", id="word"
        ),
        pytest.param({"rank_environment": {"A": "{a}"}}, "{a} is not a known placeholder", id="variable"),
        pytest.param({"wait": 1}, "services.0.wait: ", id="unknown"),
    ],
)
def test_what_a_service_cannot_use_is_named(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match="stack toy: validate: ") as caught:
        read(**changes)
    assert message in str(caught.value)
