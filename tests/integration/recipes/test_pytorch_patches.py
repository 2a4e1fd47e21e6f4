# SPDX-License-Identifier: BSD-3-Clause
"""The patches of PyTorch on the tagged files, and what they make on the headers and libraries of its releases.

Nothing here is fetched: a folder with what is wanted is named by a variable, and what it lacks is skipped by name.

CHANNEL_TOOLS_PYTORCH_SOURCES       a folder per version (2.4.1 ...) with the tagged files by their paths, as checkouts
CHANNEL_TOOLS_PYTORCH_RELEASES      a folder per version with what a wheel holds: torch/include, and 1.7.1's torch/lib
CHANNEL_TOOLS_TEST_PYTORCH_CHANNEL  a channel with the patched PyTorch, whose headers do for its version

Without the first, 2.6.0's files are those of the source store, where `make pytorch` or `channel_tools sources fetch`
has put them.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import json
import os
import re
import shutil
import socket
import tarfile
import tempfile
from pathlib import Path

import pytest

from channel_tools.environments import activated_environment
from channel_tools.sources.patches import names_in
from channel_tools.system.processes import run_command
from channel_tools.system.settings import Settings
from tests.integration.conftest import ROOT
from tests.support.ports import free_port
from tests.support.processes import TEST_TIMEOUT_S
from tests.support.programs import program
from tests.support.stacks import install, sources_of
from tests.support.switch import running_switch

pytestmark = [pytest.mark.integration, pytest.mark.slow]

PATCHES = sorted(
    path
    for folder in ("pytorch-cray-mpich", "pytorch-switchml")
    for path in (ROOT / "patches" / folder).rglob("*.patch")
)
WITH_MPI = ("2.2.2", "2.3.1", "2.4.0", "2.4.1", "2.6.0")
OLD = "1.7.1"
IN_PARTS = "2.6.0"
SOURCES, RELEASES = "CHANNEL_TOOLS_PYTORCH_SOURCES", "CHANNEL_TOOLS_PYTORCH_RELEASES"
CHANNEL = "CHANNEL_TOOLS_TEST_PYTORCH_CHANNEL"
SPECS = ["gcc_linux-64", "gxx_linux-64", "sysroot_linux-64", "mpich", "libswitchml * udp*", "switchml-switch"]
GLOO = ("gloo/*.cc", "gloo/common/*.cc", "gloo/rendezvous/*.cc", "gloo/transport/*.cc", "gloo/transport/tcp/*.cc")
NOT_BUILT = re.compile(r"cuda|nccl|rccl|win\.cc|redis|mpi|hip")
C10D = ("FileStore", "GlooDeviceFactory", "PrefixStore", "ProcessGroup", "ProcessGroupGloo", "Store", "Utils")
SESSION = ("Agreement", "Jobs", "Library", "Report", "Session", "Settings")


def _folder(variable: str, version: str, *within: str) -> Path:
    base = os.environ.get(variable)
    if base is None and (variable, version) == (SOURCES, IN_PARTS):
        return _stored_sources().joinpath(*within)
    if base is None:
        pytest.skip(f"{variable} names no folder")
    path = Path(base, version, *within)
    if not path.exists():
        pytest.skip(f"{path} does not exist")
    return path


_PYTORCH = rf"/pytorch_{re.escape(IN_PARTS)}[^/]*\.orig\."


@functools.cache
def _stored(source_file: str, *, wanted: frozenset[str] = frozenset()) -> Path:
    """The top folder of a source of 2.6.0's recipe, whose address matches, unpacked from the source store.

    Only the ``wanted`` files are unpacked, or all where none are named. Skips where the store does not have it.
    """
    found = [
        source["path"]
        for source in sources_of("cray-mpich-patched", "pytorch-cray-mpich-patched")
        if source["present"] and re.search(source_file, source["urls"][0])
    ]
    if not found:
        pytest.skip(f"{SOURCES} names no folder, and the source store has no {source_file}")
    target = Path(tempfile.mkdtemp(prefix="pytorch-sources-"))
    atexit.register(shutil.rmtree, target)
    missing = set(wanted)
    with tarfile.open(found[0]) as archive:
        for member in archive:
            name = member.name.partition("/")[2]
            if not wanted or name in missing:
                archive.extract(member, target, filter="data")
                missing.discard(name)
            if wanted and not missing:
                break
    (top,) = target.iterdir()
    return top


def _stored_sources() -> Path:
    """PyTorch's own files of 2.6.0 that patches change."""
    return _stored(_PYTORCH, wanted=frozenset(name for patch in _patches(IN_PARTS) for name in names_in(patch)))


def _patches(version: str) -> list[Path]:
    return [path for path in PATCHES if path.parent.name == version]


