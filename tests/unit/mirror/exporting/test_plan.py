# SPDX-License-Identifier: BSD-3-Clause
"""What goes into a bundle beside the packages of a lock: pip for conda, and the package of the stacks."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from channel_tools.channel import add_set, channel_writer
from channel_tools.mirror.exporting.plan import pip_for_conda, stacks_package
from channel_tools.pins import solve_lock
from channel_tools.provenance.trust import create_key
from channel_tools.requests.attest import AttestRequest, SignRequest
from channel_tools.system.errors import IntegrityError, NetworkError
from channel_tools.workflow.attest import sign_packages
from tests.support.packages import make_conda, new_channel
from tests.unit.mirror.bundles import PLATFORM, exporting_site, lock_of


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
        add_set(writer, packages)
    return channel.address


def brought(folder: Path, address: str, *specs: str) -> list[str]:
    """What comes beside a lock of these requirements."""
    cache = folder / "cache"
    lock = asyncio.run(
        solve_lock("toy", specs, [address], [PLATFORM], virtual_packages={PLATFORM: ()}, package_cache=cache)
    )
    return sorted(
        package.file_name for _, package in asyncio.run(pip_for_conda([lock], [address], package_cache=cache))
    )


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
        add_set(writer, [make_conda(tmp_path / "made", "python", version="3.11")])
    assert brought(tmp_path, channel.address, "python 3.11") == []
    assert "add_pip_as_python_dependency false" in caplog.text


def test_a_channel_that_cannot_be_read_is_an_error(address: str, tmp_path: Path) -> None:
    lock = lock_of(address, names=["python"])
    with pytest.raises(NetworkError):
        asyncio.run(pip_for_conda([lock], ["http://127.0.0.1:9/none"], package_cache=tmp_path / "cache"))


def test_channels_without_the_package_of_the_stacks_bring_none(tmp_path: Path, address: str) -> None:
    """Nor those that have nothing but noarch packages."""
    noarch = new_channel(tmp_path / "noarch")
    with channel_writer(noarch) as writer:
        add_set(writer, [make_conda(tmp_path / "made", "tables", subdir="noarch", index={"noarch": "generic"})])
    for one, name in ((address, "toy"), (noarch.address, "tables")):
        lock = lock_of(one, names=[name])
        assert asyncio.run(stacks_package([lock], [one], package_cache=tmp_path / "cache")) == set()


def test_other_attestations_than_a_record_names_are_no_part_of_a_bundle(tmp_path: Path) -> None:
    site = exporting_site(tmp_path)
    keys = create_key(tmp_path / "signing", passphrase=None, days=30, now=datetime.now(UTC)).parent
    sign_packages(None, SignRequest(target=tmp_path / "channel", attest=AttestRequest(signing_key=keys)))
    [sidecar] = (tmp_path / "channel" / "linux-64").glob("*.sigs.*")
    sidecar.write_bytes(b"[]")
    with pytest.raises(IntegrityError, match="its bytes differ from the hash in the record"):
        site.plan()
