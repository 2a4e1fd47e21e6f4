# SPDX-License-Identifier: BSD-3-Clause
"""Rules about the loader, what is opened and the processor: elf, rpath, needed, site-path, host-path, glibc, libstdcxx,
instructions.

Also the symbol versions of glibc, libstdc++ and libgcc, and the release of each that introduced them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.audit.host_paths import owner_of
from channel_tools.audit.instructions import level_name, required_level
from channel_tools.audit.model import SYSROOT, Requirement, Rule
from channel_tools.conda.closure import join_path, resolve
from channel_tools.conda.specs import least_version, specs_on
from channel_tools.system.counting import counted
from channel_tools.system.elf import GLIBC_LIBRARIES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from channel_tools.audit.model import (
        ArchiveFacts,
        Dependencies,
        ElfFacts,
        Finding,
        Instruction,
        Occurrence,
        PackageFacts,
    )

DRIVER_LIBRARIES = frozenset({"libcuda.so.1", "libnvidia-ml.so.1"})
"""Libraries that the installation of a GPU's driver provides, by design."""
_MACHINES = {"linux-64": "EM_X86_64", "linux-aarch64": "EM_AARCH64"}
_LIBRARY_NAMES = {"libstdcxx": ("libstdcxx", "libstdcxx-ng"), "libgcc": ("libgcc", "libgcc-ng")}
_LIBRARIES = {"libstdcxx": "libstdc++.so.6", "libgcc": "libgcc_s.so.1"}
_ELF = Requirement(
    rule=Rule.ELF,
    expected="whole ELF files for the package's platform",
    fix="use the compiler of the target platform, ${{ compiler('c') }}; "
    "leave out of the package what upstream ships damaged or for other platforms",
)
_RPATH = Requirement(
    rule=Rule.RPATH,
    expected="rpaths that begin with $ORIGIN and stay inside the prefix",
    fix="link with -Wl,-rpath,'$ORIGIN/../lib', or name the folders in build.dynamic_linking.rpaths; "
    "list a folder of the site in build.dynamic_linking.rpath_allowlist",
)
_NEEDED = Requirement(
    rule=Rule.NEEDED,
    expected="a library of the package or its dependencies, in a folder of the file's rpath",
    fix="add the run dependency that has it, or the rpath; "
    "list libraries that the site provides in build.dynamic_linking.missing_dso_allowlist",
)
_FIX_PATH = (
    "have it find the file relative to itself, by a variable that the activation sets, or with a build prefix, which "
    "installation replaces; what is meant is declared by name (extra.audit.allow, with paths)"
)
_SITE_PATH = Requirement(
    rule=Rule.SITE_PATH,
    expected="no path of a site, or of another library's plugins, in the strings of programs and libraries: "
    "whoever can write there decides what they load",
    fix=_FIX_PATH,
)
_HOST_PATH = Requirement(
    rule=Rule.HOST_PATH,
    expected="no path of the machine in the strings of programs and libraries, but those that every system has",
    fix=_FIX_PATH,
)
Version = tuple[int, ...]
_SYMBOL = re.compile(r"(GLIBC|GLIBCXX|CXXABI|GCC)_(\d+(?:\.\d+)*)")
# The first release of GCC whose libstdc++ has a symbol version; GCC's "ABI Policy and Guidelines" lists them.
_GLIBCXX: Mapping[Version, Version] = {
    (3, 4, 19): (4, 8, 3), (3, 4, 20): (4, 9), (3, 4, 21): (5, 1), (3, 4, 22): (6, 1), (3, 4, 23): (7, 1),
    (3, 4, 24): (7, 2), (3, 4, 25): (8, 1), (3, 4, 26): (9, 1), (3, 4, 27): (9, 2), (3, 4, 28): (9, 3),
    (3, 4, 29): (11, 1), (3, 4, 30): (12, 1), (3, 4, 31): (13, 1), (3, 4, 32): (13, 2), (3, 4, 33): (14, 1),
    (3, 4, 34): (15, 1),
}  # fmt: skip
_CXXABI: Mapping[Version, Version] = {
    (1, 3, 7): (4, 8), (1, 3, 8): (4, 9), (1, 3, 9): (5, 1), (1, 3, 10): (6, 1), (1, 3, 11): (7, 1),
    (1, 3, 12): (9, 1), (1, 3, 13): (11, 1), (1, 3, 14): (13, 1), (1, 3, 15): (14, 1), (1, 3, 16): (15, 1),
}  # fmt: skip
_OLDEST: Version = (4, 8)
_UNKNOWN: Version = (9999,)


