# SPDX-License-Identifier: BSD-3-Clause
"""SwitchML for a stock PyTorch: eligible allreduces of gloo's default group leave through it.

Importing this module imports neither torch nor the compiled part: ``import
torch`` runs :func:`autoload` in every process of the environment, and where
no group of several ranks is made that must cost and change nothing.
"""

import logging
import os
from typing import TYPE_CHECKING, Any

from torch_switchml.errors import SettingsError, SwitchMLError
from torch_switchml.settings import is_enabled
from torch_switchml.version import __version__

if TYPE_CHECKING:
    from torch_switchml.plugin import Plugin

__all__ = ["SettingsError", "SwitchMLError", "__version__", "autoload", "collectives", "install", "stats"]

logger = logging.getLogger(__name__)

# PyTorch's hook is one per process, and so is the switch's session.
_plugin: "Plugin | None" = None


def autoload() -> None:
    """PyTorch's ``torch.backends`` entry point: install the plugin unless the environment switches it off.

    Never raises, since that would break ``import torch``: a PyTorch that cannot be hooked into is
    logged as an error, and unusable settings are the process group's to complain of.
    """
    if not is_enabled(os.environ):
        return
    try:
        install()
    except (ImportError, AttributeError):
        logger.exception("this PyTorch cannot be made to use SwitchML, gloo stays as it is")


def install() -> None:
    """Install the plugin now, for a script that sets the environment after ``import torch``.

    The next default process group is then under the environment's rule; doing it twice is doing
    it once. Raises ImportError or AttributeError where PyTorch has no process groups to hook into.
    """
    global _plugin  # noqa: PLW0603 - the one thing there is one of
    if _plugin is not None:
        return
    from torch_switchml.plugin import Plugin

    plugin = Plugin(os.environ)
    plugin.install()
    _plugin = plugin


def collectives() -> list[dict[str, Any]]:
    """What SwitchML carries now, for whoever looks why a job stands still; plain JSON values.

    For each process group with a session: ``group``, its name; ``entered``, how many allreduces it was given; and
    ``pending``, those that have not ended: ``number`` among them from 1, ``kind``, the ``sizes`` of the tensors and
    their ``dtypes``. Takes no lock that a call holds while it waits.
    """
    return [] if _plugin is None else _plugin.collectives()


def stats() -> dict[str, Any]:
    """What this process delegated and what it left to gloo, since it started; plain JSON values.

    ``active``: whether a session was opened; ``sessions``: how many, the default group's and those
    of groups made beside it; ``refused_groups``: groups that were to have one and stay with gloo;
    ``delegated``: completed ``jobs``, ``elements`` and ``bytes`` by dtype; ``fallbacks``:
    allreduces that gloo carried, by reason (``device``, ``dtype``, ``group``, ``reduce_op``,
    ``several_tensors``, ``sparse``); ``gloo_collectives``: the ``all_gather`` and
    ``reduce_scatter`` calls of groups with a session; ``failed_jobs``; ``copied_jobs``: delegated
    ones that went through a copy (several tensors, not contiguous, of 16 bits, to be multiplied);
    ``device_jobs``: delegated ones of a device's tensors, each of which is a job of the transport
    for every 2 MiB; ``reduced_in_host``: ``jobs`` and ``elements`` that this rank's host added up
    before they travelled; ``host``: the ``ranks`` that are one worker with this one, and how many
    ``workers`` the default group is; ``library``: ``path``, ``version``, ``transport``, ``abi_version`` of
    libswitchml; ``transport``: its own counters, of all sessions together, None
    on a rank for which another speaks to the switch; ``failure``: why a
    session accepts no more; ``controller``, ``rank``, ``world_size``, ``version``, ``schema``.
    """
    if _plugin is not None:
        return _plugin.report()
    from torch_switchml.report import build_report

    return build_report(settings=None, membership=None, hosts=None, counters=None, library=None)
