# SPDX-License-Identifier: BSD-3-Clause
"""What a bundle has beside its lock, for conda."""

from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.channel import add_packages, channel_writer
from channel_tools.errors import NetworkError
from channel_tools.pins import solve_lock
from channel_tools.workflow.mirror_conda import pip_for_conda
from tests.unit.channel.toys import make_conda, new_channel
from tests.unit.mirror.bundles import PLATFORM, lock_of


@pytest.fixture
def address(tmp_path: Path) -> str:
    """A channel with two Pythons, a pip for each, and what the pips need."""
    channel = new_channel(tmp_path)
    made = tmp_path / "made"
    packages = [
        *(make_conda(made, "python", version=version) for version in ("3.11", "3.12")),
        make_conda(made, "pip", version="24.0", index={"depends": ["python >=3.11,<3.12", "wheel"]}),
        make_conda(made, "pip", version="25.0", index={"depends": ["python >=3.12", "wheel"]}),
        make_conda(made, "wheel", index={"depends": ["python"]}),
        make_conda(made, "toy"),
    ]
    with channel_writer(channel) as writer:
        add_packages(writer, packages)
    return channel.address


def brought(folder: Path, address: str, *specs: str) -> list[str]:
    """What comes beside a lock of these requirements."""
    cache = folder / "cache"
    lock = solve_lock("toy", specs, [address], [PLATFORM], virtual_packages={PLATFORM: ()}, package_cache=cache)
    return [package.file_name for package in pip_for_conda([lock], [address], package_cache=cache)]


def test_the_pip_that_fits_the_locks_python_comes_with_what_it_needs(tmp_path: Path, address: str) -> None:
    assert brought(tmp_path, address, "python 3.11", "toy") == ["pip-24.0-0.conda", "wheel-1.0-0.conda"]
    assert brought(tmp_path, address, "python 3.12", "wheel") == ["pip-25.0-0.conda"]


def test_nothing_comes_beside_a_lock_that_has_pip_or_no_python(tmp_path: Path, address: str) -> None:
    assert brought(tmp_path, address, "python 3.11", "pip") == []
    assert brought(tmp_path, address, "toy") == []


def test_a_channel_without_a_pip_that_fits_is_told_and_no_obstacle(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    channel = new_channel(tmp_path)
    with channel_writer(channel) as writer:
        add_packages(writer, [make_conda(tmp_path / "made", "python", version="3.11")])
    assert brought(tmp_path, channel.address, "python 3.11") == []
    assert "add_pip_as_python_dependency false" in caplog.text


def test_a_channel_that_cannot_be_read_is_an_error(address: str, tmp_path: Path) -> None:
    lock = lock_of(address, names=["python"])
    with pytest.raises(NetworkError):
        pip_for_conda([lock], ["http://127.0.0.1:9/none"], package_cache=tmp_path / "cache")
