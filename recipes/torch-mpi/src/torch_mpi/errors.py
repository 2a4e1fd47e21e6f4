# SPDX-License-Identifier: BSD-3-Clause
"""The plugin's errors. RuntimeErrors, as everything torch.distributed raises."""


class MPIError(RuntimeError):
    """The backend mpi cannot be used in this process."""


class LaunchError(MPIError):
    """The processes were not started in a way in which this MPI can know of them."""


class SettingsError(MPIError):
    """An environment variable holds a value the plugin cannot use."""

    def __init__(self, *, variable: str, value: str, expected: str) -> None:
        super().__init__(f"{variable}={value!r}: expected {expected}; correct it, or unset it for the default")
