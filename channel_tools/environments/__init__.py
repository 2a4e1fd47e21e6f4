# SPDX-License-Identifier: BSD-3-Clause
"""Environments from conda channels: installs into a prefix, runs programs in it, proves that it is self-contained."""

from channel_tools.environments.activation import (
    activated_environment,
    activation_script,
    check_environment,
    check_modulefile,
    user_variables,
    write_modulefile,
)
from channel_tools.environments.create import (
    ExistingEnvironmentError,
    create_environment,
    create_locked_environment,
    environment_channels,
    extend_environment,
    reduce_environment,
)
from channel_tools.environments.outside_paths import OutsidePath, find_outside_paths
from channel_tools.environments.packing import check_archive, pack_environment
from channel_tools.environments.pip_packages import find_distributions, missing_distributions
from channel_tools.environments.transaction import (
    EnvironmentResult,
    InstalledPackage,
    PackageChanges,
    installed_addresses,
    installed_builds,
    installed_environment,
    installed_lock,
    listed_environment,
    missing_specs,
)

__all__ = [
    "EnvironmentResult",
    "ExistingEnvironmentError",
    "InstalledPackage",
    "OutsidePath",
    "PackageChanges",
    "activated_environment",
    "activation_script",
    "check_archive",
    "check_environment",
    "check_modulefile",
    "create_environment",
    "create_locked_environment",
    "environment_channels",
    "extend_environment",
    "find_distributions",
    "find_outside_paths",
    "installed_addresses",
    "installed_builds",
    "installed_environment",
    "installed_lock",
    "listed_environment",
    "missing_distributions",
    "missing_specs",
    "pack_environment",
    "reduce_environment",
    "user_variables",
    "write_modulefile",
]
