# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from channel_tools.environments import activated_environment
from channel_tools.system.errors import CommandError, UsageError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    prefix = tmp_path / "an environment"
    (prefix / "conda-meta").mkdir(parents=True)
    (prefix / "etc/conda/activate.d").mkdir(parents=True)
    return prefix


def test_programs_of_the_environment_come_first(prefix: Path) -> None:
    variables = activated_environment(prefix, environ={"PATH": "/callers/bin"})
    assert variables["PATH"] == f"{prefix}/bin:/usr/bin:/bin"
    assert variables["CONDA_PREFIX"] == str(prefix)


def test_activation_scripts_take_effect(prefix: Path) -> None:
    script = prefix / "etc/conda/activate.d/site.sh"
    script.write_text('export SITE="$CONDA_PREFIX/etc\nsecond line"\nunset CONDA_SHLVL\n')
    variables = activated_environment(prefix, environ={})
    assert variables["SITE"] == f"{prefix}/etc\nsecond line"
    assert "CONDA_SHLVL" not in variables


def test_nothing_of_the_callers_environment_leaks(prefix: Path) -> None:
    callers = dict.fromkeys(
        ("PYTHONPATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONHOME", "VIRTUAL_ENV", "BASH_ENV"), "/x"
    )
    variables = activated_environment(prefix, environ={**callers, "HOME": "/home/me", "CONDA_PREFIX": "/other"})
    assert not callers.keys() & variables.keys()
    assert variables["HOME"] == "/home/me"
    assert "/other" not in variables.values()


def test_no_environment_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not an environment"):
        activated_environment(tmp_path, environ={})


def test_a_failing_script_is_an_error(prefix: Path) -> None:
    (prefix / "etc/conda/activate.d/broken.sh").write_text("echo driver not found >&2\nexit 3\n")
    with pytest.raises(CommandError, match=r"(?s)exit status 3.*driver not found"):
        activated_environment(prefix, environ={})


@pytest.mark.parametrize("name", ["jürgen's env", 'a"b', "a$HOME", "a`touch ran`", "a\\b", "a:b", "a\nb", "a\udcff"])
def test_a_path_where_none_can_work_is_refused_and_not_given_to_a_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name / "conda-meta").mkdir(parents=True)
    with pytest.raises(UsageError, match="an environment cannot work at a path with"):
        activated_environment(tmp_path / name, environ={})
    assert not (tmp_path / "ran").exists()


def test_other_signs_in_a_path_are_taken_as_they_are(tmp_path: Path) -> None:
    prefix = tmp_path / "jürgen;&(a,b=50%#c)* [!?~ |<>"
    (prefix / "conda-meta").mkdir(parents=True)
    variables = activated_environment(prefix, environ={})
    assert variables["PATH"] == f"{prefix}/bin:/usr/bin:/bin"
    assert variables["CONDA_PREFIX"] == str(prefix)
