# SPDX-License-Identifier: BSD-3-Clause
"""Environments from conda channels: install into a prefix, run programs in it, prove that it stands alone."""

from channel_tools.environments.activation import activated_environment
from channel_tools.environments.create import create_environment
from channel_tools.environments.foreign import ForeignPath, find_foreign_paths
from channel_tools.environments.locked import create_locked_environment
from channel_tools.environments.model import EnvironmentResult, InstalledPackage

__all__ = [
    "EnvironmentResult",
    "ForeignPath",
    "InstalledPackage",
    "activated_environment",
    "create_environment",
    "create_locked_environment",
    "find_foreign_paths",
]