def _patched(version: str, target: Path) -> Path:
    """A copy of the tagged files that the patches change, patched; with what the recipe adds."""
    source = _folder(SOURCES, version)
    for patch in _patches(version):
        names = names_in(patch)
        lacking = sorted(name for name in names if not (source / name).is_file())
        if len(lacking) == len(names):  # of a part of PyTorch that is not looked at
            continue
        if lacking:  # files that are not patched would compile as well
            pytest.skip(f"{source / lacking[0]} does not exist")
        for name in names:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            if not (target / name).exists():
                shutil.copy(source / name, target / name)
        run_command([program("patch"), "-p1", "-F0", "-i", patch], cwd=target, timeout_s=TEST_TIMEOUT_S)
    recipe = "pytorch-switchml-patched" if version == OLD else "pytorch-cray-mpich-patched"
    shutil.copytree(ROOT / "recipes" / recipe / "src" / "torch", target / "torch", dirs_exist_ok=True)
    return target


@pytest.mark.parametrize("path", PATCHES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_patch_fits_the_tagged_file_to_the_line(path: Path, tmp_path: Path) -> None:
    source = _folder(SOURCES, path.parent.name)
    for name in names_in(path):
        if not (source / name).is_file():
            pytest.skip(f"{source / name} does not exist")
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source / name, tmp_path / name)
        stated = re.search(rf"^\+\+\+ b/{re.escape(name)}$", path.read_text(), re.MULTILINE)
        assert stated is not None
        blobs = re.findall(r"^index ([0-9a-f]{40})\.\.", path.read_text()[: stated.start()], re.MULTILINE)
        content = (source / name).read_bytes()
        found = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()  # noqa: S324 - git's own
        assert not blobs or blobs[-1] == found
    said = run_command([program("patch"), "-p1", "-F0", "-i", path], cwd=tmp_path, timeout_s=TEST_TIMEOUT_S).stdout
    assert "offset" not in said
    assert "fuzz" not in said


