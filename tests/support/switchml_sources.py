# SPDX-License-Identifier: BSD-3-Clause
"""The C++ sources of the software switch and of libswitchml, compiled by the foundation's own compiler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from channel_tools.system.processes import run_command

ROOT = Path(__file__).parents[2]
TOOLCHAIN = ("gcc_linux-64", "gxx_linux-64", "sysroot_linux-64", "cmake", "ninja", "pkg-config")
SWITCH_SOURCE = ROOT / "recipes" / "switchml-switch" / "src"
FUZZ_SOURCE = ROOT / "tests" / "fuzz" / "switchml"
"""A CMake project of the fuzzed programs, which contains the switch's."""
LIBRARIES = ("libabseil", "libgrpc", "libprotobuf", "c-ares", "openssl", "re2", "zlib")
COMPILE_LIMIT_S = 1800
QUICK = ("-DCMAKE_BUILD_TYPE=None", "-DCMAKE_UNITY_BUILD=ON", "-DCMAKE_UNITY_BUILD_BATCH_SIZE=0")
"""One compilation for each library: headers take longer than what includes them."""


def compile_switch(
    build: Path,
    *,
    prefix: Path,
    toolchain: Mapping[str, str],
    options: Sequence[str] = (),
    targets: Sequence[str] = (),
    source: Path = SWITCH_SOURCE,
) -> None:
    """Configure and build ``source``, the switch's sources or a project that contains them, in ``build``.

    ``prefix`` is an environment of TOOLCHAIN and LIBRARIES, ``toolchain`` its activation's variables, ``options`` are
    CMake's. Without ``targets`` everything is built. Raises CommandError with the compiler's last lines.
    """
    configure = ("cmake", "-G", "Ninja", "-S", source, "-B", build)
    run_command([*configure, f"-DCMAKE_PREFIX_PATH={prefix}", *options], env=toolchain, timeout_s=COMPILE_LIMIT_S)
    wanted = ["--target", *targets] if targets else []
    run_command(["cmake", "--build", build, *wanted], env=toolchain, timeout_s=COMPILE_LIMIT_S)
