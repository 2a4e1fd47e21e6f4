# SPDX-License-Identifier: BSD-3-Clause
"""What the environment asks of the plugin: the only module that knows the variables' names.

Variables of the transport itself (``SWITCHML_LOCAL_ADDRESS`` and the like) are
read by libswitchml; here they matter only where all ranks must have the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch_switchml.errors import SettingsError

DEFAULT_LIBRARY = "libswitchml.so.1"

# The name of the process group's backend, for scripts that ask for it: init_process_group("switchml").
BACKEND_NAME = "switchml"

# The library's defaults (switchml.h), needed to bound the wait for the others.
_DEFAULT_CONNECT_TIMEOUT_MS = 10_000
_DEFAULT_JOB_TIMEOUT_MS = 30_000

# The library's default (switchml.h), from which the sessions of further groups count on.
_DEFAULT_WORKER_PORT = 4000

# A slot of the switch is used by all workers in the same way, and a call that is an error must be one on all ranks.
_COMMON_VARIABLES = (
    "SWITCHML_HOST_REDUCTION",
    "SWITCHML_MAX_OUTSTANDING_PACKETS",
    "SWITCHML_NEW_GROUPS",
    "SWITCHML_NUM_THREADS",
    "SWITCHML_PACKET_NUMEL",
    "SWITCHML_REQUIRE",
    "SWITCHML_WORKER_PORT",
)

_ON = frozenset({"", "1", "on", "true", "yes"})
_OFF = frozenset({"0", "off", "false", "no"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """The plugin's settings; times in milliseconds."""

    controller: str
    library: str
    stats_file: str | None
    connect_timeout_ms: int
    job_timeout_ms: int
    job_timeout_set: bool
    require: bool
    new_groups: bool
    worker_port: int
    num_threads: int
    host_reduction: bool
    host: str
    common: dict[str, str]

    def stats_path(self, rank: int) -> Path | None:
        """The file this rank reports to, ``{rank}`` filled in; None where none is wanted."""
        if not self.stats_file:
            return None
        return Path(self.stats_file.replace("{rank}", str(rank)))


def read_settings(environ: Mapping[str, str]) -> Settings:
    """Read the settings; SettingsError names a variable with an unusable value."""
    _read_switch(environ, "SWITCHML_ENABLE", default=True)
    job_timeout = environ.get("SWITCHML_JOB_TIMEOUT_MS", "")
    return Settings(
        controller=environ.get("SWITCHML_CONTROLLER", "").strip(),
        library=environ.get("SWITCHML_LIBRARY") or DEFAULT_LIBRARY,
        stats_file=environ.get("SWITCHML_STATS_FILE") or None,
        connect_timeout_ms=_read_milliseconds(environ, "SWITCHML_CONNECT_TIMEOUT_MS", _DEFAULT_CONNECT_TIMEOUT_MS),
        job_timeout_ms=_read_milliseconds(environ, "SWITCHML_JOB_TIMEOUT_MS", _DEFAULT_JOB_TIMEOUT_MS),
        job_timeout_set=bool(job_timeout),
        require=_read_switch(environ, "SWITCHML_REQUIRE", default=False),
        new_groups=_read_switch(environ, "SWITCHML_NEW_GROUPS", default=False),
        worker_port=_read_number(environ, "SWITCHML_WORKER_PORT", _DEFAULT_WORKER_PORT),
        num_threads=_read_number(environ, "SWITCHML_NUM_THREADS", 1),
        host_reduction=_read_switch(environ, "SWITCHML_HOST_REDUCTION", default=True),
        host=environ.get("SWITCHML_HOST", ""),
        common={name: environ.get(name, "") for name in _COMMON_VARIABLES},
    )


def is_requested(environ: Mapping[str, str]) -> bool:
    """Whether the plugin has anything to do in this process. Never raises.

    A malformed SWITCHML_ENABLE counts as yes, so that the process group, and
    not ``import torch``, says what is wrong with it.
    """
    switched_off = environ.get("SWITCHML_ENABLE", "").strip().lower() in _OFF
    return bool(environ.get("SWITCHML_CONTROLLER", "").strip()) and not switched_off


def _read_switch(environ: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = environ.get(name, "").strip().lower()
    if text not in _ON | _OFF:
        raise SettingsError(variable=name, found=environ[name], expected="1 or 0")
    return text in _ON if text else default


def _read_milliseconds(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name, "")
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 2**32:
        raise SettingsError(variable=name, found=text, expected="a whole number of milliseconds above 0")
    return int(text)


def _read_number(environ: Mapping[str, str], name: str, default: int) -> int:
    """One of the library's own settings, which is the library's to judge: what is no number is the default here."""
    text = environ.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else default


DEFAULT_SETTINGS = read_settings({})
