# SPDX-License-Identifier: BSD-3-Clause
"""What is trained over SwitchML is what is trained over gloo: the example, and PyTorch's features of training."""

import pytest
from ranks import Launcher, on_hosts


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


@pytest.mark.parametrize("hosts", ["ab", "aab"])
def test_features_train_as_over_gloo(launcher: Launcher, request: pytest.FixtureRequest, hosts: str) -> None:
    if request.config.getoption("--pytorch-tests") != "all":
        pytest.skip("PyTorch's features of training take a minute: --pytorch-tests all")
    without = {"SWITCHML_ENABLE": "0"}
    over_gloo = launcher.run("training_features", environment=without, ranks=len(hosts))
    results = launcher.run(
        "training_features",
        environment={"SWITCHML_NEW_GROUPS": "1"},
        ranks=len(hosts),
        rank_environment=on_hosts(hosts),
    )
    for expected, result in zip(over_gloo, results, strict=True):
        assert expected.code == 0, expected.stderr
        assert result.code == 0, result.stderr
        assert result.value["values"].keys() == expected.value["values"].keys()
        for name, values in expected.value["values"].items():
            # float16 is rounded once over SwitchML, by each addition of gloo's
            assert result.value["values"][name] == pytest.approx(values, rel=1e-4, abs=1e-4), name
        assert result.value["stats"]["delegated"]["float32"]["jobs"] > 2 * len(expected.value["values"])
        assert expected.value["stats"]["active"] is False
