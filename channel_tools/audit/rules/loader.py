# SPDX-License-Identifier: BSD-3-Clause
"""What the loader and the processor want: elf, rpath, needed, glibc, libstdcxx, instructions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from channel_tools.audit.facts import SYSROOT
from channel_tools.audit.model import Promise, Rule
from channel_tools.audit.processor import level_name, required_level
from channel_tools.audit.versions import is_enough, least_version, parse_version, wanted_releases
from channel_tools.elf import GLIBC_LIBRARIES
from channel_tools.packages.layout import join_path, resolve

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from channel_tools.audit.facts import ArchiveFacts, ElfFacts, FileFacts, Instruction, PackageFacts, Surroundings
    from channel_tools.audit.model import Finding
    from channel_tools.audit.versions import Version, Wanted

DRIVER_LIBRARIES = frozenset({"libcuda.so.1", "libnvidia-ml.so.1"})
"""What the installation of a GPU's driver brings, by design."""
_MACHINES = {"linux-64": "EM_X86_64", "linux-aarch64": "EM_AARCH64"}
_LIBRARY_NAMES = {"libstdcxx": ("libstdcxx", "libstdcxx-ng"), "libgcc": ("libgcc", "libgcc-ng")}
_LIBRARIES = {"libstdcxx": "libstdc++.so.6", "libgcc": "libgcc_s.so.1"}
_ELF = Promise(
    rule=Rule.ELF,
    expected="whole ELF files for the package's platform",
    mend="use the compiler of the target platform, ${{ compiler('c') }}; "
    "what upstream ships damaged or for others is to be left out of the package",
)
_RPATH = Promise(
    rule=Rule.RPATH,
    expected="rpaths that begin with $ORIGIN and stay inside the prefix",
    mend="link with -Wl,-rpath,'$ORIGIN/../lib', or patchelf --set-rpath; "
    "a folder of the site belongs into build.dynamic_linking.rpath_allowlist",
)
_NEEDED = Promise(
    rule=Rule.NEEDED,
    expected="a library of the package or of what it depends on, where the file's rpath leads",
    mend="add the run dependency that has it, or the rpath; "
    "what the site brings belongs into build.dynamic_linking.missing_dso_allowlist",
)


def elf_rule(package: PackageFacts, _around: Surroundings) -> Iterator[Finding]:
    """ELF files are whole and made for the package's platform."""
    machine = _MACHINES.get(package.subdir)
    for path, elf in _elf_files(package):
        if elf.damage:
            yield _ELF.broken(package.file_name, path, f"cannot be read: {elf.damage}")
        elif machine and elf.machine != machine and elf.is_dynamic:
            yield _ELF.broken(package.file_name, path, _made_for(elf.machine, package))
    for path, archive in _archives(package):
        if archive.damage:
            yield _ELF.broken(package.file_name, path, f"cannot be read: {archive.damage}")
        for found, member in sorted(archive.machines.items()):
            if machine and found != machine:
                yield _ELF.broken(package.file_name, f"{path}({member})", _made_for(found, package))


def _made_for(machine: str, package: PackageFacts) -> str:
    return f"is made for {machine.removeprefix('EM_')}; the subdir is {package.subdir}"


def rpath_rule(package: PackageFacts, _around: Surroundings) -> Iterator[Finding]:
    """Rpaths are relative to $ORIGIN and stay inside the prefix; the recipe may list what the site needs."""
    for path, elf in _elf_files(package):
        for rpath, folder in zip(elf.rpaths, elf.folders, strict=True):
            leads_out = folder == ".." or folder.startswith("../")
            if rpath.startswith(("$ORIGIN", "${ORIGIN}")) and not leads_out:
                continue
            found = f"has the rpath {rpath}" + (", which leads out of the prefix" if leads_out else "")
            yield _RPATH.broken(package.file_name, path, found, subject=rpath)


def needed_rule(package: PackageFacts, around: Surroundings) -> Iterator[Finding]:
    """Every needed library is found through the file's own rpath, or is the host's by design."""
    from_host = GLIBC_LIBRARIES | DRIVER_LIBRARIES
    for path, elf in _elf_files(package):
        for library in elf.needed:
            if library in from_host:
                continue
            if any(resolve(join_path(folder, library), around.links) in around.files for folder in elf.folders):
                continue
            found = f"needs {library}, which {_why_not(library, elf, around)}"
            yield _NEEDED.broken(package.file_name, path, found, subject=library)


def _why_not(library: str, elf: ElfFacts, around: Surroundings) -> str:
    somewhere = sorted(path for path in around.files | around.links.keys() if path.rpartition("/")[2] == library)
    if somewhere:
        return f"is at {somewhere[0]} while the rpath leads to {', '.join(elf.folders) or 'no folder'}"
    unknown = f" (not known: {', '.join(around.unresolved)})" if around.unresolved else ""
    return f"neither the package nor what it depends on has{unknown}"


