# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.channel import add_set, channel_writer
from channel_tools.foundation.model import LockedArtifact
from channel_tools.foundation.record import FoundationRecord, RecordedPackage, write_record
from channel_tools.matrix.choice import version_of
from channel_tools.requests.environment import AddRequest, EnvironmentRequest, InstallRequest
from channel_tools.system.errors import SolveError
from channel_tools.system.progress import SilentProgress
from channel_tools.system.settings import CACHE_VARIABLE, STACKS_PACKAGE, make_settings, make_stacks_settings
from channel_tools.workflow.environment import add, install, install_specs, naming_cuda
from tests.support.conda_history import conda_requests
from tests.support.packages import make_conda, new_channel
from tests.unit.validate.conftest import report

__all__ = ["report"]

ROOT = Path(__file__).parents[3]
STACKS = """\
default_stack: toy
stacks:
  toy:
    description: sums over gloo
    packages: [toy]
    install: [toy]
"""
RECIPE = "package: {name: toy, version: '1'}\nbuild: {noarch: generic, script: ['true']}\n"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({}, {"python": "3.11", "pytorch": "2.13"}, id="the default variant"),
        pytest.param({"pytorch": "2.12"}, {"python": "3.11", "pytorch": "2.12"}, id="the default Python"),
        pytest.param({"python": "3.13"}, {"python": "3.13", "pytorch": "2.13"}, id="the default PyTorch"),
        pytest.param({"channels": ("https://a.example",)}, {}, id="another channel's solver"),
    ],
)
def test_an_installation_is_of_one_python_and_pytorch(
    tmp_path: Path, given: dict[str, str], expected: dict[str, str]
) -> None:
    settings = make_settings(root=ROOT, output=tmp_path, environ={}, cwd=tmp_path)
    specs = install_specs(settings, InstallRequest(stack="cray-mpich", **given))  # type: ignore[arg-type]
    chosen = {key: version_of(value) for key, _, value in (spec.partition(" ") for spec in specs)}
    assert {key: value for key, value in chosen.items() if key in {"python", "pytorch"}} == expected


def test_a_pytorch_that_is_the_stacks_own_package_is_pinned_by_its_name(tmp_path: Path) -> None:
    settings = make_settings(root=ROOT, output=tmp_path, environ={}, cwd=tmp_path)
    request = InstallRequest(stack="cray-mpich-patched", python="3.11", pytorch="2.6.0")
    specs = install_specs(settings, request)
    assert "pytorch-cray-mpich 2.6.0.*" in specs
    assert not [spec for spec in specs if spec.startswith("pytorch ")]


def test_a_local_channel_that_has_not_the_package_of_the_stacks_gives_the_stack_alone(tmp_path: Path) -> None:
    (tmp_path / "stacks" / "variants").mkdir(parents=True)
    (tmp_path / "stacks" / "variants" / "stacks.yaml").write_text(STACKS)
    channel = new_channel(tmp_path / "output")
    environ = {CACHE_VARIABLE: str(tmp_path / "cache")}
    settings = make_stacks_settings(tmp_path / "stacks", output=tmp_path / "output", environ=environ, cwd=tmp_path)

    def installed() -> set[str]:
        result = install(
            settings,
            EnvironmentRequest(prefix=tmp_path / "env", replace=True),
            environ=environ,
            progress=SilentProgress(),
        )
        return {record.name for record in result.records}

    with channel_writer(channel) as writer:
        add_set(writer, [make_conda(tmp_path, "toy")])
    assert installed() == {"toy"}
    with channel_writer(channel) as writer:
        add_set(writer, [make_conda(tmp_path, STACKS_PACKAGE)])
    assert installed() == {"toy", STACKS_PACKAGE}


