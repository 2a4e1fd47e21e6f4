# SPDX-License-Identifier: BSD-3-Clause
"""The report's form, and its file."""

import json
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import tomllib
from rank_server import RankServer
from ranks import Launcher

import torch_switchml
from torch_switchml.report import write_report
from torch_switchml.unused import unused_line

PROJECT = Path(__file__).parent.parent / "pyproject.toml"


def test_stats_of_a_process_that_never_delegated() -> None:
    report = torch_switchml.stats()
    assert report["active"] is False
    assert report["schema"] == 1
    assert report["delegated"]["float32"] == {"jobs": 0, "elements": 0, "bytes": 0}
    assert set(report["fallbacks"]) == {"device", "dtype", "group", "reduce_op", "several_tensors", "sparse"}
    assert report["gloo_collectives"] == {"all_gather": 0, "reduce_scatter": 0}
    assert json.loads(json.dumps(report)) == report


def test_counters_of_the_compiled_part_have_the_same_form(tmp_path: Path, rank_server: RankServer) -> None:
    code = (
        "import json, torch\n"
        "from torch_switchml import _C\n"
        "from torch_switchml.report import _nothing_counted\n"
        "assert _C.Counters(print).snapshot() == _nothing_counted(), _C.Counters(print).snapshot()"
    )
    Launcher(folder=tmp_path, server=rank_server).run_code(code)


def test_write_replaces_the_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text("old and much longer than the new one")
    write_report(path, {"b": 1, "a": 2})
    assert path.read_text() == '{\n  "a": 2,\n  "b": 1\n}\n'
    assert list(tmp_path.iterdir()) == [path]


def test_write_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    (taken / "in the way").mkdir(parents=True)
    with pytest.raises(OSError, match="taken"):
        write_report(taken, {})
    assert list(tmp_path.iterdir()) == [taken]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"fallbacks": {"dtype": 3, "device": 1, "group": 0}}, "1 for their device, 3 for their dtype"),
        ({}, "no allreduce was called"),
        ({"failure": "the switch is gone"}, "the session failed: the switch is gone"),
        ({"rank": 1}, None),
        ({"world_size": 1}, None),
        ({"delegated": {"int32": {"jobs": 1}}}, None),
    ],
)
def test_rank_0_of_several_says_why_nothing_was_carried(changes: dict[str, Any], says: str | None) -> None:
    line = unused_line({**torch_switchml.stats(), "rank": 0, "world_size": 4, **changes})
    assert (line is None) == (says is None)
    assert (says or "") in (line or "")


def test_version_is_the_projects() -> None:
    project = tomllib.loads(PROJECT.read_text())["project"]
    assert project["version"] == torch_switchml.__version__


def test_pytorch_finds_the_entry_point() -> None:
    (found,) = (point for point in entry_points(group="torch.backends") if point.name == "switchml")
    assert found.value == "torch_switchml:autoload"
    assert found.load() is torch_switchml.autoload
