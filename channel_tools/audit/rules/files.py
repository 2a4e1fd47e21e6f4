# SPDX-License-Identifier: BSD-3-Clause
"""Rules about files and metadata: package, build-path, placeholder, self-locating, interpreter, link, link-script,
mode, metadata, exception.

The rule about others' licences: what was compiled in brings its texts.

Which parts of a host environment are in a package is not recorded anywhere, and symbols are stripped. Known is what
host packages have to offer: static archives, and headers without a shared library. If the package is not needed at run
time, too (then it is installed beside with its own texts), the recipe has to decide.
"""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

from channel_tools.audit.model import Requirement, Rule
from channel_tools.audit.reading import SHELLS
from channel_tools.conda.closure import place_installed, resolve
from channel_tools.conda.compiled_in import FOLDER
from channel_tools.conda.package import link_scripts_among, split_file_name
from channel_tools.conda.specs import specs_on

if TYPE_CHECKING:
    from collections.abc import Iterator

    from channel_tools.audit.model import Dependencies, FileFacts, Finding, PackageFacts

_NO_WINDOWS = frozenset({"__unix", "__linux", "__osx"})
"""Virtual packages (CEP 30) that no Windows has."""
_FORBIDDEN_BITS = stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX
SHEBANG_BYTES = 127
"""The bytes of a program's first line that every Linux kernel reads."""
LEAST_PLACEHOLDER_BYTES = 220
"""A binary file can be installed at any prefix no longer than its placeholder; users have prefixes of 200 bytes."""
_WHOLE = Requirement(
    rule=Rule.PACKAGE,
    expected="a complete conda package, named after its index.json",
    fix="build or download the package again; if it is the same there, whoever makes it has to correct it",
)
_NO_BUILD_PATH = Requirement(
    rule=Rule.BUILD_PATH,
    expected="no folder of the machine that built it",
    fix="compile with -ffile-prefix-map=${SRC_DIR}=. and the same for ${PREFIX} and ${BUILD_PREFIX}; "
    "in text files, have build.sh write a path relative to the file",
)
_REPLACED = Requirement(
    rule=Rule.PLACEHOLDER,
    expected=f"no build prefix, or one registered in paths.json, of {LEAST_PLACEHOLDER_BYTES} bytes or more "
    "in binary files",
    fix="have the file find the prefix relative to itself, or let the engine register it (build.prefix_detection)",
)
_SELF_LOCATING = Requirement(
    rule=Rule.SELF_LOCATING,
    expected="paths relative to the file's own location",
    fix="prefix=${pcfiledir}/../.. in .pc files, configure_package_config_file() for CMake, "
    "$(dirname $0)/.. in -config programs",
)
_INTERPRETER = Requirement(
    rule=Rule.INTERPRETER,
    expected="#!/bin/sh, #!/bin/bash, #!/usr/bin/env PROGRAM, or the placeholder's bin/PROGRAM",
    fix="have build.sh write #!/usr/bin/env PROGRAM, or install with pip or setup.py, which name the prefix",
)
_LINK = Requirement(
    rule=Rule.LINK,
    expected="a relative link to a file of the package or of what it depends on",
    fix="create it with ln -sr inside ${PREFIX}, or add the run dependency that has the file",
)
_PORTABLE_LINK = Requirement(
    rule=Rule.LINK,
    expected="no links in a noarch package, which Windows can install, unless it depends on __unix, __linux or __osx",
    fix="add __unix to requirements.run, copy the file instead of linking it, or build without noarch",
)
_NO_LINK_SCRIPT = Requirement(
    rule=Rule.LINK_SCRIPT,
    expected="no script that installation depends on: pixi and channel_tools env create run none, conda runs them",
    fix="do at build time what the script does, or in etc/conda/activate.d at activation; "
    "if it may be left out, declare it with the reason (extra.audit.allow)",
)
_MODE = Requirement(
    rule=Rule.MODE,
    expected="files and links, without setuid, setgid and sticky bits, writable by their owner only",
    fix="chmod it in build.sh; the site has to install what needs special rights",
)
_METADATA = Requirement(
    rule=Rule.METADATA,
    expected="no folders or file: addresses of the machine that built it",
    fix="build it with channel_tools build, which cleans what the engine writes; do not write absolute paths in the "
    "recipe's own files",
)
_INSTALLABLE = Requirement(
    rule=Rule.METADATA,
    expected="lists in info/index.json, not null: conda reads null as empty, but rattler, pixi and channel_tools env "
    "create cannot install the package",
    fix="leave the key out or write [], and make the package again with another build number",
)
_EXCEPTION = Requirement(
    rule=Rule.EXCEPTION,
    expected="extra.audit: {allow: [{rule, files, reason}], runtime_dispatch: [{files, reason}]}",
    fix="write the rule, the narrowest patterns and the reason into the recipe",
)


