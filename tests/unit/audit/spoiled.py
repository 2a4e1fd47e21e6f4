# SPDX-License-Identifier: BSD-3-Clause
"""One package per rule that breaks it, and its twin that does not."""

from __future__ import annotations

import tarfile
from dataclasses import dataclass, replace

from channel_tools.audit.model import Rule
from tests.unit.audit.packages import BUILD_FOLDER, HOST_PREFIX, Entry, Files, Toy, archive, index_json
from tests.unit.foundation.elf_files import shared_library


@dataclass(frozen=True, kw_only=True)
class Case:
    """Breaks ``rule`` in ``file``; ``found`` is in the finding's words."""

    rule: Rule
    id: str
    spoiled: Toy
    clean: Toy
    file: str
    found: str
    where: str = ""


def case(
    rule: Rule, identity: str, path: str, spoiled: bytes | Entry, clean: bytes | Entry, found: str, where: str = ""
) -> Case:
    """A case of one file that differs."""
    return Case(
        rule=rule,
        id=identity,
        spoiled=Toy(files={path: spoiled}),
        clean=Toy(files={path: clean}),
        file=path,
        found=found,
        where=where,
    )


def library(**asked: object) -> bytes:
    return shared_library(soname="libtoy.so.1", **asked)  # type: ignore[arg-type]


def program(text: str, *, placeholder: str = "") -> Entry:
    return Entry(content=text.encode(), mode=0o755, placeholder=placeholder)


NATIVE = Toy(files={"lib/libtoy.so.1": library(needed=["libc.so.6"], rpath="$ORIGIN", versions=["GLIBC_2.34"])})
GXX = Toy(files={"lib/libtoy.so.1": library(rpath="$ORIGIN", versions=["GLIBCXX_3.4.30"])})
SITE_LIBRARY = library(rpath="$ORIGIN", constants=b"\0/opt/vendor/lib/libfabric\0")
SITE_PROGRAM = library(rpath="$ORIGIN/../lib", constants=b"\0PLUGINS=lib:/usr/local/lib/toy:/lib\0")
DANGLING: Files = {"lib/libtoy.so": Entry(link="libtoy.so.1")}
OTHER_INDEX = b'{"name": "other", "version": "1.0", "build": "h0_0", "build_number": 0, "subdir": "linux-64"}'

