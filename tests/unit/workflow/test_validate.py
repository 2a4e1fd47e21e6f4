# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from channel_tools.requests.environment import InstallRequest
from channel_tools.requests.names import SchedulerName
from channel_tools.requests.validate import JobRequest, ValidateRequest
from channel_tools.system.errors import ChannelError, UsageError
from channel_tools.system.progress import SilentProgress
from channel_tools.system.settings import make_settings
from channel_tools.workflow.validate import (
    stack_to_validate,
    validate_installed,
    validate_variants,
    write_validation_job,
)
from tests.support.fabric_profile import installed_activation
from tests.unit.matrix.toytree import FILES, write_tree
from tests.unit.validate.conftest import report
from tests.unit.validate.nccl.test_nccl_tests import WHOLE
from tests.unit.workflow.test_launch import JOBS_ON_SLINGSHOT

__all__ = ["report"]

ROOT = Path(__file__).parents[3]
OTHER_STACK = """\
  other:
    description: Carries no data
    packages: [libtoy]
    install: [libtoy]
"""


def test_an_environment_is_validated_as_the_stack_that_it_is_of_not_as_the_default_one(tmp_path: Path) -> None:
    settings = make_settings(root=ROOT, output=tmp_path / "output", environ={}, cwd=tmp_path)
    prefix = tmp_path / "env"

    def validated(name: str | None, prefix: Path | None) -> str:
        request = ValidateRequest(install=InstallRequest(stack=name), prefix=prefix)
        return stack_to_validate(settings, request).name

    assert validated(None, prefix) == "udp"  # the environment is made
    (prefix / "conda-meta").mkdir(parents=True)
    assert validated(None, prefix) == "udp"
    for name, build in (("pytorch-cray-mpich", "plugin_py311_h1234567_0"), ("mpich", "h1234567_0")):
        record = {"name": name, "version": "4.0.2", "build": build}
        (prefix / "conda-meta" / f"{name}-4.0.2-{build}.json").write_text(json.dumps(record))
    assert validated(None, prefix) == "cray-mpich"
    assert validated("rdma", prefix) == "rdma"
    assert validated(None, None) == "udp"
    request = ValidateRequest(prefix=prefix, job=JobRequest(emit="slurm"))
    script = write_validation_job(settings, request, folder=tmp_path)
    assert " --variant cray-mpich " in script
    assert f" --prefix {prefix}" in script


def test_an_environment_is_validated_though_the_default_stack_has_no_validation(tmp_path: Path) -> None:
    stacks = FILES["variants/stacks.yaml"].replace("default_stack: udp", "default_stack: other") + OTHER_STACK
    root = write_tree(tmp_path, {"variants/stacks.yaml": stacks}).root
    settings = make_settings(root=root, output=None, environ={}, cwd=tmp_path)
    prefix = tmp_path / "env"
    (prefix / "conda-meta").mkdir(parents=True)
    for name, build in (("toy-meta", "h1234567_0"), ("libtoy", "udp_h1234567_0")):
        record = {"name": name, "version": "1.0", "build": build}
        (prefix / "conda-meta" / f"{name}-1.0-{build}.json").write_text(json.dumps(record))
    request = ValidateRequest(prefix=prefix)
    (result,) = validate_variants(settings, request, environ={}, progress=SilentProgress())
    assert isinstance(result.error, ChannelError)  # there is no local channel to validate it from


def test_a_stack_without_validation_is_not_validated(tmp_path: Path) -> None:
    stacks = FILES["variants/stacks.yaml"].replace("    validate: {method: switchml, num_threads: 2}\n", "")
    root = write_tree(tmp_path, {"variants/stacks.yaml": stacks}).root
    settings = make_settings(root=root, output=None, environ={}, cwd=tmp_path)
    request = ValidateRequest(install=InstallRequest(), ranks=2, timeout_s=1.0)
    with pytest.raises(UsageError, match="the stack udp has no validation"):
        validate_installed(settings, request, progress=SilentProgress(), environ={})
    assert not settings.output.exists()


def test_a_report_that_could_not_be_kept_is_no_reason_to_begin(tmp_path: Path) -> None:
    settings = make_settings(root=ROOT, output=tmp_path, environ={}, cwd=tmp_path)
    settings.reports.symlink_to("/proc")  # nobody may write there, root neither
    install = InstallRequest(stack="udp", channels=("file:///there/is/none",))
    request = ValidateRequest(install=install, ranks=2, timeout_s=1.0)
    with pytest.raises(OSError, match=str(settings.reports)):
        validate_installed(settings, request, progress=SilentProgress(), environ={})
    assert not settings.work.exists()


def test_a_validation_that_breaks_off_leaves_no_report_of_an_earlier_one(tmp_path: Path) -> None:
    settings = make_settings(root=ROOT, output=tmp_path, environ={}, cwd=tmp_path)
    settings.reports.mkdir()
    reports = [settings.reports / name for name in ("udp.json", "udp.html")]
    for path in reports:
        path.write_text("earlier")
    install = InstallRequest(stack="udp", channels=((tmp_path / "none").as_uri(),))
    request = ValidateRequest(install=install, ranks=10_000, timeout_s=1.0)
    with pytest.raises(UsageError, match="rank"):  # refused: no run begins
        validate_installed(settings, request, progress=SilentProgress(), environ={})
    assert all(path.is_file() for path in reports)
    with pytest.raises(ChannelError, match="none"):
        validate_installed(settings, replace(request, ranks=2), progress=SilentProgress(), environ={})
    assert not any(path.exists() for path in reports)


def test_the_output_of_nccl_tests_is_read_before_a_job_waits_and_only_for_a_stack_with_nccl(tmp_path: Path) -> None:
    settings = make_settings(root=ROOT, output=tmp_path / "output", environ={}, cwd=tmp_path)
    perf = tmp_path / "perf.txt"
    perf.write_text("srun: error: nid001: task 0: Exited with exit code 127\n")
    for stack, message in (("udp", "the stack udp has no NCCL plugin"), ("nccl-ofi", "has no table of nccl-tests")):
        request = ValidateRequest(
            install=InstallRequest(stack=stack), nccl_tests=perf, job=JobRequest(emit="slurm", nodes=2)
        )
        with pytest.raises(UsageError, match=message):
            write_validation_job(settings, request, folder=tmp_path)
    perf.write_text(WHOLE)
    script = write_validation_job(settings, request, folder=tmp_path)
    assert f" --nccl-tests {perf}" in script


@JOBS_ON_SLINGSHOT
def test_a_job_that_validates_an_environment_asks_of_slingshot_what_its_profile_wants(
    tmp_path: Path, profile: str, scheduler: SchedulerName, nodes: int, *, has_fabric: bool, asks: bool
) -> None:
    prefix = installed_activation(tmp_path, profile)
    settings = make_settings(root=ROOT, output=tmp_path / "output", environ={}, cwd=tmp_path)
    job = JobRequest(emit=scheduler, nodes=nodes, submit_options=("--account=fabrics",))
    request = ValidateRequest(install=InstallRequest(stack="nccl-ofi"), prefix=prefix, job=job)
    text = write_validation_job(settings, request, folder=tmp_path, root=tmp_path / "root" if has_fabric else tmp_path)
    assert ("--network=disable_rdzv_get --account=fabrics" in text) is asks
    assert text.count("disable_rdzv_get") == asks
    assert "--account=fabrics" in text


def test_one_output_of_nccl_tests_is_not_that_of_several_environments() -> None:
    with pytest.raises(UsageError, match="--nccl-tests is the output of one run"):
        ValidateRequest(all_variants=True, nccl_tests=Path("perf.txt"))
