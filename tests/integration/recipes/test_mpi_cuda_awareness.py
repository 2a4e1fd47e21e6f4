# SPDX-License-Identifier: BSD-3-Clause
"""The check of torch-mpi and the patched pytorch-cray-mpich: whether the MPI of a process takes CUDA memory.

Every branch runs in a process of its own, over stand-ins for libmpi that differ in the queries they have; what those
answer, and what the site's environment says, comes with the process. A compiler is all that is needed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from channel_tools.environments import activated_environment
from channel_tools.system.processes import run_command
from tests.integration.conftest import ROOT
from tests.support.processes import TEST_TIMEOUT_S
from tests.support.programs import program
from tests.support.stacks import install

if TYPE_CHECKING:
    from collections.abc import Mapping

    from channel_tools.system.settings import Settings

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SOURCES = ROOT / "recipes" / "pytorch-cray-mpich-patched" / "src"
TESTS = SOURCES / "tests"

OPEN_MPI = "Open MPI v5.0.5, package: Debian OpenMPI, ident: 5.0.5, repo rev: v5.0.5, Jul 22, 2024"
MPICH = "MPICH Version:      4.2.3\nMPICH Release date: Thu Oct  3 09:51:06 CDT 2024\nMPICH ABI:          16:3:4\n"
CRAY = "MPI VERSION    : CRAY MPICH version 8.1.27.26 (ANL base 3.4a2)\nMPI BUILD INFO : Fri Aug 11  0:25 2023\n"
OTHER = "Vendor MPI 3.1"
QUERIES = {"none": [], "cuda": ["WITH_QUERY_CUDA"], "gpu": ["WITH_QUERY_GPU"]}
QUERIES["both"] = QUERIES["cuda"] + QUERIES["gpu"]

SAID_NO = "no: the MPI library says that it has no CUDA support, or that it is switched off: "
CANNOT_TELL = "no: the MPI library has no function that tells (MPIX_GPU_query_support, MPIX_Query_cuda_support): "
SAID_YES = "yes: said by the MPI library: "
CRAY_YES = "yes: Cray MPICH with its GPU transport layer for CUDA"
CRAY_NO = "no: Cray MPICH says that it has no CUDA support"
NO_GTL = (
    "no: MPICH_GPU_SUPPORT_ENABLED is set, but Cray MPICH's GPU transport layer libmpi_gtl_cuda.so is not loaded "
    "(LD_PRELOAD it, or link it)"
)
NOT_LOADABLE = (
    "Cray MPICH's GPU transport layer cannot be loaded: {root}/nowhere.so: "
    "cannot open shared object file: No such file or directory"
)
NOT_READY = "no: MPI is not initialized, so it cannot be asked yet"
ENABLED = {"MPICH_GPU_SUPPORT_ENABLED": "1"}


def _switched_off(found: str) -> str:
    return (
        "no: Cray MPICH moves GPU buffers only with MPICH_GPU_SUPPORT_ENABLED=1 in the environment of every rank, "
        f"which is {found}"
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """What a process finds, and what it must answer."""

    version: str
    queries: str
    answers: Mapping[str, str] = field(default_factory=dict)
    preload: str = ""
    expected: str


CASES = {
    "open mpi with cuda": Case(
        version=OPEN_MPI, queries="cuda", answers={"FAKE_CUDA": "1"}, expected=SAID_YES + OPEN_MPI
    ),
    "open mpi without cuda": Case(
        version=OPEN_MPI, queries="cuda", answers={"FAKE_CUDA": "0"}, expected=SAID_NO + OPEN_MPI
    ),
    "open mpi that fails to answer": Case(
        version=OPEN_MPI, queries="cuda", answers={"FAKE_CUDA": "-1"}, expected=SAID_NO + OPEN_MPI
    ),
    "open mpi without its extensions": Case(version=OPEN_MPI, queries="none", expected=CANNOT_TELL + OPEN_MPI),
    "open mpi does not care for cray's switch": Case(
        version=OPEN_MPI, queries="cuda", answers={"FAKE_CUDA": "0", **ENABLED}, expected=SAID_NO + OPEN_MPI
    ),
    "mpich with cuda": Case(
        version=MPICH, queries="both", answers={"FAKE_GPU_KIND": "0"}, expected=SAID_YES + "MPICH Version:      4.2.3"
    ),
    "mpich for another kind of gpu": Case(
        version=MPICH, queries="both", answers={"FAKE_GPU_KIND": "2"}, expected=SAID_NO + "MPICH Version:      4.2.3"
    ),
    "mpich without gpus": Case(version=MPICH, queries="both", expected=SAID_NO + "MPICH Version:      4.2.3"),
    "mpich switched off: the query that minds it wins": Case(
        version=MPICH, queries="both", answers={"FAKE_CUDA": "1"}, expected=SAID_NO + "MPICH Version:      4.2.3"
    ),
    "mpich whose query fails": Case(
        version=MPICH,
        queries="gpu",
        answers={"FAKE_GPU_KIND": "0", "FAKE_GPU_STATUS": "16"},
        expected=SAID_NO + "MPICH Version:      4.2.3",
    ),
    "mpich with the older query alone": Case(
        version=MPICH, queries="cuda", answers={"FAKE_CUDA": "1"}, expected=SAID_YES + "MPICH Version:      4.2.3"
    ),
    "mpich too old to tell": Case(version=MPICH, queries="none", expected=CANNOT_TELL + "MPICH Version:      4.2.3"),
    "mpich does not care for cray's switch and layer": Case(
        version=MPICH,
        queries="none",
        answers=ENABLED,
        preload="libmpi_gtl_cuda.so.0",
        expected=CANNOT_TELL + "MPICH Version:      4.2.3",
    ),
    "cray not switched on": Case(
        version=CRAY,
        queries="gpu",
        answers={"FAKE_GPU_KIND": "0"},
        preload="libmpi_gtl_cuda.so.0",
        expected=_switched_off("not set"),
    ),
    "cray switched off": Case(
        version=CRAY,
        queries="gpu",
        answers={"FAKE_GPU_KIND": "0", "MPICH_GPU_SUPPORT_ENABLED": "0"},
        preload="libmpi_gtl_cuda.so.0",
        expected=_switched_off("set to '0'"),
    ),
    "cray with a word for a number": Case(
        version=CRAY,
        queries="gpu",
        answers={"FAKE_GPU_KIND": "0", "MPICH_GPU_SUPPORT_ENABLED": "1yes"},
        preload="libmpi_gtl_cuda.so.0",
        expected=_switched_off("set to '1yes'"),
    ),
    "cray without its transport layer": Case(
        version=CRAY, queries="gpu", answers={"FAKE_GPU_KIND": "0", **ENABLED}, expected=NO_GTL
    ),
    "cray with the transport layer of another gpu": Case(
        version=CRAY,
        queries="gpu",
        answers={"FAKE_GPU_KIND": "0", **ENABLED},
        preload="libmpi_gtl_hsa.so.0",
        expected=NO_GTL,
    ),
    "cray that says no": Case(
        version=CRAY, queries="gpu", answers=ENABLED, preload="libmpi_gtl_cuda.so.0", expected=CRAY_NO
    ),
    "cray that says yes": Case(
        version=CRAY,
        queries="gpu",
        answers={"FAKE_GPU_KIND": "0", **ENABLED},
        preload="libmpi_gtl_cuda.so.0",
        expected=CRAY_YES,
    ),
    "cray before it had a query": Case(
        version=CRAY, queries="none", answers=ENABLED, preload="libmpi_gtl_cuda.so.0", expected=CRAY_YES
    ),
    "another mpi that says yes": Case(
        version=OTHER, queries="cuda", answers={"FAKE_CUDA": "1"}, expected=SAID_YES + OTHER
    ),
    "another mpi that cannot tell": Case(version=OTHER, queries="none", expected=CANNOT_TELL + OTHER),
    "an mpi without a name": Case(version="", queries="none", expected=CANNOT_TELL),
    "after mpi was finalized": Case(
        version=MPICH, queries="both", answers={"FAKE_GPU_KIND": "0", "FAKE_FINALIZED": "1"}, expected=NOT_READY
    ),
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-ins, one folder each, and the check linked to one of them; which is used is decided at run time."""
    compiler, c_compiler = program("g++"), program("gcc")
    root = tmp_path_factory.mktemp("cuda-awareness")
    shared = ["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]
    for name, macros in QUERIES.items():
        (root / name).mkdir()
        library = root / name / "libmpi.so.12"
        defined = [f"-D{macro}" for macro in macros]
        source = TESTS / "fake" / "libmpi.c"
        _compile([c_compiler, *shared, "-Wl,-soname,libmpi.so.12", *defined, "-o", library, source])
    for name in ("libmpi_gtl_cuda.so.0", "libmpi_gtl_hsa.so.0"):
        _compile([c_compiler, "-shared", "-fPIC", "-x", "c", "-o", root / name, os.devnull])
    included = [f"-I{SOURCES}", f"-I{TESTS / 'fake'}"]
    linked: list[str | Path] = [TESTS / "check.cpp", root / "none" / "libmpi.so.12", "-ldl"]
    _compile([compiler, "-std=c++17", *shared, *included, "-o", root / "libcheck.so", *linked])
    _compile([compiler, "-std=c++17", "-Wall", "-Wextra", "-Werror", "-o", root / "load", TESTS / "load.cpp", "-ldl"])
    return root


def _compile(command: list[str | Path]) -> None:
    run_command(command, timeout_s=TEST_TIMEOUT_S)


def _ask(root: Path, case: Case, *then: str) -> list[str]:
    variables = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("CHANNEL_", "FAKE_", "MPICH_", "MPIR_", "LD_"))
    }
    variables |= {"FAKE_VERSION": case.version, "LD_LIBRARY_PATH": str(root / case.queries), **case.answers}
    if case.preload:
        variables["LD_PRELOAD"] = str(root / case.preload)
    result = run_command([root / "load", root / "libcheck.so", *then], env=variables, timeout_s=TEST_TIMEOUT_S)
    return result.stdout.splitlines()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_answer(built: Path, case: Case) -> None:
    assert _ask(built, case) == [case.expected]