CASES = [
    Case(
        rule=Rule.PACKAGE,
        id="another name inside",
        spoiled=Toy(info={"index.json": OTHER_INDEX}),
        clean=Toy(),
        file="",
        found="says other-1.0-h0_0",
    ),
    case(
        Rule.ELF,
        "cut short",
        "lib/libtoy.so.1",
        library(rpath="$ORIGIN")[:120],
        library(rpath="$ORIGIN"),
        "cannot be read",
    ),
    case(
        Rule.ELF,
        "an archive cut short",
        "lib/libtoy.a",
        archive({"toy.o": library()})[:-200],
        archive({"toy.o": library()}),
        "cannot be read: the member at offset 0x48 is cut short",
    ),
    case(
        Rule.RPATH,
        "absolute",
        "lib/libtoy.so.1",
        library(rpath="/opt/cray/lib64"),
        library(rpath="$ORIGIN/../lib"),
        "has the rpath /opt/cray/lib64",
    ),
    case(
        Rule.RPATH,
        "out of the prefix",
        "lib/libtoy.so.1",
        library(rpath="$ORIGIN/../../lib"),
        library(rpath="$ORIGIN/.."),
        "leads out of the prefix",
    ),
    case(
        Rule.NEEDED,
        "nobody has it",
        "lib/libtoy.so.1",
        library(needed=["libhwloc.so.15"], rpath="$ORIGIN"),
        library(needed=["libc.so.6", "libcuda.so.1"], rpath="$ORIGIN"),
        "needs libhwloc.so.15, which neither the package nor its dependencies have",
    ),
    case(
        Rule.BUILD_PATH,
        "in a text",
        "share/toy/flags.txt",
        f"CFLAGS\n-I{BUILD_FOLDER}/include\n".encode(),
        b"CFLAGS\n-I../include\n",
        f"names -I{BUILD_FOLDER}/include",
        "line 2",
    ),
    case(
        Rule.BUILD_PATH,
        "in a binary file",
        "lib/libtoy.so.1",
        library(rpath="$ORIGIN") + b"\0" + f"{BUILD_FOLDER}/src/x.c".encode(),
        library(rpath="$ORIGIN") + b"\0./src/x.c",
        f"names {BUILD_FOLDER}/src/x.c",
        f"offset {len(library(rpath='$ORIGIN')) + 1:#x}",
    ),
    case(
        Rule.BUILD_PATH,
        "an engine's folder elsewhere",
        "share/toy/flags.txt",
        b"-I/data/bld/rattler-build_toy_17/include",
        b"-I../include",
        "names -I/data/bld/rattler-build_toy_17/include",
        "line 1",
    ),
    case(
        Rule.SITE_PATH,
        "plugins of another prefix",
        "lib/libtoy.so.1",
        SITE_LIBRARY,
        library(rpath="$ORIGIN", constants=b"\0lib/libfabric\0/dev/shm/toy\0"),
        "has the string /opt/vendor/lib/libfabric",
        f"offset {SITE_LIBRARY.index(b'/opt/vendor'):#x}",
    ),
    case(
        Rule.SITE_PATH,
        "in a list of folders",
        "bin/program",
        SITE_PROGRAM,
        library(rpath="$ORIGIN/../lib", constants=b"\0PATH=/usr/local/bin:/usr/bin\0"),
        "has the string /usr/local/lib/toy",
        f"offset {SITE_PROGRAM.index(b'/usr/local'):#x}",
    ),
    case(
        Rule.PLACEHOLDER,
        "not registered",
        "share/toy/where",
        f"{HOST_PREFIX}/share".encode(),
        Entry(content=f"{HOST_PREFIX}/share".encode(), placeholder=HOST_PREFIX),
        "which nothing replaces",
        "line 1",
    ),
    case(
        Rule.PLACEHOLDER,
        "a binary file as text",
        "share/toy/where",
        Entry(content=f"\0{HOST_PREFIX}\0".encode(), placeholder=HOST_PREFIX),
        Entry(content=f"\0{HOST_PREFIX}\0".encode(), placeholder=HOST_PREFIX, file_mode="binary"),
        "is a binary file, but paths.json registers its prefix as that of a text file",
    ),
    case(
        Rule.PLACEHOLDER,
        "too short",
        "share/toy/where",
        Entry(content=b"\0/opt/short\0", placeholder="/opt/short", file_mode="binary"),
        Entry(content=f"\0{HOST_PREFIX}\0".encode(), placeholder=HOST_PREFIX, file_mode="binary"),
        "contains a prefix of 10 bytes",
    ),
    case(
        Rule.SELF_LOCATING,
        "pkg-config",
        "lib/pkgconfig/toy.pc",
        Entry(content=f"prefix={HOST_PREFIX}\n".encode(), placeholder=HOST_PREFIX),
        b"prefix=${pcfiledir}/../..\n",
        "names the installation prefix, written in full",
        "line 1",
    ),
    case(
        Rule.SELF_LOCATING,
        "cmake",
        "lib/cmake/Toy/ToyConfig.cmake",
        b"cmake_minimum_required(VERSION 3.22)\nset(TOY_INCLUDE /usr/local/cuda/include)\n",
        b'get_filename_component(PREFIX "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)\n',
        "names /usr/local/cuda/include",
        "line 2",
    ),
    case(
        Rule.SELF_LOCATING,
        "config program",
        "bin/toy-config",
        program("#!/bin/sh\necho -I/opt/toy/include\n"),
        program('#!/bin/sh\necho "-I$(dirname "$0")/../include"\n'),
        "names /opt/toy/include",
        "line 2",
    ),
    case(
        Rule.INTERPRETER,
        "of the host",
        "bin/toy",
        program("#!/usr/local/bin/python3\n"),
        program(f"#!{HOST_PREFIX}/bin/python3\n", placeholder=HOST_PREFIX),
        "is run by /usr/local/bin/python3",
        "line 1",
    ),
    case(
        Rule.INTERPRETER,
        "too long a line",
        "bin/toy",
        program(f"#!/usr/bin/env {'x' * 120}\n"),
        program("#!/usr/bin/env python3\n"),
        "has a first line of 135 bytes",
        "line 1",
    ),
    Case(
        rule=Rule.LINK,
        id="dangling",
        spoiled=Toy(files=DANGLING),
        clean=Toy(files={**DANGLING, "lib/libtoy.so.1": library(rpath="$ORIGIN")}),
        file="lib/libtoy.so",
        found="points to libtoy.so.1, which neither the package nor its dependencies have",
    ),
    Case(
        rule=Rule.LINK,
        id="absolute",
        spoiled=Toy(files={"include": Entry(link="/usr/include")}),
        clean=Toy(files={"share/x": b"x", "include": Entry(link="share")}),
        file="include",
        found="points to the absolute path /usr/include",
    ),
    Case(
        rule=Rule.LINK,
        id="noarch",
        spoiled=Toy(subdir="noarch", files={"share/a": b"a", "share/b": Entry(link="a")}),
        clean=Toy(subdir="noarch", files={"share/a": b"a", "share/b": Entry(link="a")}, depends=("__unix",)),
        file="share/b",
        found="is a link to a in a noarch package",
    ),
    *(
        Case(
            rule=Rule.LINK_SCRIPT,
            id=script,
            spoiled=Toy(files={script: program("#!/bin/sh\n")}),
            clean=Toy(files={script.replace(".toy-", ".other-"): program("#!/bin/sh\n")}),
            file=script,
            found="is a script that not all clients run",
        )
        for script in (
            "bin/.toy-post-link.sh",
            "bin/.toy-pre-link.sh",
            "bin/.toy-pre-unlink.sh",
            "bin/.toy-post-unlink.sh",
            "Scripts/.toy-post-link.bat",
        )
    ),
    case(
        Rule.MODE,
        "setuid",
        "bin/toy",
        replace(program("#!/bin/sh\n"), mode=0o4755),
        program("#!/bin/sh\n"),
        "has the mode 4755",
    ),
    case(
        Rule.MODE,
        "everyone may write",
        "share/toy/data",
        Entry(content=b"x", mode=0o666),
        Entry(content=b"x", mode=0o664),
        "everyone may write to it",
    ),
    case(Rule.MODE, "a pipe", "share/toy/data", Entry(kind=tarfile.FIFOTYPE), b"", "is neither a file nor a link"),
    Case(
        rule=Rule.GLIBC,
        id="more than required",
        spoiled=replace(NATIVE, depends=("__glibc >=2.17,<3.0.a0",)),
        clean=replace(NATIVE, depends=("__glibc >=2.34,<3.0.a0",)),
        file="lib/libtoy.so.1",
        found="needs GLIBC_2.34; the package requires 2.17",
    ),
    Case(
        rule=Rule.LIBSTDCXX,
        id="more than required",
        spoiled=replace(GXX, depends=("libstdcxx >=11",)),
        clean=replace(GXX, depends=("libstdcxx >=12",)),
        file="lib/libtoy.so.1",
        found="needs GLIBCXX_3.4.30; its requirement allows 11",
    ),
    Case(
        rule=Rule.METADATA,
        id="a build path in the recipe",
        spoiled=Toy(info={"recipe/build.sh": f"cd {BUILD_FOLDER}/src\n".encode()}),
        clean=Toy(info={"recipe/build.sh": b"cd ${SRC_DIR}\n"}),
        file="info/recipe/build.sh",
        found=f"names {BUILD_FOLDER}/src",
        where="line 1",
    ),
    *(
        Case(
            rule=Rule.METADATA,
            id=f"{key} null",
            spoiled=Toy(info={"index.json": index_json(**{key: None})}),
            clean=Toy(info={"index.json": index_json(**{key: []})}),
            file="info/index.json",
            found=f"has {key} null",
        )
        for key in ("depends", "constrains", "track_features")
    ),
    Case(
        rule=Rule.EXCEPTION,
        id="without a reason",
        spoiled=Toy(extra={"audit": {"allow": [{"rule": "link", "files": ["lib/x"]}]}}),
        clean=Toy(extra={"audit": {"allow": [{"rule": "link", "files": ["lib/x"], "reason": "the site has it"}]}}),
        file="",
        found="gives no reason",
    ),
    Case(
        rule=Rule.EXCEPTION,
        id="for every file",
        spoiled=Toy(extra={"audit": {"allow": [{"rule": "link", "files": ["**"], "reason": "all of it"}]}}),
        clean=Toy(),
        file="",
        found="matches every file by **",
    ),
]
"""Rule.INSTRUCTIONS needs a compiler: test_instructions.py and test_archives.py."""