def glibc_rule(package: PackageFacts, around: Surroundings) -> Iterator[Finding]:
    """The package requires a glibc that has all symbol versions its files ask for."""
    del around
    wanted = _newest(package, "glibc")
    if wanted is None:
        return
    file, release = wanted
    declared = max((least_version(spec) for spec in _specs(package, ("__glibc",))), default=())
    if not declared or declared < release.release:
        have = f"the package requires {_text(declared)}" if declared else "the package requires none"
        promise = Promise(
            rule=Rule.GLIBC,
            expected=f"__glibc >={_text(release.release)} among depends or constrains",
            mend="let ${{ stdlib('c') }} name a sysroot at least as new as the one linked against",
        )
        yield promise.broken(package.file_name, file, f"wants {release.symbol}; {have}")


def libstdcxx_rule(package: PackageFacts, around: Surroundings) -> Iterator[Finding]:
    """The package requires a libstdcxx and a libgcc that have all symbol versions its files ask for."""
    for library, names in _LIBRARY_NAMES.items():
        wanted = _newest(package, library)
        if wanted is None or package.name in names or _is_own(package, library):
            continue
        file, release = wanted
        declared = _declared_release(package, around, names)
        if not declared or not is_enough(declared, release.release):
            have = f"what it requires may be {_text(declared)}" if declared else f"it does not require {library}"
            promise = Promise(
                rule=Rule.LIBSTDCXX,
                expected=f"{library} >={_text(release.release[:1])} among depends",
                mend="keep the compilers' run_exports, and build with the compiler whose runtime is required",
            )
            yield promise.broken(package.file_name, file, f"wants {release.symbol}; {have}")


def _declared_release(package: PackageFacts, around: Surroundings, names: Sequence[str]) -> Version:
    """The oldest release that may stand beside the package: by its own bound, else by what the channel has."""
    bounds = [least_version(spec) for spec in _specs(package, names)]
    if any(bounds):
        return max(bounds)
    offered = [parse_version(version) for name in names for version in around.versions.get(name, ())]
    return min(offered, default=())


def instructions_rule(package: PackageFacts, _around: Surroundings) -> Iterator[Finding]:
    """No instruction beyond the processor that the package requires."""
    level = required_level((*package.depends, *package.constrains))
    promise = Promise(
        rule=Rule.INSTRUCTIONS,
        expected=f"instructions of {level_name(level)}, which is what the package requires",
        mend="build without -march=native and the like; depend on _x86_64-microarch-level >=N to require more; "
        "declare code that asks the processor first under extra.audit.runtime_dispatch, with the reason",
    )
    for path, elf in _elf_files(package):
        if elf.isa_needed and elf.isa_needed > level_name(level):
            yield promise.broken(package.file_name, path, f"its property note asks for {elf.isa_needed}")
    for path, instructions in _code(package):
        first = instructions[0]
        function = f" in {first.function}" if first.function else ""
        features = ", ".join(sorted({one.feature for one in instructions}))
        found = f"uses {features}; the first of {first.feature}{function}"
        yield promise.broken(package.file_name, path, found, where=f"offset {first.offset:#x}")


def _code(package: PackageFacts) -> Iterator[tuple[str, tuple[Instruction, ...]]]:
    """What has instructions beyond the required processor: programs, libraries, object files alone and in archives."""
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
        if file.elf is not None and not _is_for_linking(file):
            yield path, file.elf


def _is_for_linking(file: FileFacts) -> bool:
    """A sysroot's own libraries are linked against, never loaded; object files ask the loader for nothing yet."""
    return SYSROOT in file.path or file.path.endswith(".o")


def _newest(package: PackageFacts, library: str) -> tuple[str, Wanted] | None:
    """The file that asks for the newest release of a library, and the symbol version that it asks for."""
    found: tuple[str, Wanted] | None = None
    for path, elf in _elf_files(package):
        wanted = wanted_releases(elf.symbol_versions).get(library)
        if wanted and (found is None or found[1].release < wanted.release):
            found = path, wanted
    return found


def _is_own(package: PackageFacts, library: str) -> bool:
    return any(path.rpartition("/")[2] == _LIBRARIES[library] for path in package.files)


def _specs(package: PackageFacts, names: Sequence[str]) -> list[str]:
    return [
        spec
        for spec in (*package.depends, *package.constrains)
        if spec.replace("=", " ").replace(">", " ").split()[0] in names
    ]


def _text(version: Version) -> str:
    return ".".join(str(part) for part in version)
