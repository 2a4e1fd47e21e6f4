# SPDX-License-Identifier: BSD-3-Clause
"""The C++ sources of the software switch and of libswitchml, compiled by the foundation's own compiler.

What one run has compiled, the next finds in a compiler cache in the user's cache folder.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from filelock import FileLock

from channel_tools.build.compiler_cache import CachedCompilers, CompilerCache
from channel_tools.system.processes import run_command
from channel_tools.system.settings import Settings, find_cache
from tests.support.programs import has, program
from tests.support.stacks import install

ROOT = Path(__file__).parents[2]
TOOLCHAIN = ("gcc_linux-64", "gxx_linux-64", "sysroot_linux-64", "cmake", "ninja", "pkg-config")
SWITCH_SOURCE = ROOT / "recipes" / "switchml-switch" / "src"
FUZZ_SOURCE = ROOT / "tests" / "fuzz" / "switchml"
"""A CMake project of the fuzzed programs, which contains the switch's."""
LIBRARIES = ("libabseil", "libgrpc", "libprotobuf", "c-ares", "openssl", "re2", "zlib")
COMPILE_LIMIT_S = 1800
CLONE = "clone"
QUICK = ("-DCMAKE_BUILD_TYPE=None", "-DCMAKE_UNITY_BUILD=ON", "-DCMAKE_UNITY_BUILD_BATCH_SIZE=0")
"""One compilation for each library: headers take longer than what includes them."""


@contextlib.contextmanager
def compiling_environment(settings: Settings, channel: Path, name: str, specs: Sequence[str]) -> Iterator[Path]:
    """A new environment from the channel folder, whose compilers keep what they compile; removed after the block.

    It lies in a folder that has the same path in every run with this ``name``, for which other runs wait: the path is
    part of what is compiled. Builds belong beside it, as is the link ``CLONE`` to this clone, through which one clone
    finds what another compiled. Without ccache the compilers are called as they are.
    """
    cache = find_cache(os.environ) / "tests"
    folder = cache / "compiling" / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_name(f"{name}.lock")):
        shutil.rmtree(folder, ignore_errors=True)  # of a run that was killed
        prefix = install(settings, channel, folder / "env", specs)
        prefix.with_name(CLONE).symlink_to(ROOT)
        if has("ccache"):
            kept = CompilerCache(name="ccache", program=Path(program("ccache")), folder=cache / "compiled")
            CachedCompilers(kept, prefix, folder).wrap()
        try:
            yield prefix
        finally:
            shutil.rmtree(folder)


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
    configure = ("cmake", "-G", "Ninja", "-S", by_the_link(prefix, source), "-B", build)
    run_command([*configure, f"-DCMAKE_PREFIX_PATH={prefix}", *options], env=toolchain, timeout_s=COMPILE_LIMIT_S)
    wanted = ["--target", *targets] if targets else []
    run_command(["cmake", "--build", build, *wanted], env=toolchain, timeout_s=COMPILE_LIMIT_S)


def by_the_link(prefix: Path, source: Path) -> Path:
    """The path of a folder of this clone, through the link beside the environment where there is one."""
    link = prefix.with_name(CLONE)
    return link / source.relative_to(ROOT) if link.is_symlink() else source
