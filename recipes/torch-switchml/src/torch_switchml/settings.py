# SPDX-License-Identifier: BSD-3-Clause
"""What the environment asks of the plugin: the only module that knows the variables' names.

Variables of the transport itself (``SWITCHML_LOCAL_ADDRESS`` and the like) are
read by libswitchml, which says what it makes of them (:class:`Transport`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from torch_switchml.errors import SettingsError

DEFAULT_LIBRARY = "libswitchml.so.1"

# The names of the process group's backend, for scripts that ask for it: init_process_group("switchml"). The second is
# that of the SwitchML project's own plugin, which is imported under this package's name, too.
BACKEND_NAMES = ("switchml", "sml")

# What libswitchml is told where none is named: it requires one, and is not to reach any.
UNNAMED_CONTROLLER = "none"

_ON = frozenset({"", "1", "on", "true", "yes"})
_OFF = frozenset({"0", "off", "false", "no"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Transport:
    """What libswitchml makes of the environment and its defaults; times in milliseconds.

    ``common``: what all ranks must have alike, by name.
    """

    connect_timeout_ms: int = 3_000
    job_timeout_ms: int = 30_000
    worker_port: int = 4000
    num_threads: int = 1
    common: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """The plugin's own settings; `controller` is "" where none is named."""

    controller: str
    stats_file: str | None
    job_timeout_set: bool
    require: bool
    new_groups: bool
    host_reduction: bool
    host: str

    @property
    def common(self) -> dict[str, str]:
        """The settings that must mean the same on all ranks, as "1" or "0" by name.

        The ranks of a host share memory all together or not at all, and a call that is an error is one on all ranks.
        """
        switches = {
            "SWITCHML_HOST_REDUCTION": self.host_reduction,
            "SWITCHML_NEW_GROUPS": self.new_groups,
            "SWITCHML_REQUIRE": self.require,
        }
        return {name: "1" if on else "0" for name, on in switches.items()}

    def stats_path(self, rank: int) -> Path | None:
        """The file this rank reports to, ``{rank}`` filled in; None where none is wanted."""
        if not self.stats_file:
            return None
        return Path(self.stats_file.replace("{rank}", str(rank)))


def read_settings(environ: Mapping[str, str]) -> Settings:
    """Read the settings; SettingsError names a variable with an unusable value."""
    _read_switch(environ, "SWITCHML_ENABLE", default=True)
    return Settings(
        controller=environ.get("SWITCHML_CONTROLLER", "").strip(),
        stats_file=environ.get("SWITCHML_STATS_FILE") or None,
        job_timeout_set=bool(environ.get("SWITCHML_JOB_TIMEOUT_MS")),
        require=_read_switch(environ, "SWITCHML_REQUIRE", default=False),
        new_groups=_read_switch(environ, "SWITCHML_NEW_GROUPS", default=False),
        host_reduction=_read_switch(environ, "SWITCHML_HOST_REDUCTION", default=True),
        host=environ.get("SWITCHML_HOST", ""),
    )


def library_name(environ: Mapping[str, str]) -> str:
    """The libswitchml to load: a path or soname."""
    return environ.get("SWITCHML_LIBRARY") or DEFAULT_LIBRARY


def is_enabled(environ: Mapping[str, str]) -> bool:
    """Whether the plugin may do anything in this process. Never raises.

    A malformed SWITCHML_ENABLE counts as yes, so that the process group, and not ``import torch``, says what is wrong.
    """
    return environ.get("SWITCHML_ENABLE", "").strip().lower() not in _OFF


def is_requested(environ: Mapping[str, str]) -> bool:
    """Whether groups have to use SwitchML, or fail: a controller is named, or it is required. Never raises.

    A malformed SWITCHML_REQUIRE counts as yes, as SWITCHML_ENABLE does.
    """
    require, controller = (environ.get(f"SWITCHML_{name}", "").strip().lower() for name in ("REQUIRE", "CONTROLLER"))
    return is_enabled(environ) and (bool(controller) or require not in {"", *_OFF})


def _read_switch(environ: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = environ.get(name, "").strip().lower()
    if text not in _ON | _OFF:
        raise SettingsError(variable=name, value=environ[name], expected="1 or 0")
    return text in _ON if text else default


DEFAULT_SETTINGS = read_settings({})
