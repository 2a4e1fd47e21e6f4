# SPDX-License-Identifier: BSD-3-Clause
"""The C++ sources of the software switch and of libswitchml, compiled by the foundation's own compiler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from channel_tools.system.processes import run_command

ROOT = Path(__file__).parents[2]
TOOLCHAIN = ("gcc_linux-64", "gxx_linux-64", "sysroot_linux-64", "cmake", "ninja", "pkg-config")
LIBRARIES = ("libabseil", "libgrpc", "libprotobuf", "c-ares", "openssl", "re2", "zlib")
COMPILE_LIMIT_S = 1800


def compile_switch(
    build: Path,
    *,
    prefix: Path,
    toolchain: Mapping[str, str],
    options: Sequence[str] = (),
    targets: Sequence[str] = (),
) -> None:
    """Configure and build the switch's sources in ``build``, with their tests.

    ``prefix`` is an environment of TOOLCHAIN and LIBRARIES, ``toolchain`` its activation's variables, ``options`` are
    CMake's. Without ``targets`` everything is built. Raises CommandError with the compiler's last lines.
    """
    source = ROOT / "recipes" / "switchml-switch" / "src"
    configure = ("cmake", "-G", "Ninja", "-S", source, "-B", build)
    run_command([*configure, f"-DCMAKE_PREFIX_PATH={prefix}", *options], env=toolchain, timeout_s=COMPILE_LIMIT_S)
    wanted = ["--target", *targets] if targets else []
    run_command(["cmake", "--build", build, *wanted], env=toolchain, timeout_s=COMPILE_LIMIT_S)
