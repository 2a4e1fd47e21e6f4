# SPDX-License-Identifier: BSD-3-Clause
"""Every operation of a group over the plugin; the checks are in SOURCES."""

import ast
from pathlib import Path

import pytest
from ranks import Launcher, RankResult, on_hosts

TESTS = Path(__file__).resolve().parent
SOURCES = ("operations.py", "collectives.py", "order_operations.py", "strided_operations.py")


def check_names(*sources: str) -> list[str]:
    """The checks in these files, read without importing torch into the test runner."""
    return [
        node.name
        for source in sources
        for node in ast.parse((TESTS / source).read_text()).body
        if isinstance(node, ast.FunctionDef)
        and any(isinstance(mark, ast.Name) and mark.id == "check" for mark in node.decorator_list)
    ]


@pytest.fixture(scope="module", params=["ab", "aa", "aab"], ids=["a rank a host", "one host", "two hosts"])
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[RankResult]:
    transport = request.getfixturevalue("transport")
    server = request.getfixturevalue("rank_server")
    launcher = Launcher(folder=tmp_path_factory.mktemp("operations"), environment=transport.environment, server=server)
    return launcher.run("all_operations", ranks=len(request.param), rank_environment=on_hosts(request.param))


@pytest.mark.parametrize("name", check_names(*SOURCES))
def test_operation(name: str, results: list[RankResult]) -> None:
    for result in results:
        assert result.value is not None, result.stderr
        assert name in result.value["passed"], f"rank {result.rank}:\n{result.stderr}"


def test_all_ranks_end_well(results: list[RankResult]) -> None:
    assert [result.code for result in results] == [0] * len(results), [result.stderr for result in results]


def test_ranks_agree_on_who_carried_what(results: list[RankResult]) -> None:
    delegated = [result.value["stats"]["delegated"] for result in results]
    assert all(counts == delegated[0] for counts in delegated)
    assert delegated[0]["float32"]["jobs"] > 0
    assert delegated[0]["int32"]["jobs"] > 0


def test_ranks_of_a_host_are_one_worker_where_there_are_several_hosts(
    request: pytest.FixtureRequest, results: list[RankResult]
) -> None:
    names = request.node.callspec.params["results"]
    for result in results:
        stats = result.value["stats"]
        ranks = [rank for rank, name in enumerate(names) if name == names[result.rank]]
        workers = len(set(names)) if len(set(names)) > 1 else 0
        assert stats["host"] == {"ranks": ranks, "workers": workers}
        assert (stats["transport"] is not None) is (workers > 0 and result.rank == ranks[0])
        elements = sum(row["elements"] for row in stats["delegated"].values()) if len(ranks) > 1 else 0
        assert stats["reduced_in_host"]["elements"] == elements


def test_average_of_integers_is_left_to_gloo(launcher: Launcher) -> None:
    for result in launcher.run("average_of_integers"):
        assert result.code == 0, result.stderr
        assert result.value == {"fallbacks": 1, "delegated": 0}
