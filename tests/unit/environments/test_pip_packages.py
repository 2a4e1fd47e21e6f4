# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from channel_tools.environments import create_environment, extend_environment, find_distributions, listed_environment
from channel_tools.environments.pip_packages import PIP_CONSTRAINTS
from channel_tools.environments.state import read_state
from channel_tools.system.progress import NotesOnly, SilentProgress
from channel_tools.workflow.doctor import _replaced_by_pip
from tests.unit.environments.toychannel import SUBDIR, ToyChannel

SITE = "lib/python3.11/site-packages"
SCRIPT = 'CONDA_PREFIX=$1; . "$1"/etc/conda/activate.d/*.sh; printf "%s\n" "${PIP_CONSTRAINT-none}"; '
DEACTIVATE = '. "$1"/etc/conda/deactivate.d/*.sh; printf "%s\n" "${PIP_CONSTRAINT-none}"'


def of_pip(name: str, version: str) -> dict[str, bytes]:
    folder = f"{SITE}/{name}-{version}.dist-info"
    return {
        f"{folder}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{folder}/RECORD": f"{name}.py,,\n".encode(),
    }


def make(channel: ToyChannel, prefix: Path, *specs: str) -> Path:
    asyncio.run(
        create_environment(
            prefix, specs, [str(channel.root)],
            package_cache=prefix.parent / "cache", subdir=SUBDIR, progress=SilentProgress(),
        )
    )  # fmt: skip
    return prefix


@pytest.fixture
def demo(channel: ToyChannel) -> ToyChannel:
    channel.add("pytorch", files=of_pip("torch", "2.13.0+cpu"), index=False)
    channel.add("demo", files=of_pip("Demo_package", "1.0"), depends=["pytorch"], index=False)
    channel.add("setuptools", files=of_pip("setuptools", "84.0"))
    return channel


