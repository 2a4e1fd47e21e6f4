# SPDX-License-Identifier: BSD-3-Clause
"""pip beside conda: what pip installed into an environment, and what keeps pip from replacing conda's packages.

A Python package is conda's if its ``dist-info`` is as a conda package brought it: pip writes a ``RECORD`` of its own,
also over a package of the same version.

The constraints are written at the end of each change, and a script of activation names them in ``PIP_CONSTRAINT``. If
another client has changed the environment since, they may be wrong, and the script leaves them out: a constraint for
another version than the installed one would make pip replace it.
"""

from __future__ import annotations

from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from channel_tools.environments.history import HISTORY
from channel_tools.pins.pip_constraints import render_constraints
from channel_tools.system.files import read_regular, sha256_of_file, write_text_atomically

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rattler import PrefixRecord, RepoDataRecord

PIP_CONSTRAINTS = "etc/channel_tools/pip-constraints.txt"
_NAME = "channel_tools-pip-constraints.sh"
_SCRIPTS = ("etc/conda/activate.d", "etc/conda/deactivate.d")
_LIMIT_BYTES = 16 * 2**20

# pip separates the files by blanks, and takes addresses, in which a blank has another form
_ACTIVATE = f"""\
# Written by channel_tools: pip keeps the versions of Python packages that conda installed.
if [ "${{CHANNEL_TOOLS_PIP_CONSTRAINTS:-}}" != no ] && [ -f "$CONDA_PREFIX/{PIP_CONSTRAINTS}" ] &&
    [ ! "$CONDA_PREFIX/{HISTORY}" -nt "$CONDA_PREFIX/{PIP_CONSTRAINTS}" ]; then
    _channel_tools_file="$CONDA_PREFIX/{PIP_CONSTRAINTS}"
    case "$_channel_tools_file" in
    *" "*)
        _channel_tools_rest="$_channel_tools_file"
        _channel_tools_file="file://"
        while [ -n "$_channel_tools_rest" ]; do
            _channel_tools_tail="${{_channel_tools_rest#?}}"
            _channel_tools_one="${{_channel_tools_rest%"$_channel_tools_tail"}}"
            case "$_channel_tools_one" in
            " ") _channel_tools_one="%20" ;;
            "%") _channel_tools_one="%25" ;;
            "#") _channel_tools_one="%23" ;;
            "?") _channel_tools_one="%3F" ;;
            esac
            _channel_tools_file="$_channel_tools_file$_channel_tools_one"
            _channel_tools_rest="$_channel_tools_tail"
        done
        unset _channel_tools_rest _channel_tools_tail _channel_tools_one
        ;;
    esac
    export _CHANNEL_TOOLS_PIP_CONSTRAINT_BEFORE="${{PIP_CONSTRAINT-}}"
    export PIP_CONSTRAINT="${{PIP_CONSTRAINT:+$PIP_CONSTRAINT }}$_channel_tools_file"
    unset _channel_tools_file
fi
"""
_DEACTIVATE = """\
# Written by channel_tools: takes back what it added to PIP_CONSTRAINT.
if [ -n "${_CHANNEL_TOOLS_PIP_CONSTRAINT_BEFORE+set}" ]; then
    export PIP_CONSTRAINT="$_CHANNEL_TOOLS_PIP_CONSTRAINT_BEFORE"
    [ -n "$PIP_CONSTRAINT" ] || unset PIP_CONSTRAINT
    unset _CHANNEL_TOOLS_PIP_CONSTRAINT_BEFORE
fi
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Distribution:
    """A Python package of an environment; ``is_of_pip`` if conda did not install it as it is.

    ``package`` is the conda package that brought it, or that brought the one which pip has replaced; None for neither.
    """

    name: str
    version: str
    is_of_pip: bool
    package: str | None


def modules_folder(records: Iterable[RepoDataRecord]) -> str | None:
    """Where the Python among these packages has its modules (CEP 17); None if there is none."""
    for record in records:
        if record.name.normalized == "python":
            minor = ".".join(str(record.version).split(".")[:2])
            return record.python_site_packages_path or f"lib/python{minor}/site-packages"
    return None


def find_distributions(prefix: Path, records: Sequence[PrefixRecord]) -> tuple[Distribution, ...]:
    """The Python packages of an environment with these packages, in order of name.

    They are where its Python looks: another one may have been there before, and what pip installed for that stays.
    """
    brought: dict[str, tuple[str, str | None]] = {}
    by_project: dict[str, str] = {}
    for record in records:
        for row in record.paths_data.paths:
            path = Path(str(row.relative_path))
            if path.parent.suffix == ".dist-info" and path.name in {"METADATA", "RECORD"}:
                # of a file with the prefix in it, another hash would be that of the environment's
                sha256 = None if row.prefix_placeholder is not None or row.sha256 is None else row.sha256.hex()
                brought[str(path)] = record.name.normalized, sha256
                by_project[_project(path.parent)] = record.name.normalized
    found = []
    modules = modules_folder(records) or "lib/python3*/site-packages"
    for metadata in sorted(prefix.glob(f"{modules}/*.dist-info/METADATA")):
        headers = HeaderParser().parsestr(read_regular(metadata, limit_bytes=_LIMIT_BYTES).decode("utf-8", "replace"))
        files = (metadata, metadata.with_name("RECORD"))
        is_of_pip = str(metadata.relative_to(prefix)) not in brought or any(
            _differs(file, brought.get(str(file.relative_to(prefix)))) for file in files
        )
        found.append(
            Distribution(
                name=headers.get("Name") or _project(metadata.parent),
                version=headers.get("Version") or "",
                is_of_pip=is_of_pip,
                package=by_project.get(_project(metadata.parent)),
            )
        )
    return tuple(sorted(found, key=lambda row: canonicalize_name(row.name)))


def missing_distributions(prefix: Path, records: Iterable[PrefixRecord]) -> dict[str, str]:
    """The Python packages that conda packages brought and that are not there any more, with these packages."""
    return {
        _project(path.parent): record.name.normalized
        for record in records
        for row in record.paths_data.paths
        if (path := Path(str(row.relative_path))).name == "METADATA"
        and path.parent.suffix == ".dist-info"
        and not (prefix / path).exists()
    }


def _project(folder: Path) -> str:
    return canonicalize_name(folder.name.partition("-")[0])


def _differs(file: Path, brought: tuple[str, str | None] | None) -> bool:
    """Whether a file is another than the one that a conda package brought."""
    return brought is not None and brought[1] is not None and file.is_file() and sha256_of_file(file) != brought[1]


def write_constraints(prefix: Path, records: Sequence[PrefixRecord]) -> None:
    """Write an environment's constraints for pip, and what activation does with them; remove both if it needs none.

    Raises OSError.
    """
    rows = [row for row in find_distributions(prefix, records) if not row.is_of_pip and row.version]
    text = render_constraints({row.name: row.version for row in rows}, about="")
    files = {PIP_CONSTRAINTS: text}
    files |= {f"{folder}/{_NAME}": script for folder, script in zip(_SCRIPTS, (_ACTIVATE, _DEACTIVATE), strict=True)}
    for name, content in files.items():
        if text:
            (prefix / name).parent.mkdir(parents=True, exist_ok=True)
            write_text_atomically(prefix / name, content)
        else:
            (prefix / name).unlink(missing_ok=True)