def test_a_no_before_initialization_is_not_remembered(built: Path) -> None:
    case = Case(version=MPICH, queries="gpu", answers={"FAKE_GPU_KIND": "0", "FAKE_INITIALIZED": "0"}, expected="")
    assert _ask(built, case, "FAKE_INITIALIZED=1") == [NOT_READY, SAID_YES + "MPICH Version:      4.2.3"]


def test_the_answer_of_an_initialized_mpi_is_remembered(built: Path) -> None:
    case = Case(version=OPEN_MPI, queries="cuda", answers={"FAKE_CUDA": "1"}, expected="")
    assert _ask(built, case, "FAKE_CUDA=0") == [SAID_YES + OPEN_MPI] * 2


@pytest.mark.parametrize(
    ("variables", "prepared", "expected"),
    [
        ({**ENABLED, "CHANNEL_CRAY_MPICH_GTL": "{root}/libmpi_gtl_cuda.so.0"}, "prepared", CRAY_YES),
        ({"CHANNEL_CRAY_MPICH_GTL": "{root}/libmpi_gtl_cuda.so.0"}, "prepared", _switched_off("not set")),
        ({**ENABLED, "CHANNEL_CRAY_MPICH_GTL": ""}, "prepared", NO_GTL),
        (
            {**ENABLED, "CHANNEL_CRAY_MPICH_GTL": "{root}/nowhere.so"},
            NOT_LOADABLE,
            NO_GTL,
        ),
    ],
    ids=["switched on", "switched off", "none found", "not loadable"],
)
def test_crays_transport_layer_is_loaded_where_activation_found_it(
    built: Path, variables: dict[str, str], prepared: str, expected: str
) -> None:
    answers = {"FAKE_GPU_KIND": "0", **{name: text.format(root=built) for name, text in variables.items()}}
    case = Case(version=CRAY, queries="gpu", answers=answers, expected="")
    assert _ask(built, case, "prepare") == [prepared.format(root=built), expected]