def elf_rule(package: PackageFacts, _dependencies: Dependencies) -> Iterator[Finding]:
    """ELF files are whole and made for the package's platform."""
    machine = _MACHINES.get(package.subdir)
    for path, elf in _elf_files(package):
        if elf.damage:
            yield _ELF.violation(package.file_name, path, f"cannot be read: {elf.damage}")
        elif machine and elf.machine != machine and elf.is_dynamic:
            yield _ELF.violation(package.file_name, path, _made_for(elf.machine, package))
    for path, archive in _archives(package):
        if archive.damage:
            yield _ELF.violation(package.file_name, path, f"cannot be read: {archive.damage}")
        for machine_of_member, member in sorted(archive.machines.items()):
            if machine and machine_of_member != machine:
                yield _ELF.violation(package.file_name, f"{path}({member})", _made_for(machine_of_member, package))


def _made_for(machine: str, package: PackageFacts) -> str:
    return f"is made for {machine.removeprefix('EM_')}; the subdir is {package.subdir}"


def rpath_rule(package: PackageFacts, _dependencies: Dependencies) -> Iterator[Finding]:
    """Rpaths are relative to $ORIGIN and stay inside the prefix; the recipe may list what the site needs."""
    for path, elf in _elf_files(package):
        for rpath, folder in zip(elf.rpaths, elf.folders, strict=True):
            leads_out = folder == ".." or folder.startswith("../")
            if rpath.startswith(("$ORIGIN", "${ORIGIN}")) and not leads_out:
                continue
            problem = f"has the rpath {rpath}" + (", which leads out of the prefix" if leads_out else "")
            yield _RPATH.violation(package.file_name, path, problem, subject=rpath)


def site_path_rule(package: PackageFacts, _dependencies: Dependencies) -> Iterator[Finding]:
    """Nothing is loaded from where a site, or whoever can write there, puts files of its own."""
    for path, elf in _elf_files(package):
        for occurrence in elf.paths:
            if owner_of(occurrence.text) == "site":
                yield _path_violation(_SITE_PATH, package, path, occurrence)


def host_path_rule(package: PackageFacts, _dependencies: Dependencies) -> Iterator[Finding]:
    """Nothing is read from the machine but what every system has."""
    for path, elf in _elf_files(package):
        for occurrence in elf.paths:
            if owner_of(occurrence.text) == "host":
                yield _path_violation(_HOST_PATH, package, path, occurrence)


def _path_violation(requirement: Requirement, package: PackageFacts, path: str, occurrence: Occurrence) -> Finding:
    problem, where = f"has the string {occurrence.text}", occurrence.where
    return requirement.violation(package.file_name, path, problem, where=where, subject=occurrence.text)


def needed_rule(package: PackageFacts, dependencies: Dependencies) -> Iterator[Finding]:
    """Every needed library is found through the file's own rpath, or is provided by the host by design."""
    from_host = GLIBC_LIBRARIES | DRIVER_LIBRARIES
    for path, elf in _elf_files(package):
        for library in elf.needed:
            if library in from_host:
                continue
            if any(
                resolve(join_path(folder, library), dependencies.links) in dependencies.files for folder in elf.folders
            ):
                continue
            problem = f"needs {library}, which {_why_not(library, elf, dependencies)}"
            yield _NEEDED.violation(package.file_name, path, problem, subject=library)


