# SPDX-License-Identifier: BSD-3-Clause
"""The walk over other people's files (``make corpus``): it finds each kind, and keeps quiet about no defect."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from rattler.index import index_fs

from tests.corpus import counting
from tests.corpus.__main__ import print_report
from tests.corpus.attempts import Attempt, kind_of
from tests.corpus.channels import write_channel_for
from tests.support.command_line import run_tool
from tests.support.packages import make_conda

_LOCK = """\
version: 6
environments:
  default:
    channels: []
    packages:
      linux-64:
      - conda: https://example.invalid/linux-64/a-1-0.conda
      - conda: https://example.invalid/noarch/b-1-0.conda
packages: []
"""
_CONDA_LOCK = """\
version: 1
metadata: {}
package:
- {name: a, platform: linux-64, category: main}
- {name: b, platform: linux-64, category: dev}
- {name: b, platform: linux-64, category: test}
- {name: __glibc, platform: linux-64, category: main}
- {name: a, platform: win-64}
"""


def _command(returncode: int, stdout: str = "", stderr: str = "") -> Callable[..., CompletedProcess[str]]:
    """A command that ends so, whatever it is asked."""
    return lambda *arguments, cwd: CompletedProcess([str(cwd), *map(str, arguments)], returncode, stdout, stderr)


def _attempts(path: Path, command: Callable[..., CompletedProcess[str]]) -> list[Attempt]:
    kind = kind_of(path)
    assert kind is not None
    return list(kind.attempts(command, path))


def _bom(count: int) -> str:
    return json.dumps({"components": [{}] * count})


@pytest.fixture(name="lock")
def _lock(tmp_path: Path) -> Path:
    path = tmp_path / "pixi.lock"
    path.write_text(_LOCK)
    return path


def test_a_lock_whose_entries_are_all_taken_is_read(lock: Path) -> None:
    (found,) = _attempts(lock, _command(0, _bom(2)))
    assert (found.verdict, found.part, found.entries, found.taken) == ("read", "default linux-64", 2, 2)


def test_a_lock_that_loses_an_entry_in_silence_differs(lock: Path) -> None:
    (found,) = _attempts(lock, _command(0, _bom(1)))
    assert (found.verdict, found.entries, found.taken) == ("differs", 2, 1)


@pytest.mark.parametrize(
    ("returncode", "stderr"),
    [(70, "error: a defect of this program"), (-11, ""), (1, "Traceback (most recent call last):\n  ...")],
    ids=["defect", "signal", "traceback"],
)
def test_a_command_that_ends_otherwise_than_documented_has_crashed(lock: Path, returncode: int, stderr: str) -> None:
    (found,) = _attempts(lock, _command(returncode, stderr=stderr))
    assert found.verdict == "crashed"


def test_a_refusal_keeps_its_reason_and_hint(lock: Path) -> None:
    (found,) = _attempts(lock, _command(3, stderr="note: reading\nerror: pixi.lock:7: no hash\nhint: lock again\n"))
    assert found.verdict == "refused"
    assert found.reason.split() == ["error:", "pixi.lock:7:", "no", "hash", "hint:", "lock", "again"]


def test_a_command_line_that_does_not_exist_is_no_refusal(lock: Path) -> None:
    with pytest.raises(ValueError, match="No such option"):
        _attempts(lock, _command(2, stderr="Usage: ...\nTry 'channel_tools sbom -h' for help.\nNo such option: --x"))


def test_report_shows_defects_by_file_and_equal_refusals_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "pixi.lock").write_text(_LOCK)
        files.append(tmp_path / name / "pixi.lock")
    refused = [
        attempt
        for path in files
        for attempt in _attempts(path, _command(3, stderr=f"error: {path}:9: {path.parent.name}, b: pip packages"))
    ]
    print_report([*refused, *_attempts(files[0], _command(0, _bom(1)))], tmp_path)
    printed = capsys.readouterr().out
    assert "| pixi.lock | 2 | 3 | 0 | 2 | 0 | 1 | 2 | 1 |" in printed
    assert "differs: one/pixi.lock default linux-64 2 entries, 1 taken" in printed
    assert "refused, pixi.lock, 2 times, first one/pixi.lock" in printed


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("other.lock", _LOCK, "pixi.lock"),
        ("old.yml", "version: 3\nmetadata: {}\npackage: []\n", "pixi.lock"),
        ("conda-lock.yml", _CONDA_LOCK, "conda-lock.yml"),
        ("explicit.txt", "# a\n@EXPLICIT\n", "explicit list"),
        ("recipe.yaml", "package: {}\n", "recipe (v1)"),
        ("meta.yaml", "package: {}\n", "recipe (v0)"),
        ("variants.yaml", "a: [1]\n", "variant file"),
        ("env.yaml", "dependencies: []\n", "environment.yml"),
        ("repodata.json", "{}", "repodata"),
        ("a-1-0.conda", "", "package"),
        ("README.md", "dependencies", None),
        ("Cargo.lock", "version = 3\n", None),
    ],
)
def test_files_are_recognised_by_name_and_content(tmp_path: Path, name: str, text: str, kind: str | None) -> None:
    (tmp_path / name).write_text(text)
    found = kind_of(tmp_path / name)
    assert (found and found.name) == kind


def test_second_reader_counts_locks_by_platform_and_category(tmp_path: Path) -> None:
    path = tmp_path / "conda-lock.yml"
    path.write_text(_CONDA_LOCK)
    assert list(counting.conda_lock_parts(path)) == [
        ("dev", "linux-64", 2),
        ("main", "linux-64", 1),
        ("test", "linux-64", 2),
        ("main", "win-64", 1),
    ]


def test_second_reader_counts_what_holds_on_linux(tmp_path: Path) -> None:
    path = tmp_path / "conda_build_config.yaml"
    path.write_text("a:\n - 1  # [linux]\n - 2  # [osx]\nb: [1, 1]\nzip_keys: []\n")
    assert counting.variant_values(path) == {"a": 1, "b": 1}
    path.write_text("a: [1, 2]\ntarget_platform: [osx-64]\n")
    assert counting.variant_values(path) == {"a": 0, "target_platform": 0}
    path.write_text("a:\n - 1  # [cuda]\n")
    assert counting.variant_values(path) is None


def test_channel_for_an_environment_has_what_its_conditions_name(tmp_path: Path) -> None:
    path = tmp_path / "environment.yml"
    path.write_text("dependencies:\n- python=3.8\n- conda-forge::Numpy >=2.1,<3\n- __glibc\n- pip: [x]\n")
    wanted = counting.environment_specs(path)
    assert sorted(wanted) == ["numpy", "python"]
    write_channel_for(wanted, tmp_path / "channel")
    repodata = json.loads((tmp_path / "channel" / "noarch" / "repodata.json").read_text())
    versions = {record["version"] for record in repodata["packages.conda"].values() if record["name"] == "numpy"}
    assert versions >= {"2.1", "2.1.1", "3"}


def test_recipe_whose_names_depend_on_a_variant_is_not_counted(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    text = "context: {name: a}\noutputs:\n- package: {name: '${{ name }}-x'}\n- package: {name: b}\n"
    path.write_text(text)
    assert counting.recipe_outputs(path) == 2
    path.write_text(text.replace("-x", "-${{ mpi }}"))
    assert counting.recipe_outputs(path) is None


def test_md5_of_a_list_are_found_in_the_channel_that_is_made_for_it(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    address = "https://host.example/channel/linux-64"
    path.write_text(f"@EXPLICIT\n{address}/a-b-1%211.0-h_0.tar.bz2#{'a' * 32}\n{address}/c-1-0.conda#{'b' * 64}\n")
    records = counting.explicit_records(path)
    assert [(row["name"], row["version"], row["md5"]) for row in records.values()] == [("a-b", "1!1.0", "a" * 32)]
    (found,) = _attempts(path, run_tool)
    assert (found.verdict, found.entries, found.taken) == ("read", 2, 2)


def test_shards_are_counted_and_adopted(tmp_path: Path) -> None:
    channel = tmp_path / "channel"
    make_conda(channel, "toy")
    make_conda(channel, "toy", version="2.0")
    asyncio.run(index_fs(channel))
    index = channel / "linux-64" / "repodata_shards.msgpack.zst"
    assert counting.shard_entries(index) == 2
    (found,) = _attempts(index, run_tool)
    assert (found.verdict, found.entries, found.taken) == ("read", 2, 2)
