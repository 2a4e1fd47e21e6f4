# SPDX-License-Identifier: BSD-3-Clause
"""Which plugin interfaces a library has or knows, and what of it fits together."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from channel_tools.environments.nccl_plugin import (
    PluginInterfaces,
    exported_interfaces,
    known_interfaces,
    libfabric_providers,
    shared_net_interface,
)
from channel_tools.system.errors import ValidationError
from tests.unit.validate.fakes import write_program


def test_the_names_in_nccl_say_what_it_knows(tmp_path: Path) -> None:
    library = tmp_path / "libnccl.so.2"
    names = (
        b"ncclNetPlugin_v10\0ncclNetPlugin_v6\0ncclCollNetPlugin_v11\0ncclTunerPlugin_v5\0ncclNetPlugin_v7 symbol.\0"
    )
    library.write_bytes(b"\x7fELF" + bytes(5000) + names + bytes(5000) + b"ncclNetPlugin_v6\0")
    assert known_interfaces(library) == PluginInterfaces(net=(6, 10), tuner=(5,))


def test_another_library_is_not_taken_for_nccl(tmp_path: Path) -> None:
    (tmp_path / "libnccl.so.2").write_bytes(b"\x7fELF" + bytes(100))
    with pytest.raises(ValidationError, match=r"libnccl.so.2: names no ncclNetPlugin_v<number>"):
        known_interfaces(tmp_path / "libnccl.so.2")


def test_a_library_without_interfaces_has_none() -> None:
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    libc = next(line.split()[-1] for line in maps.splitlines() if "libc.so.6" in line)
    assert exported_interfaces((Path(libc),), variables=os.environ) == PluginInterfaces(net=(), tuner=())


def test_a_plugin_that_does_not_open_is_an_error_that_says_why(tmp_path: Path) -> None:
    plugin = tmp_path / "libnccl-net.so"
    plugin.write_text("no library\n" * 100, encoding="ascii")
    with pytest.raises(ValidationError, match=r"^libnccl-net.so: does not open: OSError: .*invalid ELF header"):
        exported_interfaces((plugin,), variables=os.environ)


def test_nccl_takes_the_newest_interface_of_both() -> None:
    nccl = PluginInterfaces(net=(6, 7, 8, 9, 10, 11, 12), tuner=())
    assert shared_net_interface(PluginInterfaces(net=(2, 3, 4, 5, 6), tuner=()), nccl) == 6
    assert shared_net_interface(PluginInterfaces(net=(6, 7, 8, 9), tuner=()), nccl) == 9


def test_an_nccl_that_knows_none_of_the_plugins_interfaces_is_one_error() -> None:
    old, new = PluginInterfaces(net=(4, 5), tuner=()), PluginInterfaces(net=(6, 7), tuner=())
    message = "^NCCL cannot use the plugin: it knows net interfaces v4, v5, the plugin has v6, v7$"
    with pytest.raises(ValidationError, match=message) as caught:
        shared_net_interface(new, old)
    assert caught.value.hint is not None
    assert "variants/nccl-ofi.yaml" in caught.value.hint


def test_each_provider_of_libfabric_is_listed_once(tmp_path: Path) -> None:
    program = write_program(
        tmp_path / "fi_info",
        """
        print("provider: tcp;ofi_rxm\\n    fabric: 127.0.0.0/8\\nprovider: shm\\n    fabric: shm\\nprovider: shm")
        """,
    )
    assert libfabric_providers(program, variables=os.environ) == ("shm", "tcp;ofi_rxm")