@pytest.fixture(scope="module")
def prefix(own_settings: Settings, stack_channel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    prefix = tmp_path_factory.mktemp("pytorch") / "env"
    return install(own_settings, stack_channel, prefix, SPECS)


def _includes(version: str, *folders: Path) -> list[str]:
    release = _folder(RELEASES, version, "torch", "include")
    return [f"-I{folder}" for folder in (*folders, release, release / "torch" / "csrc" / "api" / "include")]


def _compile(prefix: Path, options: list[str], source: Path, target: Path) -> Path:
    variables = activated_environment(prefix, environ=os.environ)
    command: list[str | Path] = [variables["CXX"], "-fPIC", "-O1", "-w", *options, "-c", source, "-o", target]
    run_command(command, env=variables, timeout_s=TEST_TIMEOUT_S)
    return target


@pytest.mark.parametrize("version", WITH_MPI)
def test_the_process_group_of_mpi_compiles(version: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    includes = _includes(version, tmp_path / "patched")
    patched = _patched(version, tmp_path / "patched")
    prefix: Path = request.getfixturevalue("prefix")
    options = ["-std=c++17", "-DUSE_C10D_MPI", *includes, f"-I{prefix / 'include'}"]
    source = patched / "torch/csrc/distributed/c10d/ProcessGroupMPI.cpp"
    _compile(prefix, options, source, tmp_path / "object.o")


@pytest.fixture(scope="module")
def whole(own_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the patched PyTorch."""
    if CHANNEL not in os.environ:
        pytest.skip(f"{CHANNEL} names no channel: `make pytorch` builds it")
    specs = ["pytorch-cray-mpich=*=patched_cpu*", "mpich", "gcc_linux-64", "gxx_linux-64", "sysroot_linux-64"]
    return install(own_settings, Path(os.environ[CHANNEL]).resolve(), tmp_path_factory.mktemp("whole") / "env", specs)


@pytest.mark.parametrize("name", ["ProcessGroupMPI.cpp", "init.cpp"])
def test_what_includes_the_check_compiles_with_the_packages_headers(name: str, whole: Path, tmp_path: Path) -> None:
    (header,) = whole.glob("lib/python3.*/site-packages/torch/include")
    (python,) = whole.glob("include/python3.*")
    patched = _patched(IN_PARTS, tmp_path / "patched")
    sources, httplib = _stored(_PYTORCH), _stored(r"/cpp-httplib_[^/]*\.orig\.")
    fmt = _stored(r"/fmtlib_[^/]*\.orig\.") / "include"
    places = (patched, sources, httplib, fmt, header, header / "torch/csrc/api/include", python, whole / "include")
    options = ["-std=c++17", "-DUSE_DISTRIBUTED", "-DUSE_C10D_MPI", "-DUSE_RPC", *(f"-I{place}" for place in places)]
    folder = "torch/csrc/distributed/c10d"
    source = next(place / folder / name for place in (patched, sources) if (place / folder / name).is_file())
    _compile(whole, options, source, tmp_path / "object.o")


@pytest.mark.parametrize("standard", ["c++14", "c++17"])
@pytest.mark.parametrize("macros", [[], ["-DUSE_C10D_SWITCHML"]], ids=["without switchml", "with switchml"])
def test_the_process_group_of_gloo_compiles(
    standard: str, macros: list[str], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    source, includes = _old_sources(tmp_path)
    options = [f"-std={standard}", "-DUSE_C10D_GLOO", *macros, *includes]
    _compile(request.getfixturevalue("prefix"), options, source / "ProcessGroupGloo.cpp", tmp_path / "object.o")


def _old_sources(tmp_path: Path) -> tuple[Path, list[str]]:
    """The folder c10d of PyTorch 1.7.1, patched, and the folders of headers; gloo's patched, too."""
    source = _folder(SOURCES, OLD, "third_party", "gloo", "gloo").parents[2]
    tree = tmp_path / "patched"
    for part in ("torch/lib/c10d", "third_party/gloo"):
        shutil.copytree(source / part, tree / part, ignore=shutil.ignore_patterns("test"))
    _patched(OLD, tree)
    template = (tree / "third_party/gloo/gloo/config.h.in").read_text()
    config = re.sub(
        r"#cmakedefine01 (\w+)", lambda match: f"#define {match[1]} {int('TRANSPORT_TCP' in match[1])}", template
    )
    (tree / "third_party/gloo/gloo/config.h").write_text(re.sub(r"@\w+@", "0", config))
    includes = _includes(OLD, tree / "torch" / "lib", tree / "third_party" / "gloo")
    return tree / "torch/lib/c10d", ["-D_GLIBCXX_USE_CXX11_ABI=0", *includes]


def test_the_patched_process_group_reduces_in_the_released_pytorch(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    libraries = _folder(RELEASES, OLD, "torch", "lib", "libtorch_cpu.so").parent
    source, includes = _old_sources(tmp_path)
    prefix: Path = request.getfixturevalue("prefix")
    gloo = tmp_path / "patched/third_party/gloo"
    files = [source / f"{name}.cpp" for name in (*C10D, *(f"SwitchML{part}" for part in SESSION))]
    files += [ROOT / "recipes/pytorch-switchml-patched/src/tests/process_group.cpp"]
    files += [path for pattern in GLOO for path in sorted(gloo.glob(pattern)) if not NOT_BUILT.search(path.name)]
    options = ["-std=c++14", "-DUSE_C10D_GLOO", "-DUSE_C10D_SWITCHML", *includes, f"-I{prefix / 'include'}"]
    objects = [_compile(prefix, options, file, tmp_path / f"{number}.o") for number, file in enumerate(files)]
    variables = activated_environment(prefix, environ=os.environ)
    program = tmp_path / "process_group"
    links = [f"-L{libraries}", "-ltorch_cpu", "-lc10", "-lpthread", "-ldl", f"-Wl,-rpath,{libraries}"]
    links += [f"-Wl,-rpath-link,{libraries}", "-Wl,--allow-shlib-undefined"]
    run_command([variables["CXX"], "-o", program, *objects, *links], env=variables, timeout_s=TEST_TIMEOUT_S)
    (tmp_path / "meeting").mkdir()
    with running_switch(prefix) as switch:
        variables = {name: value for name, value in os.environ.items() if not name.startswith("SWITCHML_")}
        variables |= {
            "SWITCHML_CONTROLLER": switch.controller,
            "SWITCHML_WORKER_PORT": str(free_port(socket.SOCK_DGRAM)),
            "SWITCHML_LIBRARY": str(prefix / "lib" / "libswitchml.so.1"),
            "SWITCHML_STATS_FILE": str(tmp_path / "rank{rank}.json"),
        }
        run_command([program, "2", tmp_path / "meeting"], env=variables, timeout_s=TEST_TIMEOUT_S)
    for rank in range(2):
        report = json.loads((tmp_path / f"rank{rank}.json").read_text())
        assert report["delegated"]["float32"]["jobs"] == 6 + 13
        assert report["delegated"]["int32"] == {"jobs": 1, "elements": 20, "bytes": 80}
        assert (report["fallbacks"]["dtype"], report["fallbacks"]["reduce_op"]) == (1 + 7, 1)
        assert (report["fallbacks"]["group"], report["copied_jobs"], report["failed_jobs"]) == (1, 3, 0)
    assert switch.stats["sessions_opened"] == 1
