# SPDX-License-Identifier: BSD-3-Clause
"""Reads a lock in any of the formats that lock files by hash; which one it is shows in the text, not in the name."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from channel_tools.addresses import has_credentials, without_credentials
from channel_tools.errors import ConfigError
from channel_tools.pins.conda_lock import parse_conda_lock
from channel_tools.pins.explicit import MARK, parse_explicit
from channel_tools.pins.pixi import read_pixi_lock

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.pins.model import Lock, PlatformLock

_FORMATS = "conda-lock.yml, an explicit list (@EXPLICIT) or pixi.lock"


def read_lock(path: Path) -> Lock:
    """The lock in ``path``. What its format does not hold is empty (see LockedPackage).

    Raises ConfigError when it is absent, none of the formats, of a newer schema, names a package twice, or has
    credentials in an address; IntegrityError when a file of ours was cut off or edited.
    """
    text = _read_text(path)
    lines = [line.strip() for line in text.splitlines()]
    if MARK in lines:
        lock = parse_explicit(text, path)
    elif any(line.startswith("environments:") for line in text.splitlines()):
        lock = read_pixi_lock(path)
    elif any(line.startswith("metadata:") for line in text.splitlines()):
        lock = parse_conda_lock(text, path)
    else:
        raise ConfigError(f"no lock; expected {_FORMATS}", path=path, hint="write one: channel_tools pins")
    for platform in lock.platforms:
        _check_packages(platform, path)
    _check_addresses(lock, path)
    return lock


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as err:
        raise ConfigError(f"byte {err.start} is no UTF-8", path=path, hint=f"expected {_FORMATS}") from None
    except OSError as err:
        raise ConfigError(f"cannot be read: {err.strerror}", path=path, hint=f"name {_FORMATS}") from None


def _check_packages(platform: PlatformLock, path: Path) -> None:
    counts = Counter(package.name for package in platform.packages)
    twice = sorted(name for name, count in counts.items() if count > 1)
    if twice:
        message = f"{', '.join(twice)}: more than one package of this name for {platform.platform}"
        raise ConfigError(message, path=path, hint="keep one, or write the lock again: channel_tools pins")
    foreign = [package for package in platform.packages if package.subdir not in {platform.platform, "noarch"}]
    if foreign:
        message = f"{foreign[0].file_name}: a package for {foreign[0].subdir} among those for {platform.platform}"
        raise ConfigError(message, path=path, hint="write the lock again: channel_tools pins")


def _check_addresses(lock: Lock, path: Path) -> None:
    addresses = [*lock.channels, *(package.url for one in lock.platforms for package in one.packages)]
    for address in addresses:
        if has_credentials(address):
            message = f"credentials in the address {without_credentials(address)}: a lock must be fit to be passed on"
            hint = "take them out; give the channel's address with its token by --channel instead"
            raise ConfigError(message, path=path, hint=hint)
