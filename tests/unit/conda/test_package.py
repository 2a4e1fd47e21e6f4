# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import pytest

from channel_tools.conda.package import INSTALLATION, PackageKey, PackageRef, link_script_paths, link_scripts_among


def test_a_key_reads_back_what_it_writes() -> None:
    key = PackageKey("linux-64", "zlib-1.3-h1_0.conda")
    assert str(key) == "linux-64/zlib-1.3-h1_0.conda"
    assert PackageKey.parse(str(key)) == key


@pytest.mark.parametrize("text", ["", "linux-64", "linux-64/", "/x.conda", "a/b/c.conda"])
def test_a_text_that_is_not_subdir_and_file_name_is_not_a_key(text: str) -> None:
    with pytest.raises(ValueError, match="expected subdir/file name"):
        PackageKey.parse(text)


def test_refs_are_ordered_by_key() -> None:
    refs = [
        PackageRef(subdir=subdir, file_name=name, sha256="0", size_bytes=1)
        for subdir, name in [("noarch", "a-1-0.conda"), ("linux-64", "b-1-0.conda"), ("linux-64", "a-1-0.conda")]
    ]
    assert [str(ref.key) for ref in sorted(refs)] == [
        "linux-64/a-1-0.conda",
        "linux-64/b-1-0.conda",
        "noarch/a-1-0.conda",
    ]


def test_scripts_lie_where_conda_looks_for_them() -> None:
    assert link_script_paths("toy", INSTALLATION, windows=False) == ["bin/.toy-pre-link.sh", "bin/.toy-post-link.sh"]
    assert link_script_paths("toy", ["pre-unlink"], windows=True) == ["Scripts/.toy-pre-unlink.bat"]


def test_scripts_of_other_packages_and_of_no_action_are_none_of_the_package() -> None:
    own = ["Scripts/.toy-post-link.bat", "bin/.toy-post-unlink.sh"]
    others = ["bin/.toys-post-link.sh", "bin/.toy-link.sh", "lib/.toy-post-link.sh", "bin/.toy-post-link.bat"]
    assert link_scripts_among([*others, *reversed(own)], "toy") == own
