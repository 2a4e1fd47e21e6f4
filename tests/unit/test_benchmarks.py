# SPDX-License-Identifier: BSD-3-Clause
"""What the benchmarks say of a limit and of an aim that is missed."""

from __future__ import annotations

import pytest

from benchmarks.figures import print_figures
from benchmarks.small_builds import figures_of


@pytest.mark.parametrize(
    ("ours_s", "engine_s", "status", "said"),
    [
        pytest.param(0.5, 0.1, 0, [], id="met"),
        pytest.param(3.0, 0.5, 0, ["channel_tools build"], id="slower machine"),
        pytest.param(0.5, 0.04, 1, ["of py-rattler-build alone"], id="slower than the engine allows"),
    ],
)
def test_small_builds_fail_for_their_multiple_of_the_engines_time_and_not_for_seconds(
    ours_s: float, engine_s: float, status: int, said: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = {"channel_tools build": ours_s, "py-rattler-build alone": engine_s}
    assert print_figures(list(figures_of("one", seconds, aim_s=0.6, engine_s=0.06))) == status
    missed = [line for line in capsys.readouterr().out.splitlines() if "MISSED" in line]
    assert [line.removeprefix("one: ").partition("  ")[0] for line in missed] == said