_TEXTS = Requirement(
    rule=Rule.LICENSE,
    expected=f"the licence texts of what is compiled in, in info/{FOLDER}NAME",
    fix="have build.sh copy them to compiled-in/NAME and name compiled-in/ in about.license_file; if nothing of it is "
    "in the package, declare that with the reason (extra.audit.allow)",
)


def package_rule(package: PackageFacts, _dependencies: Dependencies) -> Iterator[Finding]:
    """The package can be read to its end."""
    for damage in package.damage:
        yield _WHOLE.violation(package.file_name, "", damage)


def name_rule(package: PackageFacts, _dependencies: Dependencies) -> Iterator[Finding]:
    """The package's file name matches its index.json."""
    stated = tuple(str(package.index.get(key)) for key in ("name", "version", "build"))
    if package.index and stated != split_file_name(package.file_name, old_format=True):
        yield _WHOLE.violation(package.file_name, "", f"info/index.json says {'-'.join(stated)}")


def build_path_rule(package: PackageFacts, _dependencies: Dependencies) -> Iterator[Finding]:
    """No file names a folder of the machine that built it."""
    for path, file in package.files.items():
        for occurrence in file.build_paths:
            yield _NO_BUILD_PATH.violation(package.file_name, path, f"names {occurrence.text}", where=occurrence.where)


def placeholder_rule(package: PackageFacts, _dependencies: Dependencies) -> Iterator[Finding]:
    """Every build prefix in a file is registered in paths.json, in the mode that suits the file."""
    for path, file in package.files.items():
        for occurrence in file.strays:
            message = f"contains the build prefix {occurrence.text}, which nothing replaces"
            yield _REPLACED.violation(package.file_name, path, message, where=occurrence.where)
        if problem := _placeholder_problem(file):
            yield _REPLACED.violation(package.file_name, path, problem)


def _placeholder_problem(file: FileFacts) -> str:
    placeholder = file.placeholder
    if placeholder is None:
        return ""
    if (placeholder.mode == "text") != file.is_text:
        kind = "a text file" if file.is_text else "a binary file"
        return f"is {kind}, but paths.json registers its prefix as that of a {placeholder.mode} file"
    length = len(placeholder.text.encode())
    if placeholder.mode == "binary" and length < LEAST_PLACEHOLDER_BYTES:
        return f"contains a prefix of {length} bytes: it cannot be installed under a longer one"
    return ""


def self_locating_rule(package: PackageFacts, _dependencies: Dependencies) -> Iterator[Finding]:
    """Files by which others find the package contain no absolute path, not even one that installation would replace."""
    for path, file in package.files.items():
        for occurrence in file.host_paths:
            yield _SELF_LOCATING.violation(package.file_name, path, f"names {occurrence.text}", where=occurrence.where)


def interpreter_rule(package: PackageFacts, _dependencies: Dependencies) -> Iterator[Finding]:
    """Programs name an interpreter that exists wherever they are installed."""
    for path, file in package.files.items():
        if file.shebang and (problem := _shebang_problem(file)):
            yield _INTERPRETER.violation(package.file_name, path, problem, where="line 1")


def _shebang_problem(file: FileFacts) -> str:
    interpreter = file.shebang.split()[0] if file.shebang.split() else ""
    if file.placeholder and interpreter.startswith(file.placeholder.text + "/bin/"):
        return ""
    if interpreter not in SHELLS:
        return f"is run by {interpreter or 'nothing'}"
    if len(file.shebang.encode()) + 2 > SHEBANG_BYTES:
        return f"has a first line of {len(file.shebang.encode()) + 2} bytes; kernels read {SHEBANG_BYTES}"
    return ""


