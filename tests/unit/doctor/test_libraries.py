# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

import pytest

from channel_tools.doctor.examine import examine
from channel_tools.doctor.libraries import FABRIC, NCCL_PLUGIN, LoadedLibrary, find_mpi, find_nccl
from channel_tools.doctor.model import ExaminedStack

if TYPE_CHECKING:
    from pathlib import Path


def subject(folder: Path, backend: str, installed: dict[str, str], **variables: str) -> ExaminedStack:
    """A stack in an environment that has no library, only a Python that asks the loader."""
    python = folder / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    return ExaminedStack(
        stack="s",
        backend=backend,
        settings={},
        prefix=folder / "env",
        variables=variables,
        installed=installed,
        starts_switch=True,
    )


def test_a_build_for_the_standard_abi_is_asked_for_that_library(tmp_path: Path) -> None:
    installed = {"torch-mpi": "1.0.0 mpi_abi_py311_h0_0", "mpich-abi": "5.0.2 h0_0"}
    (missing,) = find_mpi(subject(tmp_path, "mpi", installed))
    assert (missing.subject, missing.level) == ("MPI library", "fault")
    assert missing.found.startswith("libmpi_abi.so.1: cannot open")


@pytest.mark.parametrize(
    ("variables", "found", "fix"),
    [
        pytest.param({}, "libswitchml.so.1: cannot open", "--force-reinstall libswitchml", id="lost"),
        pytest.param({"SWITCHML_LIBRARY": "/x.so"}, "/x.so: cannot open", "unset SWITCHML_LIBRARY", id="named"),
    ],
)
def test_a_transport_that_does_not_load_is_a_fault(
    tmp_path: Path, variables: dict[str, str], found: str, fix: str
) -> None:
    installed = {"torch-switchml": "1.0.0 h0_0", "libswitchml": "1.1.0 udp_h0_0"}
    findings = {one.subject: one for one in examine(subject(tmp_path, "switchml", installed, **variables))}
    assert findings["libswitchml"].level == "ok"
    library = findings["SwitchML library"]
    assert (library.level, library.found.startswith(found), library.fix.endswith(fix)) == ("fault", True, True)


@pytest.mark.parametrize(
    ("build", "fix"),
    [
        pytest.param("1.17.0 h0_0", "conda install -p {prefix} libfabric", id="the channel's"),
        pytest.param(
            "2.6.0 external_h0_0",
            "load the site's module of libfabric, or export CHANNEL_LIBFABRIC_DIR=DIR; "
            "{prefix}/bin/libfabric-external-check says what it has found",
            id="the site's",
        ),
    ],
)
def test_a_libfabric_that_is_missing_comes_from_where_the_environment_takes_it(
    tmp_path: Path, build: str, fix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = f"{FABRIC}: cannot open shared object file: No such file or directory"
    libraries = {name: LoadedLibrary(name=name, file="", error=missing) for name in (NCCL_PLUGIN, FABRIC)}
    monkeypatch.setattr(
        "channel_tools.doctor.libraries.load_libraries",
        lambda _subject, names: {name: one for name, one in libraries.items() if name in names},
    )
    asked = subject(tmp_path, "nccl", {"libfabric": build})
    findings = {one.subject: one for one in find_nccl(asked)}
    for title in ("NCCL's plugin", "libfabric"):
        assert (findings[title].level, findings[title].fix) == ("fault", fix.format(prefix=tmp_path / "env"))


def test_a_command_that_fixes_something_is_one_for_a_prefix_with_a_space(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    findings = [
        *examine(subject(folder / "1", "switchml", {"libswitchml": "1.1.0 udp_h0_0"})),
        *examine(subject(folder / "2", "mpi", {})),
        *examine(subject(folder / "3", "accl", {})),
    ]
    fixes = [one.fix for one in findings if "a folder" in one.fix]
    assert len(fixes) >= 4, findings
    for fix in fixes:
        assert [word for word in shlex.split(fix.partition(",")[0]) if word.endswith("/env")], fix
