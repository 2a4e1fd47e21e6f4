# SPDX-License-Identifier: BSD-3-Clause
"""Which plugin ABIs a library has or knows, and what of it fits together."""

from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.doctor.libraries import PluginAbis, known_abis, shared_net_abi
from channel_tools.system.errors import ValidationError


def test_the_names_in_nccl_say_what_it_knows(tmp_path: Path) -> None:
    library = tmp_path / "libnccl.so.2"
    names = (
        b"ncclNetPlugin_v10\0ncclNetPlugin_v6\0ncclCollNetPlugin_v11\0ncclTunerPlugin_v5\0ncclNetPlugin_v7 symbol.\0"
    )
    library.write_bytes(b"\x7fELF" + bytes(5000) + names + bytes(5000) + b"ncclNetPlugin_v6\0")
    assert known_abis(library) == PluginAbis(net=(6, 10), tuner=(5,))


def test_another_library_is_not_taken_for_nccl(tmp_path: Path) -> None:
    (tmp_path / "libnccl.so.2").write_bytes(b"\x7fELF" + bytes(100))
    with pytest.raises(ValidationError, match=r"libnccl.so.2: names no ncclNetPlugin_v<number>"):
        known_abis(tmp_path / "libnccl.so.2")


def test_nccl_takes_the_newest_abi_of_both() -> None:
    nccl = PluginAbis(net=(6, 7, 8, 9, 10, 11, 12), tuner=())
    assert shared_net_abi(PluginAbis(net=(2, 3, 4, 5, 6), tuner=()), nccl) == 6
    assert shared_net_abi(PluginAbis(net=(6, 7, 8, 9), tuner=()), nccl) == 9


def test_an_nccl_that_knows_none_of_the_plugins_abis_is_one_error() -> None:
    old, new = PluginAbis(net=(4, 5), tuner=()), PluginAbis(net=(6, 7), tuner=())
    message = "^NCCL cannot use the plugin: it knows net ABIs v4, v5, the plugin has v6, v7$"
    with pytest.raises(ValidationError, match=message) as caught:
        shared_net_abi(new, old)
    assert caught.value.hint is not None
    assert "variants/nccl-ofi.yaml" in caught.value.hint
