# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.errors import ConfigError
from channel_tools.matrix import load_tree
from channel_tools.settings import Tree
from channel_tools.validate.distributed_options import DistributedOptions, read_distributed_options
from channel_tools.validate.switchml_plan import read_options


def test_a_backend_is_enough() -> None:
    options = read_distributed_options("toy", {"backend": "mpi"})
    assert options == DistributedOptions(backend="mpi")
    assert (options.launcher, options.device, options.ddp, options.max_ranks) == ("torchrun", "cpu", True, 32)


def test_every_stack_of_this_tree_is_understood() -> None:
    read = {"distributed": read_distributed_options, "switchml": read_options}
    loaded = load_tree(Tree(root=Path(__file__).parents[3]))
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
    assert caught.value.hint.startswith("the method distributed knows: backend, launcher,")
