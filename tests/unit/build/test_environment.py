# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import os
from pathlib import Path

from channel_tools.build.environment import child_environment, shell_environment

USER = {"PATH": "/home/me/bin", "HOME": "/home/me", "LD_PRELOAD": "x.so", "https_proxy": "http://proxy", "TERM": "vt"}


def test_a_worker_gets_of_the_users_variables_only_how_to_reach_and_trust_channels(tmp_path: Path) -> None:
    found = child_environment(USER, cores=3, temporary=tmp_path, cache=tmp_path / "cache")
    assert found["PATH"] == "/usr/bin:/bin"
    assert (found["HOME"], found["https_proxy"]) == ("/home/me", "http://proxy")
    assert (found["CPU_COUNT"], found["TMPDIR"]) == ("3", str(tmp_path))
    assert not {"LD_PRELOAD", "TERM"} & found.keys()


def test_a_worker_gets_what_names_a_sites_own_libraries(tmp_path: Path) -> None:
    site = {"CHANNEL_ROCM_DIR": "/opt/rocm-6.2", "CHANNEL_XRT_DIR": "/opt/xrt", "CHANNEL_CRAY_MPICH_DIR": "/pe"}
    others = {"CHANNEL_TOOLS_CACHE_DIR": "/x", "CHANNEL_TOOLS_CACHE": "/x", "MY_CHANNEL_ROCM_DIR": "/x"}
    found = child_environment(site | others, cores=1, temporary=tmp_path, cache=tmp_path)
    assert site.items() <= found.items()
    assert not others.keys() & found.keys()


def test_a_shell_in_a_failed_build_has_the_users_terminal_and_keeps_no_history(tmp_path: Path) -> None:
    found = shell_environment(tmp_path, USER, cores=1, cache=tmp_path)
    assert (found["TERM"], found["HISTFILE"], found["TMPDIR"]) == ("vt", os.devnull, str(tmp_path / "tmp"))
    assert "TERM" not in shell_environment(tmp_path, {}, cores=1, cache=tmp_path)
