# SPDX-License-Identifier: BSD-3-Clause
"""The training example learns over SwitchML what it learns over gloo."""

import pytest
from ranks import Launcher


def test_losses_are_gloos(launcher: Launcher) -> None:
    over_gloo, _ = launcher.run("training_example", environment={"SWITCHML_ENABLE": "0"})
    results = launcher.run("training_example")
    for result in results:
        assert result.code == 0, result.stderr
        assert result.value["losses"] == pytest.approx(over_gloo.value["losses"], rel=1e-4)
        # two buckets are rebuilt into one after the first step; a loss is averaged after each
        assert result.value["stats"]["delegated"]["float32"]["jobs"] >= 2 * len(over_gloo.value["losses"])
    assert over_gloo.value["losses"][-1] < 0.5 * over_gloo.value["losses"][0], "it has to learn"
    assert over_gloo.value["stats"]["active"] is False
