# SPDX-License-Identifier: BSD-3-Clause
"""What is taken from other packages beyond their public names is what docs/explanation/overrides.md lists."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.support.overrides import Override, find_overrides

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "overrides.md"
_ROW = re.compile(r"^\| (`[^|]+`) \| (`[^|]+`) \|", re.MULTILINE)
_QUOTED = re.compile(r"`([^`]+)`")
_TEST = re.compile(r"`([\w/-]+\.py)`: `(test_\w+)`")


def sources() -> dict[Path, str]:
    folders = (ROOT / "channel_tools", ROOT / "tests", ROOT / "benchmarks", *ROOT.glob("recipes/*/src/torch_*"))
    return {path: path.read_text(encoding="utf-8") for folder in folders for path in sorted(folder.rglob("*.py"))}


def listed() -> set[Override]:
    rows = _ROW.findall(PAGE.read_text(encoding="utf-8"))
    return {
        Override(name=name, file=file)
        for names, files in rows
        for name in _QUOTED.findall(names)
        for file in _QUOTED.findall(files)
    }


def test_the_page_lists_every_override() -> None:
    """One more: use the package's public interface, or give the reason there, and the test that notices a change."""
    found, wanted = find_overrides(sources()), listed()
    assert sorted(found - wanted) == []
    assert sorted(wanted - found) == []


def test_the_tests_that_notice_are_there() -> None:
    named = _TEST.findall(PAGE.read_text(encoding="utf-8"))
    assert len(named) > 3
    assert [test for file, test in named if f"def {test}(" not in (ROOT / file).read_text(encoding="utf-8")] == []


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import botocore._private", {"botocore._private"}),
        ("from torch._C import x", {"torch._C.x"}),
        ("from __future__ import annotations\nfrom channel_tools.a import _b", set()),
        ("import tarfile\ntarfile.TarInfo._proc_member(1)", {"tarfile.TarInfo._proc_member"}),
        ("def f(response):\n    return response._content", {"_content"}),
        ("class A:\n    def _own(self): ...\n\ndef f(a):\n    return a._own()", set()),
        ("import os\nos._exit(0)\nos.environ['A'] = 'b'", set()),
        ("import uvicorn as u\nu.Server.run = None", {"uvicorn.Server.run"}),
        ("import sys\nsys.modules['boto3'] = None", {"sys.modules[boto3]"}),
        ("import sys\nsys.modules.setdefault('boto3', None)", {"sys.modules[boto3]"}),
        ("import tarfile\nclass A(tarfile.TarInfo):\n    def _proc_pax(self): ...", {"tarfile.TarInfo._proc_pax"}),
        ("import tarfile\nclass A(tarfile.TarInfo):\n    def _ours(self): ...", set()),
        ("import tuf\nsetattr(tuf, 'api', 1)", {"tuf.api"}),
        (
            "def t(patch):\n    patch.setattr('urllib3.connection.HTTPConnection', 1)",
            {"urllib3.connection.HTTPConnection"},
        ),
        ("def t(monkeypatch):\n    monkeypatch.setattr('channel_tools.serve.metrics.os.write', 1)", {"os.write"}),
        ("def t(monkeypatch):\n    monkeypatch.setattr('channel_tools.serve.metrics.Metrics', 1)", set()),
        ("from pathlib import Path\nimport a\na.b, Path.open = 1, 2", {"a.b", "pathlib.Path.open"}),
    ],
)
def test_what_counts_as_an_override(source: str, names: set[str]) -> None:
    file = ROOT / "channel_tools" / "made_up.py"
    assert {one.name for one in find_overrides({file: source})} == names


def test_files_of_unit_tests_are_in_memory_in_whole_runs(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """By an attribute of pytest's factory of folders (tests/unit/conftest.py)."""
    memory = Path("/dev/shm")  # noqa: S108 - nothing is written
    if not hasattr(request.config, "workerinput") or not os.access(memory, os.W_OK):
        pytest.skip("on one core, or without a file system in memory")
    assert tmp_path.is_relative_to(memory)
