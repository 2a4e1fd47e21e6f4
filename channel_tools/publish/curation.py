# SPDX-License-Identifier: BSD-3-Clause
"""Looking after what is published: taking packages back, patching their records, parting with old ones.

Without a label each of these means every label: what is wrong under one is wrong under all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.channel.patches import INSTRUCTIONS_FILE, check_names, read_patch
from channel_tools.errors import ConfigError, UsageError
from channel_tools.publish.model import CuratedTarget
from channel_tools.publish.selection import insist, select_packages

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.channel.patches import Patch
    from channel_tools.channel.retention import Retention, RetentionPlan
    from channel_tools.publish.model import LabelPackage, Target


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Changed:
    """A package under a label that a change is about."""

    label: str
    key: str


def curated(target: Target) -> CuratedTarget:
    """The target as one whose packages can be looked after. Raises UsageError for one that only takes uploads."""
    if isinstance(target, CuratedTarget):
        return target
    message = f"{target.address}: packages there cannot be yanked, patched or retained from here"
    raise UsageError(message, hint="use what the server itself offers for that")


def yank(target: CuratedTarget, spec: str, *, label: str | None, reason: str, dry_run: bool) -> list[Changed]:
    """Hide the packages that ``spec`` names (MatchSpec or file name) from new solves; returns those that were seen.

    Raises UsageError when it names none.
    """
    return _toggle(target, spec, label=label, reason=reason, dry_run=dry_run)


def restore(target: CuratedTarget, spec: str, *, label: str | None, dry_run: bool) -> list[Changed]:
    """Undo yank for the packages that ``spec`` names; returns those that were yanked. Raises UsageError for none."""
    return _toggle(target, spec, label=label, reason=None, dry_run=dry_run)


def _toggle(target: CuratedTarget, spec: str, *, label: str | None, reason: str | None, dry_run: bool) -> list[Changed]:
    found: dict[str, list[LabelPackage]] = {}
    seen: list[LabelPackage] = []
    for name in _labels(target, label):
        packages = target.packages(name)
        seen += packages
        found[name] = [
            package for package in select_packages(packages, spec) if (package.yanked is None) == (reason is not None)
        ]
    where = f"{target.address}, {_label_words(label)}"
    insist([package for packages in found.values() for package in packages], spec, seen, where=where)
    for name, chosen in found.items():
        keys = tuple(package.key for package in chosen)
        if keys and not dry_run:
            target.restore(keys, label=name) if reason is None else target.yank(keys, label=name, reason=reason)
    return sorted(Changed(label=name, key=package.key) for name, packages in found.items() for package in packages)


def hotfix(
    target: CuratedTarget, path: Path, *, subdir: str | None, label: str | None, replace: bool, dry_run: bool
) -> list[Changed]:
    """Patch records by a patch_instructions.json, or by a folder with one per subdir; returns the packages it names.

    Raises ConfigError for a wrong file or one that names packages which no label has.
    """
    labels = _labels(target, label)
    packages = {name: target.packages(name) for name in labels}
    known = {package.key for held in packages.values() for package in held}
    patches = {}
    for file, given in _instruction_files(path, subdir):
        patch = read_patch(file)
        where = given or _subdir_of(patch, known, file)
        check_names(patch, where, [key.partition("/")[2] for key in known if key.startswith(f"{where}/")], file)
        patches[where] = patch
    for name in () if dry_run else labels:
        target.hotfix(patches, label=name, replace=replace)
    named = {f"{where}/{file_name}" for where, patch in patches.items() for file_name in patch.names()}
    return sorted(
        Changed(label=name, key=package.key)
        for name, held in packages.items()
        for package in held
        if package.key in named
    )


def _instruction_files(path: Path, subdir: str | None) -> list[tuple[Path, str | None]]:
    """The files to read, each with its subdir where it is known."""
    if not path.is_dir():
        return [(path, subdir)]
    files = sorted(path.glob(f"*/{INSTRUCTIONS_FILE}"))
    if not files:
        raise ConfigError(f"holds no SUBDIR/{INSTRUCTIONS_FILE}", path=path)
    return [(file, file.parent.name) for file in files]


def _subdir_of(patch: Patch, known: set[str], path: Path) -> str:
    """The one subdir that has what the patch names; the folder that the file lies in where that does not tell."""
    subdirs = sorted({key.partition("/")[0] for key in known if key.partition("/")[2] in patch.names()})
    if len(subdirs) == 1:
        return subdirs[0]
    if path.absolute().parent.name in {key.partition("/")[0] for key in known}:
        return path.absolute().parent.name
    found = f"packages of several subdirs: {', '.join(subdirs)}" if subdirs else "no package that is published"
    raise ConfigError(f"names {found}", path=path, hint="say which subdir is meant: --subdir linux-64")


def retain(target: CuratedTarget, rule: Retention, *, label: str | None, dry_run: bool) -> dict[str, RetentionPlan]:
    """Part with what ``rule`` no longer keeps; returns by label what was, or with ``dry_run`` would be, done."""
    return {name: target.retain(rule, label=name, dry_run=dry_run) for name in _labels(target, label)}


def _labels(target: CuratedTarget, label: str | None) -> list[str]:
    labels = target.labels()
    if label is None and not labels:
        raise UsageError(f"{target.address}: nothing was published there yet", hint="channel_tools publish --to ...")
    return labels if label is None else [label]


def _label_words(label: str | None) -> str:
    return "every label" if label is None else f"label {label}"
