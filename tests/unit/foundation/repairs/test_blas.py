# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.foundation.repairs.blas import place_openblas
from channel_tools.foundation.repairs.layout import files_in
from channel_tools.system.errors import FoundationError
from tests.support.trees import make_tree
from tests.unit.foundation.repairs.trees import context

FLAVOUR = "usr/lib/x86_64-linux-gnu/openblas-pthread"
PACKAGE = "prefix=/usr\nlibdir=${prefix}/lib/openblas-pthread/\nincludedir=${prefix}/include/openblas-pthread/\n"


def test_the_build_with_threads_comes_to_the_usual_folders(tmp_path: Path) -> None:
    tree = make_tree(
        tmp_path,
        {
            f"{FLAVOUR}/libopenblasp-r0.3.21.so": "library",
            f"{FLAVOUR}/libopenblas.so.0": "-> libopenblasp-r0.3.21.so",
            f"{FLAVOUR}/pkgconfig/openblas.pc": PACKAGE,
            "usr/include/x86_64-linux-gnu/openblas-pthread/cblas.h": "header",
        },
    )
    place_openblas(tree, context("openblas"))
    assert {str(path.relative_to(tree)) for path in files_in(tree)} == {
        "usr/include/cblas.h",
        "usr/lib/libopenblas.so.0",
        "usr/lib/libopenblasp-r0.3.21.so",
        "usr/lib/pkgconfig/openblas.pc",
    }
    assert (tree / "usr/lib/libopenblas.so.0").read_text() == "library"
    assert "openblas-pthread" not in (tree / "usr/lib/pkgconfig/openblas.pc").read_text()


def test_another_layout_is_named(tmp_path: Path) -> None:
    tree = make_tree(tmp_path, {"usr/lib/x86_64-linux-gnu/libopenblas.so.0": "library"})
    with pytest.raises(FoundationError, match="expected a folder openblas-pthread"):
        place_openblas(tree, context("openblas"))