@pytest.fixture(params=["env", "an env 100% #1?"])
def prefix(demo: ToyChannel, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    return make(demo, tmp_path / str(request.param), "demo", "setuptools")


def said(prefix: Path, script: str, shell: str = "bash", **variables: str) -> list[str]:
    environ = {"PATH": os.environ["PATH"], **variables}
    done = subprocess.run(
        [shell, "-euc", script, shell, prefix], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.parametrize("shell", ["bash", "sh"])
def test_pip_keeps_what_conda_installed_in_an_active_environment(prefix: Path, shell: str) -> None:
    assert (prefix / PIP_CONSTRAINTS).read_text() == "demo-package==1.0\ntorch==2.13.0+cpu\n"
    own = prefix.parent / "own.txt"
    own.write_text("other==1\n")
    alone, after = said(prefix, SCRIPT + DEACTIVATE, shell)
    assert after == "none"
    both, after = said(prefix, SCRIPT + DEACTIVATE, shell, PIP_CONSTRAINT=str(own))
    assert (both, after) == (f"{own} {alone}", str(own))
    assert said(prefix, SCRIPT + DEACTIVATE, shell, CHANNEL_TOOLS_PIP_CONSTRAINTS="no") == ["none", "none"]


def test_pip_takes_the_constraints_beside_its_users_own(prefix: Path) -> None:
    own = prefix.parent / "own.txt"
    own.write_text("other==1\n")
    both, _after = said(prefix, SCRIPT + DEACTIVATE, PIP_CONSTRAINT=str(own))
    words = (sys.executable, "-m", "pip", "install", "--dry-run", "--no-index", "--target", prefix.parent / "t")
    for wanted, constraint in (("torch==2.9.0", "torch==2.13.0+cpu"), ("other==2", "other==1")):
        environ = {**os.environ, "PIP_CONSTRAINT": both, "PIP_CONFIG_FILE": os.devnull}
        done = subprocess.run([*words, wanted], env=environ, capture_output=True, text=True, check=False)
        assert f"The user requested (constraint) {constraint}" in done.stdout + done.stderr


def test_constraints_that_another_client_left_behind_are_not_used(prefix: Path) -> None:
    later = (prefix / PIP_CONSTRAINTS).stat().st_mtime + 1
    os.utime(prefix / "conda-meta/history", (later, later))
    assert said(prefix, SCRIPT) == ["none"]


def test_an_environment_without_python_has_none(demo: ToyChannel, tmp_path: Path) -> None:
    assert not (make(demo, tmp_path / "env", "library") / "etc").exists()


@pytest.mark.parametrize("version", ["2.9.0", "2.13.0+cpu"], ids=["another", "the-same-version"])
def test_what_pip_put_over_a_conda_package_is_found(prefix: Path, version: str) -> None:
    assert [row.name for row in find_distributions(prefix, read_state(prefix).records) if row.is_of_pip] == []
    for name in ("METADATA", "RECORD"):
        (prefix / SITE / "torch-2.13.0+cpu.dist-info" / name).unlink()
    for name, content in {**of_pip("torch", version), **of_pip("pure", "3")}.items():
        (prefix / name).parent.mkdir(exist_ok=True)
        (prefix / name).write_bytes(content + b"written by pip\n")
    rows = {row.name: row for row in find_distributions(prefix, read_state(prefix).records) if row.is_of_pip}
    assert {name: row.package for name, row in rows.items()} == {"torch": "pytorch", "pure": None}
    (finding,) = _replaced_by_pip(prefix)
    assert finding.found == f"pip put torch {version} over pytorch 1.0 0"
    assert finding.fix.endswith(f"env add {shlex.quote(str(prefix))} --force-reinstall pytorch")
    listed = [(row.name, row.channel) for row in listed_environment(prefix).packages if row.channel == "pypi"]
    assert listed == [("pure", "pypi"), ("torch", "pypi")]


@pytest.mark.parametrize(
    ("spec", "modules"),
    [("python=3.12", "lib/python3.12"), ("python=3.11.0=t", "lib/python3.11t")],
    ids=["3.12", "3.11t"],
)
def test_what_pip_installed_for_the_python_before_is_named_and_no_longer_there(
    demo: ToyChannel, tmp_path: Path, spec: str, modules: str
) -> None:
    demo.add("python", version="3.11.0", index=False)
    demo.add("python", version="3.12.0", index=False)
    demo.add("python", version="3.11.0", build="t", more={"python_site_packages_path": "lib/python3.11t/site-packages"})
    prefix = make(demo, tmp_path / "env", "python=3.11.0=0", "library")
    for name, content in of_pip("pure", "3").items():
        (prefix / name).parent.mkdir(parents=True, exist_ok=True)
        (prefix / name).write_bytes(content)
    assert [row.name for row in listed_environment(prefix).packages if row.channel == "pypi"] == ["pure"]
    progress = NotesOnly()
    for asked, noted in (
        ("library <2", []),
        (spec, [f"{prefix}: pip has to install again, for the Python that is there now: pure"]),
    ):
        progress.notes.clear()
        asyncio.run(
            extend_environment(
                prefix, [asked], [str(demo.root)], newest=False, package_cache=tmp_path / "cache", subdir=SUBDIR,
                progress=progress,
            )
        )  # fmt: skip
        assert progress.notes == noted
    assert [row.name for row in listed_environment(prefix).packages if row.channel == "pypi"] == []
    assert (prefix / SITE / "pure-3.dist-info").is_dir()
    assert not (prefix / modules / "site-packages/pure-3.dist-info").exists()


def test_what_pip_removed_is_found_and_linked_again(demo: ToyChannel, prefix: Path) -> None:
    for file in (prefix / SITE / "torch-2.13.0+cpu.dist-info").iterdir():
        file.unlink()
    (finding,) = _replaced_by_pip(prefix)
    assert finding.found == "not there any more, though pytorch 1.0 0 brought it: pip or a user removed it"
    words = {"package_cache": prefix.parent / "cache", "subdir": SUBDIR, "progress": SilentProgress()}
    before = read_state(prefix).requested
    (prefix / "bin").mkdir(exist_ok=True)
    result = asyncio.run(
        extend_environment(prefix, ["pytorch"], [str(demo.root)], newest=False, reinstall=True, **words)  # type: ignore[arg-type]
    )
    assert (result.changed, result.change.is_empty) == (1, True)
    assert [*_replaced_by_pip(prefix)] == []
    assert read_state(prefix).requested == before


def test_pip_comes_with_python_where_a_channel_has_it(channel: ToyChannel, tmp_path: Path) -> None:
    channel.add("python", version="3.11.2")
    words = (tmp_path / "without", "tool", "python")
    assert {record.name.normalized for record in read_state(made(channel, *words)).records} == {
        *("tool", "library", "python")
    }
    channel.add("pip", depends=["python"])
    assert "pip" not in read_state(made(channel, *words)).requested  # it is there already: nothing is done
    state = read_state(made(channel, tmp_path / "with", "tool", "python"))
    assert state.requested == {"tool": ("tool",), "python": ("python",), "pip": ("pip",)}
    assert "pip" not in read_state(made(channel, tmp_path / "other", "library")).names


def made(channel: ToyChannel, prefix: Path, *specs: str) -> Path:
    asyncio.run(
        create_environment(
            prefix, specs, [str(channel.root)],
            package_cache=prefix.parent / "cache", subdir=SUBDIR, progress=SilentProgress(), beside_python=("pip",),
        )
    )  # fmt: skip
    return prefix
