# SPDX-License-Identifier: BSD-3-Clause
"""What the environment asks of the plugin: the only module that knows the variables' names."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from torch_mpi.errors import SettingsError

DevicePolicy = Literal["auto", "require", "host"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """The plugin's settings."""

    gpu: DevicePolicy


def read_settings(environ: Mapping[str, str]) -> Settings:
    """Read the settings; SettingsError names a variable with an unusable value."""
    text = environ.get("TORCH_MPI_GPU", "").strip().lower() or "auto"
    for policy in get_args(DevicePolicy):
        if text == policy:
            return Settings(gpu=policy)
    raise SettingsError(variable="TORCH_MPI_GPU", value=environ["TORCH_MPI_GPU"], expected="auto, require or host")
