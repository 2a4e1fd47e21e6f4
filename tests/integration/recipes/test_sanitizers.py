# SPDX-License-Identifier: BSD-3-Clause
"""C++ tests of libswitchml, the switch and the reduction in a host under gcc's sanitizers.

The foundation makes their runtimes for this. Among them are the fuzzed programs, which replay their committed inputs.

Programs that talk gRPC do not run under the thread sanitizer, which takes the locks of a library that is not compiled
for it for none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from channel_tools.environments import activated_environment
from channel_tools.system.processes import run_command
from channel_tools.system.settings import Settings
from tests.integration.conftest import ROOT, build_into_output
from tests.support.switchml_sources import (
    FUZZ_SOURCE,
    LIBRARIES,
    QUICK,
    TOOLCHAIN,
    by_the_link,
    compile_switch,
    compiling_environment,
)

pytestmark = [pytest.mark.integration, pytest.mark.slow]

TEST_LIMIT_S = 1200
LIBRARY_SOURCE = ROOT / "recipes" / "libswitchml" / "src"
PLUGIN_SOURCE = ROOT / "recipes" / "torch-switchml" / "src"
WIDE_ADDRESSES = "this kernel spreads addresses wider (vm.mmap_rnd_bits) than gcc 12's thread sanitizer allows"


@dataclass(frozen=True, kw_only=True, slots=True)
class Build:
    sanitizers: str
    tests: dict[str, str]
    """CTest's names of tests, by the program that they run."""


FUZZED = tuple(path.stem for path in sorted((FUZZ_SOURCE / "corpus").glob("*.zip")))
"""What tests/fuzz/switchml has inputs for."""
OVER_GRPC = {"test_session": "lib.test_session"} | {
    f"test_{name}": f"switch.test_{name}" for name in ("access", "end_to_end", "limits", "sessions", "trouble")
}
"""The client's session against a controller as published ones are, then the client against the switch."""
BUILDS = {
    "addresses and undefined behaviour": Build(
        sanitizers="address,undefined",
        tests={"simulate": "switch.simulation", "test_data_plane": "switch.test_data_plane"}
        | {f"fuzz_{name}": f"fuzz.{name}" for name in FUZZED},
    ),
    "threads": Build(
        sanitizers="thread",
        tests={"test_data_plane": "switch.test_data_plane", "test_rendezvous": "switch.test_rendezvous"},
    ),
    "addresses and undefined behaviour over gRPC": Build(sanitizers="address,undefined", tests=OVER_GRPC),
}


@pytest.fixture(scope="module")
def prefix(own_settings: Settings) -> Iterator[Path]:
    made = build_into_output("foundation", "build", "--with", "libsanitizer")
    assert made.returncode == 0, made.stderr
    specs = [*TOOLCHAIN, *LIBRARIES, "libsanitizer"]
    with compiling_environment(own_settings, own_settings.foundation, "sanitizers", specs) as prefix:
        yield prefix


@pytest.mark.parametrize("name", BUILDS)
def test_sanitizers_find_nothing(name: str, prefix: Path) -> None:
    chosen = BUILDS[name]
    toolchain = {**activated_environment(prefix, environ=os.environ), "CXXFLAGS": "-O0 -pipe", "CFLAGS": "-O0"}
    build = prefix.with_name(name.replace(" ", "-"))
    library = by_the_link(prefix, LIBRARY_SOURCE)
    options = [f"-DSWITCHML_SANITIZE={chosen.sanitizers}", f"-DSWITCHML_LIBRARY_SOURCE={library}", *QUICK]
    compile_switch(
        build, prefix=prefix, toolchain=toolchain, options=options, targets=list(chosen.tests), source=FUZZ_SOURCE
    )
    wanted = "|".join(chosen.tests.values())
    result = run_command(
        ["ctest", "--test-dir", build, "--output-on-failure", "-R", f"^({wanted})$"],
        env=toolchain,
        check=False,
        timeout_s=TEST_LIMIT_S,
    )
    if "unexpected memory mapping" in result.stdout:
        pytest.skip(WIDE_ADDRESSES)
    assert result.returncode == 0, result.stdout
    assert all(re.search(rf"{re.escape(test)} \.+ +Passed", result.stdout) for test in chosen.tests.values())


def test_ranks_that_reduce_in_one_memory_race_for_nothing(prefix: Path) -> None:
    """As threads: of processes, and of memory with a weaker order than x86's, the sanitizer is the only witness."""
    toolchain = activated_environment(prefix, environ=os.environ)
    program = prefix.with_name("host_reduction_threads")
    names = ("counters", "host_board", "host_plan", "host_reduction", "host_sum")
    sources = [
        *(PLUGIN_SOURCE / "csrc" / f"{name}.cpp" for name in names),
        Path(__file__).parent / f"{program.name}.cpp",
    ]
    includes = [f"-I{folder}" for folder in (PLUGIN_SOURCE, PLUGIN_SOURCE / "csrc", LIBRARY_SOURCE / "include")]
    words: list[str | Path] = ["-std=c++17", "-O1", "-g", "-pthread", "-fsanitize=thread", *includes]
    run_command([toolchain["CXX"], f"-Wl,-rpath,{prefix}/lib", *words, *sources, "-o", program], env=toolchain)
    result = run_command([program], env=toolchain, check=False, timeout_s=TEST_LIMIT_S)
    if "unexpected memory mapping" in result.stderr:
        pytest.skip(WIDE_ADDRESSES)
    assert (result.returncode, result.stdout) == (0, "right\n"), result.stderr
