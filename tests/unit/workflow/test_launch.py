# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.matrix import find_stack, load_tree
from channel_tools.requests.launch import ScriptRequest
from channel_tools.system.errors import UsageError
from channel_tools.system.schedulers import SchedulerName
from channel_tools.system.settings import Settings, Tree, make_settings
from channel_tools.workflow.launch import (
    check_script,
    chosen_prefix,
    installed_stack,
    is_installed,
    method_options,
    plan_script,
    write_job,
)
from tests.support.fabric_profile import installed_activation

ROOT = Path(__file__).parents[3]
CRAY = {"pytorch-cray-mpich": "2.4.0 plugin_py311_h1234567_0", "mpich": "4.0.2 h1234567_0"}


def script_in(folder: Path, *words: str, hosts_file: Path | None = None) -> ScriptRequest:
    return ScriptRequest(words=words, hosts_file=hosts_file, folder=folder)


def test_a_script_exists_unless_it_is_on_other_hosts(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    check_script(script_in(tmp_path, "train.py", "--epochs", "3"))
    check_script(script_in(tmp_path, "-m", "package"))
    check_script(script_in(tmp_path, "elsewhere.py", hosts_file=tmp_path / "hosts"))
    with pytest.raises(UsageError, match=r"absent\.py: no such file in"):
        check_script(script_in(tmp_path, "absent.py"))


def test_the_environment_is_the_given_one_else_the_active_one(tmp_path: Path) -> None:
    assert chosen_prefix(tmp_path, {"CONDA_PREFIX": "/active"}) == tmp_path
    assert chosen_prefix(None, {"CONDA_PREFIX": "/active"}) == Path("/active")
    with pytest.raises(UsageError, match="no environment is active"):
        chosen_prefix(None, {})


@pytest.mark.parametrize(("name", "found"), [("absent", "no such folder"), (".", "a folder without conda-meta/")])
def test_what_is_no_environment_is_named_as_such(tmp_path: Path, name: str, found: str) -> None:
    settings = Settings(tree=Tree(root=ROOT), output=tmp_path / "output", cache=tmp_path / "cache")
    request = ScriptRequest(words=("train.py",), prefix=tmp_path / name, folder=tmp_path)
    with pytest.raises(UsageError, match=f"not an environment: {found}") as refused:
        plan_script(settings, request, environ={})
    assert "env create" in (refused.value.hint or "")


def test_a_stack_is_installed_if_all_of_its_packages_are() -> None:
    loaded = load_tree(Tree(root=ROOT), {})
    stack = find_stack(loaded, "cray-mpich")
    assert is_installed(stack, CRAY)
    assert not is_installed(stack, {name: build for name, build in CRAY.items() if name == "mpich"})
    found = installed_stack(loaded, CRAY, Path("env"))
    assert found is not None
    assert found.name == "cray-mpich"
    assert installed_stack(loaded, {}, Path("env")) is None
    assert "method" not in method_options(stack)


JOBS_ON_SLINGSHOT = pytest.mark.parametrize(
    ("profile", "scheduler", "nodes", "has_fabric", "asks"),
    [
        ("slingshot", "slurm", 2, True, True),
        ("slingshot", "slurm", 1, True, False),
        ("slingshot", "pbs", 2, True, False),
        ("slingshot", "slurm", 2, False, False),
        ("alps", "slurm", 2, True, False),
    ],
)
"""Whether a job is to ask for alternative rendezvous."""


@JOBS_ON_SLINGSHOT
def test_a_job_on_slingshot_asks_for_alternative_rendezvous_where_the_profile_wants_it(
    tmp_path: Path, profile: str, scheduler: SchedulerName, nodes: int, *, has_fabric: bool, asks: bool
) -> None:
    prefix = installed_activation(tmp_path, profile)
    settings = make_settings(root=ROOT, output=tmp_path / "output", environ={}, cwd=ROOT)
    request = ScriptRequest(
        words=("train.py",), stack="nccl-ofi", prefix=prefix, ranks=4, nodes=nodes, emit=scheduler, folder=tmp_path
    )
    root = tmp_path / "root" if has_fabric else tmp_path
    text = write_job(settings, request, environ={}, root=root)
    assert ("#SBATCH --network=disable_rdzv_get" in text.splitlines()) is asks
    assert text.count("disable_rdzv_get") == asks
