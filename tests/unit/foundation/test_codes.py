# SPDX-License-Identifier: BSD-3-Clause
"""The numbers of the code that makes packages: what is made has not changed under the same number.

``made.json`` has, for each number, digests of what the code makes of the trees and packages here. Of ELF files what the
loader reads of them counts, since the bytes are patchelf's, whose version counts by itself.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import pkgutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from channel_tools.conda.archive import read_index_json, read_info_json
from channel_tools.foundation import codes, repairs, worker
from channel_tools.foundation.model import LockedArtifact
from channel_tools.foundation.plan import plan_packages
from channel_tools.foundation.repairs.cmake import GRPC_EXPECTED
from channel_tools.foundation.worker import PackageJob, make_package
from channel_tools.system.elf import read_elf_file
from tests.support.trees import make_tree
from tests.unit.foundation.archives import make_table, write_deb, write_wheel
from tests.unit.foundation.elf_files import shared_library
from tests.unit.foundation.repairs import (
    test_blas,
    test_elf,
    test_mpi,
    test_paths,
    test_perl,
    test_pkgconfig,
    test_python,
    test_pytorch,
    test_scripts,
    test_toolchain,
)
from tests.unit.foundation.repairs.trees import MULTIARCH, TRIPLE, context, library_that_needs

MADE = Path(__file__).with_name("made.json")
MODULES = sorted(module.name for module in pkgutil.iter_modules(repairs.__path__))
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
SITE = "lib/python3.11/site-packages"
GCC = test_toolchain.GCC
Files = Mapping[str, str | bytes]


def files(content: Files) -> Callable[[Path], object]:
    return lambda root: make_tree(root, content)


def wheel_library(root: Path) -> None:
    library_that_needs(root / SITE / "np/core/x.so", "libstdc++.so.6", rpath="$ORIGIN/../../np.libs:/opt/build/lib")


NATIVE: Files = {
    f"usr/lib/{MULTIARCH}/libdemo.so.1": "-> libdemo.so.1.0",
    f"usr/lib/{MULTIARCH}/libdemo.a": "static",
    f"usr/lib/{MULTIARCH}/pkgconfig/demo.pc": test_pkgconfig.PLAIN,
    f"usr/lib/{MULTIARCH}/cmake/demo/demo.cmake": test_pkgconfig.TARGETS,
    "usr/include/demo.h": "header",
    "usr/bin/demo": "#!/bin/sh\n",
    "usr/bin/demo-config": "#!/bin/sh\n",
    "usr/share/doc/demo/copyright": "text",
}


def native(root: Path) -> None:
    make_tree(root, NATIVE)
    library_that_needs(root / "usr" / "lib" / MULTIARCH / "libdemo.so.1.0", "libstdc++.so.6")


TREES: Mapping[str, tuple[str, Callable[[Path], object]]] = {
    "activate_binutils": ("binutils_linux-64", files({})),
    "activate_certificates": ("openssl", files({})),
    "activate_gcc": ("gcc_linux-64", files({})),
    "activate_gxx": ("gxx_linux-64", files({})),
    "bundle_certificates": (
        "ca-certificates",
        files({f"{test_scripts.FOLDER}/{number:03}.crt": test_scripts.certificate(number) for number in range(60)}),
    ),
    "drop_host_scripts": (
        "demo",
        files({"bin/demo-config": "#!/bin/sh\n", "bin/perl": "#!/usr/bin/perl\n", "bin/a": ""}),
    ),
    "drop_private_requires": ("demo", files({"lib/pkgconfig/demo.pc": "Name: demo\nRequires.private: other\n"})),
    "drop_static": ("demo", files({"lib/libgone.a": "", "lib/libdemo.so": ""})),
    "drop_unused": ("demo", files({"share/doc/x/README": "", "lib/systemd/system/x.service": "", "share/x/data": ""})),
    "find_verbs_drivers": ("rdma-core", test_elf.make_rdma),
    "finish_pytorch": ("pytorch", test_pytorch.make_debian_pytorch),
    "flatten": ("demo", native),
    "hide_host_plugins": (
        "demo",
        files({"lib/liba.so": shared_library(soname="liba.so") + f"\0{test_elf.FOLDER}demo/x.so\0".encode()}),
    ),
    "link_libgcc": (
        "libgcc-devel_linux-64",
        files(
            {
                f"{TRIPLE}/lib/gcc/{MULTIARCH}/12/libgcc_s.so": "GROUP ( libgcc_s.so.1 -lgcc )",
                "lib/libgcc_s.so.1": "library",
            }
        ),
    ),
    "link_plain_names": ("gxx", files({})),
    "link_sonames": ("libpsm-infinipath", files({"lib/libpsm1/libpsm_infinipath.so.1.16": b"x"})),
    "link_sysroot_folders": ("sysroot_linux-64", test_toolchain.make_merged_sysroot),
    "native": ("demo", native),
    "place_binutils": (
        "binutils_impl_linux-64",
        files({f"usr/bin/{MULTIARCH}-ld.bfd": "ld", f"usr/bin/{MULTIARCH}-ld": f"-> {MULTIARCH}-ld.bfd"}),
    ),
    "place_compiler": (
        "gcc_impl_linux-64",
        files(
            {
                f"usr/bin/{MULTIARCH}-gcc-12": "gcc",
                f"{GCC}/cc1": "cc1",
                f"{GCC}/libstdc++.so": f"-> ../../../{MULTIARCH}/libstdc++.so.6",
                "usr/include/c++/12/vector": "",
            }
        ),
    ),
    "place_cuda": (
        "cuda-cudart",
        files({f"{SITE}/nvidia/cu13/include/cuda.h": "header", f"{SITE}/nvidia/cu13/lib/libcudart.so.13": "shared"}),
    ),
    "place_nccl": (
        "nccl",
        files({f"{SITE}/nvidia/nccl/include/nccl.h": "header", f"{SITE}/nvidia/nccl/lib/libnccl.so.2": "shared"}),
    ),
    "place_openblas": (
        "openblas",
        files(
            {
                f"{test_blas.FLAVOUR}/libopenblasp-r0.3.21.so": "library",
                f"{test_blas.FLAVOUR}/libopenblas.so.0": "-> libopenblasp-r0.3.21.so",
                f"{test_blas.FLAVOUR}/pkgconfig/openblas.pc": test_blas.PACKAGE,
                "usr/include/x86_64-linux-gnu/openblas-pthread/cblas.h": "header",
            }
        ),
    ),
    "place_openssl_settings": ("openssl", files({"etc/ssl/openssl.cnf": "settings"})),
    "place_python_modules": ("pytorch", test_pytorch.make_debian_modules),
    "place_sysroot": (
        "sysroot_linux-64",
        files(
            {
                f"lib/{MULTIARCH}/libm.so.6": "m",
                f"usr/lib/{MULTIARCH}/libanl.so": f"-> /lib/{MULTIARCH}/libanl.so.1",
                "usr/include/stdio.h": "",
            }
        ),
    ),
    "prepare_python": (
        "python",
        files(
            {
                "usr/include/python3.11/pyconfig.h": "chooser",
                f"usr/include/{MULTIARCH}/python3.11/pyconfig.h": "real",
                "usr/share/python-wheels/pip-23-py3-none-any.whl": b"",
            }
        ),
    ),
    "relocate_autotools": ("automake", files({"bin/automake-1.16": test_perl.AUTOMAKE})),
    "relocate_cmake": (
        "demo",
        files(
            {
                "lib/cmake/demo/demo.cmake": test_pkgconfig.TARGETS,
                "lib/cmake/demo/config.cmake": test_pkgconfig.CONFIG,
                "lib/cmake/boost/boost.cmake": test_pkgconfig.BOOST,
            }
        ),
    ),
    "relocate_folders": (
        "mpich-abi",
        lambda root: test_paths.make_library(root, b"/opt/mpich/etc/ucx"),
    ),
    "relocate_mpich": ("mpich", test_mpi.make_mpich),
    "relocate_perl": ("perl", lambda root: test_perl.make_perl(root, test_perl.FOLDERS)),
    "relocate_pkgconfig": (
        "demo",
        files({"lib/pkgconfig/a.pc": test_pkgconfig.PLAIN, "lib/pkgconfig/b.pc": test_pkgconfig.FLAGS}),
    ),
    "relocate_python": ("python", test_python.make_python),
    "set_rpaths": ("demo", lambda root: library_that_needs(root / "bin" / "a", "libstdc++.so.6")),
    "split_libtorch": ("libtorch", test_pytorch.make_wheel),
    "split_pytorch": ("pytorch", test_pytorch.make_wheel),
    "use_mpich_abi_names": ("mpich", test_mpi.make_mpich_libraries),
    "use_openblas": ("libtorch", test_pytorch.make_debian_libtorch),
    "wheel_libraries": ("numpy", wheel_library),
    "wheel_program": (
        "tool",
        files({f"{SITE}/tool/__init__.py": "", f"{SITE}/tool/data/bin/tool": "the program", "bin/tool": "starts it"}),
    ),
    "wrap_pkg_config": ("pkg-config", files({"bin/pkgconf": test_scripts.SAY_FOLDERS})),
    "wrap_tools": (
        "gcc_impl_linux-64",
        files({f"{TRIPLE}/bin/gcc": test_toolchain.ECHO, f"{TRIPLE}/bin/ar": test_toolchain.ECHO}),
    ),
    "write_grpc_cmake": ("libgrpc", files(dict.fromkeys(GRPC_EXPECTED, ""))),
    "write_protobuf_cmake": (
        "libprotobuf",
        files(dict.fromkeys(("lib/libprotobuf.so", "lib/libprotobuf-lite.so", "lib/libprotoc.so", "bin/protoc"), "")),
    ),
}
"""What each repair step is tried on: the name of a package, and its tree."""


def state_of(path: Path) -> str:
    """What counts of a file or link: its target; whether it is executable, and its content or what the loader reads."""
    if path.is_symlink():
        return f"-> {path.readlink()}"
    content = path.read_bytes()
    elf = None
    if content[:4] == b"\x7fELF" and len(content) > 64:
        info = read_elf_file(path)
        elf = (
            info.soname,
            info.rpaths,
            *(name for name in info.needed if not name.startswith(("libc.", "libpthread"))),
        )
    return f"{path.stat().st_mode & 0o111:o} {elf or hashlib.sha256(content).hexdigest()}"


def digest_of(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def made_by_step(step: str, root: Path) -> str:
    name, make = TREES[step]
    root.mkdir()
    make(root)
    repairs.REPAIRS[step](root, context(name))
    paths = sorted(path for path in root.rglob("*") if path.is_symlink() or path.is_file())
    return digest_of({path.relative_to(root).as_posix(): state_of(path) for path in paths})


def made_packages(root: Path) -> dict[str, str]:
    """Of a package of .debs, of one of a wheel for any Python, and of one that has byte code."""
    rows = """