def test_a_stack_is_added_beside_what_is_there_from_the_local_channel(tmp_path: Path) -> None:
    (tmp_path / "stacks" / "variants").mkdir(parents=True)
    (tmp_path / "stacks" / "variants" / "stacks.yaml").write_text(STACKS)
    channel = new_channel(tmp_path / "output")
    environ = {CACHE_VARIABLE: str(tmp_path / "cache")}
    settings = make_stacks_settings(tmp_path / "stacks", output=tmp_path / "output", environ=environ, cwd=tmp_path)
    elsewhere = new_channel(tmp_path / "elsewhere")
    with channel_writer(elsewhere) as writer:
        add_set(writer, [make_conda(tmp_path, "own")])
    with channel_writer(channel) as writer:
        add_set(writer, [make_conda(tmp_path, "toy"), make_conda(tmp_path, STACKS_PACKAGE)])
    prefix, progress = tmp_path / "env", SilentProgress()
    request = EnvironmentRequest(
        prefix=prefix, specs=("own",), install=InstallRequest(channels=(elsewhere.path.as_uri(),))
    )
    install(None, request, environ=environ, progress=progress)
    result = add(settings, AddRequest(prefix=prefix, stack="toy"), environ=environ, progress=progress)
    assert {record.name for record in result.records} == {"own", "toy", STACKS_PACKAGE}
    assert conda_requests(prefix).keys() == {"own", "toy", STACKS_PACKAGE}


@pytest.mark.parametrize("has_them", [True, False])
def test_a_trees_stack_from_a_named_channel_comes_with_the_stacks_that_this_channel_has(
    tmp_path: Path, *, has_them: bool
) -> None:
    for name, text in (("variants/stacks.yaml", STACKS), ("recipes/toy/recipe.yaml", RECIPE)):
        (tmp_path / "tree" / name).parent.mkdir(parents=True)
        (tmp_path / "tree" / name).write_text(text)
    channel = new_channel(tmp_path / "published")
    with channel_writer(channel) as writer:
        add_set(writer, [make_conda(tmp_path, name) for name in ("toy", *([STACKS_PACKAGE] if has_them else []))])
    environ = {CACHE_VARIABLE: str(tmp_path / "cache")}
    settings = make_settings(root=tmp_path / "tree", output=None, environ=environ, cwd=tmp_path)
    request = EnvironmentRequest(prefix=tmp_path / "env", install=InstallRequest(channels=(channel.path.as_uri(),)))
    result = install(settings, request, environ=environ, progress=SilentProgress())
    assert {record.name for record in result.records} == {"toy", *([STACKS_PACKAGE] if has_them else [])}


@pytest.mark.parametrize(
    ("lacking", "version", "is_named"),
    [
        ("pytorch * cuda*", "2.13.0+cpu", True),
        ("nccl *", "2.13.0+cpu", True),
        ("pytorch * cuda*", "2.13.0+cu130", False),
        ("python 3.14.*", "2.13.0+cpu", False),
    ],
)
def test_what_comes_with_cudas_pytorch_is_brought_by_a_command(
    tmp_path: Path, lacking: str, version: str, *, is_named: bool
) -> None:
    settings = make_settings(root=ROOT, output=tmp_path / "output", environ={}, cwd=tmp_path)
    torch = LockedArtifact(
        kind="wheel", name="torch", version=version, file_name="torch.whl", sha256="0" * 64, size_bytes=1
    )
    package = RecordedPackage(
        name="pytorch", version="2.13.0", build="0", subdir="linux-64", file_name="pytorch-2.13.0-0.conda",
        size_bytes=1, unpacked_bytes=1, sha256="0" * 64, digest="0" * 64, taken=(torch,),
    )  # fmt: skip
    record = FoundationRecord(
        digest="1" * 64, suite="toys", python="3.11", subdir="linux-64", requirements=(), packages=(package,)
    )
    settings.foundation.mkdir(parents=True)
    write_record(settings.foundation, record)
    err = SolveError(f"no set of packages:\n    No candidates were found for {lacking}.", hint="relax the specs")
    hint = naming_cuda(err, settings, InstallRequest(stack="nccl-ofi")).hint or ""
    assert hint.endswith("channel_tools build --variant nccl-ofi --cuda --update") is is_named
    elsewhere = InstallRequest(stack="nccl-ofi", channels=("https://a.example",))
    assert naming_cuda(err, settings, elsewhere) is err
