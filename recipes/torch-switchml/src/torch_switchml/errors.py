# SPDX-License-Identifier: BSD-3-Clause
"""The plugin's errors. RuntimeErrors, as everything torch.distributed raises."""

ASKED = "SwitchML was asked for but cannot be used: "


class SwitchMLError(RuntimeError):
    """A process group cannot use SwitchML although it was asked to.

    `unanimous` where all its ranks know that, so that all can go on without SwitchML alike. `reason` is the message for
    a group that has not asked for SwitchML.
    """

    def __init__(self, message: str, *, unanimous: bool = False) -> None:
        super().__init__(message)
        self.unanimous = unanimous
        self.reason = message.removeprefix(ASKED)


class SettingsError(SwitchMLError):
    """An environment variable holds a value the plugin cannot use."""

    def __init__(self, *, variable: str, value: str, expected: str) -> None:
        super().__init__(f"{variable}={value!r}: expected {expected}; correct it, or unset it for the default")


class MissingControllerError(SwitchMLError):
    """The ranks do not all share the memory of one host, and nothing says where the controller of a switch is.

    All ranks come to it alike. `reason` says why they do not share it.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"{ASKED}{reason}, and SWITCHML_CONTROLLER is not set: set it to "
            "host[:port] of the controller on every rank, or ask for gloo (without SWITCHML_REQUIRE)",
            unanimous=True,
        )
        # of ranks that have not asked, which gloo serves as well
        self.reason = f"{reason}, and SWITCHML_CONTROLLER, host[:port] of the controller, is not set"