def _why_not(library: str, elf: ElfFacts, dependencies: Dependencies) -> str:
    somewhere = sorted(
        path for path in dependencies.files | dependencies.links.keys() if path.rpartition("/")[2] == library
    )
    if somewhere:
        return f"is at {somewhere[0]}, but the rpath names {', '.join(elf.folders) or 'no folder'}"
    return f"neither the package nor its dependencies have{_unresolved(dependencies.unresolved)}"


def _unresolved(problems: Sequence[str]) -> str:
    """The first of ``problems``, and how many there are beside it: each library that is missing repeats it."""
    if not problems:
        return ""
    more = f", and {counted(len(problems) - 1, 'more dependency', 'more dependencies')}" if len(problems) > 1 else ""
    return f" (not known: {problems[0]}{more}; -c names further channels)"


def glibc_rule(package: PackageFacts, dependencies: Dependencies) -> Iterator[Finding]:
    """The package requires a glibc that has all symbol versions its files need, and its channel's base has it."""
    newest = newest_release(package, "glibc")
    if newest is None:
        return
    file, release = newest
    yield from base_violations(package, dependencies)
    declared = max((least_version(spec) for spec in _specs(package, ("__glibc",))), default=())
    if not declared or declared < release.release:
        have = f"the package requires {_text(declared)}" if declared else "the package requires none"
        requirement = Requirement(
            rule=Rule.GLIBC,
            expected=f"__glibc >={_text(release.release)} among depends or constrains",
            fix="let ${{ stdlib('c') }} name a sysroot at least as new as the one linked against",
        )
        yield requirement.violation(package.file_name, file, f"needs {release.symbol}; {have}")


def base_violations(package: PackageFacts, dependencies: Dependencies) -> Iterator[Finding]:
    """A finding if a file needs a newer glibc than the channel promises to run on."""
    newest = newest_release(package, "glibc")
    if newest is None or dependencies.glibc is None or newest[1].release <= parse_version(dependencies.glibc):
        return
    file, release = newest
    requirement = Requirement(
        rule=Rule.GLIBC,
        expected=f"no symbol version newer than glibc {dependencies.glibc}, which the channel's base has",
        fix="build it on the channel's base, or make a channel with a newer --base",
    )
    yield requirement.violation(package.file_name, file, f"needs {release.symbol}")


def libstdcxx_rule(package: PackageFacts, dependencies: Dependencies) -> Iterator[Finding]:
    """The package requires a libstdcxx and a libgcc that have all symbol versions its files need."""
    for library, names in _LIBRARY_NAMES.items():
        newest = newest_release(package, library)
        if (
            newest is None
            or package.name in names
            or any(path.rpartition("/")[2] == _LIBRARIES[library] for path in package.files)
        ):
            continue
        file, release = newest
        declared = _declared_release(package, dependencies, names)
        if not declared or not is_enough(declared, release.release):
            have = f"its requirement allows {_text(declared)}" if declared else f"it does not require {library}"
            requirement = Requirement(
                rule=Rule.LIBSTDCXX,
                expected=f"{library} >={_text(release.release[:1])} among depends",
                fix="keep the compilers' run_exports, and build with the compiler whose runtime is required",
            )
            yield requirement.violation(package.file_name, file, f"needs {release.symbol}; {have}")


def _declared_release(package: PackageFacts, dependencies: Dependencies, names: Collection[str]) -> Version:
    """The oldest release that may be installed with the package: by its own bound, else by what the channel has."""
    bounds = [least_version(spec) for spec in _specs(package, names)]
    if any(bounds):
        return max(bounds)
    offered = [parse_version(version) for name in names for version in dependencies.versions.get(name, ())]
    return min(offered, default=())


