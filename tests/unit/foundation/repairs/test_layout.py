# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import posixpath
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channel_tools.foundation.repairs.layout import drop_static, drop_unused, flatten, native_place, way_up
from channel_tools.system.errors import FoundationError
from tests.support.trees import make_tree, tree_state
from tests.unit.foundation.repairs.trees import MULTIARCH, context


def test_usr_and_the_multiarch_folders_go(tmp_path: Path) -> None:
    make_tree(
        tmp_path,
        {
            f"usr/lib/{MULTIARCH}/libz.so.1.2": "library",
            f"usr/include/{MULTIARCH}/zconf.h": "header",
            "usr/include/zlib.h": "header",
            "usr/sbin/tool": "program",
            "etc/zlib.conf": "settings",
        },
    )
    flatten(tmp_path, context())
    assert set(tree_state(tmp_path)) == {
        "lib/libz.so.1.2",
        "include/zconf.h",
        "include/zlib.h",
        "bin/tool",
        "etc/zlib.conf",
    }


@pytest.mark.parametrize(
    ("link", "target", "expected"),
    [
        (f"usr/lib/{MULTIARCH}/libz.so", f"/lib/{MULTIARCH}/libz.so.1", "libz.so.1"),
        (f"usr/lib/{MULTIARCH}/libz.so", "libz.so.1", "libz.so.1"),
        (f"usr/lib/gcc/{MULTIARCH}/12/libz.so", f"../../../{MULTIARCH}/libz.so.1", "../../../libz.so.1"),
        (f"usr/lib/{MULTIARCH}/demo/include", f"../../../include/{MULTIARCH}/demo", "../../include/demo"),
        ("usr/bin/other", "/usr/bin/of-another-package", "of-another-package"),
    ],
    ids=["absolute", "beside", "through multiarch", "folder", "another package"],
)
def test_links_stay_right_and_become_relative(tmp_path: Path, link: str, target: str, expected: str) -> None:
    make_tree(tmp_path, {f"lib/{MULTIARCH}/libz.so.1": "library", link: f"-> {target}"})
    flatten(tmp_path, context())
    placed = tmp_path / native_place(PurePosixPath(link), context())
    assert placed.readlink().as_posix() == expected


def test_a_link_that_would_lead_to_itself_goes(tmp_path: Path) -> None:
    make_tree(tmp_path, {f"lib/{MULTIARCH}/ld.so": "loader", "lib64/ld.so": f"-> /lib/{MULTIARCH}/ld.so"})
    flatten(tmp_path, context())
    assert tree_state(tmp_path) == {"lib/ld.so": "loader"}


def test_equal_files_meet_and_different_ones_are_an_error(tmp_path: Path) -> None:
    make_tree(tmp_path / "same", {"lib/a": "1", "usr/lib/a": "1"})
    flatten(tmp_path / "same", context())
    assert tree_state(tmp_path / "same") == {"lib/a": "1"}
    make_tree(tmp_path / "other", {"lib/a": "1", "usr/lib/a": "2"})
    with pytest.raises(FoundationError, match=r"package libdemo 1\.2\.3: two different files would both become a"):
        flatten(tmp_path / "other", context())


def test_an_unknown_top_folder_is_an_error(tmp_path: Path) -> None:
    make_tree(tmp_path, {"var/lib/state": "x"})
    with pytest.raises(FoundationError, match=r"does not know where var/lib/state belongs") as caught:
        flatten(tmp_path, context())
    assert "--locked" in (caught.value.hint or "")


def test_documentation_and_service_files_go(tmp_path: Path) -> None:
    make_tree(
        tmp_path,
        {
            "share/doc/x/README": "",
            "share/man/man1/x.1": "",
            "lib/systemd/system/x.service": "",
            "lib/libx.la": "",
            "share/x/data": "",
            "lib/libx.so": "",
        },
    )
    drop_unused(tmp_path, context())
    assert set(tree_state(tmp_path)) == {"share/x/data", "lib/libx.so"}


def test_static_libraries_go_unless_a_cmake_file_names_them(tmp_path: Path) -> None:
    make_tree(
        tmp_path,
        {
            "lib/libkept.a": "",
            "lib/libgone.a": "",
            "lib/cmake/x/xTargets.cmake": 'set(x "${_IMPORT_PREFIX}/lib/libkept.a")',
        },
    )
    drop_static(tmp_path, context())
    assert set(tree_state(tmp_path)) == {"lib/libkept.a", "lib/cmake/x/xTargets.cmake"}


@given(st.lists(st.sampled_from(["a", "b", "lib"]), min_size=1, max_size=6))
def test_way_up_leads_from_the_files_folder_to_the_prefix(parts: list[str]) -> None:
    path = PurePosixPath(*parts)
    assert posixpath.normpath(posixpath.join(path.parent, way_up(path))) == "."
