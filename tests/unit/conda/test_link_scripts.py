# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from channel_tools.conda.link_scripts import INSTALLATION, link_script_paths, link_scripts_among


def test_scripts_lie_where_conda_looks_for_them() -> None:
    assert link_script_paths("toy", INSTALLATION, windows=False) == ["bin/.toy-pre-link.sh", "bin/.toy-post-link.sh"]
    assert link_script_paths("toy", ["pre-unlink"], windows=True) == ["Scripts/.toy-pre-unlink.bat"]


def test_scripts_of_other_packages_and_of_no_action_are_none_of_the_package() -> None:
    own = ["Scripts/.toy-post-link.bat", "bin/.toy-post-unlink.sh"]
    others = ["bin/.toys-post-link.sh", "bin/.toy-link.sh", "lib/.toy-post-link.sh", "bin/.toy-post-link.bat"]
    assert link_scripts_among([*others, *reversed(own)], "toy") == own
