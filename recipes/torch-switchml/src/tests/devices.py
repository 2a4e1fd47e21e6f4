# SPDX-License-Identifier: BSD-3-Clause
"""The device that a scenario's tensors are on: a GPU, or the slow device of device/."""

import ctypes
import os
import types

import torch

# Of any such device, the first.
NAME = os.environ.get("SCENARIO_DEVICE", "slow")
# csrc/device_lane.h
CHUNK_NUMEL = 2**19

_library: ctypes.CDLL | None = None
_pinned_before = 0


def load() -> torch.device:
    """The device, ready for use; the slow one from the library that SCENARIO_DEVICE_LIBRARY names."""
    global _library  # noqa: PLW0603 - a process has one such device
    if NAME == "slow" and _library is None:
        _library = ctypes.CDLL(os.environ["SCENARIO_DEVICE_LIBRARY"])
        torch.utils.rename_privateuse1_backend("slow")
        seeds = types.SimpleNamespace(_is_in_bad_fork=lambda: False, manual_seed_all=lambda _: None)
        torch._register_device_module("slow", seeds)
        _library.slow_device_register()
    return torch.device(NAME, 0)


def lose_after(copies: int) -> None:
    """Have the slow device's copy after so many more fail."""
    assert _library is not None
    _library.slow_device_lose_after(copies)


def most_pinned_bytes() -> int:
    """The most bytes of pinned host memory at a time since the last call, beyond what a GPU's had then."""
    global _pinned_before  # noqa: PLW0603 - as the device
    if _library is None:
        found = torch.cuda.host_memory_stats()
        # what is in use, and not what PyTorch keeps for later; older ones count that alone
        name = "active_bytes" if "active_bytes.peak" in found else "allocated_bytes"
        most = int(found[f"{name}.peak"]) - _pinned_before
        torch.cuda.reset_peak_host_memory_stats()
        _pinned_before = int(found[f"{name}.current"])
        return most
    _library.slow_device_most_pinned_bytes.restype = ctypes.c_size_t
    return int(_library.slow_device_most_pinned_bytes())