def test_a_transport_layer_that_is_there_is_not_loaded_twice(built: Path) -> None:
    answers = {"FAKE_GPU_KIND": "0", **ENABLED, "CHANNEL_CRAY_MPICH_GTL": str(built / "nowhere.so")}
    case = Case(version=CRAY, queries="gpu", answers=answers, preload="libmpi_gtl_cuda.so.0", expected="")
    assert _ask(built, case, "prepare") == ["prepared", CRAY_YES]


def test_a_real_mpich_without_cuda_says_so(own_settings: Settings, stack_channel: Path, tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    install(own_settings, stack_channel, prefix, ["mpich", "gxx_linux-64", "sysroot_linux-64"])
    variables = activated_environment(prefix, environ=os.environ) | ENABLED
    program = tmp_path / "real"
    run_command(
        [
            *(variables["CXX"], "-std=c++17", "-Wall", "-Wextra", f"-I{SOURCES}", f"-I{prefix / 'include'}"),
            *("-o", program, TESTS / "real.cpp", f"-L{prefix / 'lib'}", "-lmpi", "-ldl"),
            *(f"-Wl,-rpath,{prefix / 'lib'}", f"-Wl,-rpath-link,{prefix / 'lib'}"),
        ],
        env=variables,
        timeout_s=TEST_TIMEOUT_S,
    )
    before, after = run_command([program], env=variables, timeout_s=TEST_TIMEOUT_S).stdout.splitlines()
    assert before == NOT_READY
    assert after.startswith(SAID_NO + "MPICH Version:")
