# SPDX-License-Identifier: BSD-3-Clause
"""The plugin's errors. RuntimeErrors, as everything torch.distributed raises."""


class SwitchMLError(RuntimeError):
    """A process group cannot use SwitchML although it was asked to.

    `unanimous` where all its ranks know that, so that all can go on without SwitchML alike.
    """

    def __init__(self, message: str, *, unanimous: bool = False) -> None:
        super().__init__(message)
        self.unanimous = unanimous


class SettingsError(SwitchMLError):
    """An environment variable holds a value the plugin cannot use."""

    def __init__(self, *, variable: str, value: str, expected: str) -> None:
        super().__init__(f"{variable}={value!r}: expected {expected}; correct it, or unset it for the default")


class MissingControllerError(SwitchMLError):
    """SwitchML is required, and nothing says where its controller is."""

    def __init__(self) -> None:
        super().__init__(
            "SWITCHML_REQUIRE is set and SWITCHML_CONTROLLER is not: set SWITCHML_CONTROLLER to host[:port] of the "
            "controller on every rank, or unset SWITCHML_REQUIRE for ranks that may train over gloo"
        )
