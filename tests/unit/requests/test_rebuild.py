# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.requests.rebuild import RebuildRequest
from channel_tools.system.errors import UsageError
from channel_tools.system.settings import Settings, Tree


def test_the_new_package_comes_below_the_output_unless_a_folder_is_named(tmp_path: Path) -> None:
    settings = Settings(tree=Tree(root=tmp_path), output=tmp_path / "output", cache=tmp_path / "cache")
    assert RebuildRequest(package="toy").folder(settings) == tmp_path / "output" / "rebuilt"
    assert RebuildRequest(package="toy", destination=Path("there")).folder(settings) == Path.cwd() / "there"


def test_diffoscope_explains_a_comparison_that_is_asked_for() -> None:
    diffoscope = Path("diffoscope")
    assert RebuildRequest(package="toy", compare=True, diffoscope=diffoscope).diffoscope == diffoscope
    with pytest.raises(UsageError, match="--diffoscope without --compare"):
        RebuildRequest(package="toy", diffoscope=diffoscope)