def instructions_rule(package: PackageFacts, _dependencies: Dependencies) -> Iterator[Finding]:
    """No instruction that the required processor may lack."""
    level = required_level((*package.depends, *package.constrains))
    requirement = Requirement(
        rule=Rule.INSTRUCTIONS,
        expected=f"instructions of {level_name(level)}, which is what the package requires",
        fix="build without -march=native and the like; depend on _x86_64-microarch-level >=N to require more; "
        "declare code that checks the processor first under extra.audit.runtime_dispatch, with the reason",
    )
    for path, elf in _elf_files(package):
        if elf.isa_needed and elf.isa_needed > level_name(level):
            yield requirement.violation(package.file_name, path, f"its property note asks for {elf.isa_needed}")
    for path, instructions in _code(package):
        first = instructions[0]
        function = f" in {first.function}" if first.function else ""
        features = ", ".join(sorted({instruction.feature for instruction in instructions}))
        problem = f"uses {features}; the first of {first.feature}{function}"
        yield requirement.violation(package.file_name, path, problem, where=f"offset {first.offset:#x}")


def _code(package: PackageFacts) -> Iterator[tuple[str, tuple[Instruction, ...]]]:
    """Files with instructions that the required processor may lack: programs, libraries, object files, archives."""
    for path, file in package.files.items():
        if file.elf is not None and file.elf.instructions and SYSROOT not in path:
            yield path, file.elf.instructions
    for path, archive in _archives(package):
        yield from ((f"{path}({member})", instructions) for member, instructions in archive.members)


def _archives(package: PackageFacts) -> Iterator[tuple[str, ArchiveFacts]]:
    for path, file in package.files.items():
        if file.archive is not None:
            yield path, file.archive


def _elf_files(package: PackageFacts) -> Iterator[tuple[str, ElfFacts]]:
    for path, file in package.files.items():
        if file.elf is not None and not (SYSROOT in file.path or file.path.endswith(".o")):
            yield path, file.elf


def newest_release(package: PackageFacts, library: str) -> tuple[str, NeededRelease] | None:
    """The file that needs the newest release of a library, and the symbol version that it needs."""
    newest: tuple[str, NeededRelease] | None = None
    for path, elf in _elf_files(package):
        needed = needed_releases(elf.symbol_versions).get(library)
        if needed and (newest is None or newest[1].release < needed.release):
            newest = path, needed
    return newest


def _specs(package: PackageFacts, names: Collection[str]) -> list[str]:
    return specs_on(names, (*package.depends, *package.constrains))


def _text(version: Version) -> str:
    return ".".join(str(part) for part in version)


@dataclass(frozen=True, kw_only=True, slots=True)
class NeededRelease:
    """The release of a library that symbol versions need, and the newest of these versions."""

    symbol: str
    release: Version


def needed_releases(symbols: Iterable[str]) -> dict[str, NeededRelease]:
    """Map ``glibc``, ``libstdcxx`` and ``libgcc`` to the oldest release that has all these symbol versions."""
    newest: dict[str, NeededRelease] = {}
    for symbol in symbols:
        match = _SYMBOL.fullmatch(symbol)
        if match is None:
            continue
        library, release = _release(match[1], parse_version(match[2]))
        if library not in newest or newest[library].release < release:
            newest[library] = NeededRelease(symbol=symbol, release=release)
    return newest


def _release(family: str, version: Version) -> tuple[str, Version]:
    if family == "GLIBC":
        return "glibc", version
    if family == "GCC":
        return "libgcc", version
    table = _GLIBCXX if family == "GLIBCXX" else _CXXABI
    if version < min(table):
        return "libstdcxx", _OLDEST
    return "libstdcxx", table.get(version, _UNKNOWN)


def parse_version(text: str) -> Version:
    """Parse ``2.17`` into numbers; anything after the numbers is ignored."""
    match = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def is_enough(have: Version, needed: Version) -> bool:
    """Whether a release is the wanted one or newer; ``12`` stands for ``12.1``, the first of its series."""
    return (have[:1] > needed[:1]) or have >= needed or (len(have) == 1 and have == needed[:1])
