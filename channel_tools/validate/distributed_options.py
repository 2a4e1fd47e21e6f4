# SPDX-License-Identifier: BSD-3-Clause
"""The settings of the method ``distributed``: one process-group backend under one launcher."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import ConfigDict, Field, PositiveFloat, PositiveInt, StringConstraints
from pydantic.dataclasses import dataclass

from channel_tools.validate.cases import SIZES
from channel_tools.validate.options import read_method_options
from channel_tools.validate.service_options import ServiceOptions  # noqa: TC001  (pydantic reads it)

if TYPE_CHECKING:
    from collections.abc import Mapping

SMALLEST_NUMEL = 2_000
"""What the cases need that have a thing to show in their data."""
Launcher = Literal["mpiexec", "torchrun"]
Device = Literal["cpu", "cuda"]
Dtype = Literal["float32", "float64", "float16", "bfloat16", "int32", "int64"]
Op = Literal["SUM", "MAX", "MIN"]

_Backend = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]
_Module = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][\w.]*$")]
_FileName = Annotated[str, StringConstraints(pattern=r"^[^/\s]+$")]
_Need = Annotated[str, StringConstraints(pattern=r"^(gpu|amdgpu|rdma|(library|program|variable):[^\s/]+)$")]
_Variable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_]\w*$")]


@dataclass(frozen=True, kw_only=True, slots=True, config=ConfigDict(extra="forbid", allow_inf_nan=False))
class DistributedOptions:
    """What ranks are started with, what has to carry their allreduces, and what the machine must have.

    Each field is described in docs/how-to/validate.md.
    """

    backend: _Backend
    launcher: Launcher = "torchrun"
    launcher_arguments: tuple[str, ...] = ()
    device: Device = "cpu"
    imports: tuple[_Module, ...] = ()
    environment: dict[_Variable, str] = field(default_factory=dict)
    services: tuple[ServiceOptions, ...] = ()
    event: str = ""
    libraries: tuple[_FileName, ...] = ()
    site_libraries: tuple[_FileName, ...] = ()
    needs: tuple[_Need, ...] = ()
    dtypes: tuple[Dtype, ...] = ("float32", "float64", "int32", "int64", "bfloat16")
    ops: tuple[Op, ...] = ("SUM", "MAX", "MIN")
    max_numel: Annotated[int, Field(ge=SMALLEST_NUMEL)] = max(SIZES)
    ddp: bool = True
    max_ranks: Annotated[PositiveInt, Field(le=32)] = 32
    group_timeout_s: PositiveFloat = 60.0


def read_distributed_options(stack: str, values: Mapping[str, object]) -> DistributedOptions:
    """The options of a stack's ``validate`` block. Raises ConfigError naming each unknown key or unusable value."""
    return read_method_options(DistributedOptions, stack=stack, method="distributed", values=values)