def link_rule(package: PackageFacts, dependencies: Dependencies) -> Iterator[Finding]:
    """Links are relative, stay inside the prefix and lead to something."""
    folders: set[str] | None = None
    for path, file in package.files.items():
        if file.kind != "link":
            continue
        led = None if file.target.startswith("/") else resolve(path, dependencies.links)
        if led in dependencies.files:
            continue
        if folders is None:
            folders = _folders_of(dependencies)
        if led is None or led not in folders:
            yield _LINK.violation(package.file_name, path, _link_problem(file, led))


def _link_problem(file: FileFacts, led: str | None) -> str:
    if file.target.startswith("/"):
        return f"points to the absolute path {file.target}"
    if led is None:
        return f"points to {file.target}, which is outside the prefix or a loop"
    return f"points to {file.target}, which neither the package nor its dependencies have"


def noarch_link_rule(package: PackageFacts, _dependencies: Dependencies) -> Iterator[Finding]:
    """A package for all platforms contains no links: Windows has no symbolic links that every user may create."""
    if package.subdir != "noarch" or specs_on(_NO_WINDOWS, package.depends):
        return
    for path, file in package.files.items():
        if file.kind == "link":
            yield _PORTABLE_LINK.violation(package.file_name, path, f"is a link to {file.target} in a noarch package")


def link_script_rule(package: PackageFacts, _dependencies: Dependencies) -> Iterator[Finding]:
    """Nothing has to be run when the package is installed or removed."""
    is_python = package.index.get("noarch") == "python"
    placed = {place_installed(path, "3") if is_python else path: path for path in package.files}
    for script in link_scripts_among(placed, package.name):
        yield _NO_LINK_SCRIPT.violation(package.file_name, placed[script], "is a script that not all clients run")


def _folders_of(dependencies: Dependencies) -> set[str]:
    folders: set[str] = set()
    for path in dependencies.files:
        folder = path.rpartition("/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    return folders


def mode_rule(package: PackageFacts, _dependencies: Dependencies) -> Iterator[Finding]:
    """No file has a mode or type that an installation must not create."""
    for path, file in package.files.items():
        if problem := _mode_problem(file):
            yield _MODE.violation(package.file_name, path, problem)


def _mode_problem(file: FileFacts) -> str:
    if file.kind == "special":
        return "is neither a file nor a link"
    if file.kind == "link":
        return ""
    if file.mode & _FORBIDDEN_BITS:
        return f"has the mode {file.mode & 0o7777:04o}, with a setuid, setgid or sticky bit"
    if file.mode & stat.S_IWOTH:
        return f"has the mode {file.mode & 0o7777:04o}: everyone may write to it"
    return ""


def metadata_rule(package: PackageFacts, _dependencies: Dependencies) -> Iterator[Finding]:
    """info/ names no path or address of the machine that built the package."""
    for name, occurrence in package.info_paths:
        yield _METADATA.violation(package.file_name, name, f"names {occurrence.text}", where=occurrence.where)


def installable_rule(package: PackageFacts, _dependencies: Dependencies) -> Iterator[Finding]:
    """No list in index.json is null, which rattler's reader of it refuses (rattler_conda_types, index_json.rs)."""
    for key in ("depends", "constrains", "track_features"):
        if key in package.index and package.index[key] is None:
            yield _INSTALLABLE.violation(package.file_name, "info/index.json", f"has {key} null")


def exception_rule(package: PackageFacts, _dependencies: Dependencies) -> Iterator[Finding]:
    """The recipe's declarations are valid and narrow."""
    for fault in package.declared.faults:
        yield _EXCEPTION.violation(package.file_name, "", fault)


def license_rule(package: PackageFacts, dependencies: Dependencies) -> Iterator[Finding]:
    """Host packages with something to compile in have their licence texts in the package."""
    for name, origin in sorted(dependencies.compilable.items()):
        if name not in package.licensed:
            problem = f"no licence text of {name}, which was in the host environment with {origin}"
            yield _TEXTS.violation(package.file_name, f"info/{FOLDER}{name}", problem, subject=name)