toy: {debs: [toy], repairs: [flatten], drop: [share/dropped]}
demo: {wheels: [demo]}
python: {debs: [python]}
fast: {wheels: [fast], build: "{py}_{hash}_0"}
"""
    sources = {
        ("deb", "toy"): write_deb(
            root, "toy", {"usr/share/toy/a.txt": "one", "usr/share/dropped": "", "usr/bin/toy": ""}
        ),
        ("deb", "python"): write_deb(root, "python", {f"bin/python{PYTHON}": ""}),
        ("wheel", "demo"): write_wheel(
            root, "demo", {"demo.py": "x = 1\n"}, entry_points="[console_scripts]\ndemo = demo:x\n"
        ),
        ("wheel", "fast"): write_wheel(root, "fast", {"fast.py": "x = 1\n"}, tag="cp311-cp311-manylinux_2_17_x86_64"),
    }
    taken: Mapping[tuple[str, str], LockedArtifact] = {
        (kind, name): LockedArtifact(
            kind=kind,  # type: ignore[arg-type]
            name=name,
            version="1.0-1" if kind == "deb" else "1.0",
            file_name=path.name,
            sha256=f"{number:064x}",
            size_bytes=1,
        )
        for number, ((kind, name), path) in enumerate(sources.items())
    }
    compiler = make_tree(root / "compiler", {"bin/python3.11": f'#!/bin/sh\nexec {sys.executable} "$@"\n'})
    made = {}
    for plan in plan_packages(make_table(root, rows), taken, subdir="linux-64", code_of=lambda _entry: "code"):
        if plan.entry.name == "python":
            continue
        place = tuple(sources[artifact.kind, artifact.name] for artifact in plan.taken)
        make_package(PackageJob(
            plan=plan, sources=place, destination=root, subdir="linux-64", python="3.11", compiler=compiler
        ))  # fmt: skip
        package = root / plan.subdir / plan.file_name
        index = {name: value for name, value in read_index_json(package).items() if name != "build"}
        paths = read_info_json(package, "paths.json")
        made[plan.entry.name] = digest_of([index, [_without_byte_code(row) for row in paths["paths"]]])
    return made


def _without_byte_code(row: dict[str, Any]) -> object:
    """The bytes are those of the Python that compiles."""
    name = str(row["_path"])
    return name.split(".", maxsplit=1)[0] if name.endswith(".pyc") else row


@pytest.mark.parametrize("module", ["worker", *MODULES])
def test_what_is_made_has_not_changed_under_the_same_number(module: str, tmp_path: Path) -> None:
    if module == "worker":
        number, file, made = worker.CODE, "CODE in foundation/worker.py", made_packages(tmp_path)
    else:
        loaded = importlib.import_module(f"{repairs.__name__}.{module}")
        number, file = loaded.VERSION, f"VERSION in foundation/repairs/{module}.py"
        made = {step: made_by_step(step, tmp_path / step) for step in sorted(loaded.STEPS)}
    known = json.loads(MADE.read_text(encoding="utf-8"))
    recorded = known.get(module, {"number": 0, "made": {}})
    changed = sorted(name for name in made.keys() & recorded["made"].keys() if made[name] != recorded["made"][name])
    assert number != recorded["number"] or not changed, f"{', '.join(changed)}: made otherwise: raise {file}"
    if os.environ.get("REFRESH_GOLDEN"):
        content = dict(sorted({**known, module: {"number": number, "made": made}}.items()))
        MADE.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    elif (number, made) != (recorded["number"], recorded["made"]):
        pytest.fail("record what is made now: REFRESH_GOLDEN=1 .venv/bin/python -m pytest -n 0 " + __file__)


def test_every_step_is_tried() -> None:
    assert TREES.keys() == repairs.REPAIRS.keys()


@pytest.mark.parametrize("changed", ["number", "data"])
def test_another_number_or_data_is_another_digest(
    changed: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    step, module = "write_protobuf_cmake", sys.modules[repairs.REPAIRS["write_protobuf_cmake"].__module__]
    before = codes.step_digest.__wrapped__(step)
    if changed == "number":
        monkeypatch.setattr(module, "VERSION", 1000)
    else:
        make_tree(tmp_path / "pkgconfig", {"protobuf-config.cmake.in": "other"})
        monkeypatch.setattr(codes, "DATA_FOLDER", tmp_path)
    assert codes.step_digest.__wrapped__(step) != before
