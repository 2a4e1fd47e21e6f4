# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from channel_tools.environments import activated_environment
from channel_tools.errors import CommandError, UsageError

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
    with pytest.raises(UsageError, match="no environment"):
        activated_environment(tmp_path, environ={})


def test_a_failing_script_is_an_error(prefix: Path) -> None:
    (prefix / "etc/conda/activate.d/broken.sh").write_text("echo driver not found >&2\nexit 3\n")
    with pytest.raises(CommandError, match=r"(?s)exit status 3.*driver not found"):
        activated_environment(prefix, environ={})
