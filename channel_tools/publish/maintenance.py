# SPDX-License-Identifier: BSD-3-Clause
"""Maintaining published channels: promoting packages, yanking them, patching their records, deleting old ones.

What users give (a MatchSpec, a file name, a patch file, lock files) is turned into packages here, for every kind of
target. Without a label, a change applies to every label: what is wrong under one is wrong under all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from channel_tools.channel.listing import INSTRUCTIONS_FILE, check_names, read_patch
from channel_tools.conda.addresses import text_without_credentials
from channel_tools.conda.closure import Closures
from channel_tools.conda.package import PACKAGE_SUFFIXES
from channel_tools.conda.specs import (
    InvalidRecordError,
    InvalidSpecError,
    is_on_address,
    matches,
    name_or_none,
    read_spec,
    record_of,
)
from channel_tools.system.errors import ConfigError, UsageError, nearest_names_hint

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from rattler import MatchSpec

    from channel_tools.channel.listing import Patch
    from channel_tools.channel.maintenance import Retention, RetentionPlan
    from channel_tools.publish.model import LabelPackage
    from channel_tools.publish.target import MaintainedTarget


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Changed:
    """A package under a label that a change affects."""

    label: str
    key: str


def yank(target: MaintainedTarget, spec: str, *, label: str | None, reason: str | None, dry_run: bool) -> list[Changed]:
    """Hide the packages that ``spec`` names (MatchSpec or file name) from new solves; with ``reason`` None undo that.

    Returns the packages that this changes: none if all that match are so already, for example when it is repeated. It
    is done for these, too: where it was interrupted, the index may still be the one of before. Raises UsageError if
    nothing matches.
    """
    selected_by_label: dict[str, list[LabelPackage]] = {}
    listed: list[LabelPackage] = []
    matching: list[LabelPackage] = []
    for name in _labels(target, label):
        packages = target.packages(name)
        listed += packages
        selected = select_packages(packages, spec)
        matching += selected
        selected_by_label[name] = selected
    where = f"{target.address}, {'every label' if label is None else f'label {label}'}"
    _require_some(matching, spec, listed, where=where)
    for name, chosen in selected_by_label.items():
        keys = tuple(str(package.key) for package in chosen)
        if keys and not dry_run:
            target.yank(keys, label=name, reason=reason)
    return sorted(
        Changed(label=name, key=str(package.key))
        for name, packages in selected_by_label.items()
        for package in packages
        if (package.yanked is None) == (reason is not None)
    )


def hotfix(
    target: MaintainedTarget, path: Path, *, subdir: str | None, label: str | None, replace: bool, dry_run: bool
) -> list[Changed]:
    """Patch records with a patch_instructions.json, or a folder with one per subdir; returns the packages it names.

    Raises ConfigError for an invalid file or one that names packages that no label has.
    """
    labels = _labels(target, label)
    packages = {name: target.packages(name) for name in labels}
    known: dict[str, set[str]] = {}
    for package in (package for in_label in packages.values() for package in in_label):
        known.setdefault(package.subdir, set()).add(package.file_name)
    patches = {}
    for file, stated_subdir in _instruction_files(path, subdir):
        patch = read_patch(file)
        where = stated_subdir or _subdir_of(patch, known, file)
        check_names(patch, where, known.get(where, ()), file)
        patches[where] = patch.resolved(known.get(where, ()))
    for name in () if dry_run else labels:
        target.hotfix(patches, label=name, replace=replace)
    named = {(where, file_name) for where, patch in patches.items() for file_name in patch.names()}
    return sorted(
        Changed(label=name, key=str(package.key))
        for name, in_label in packages.items()
        for package in in_label
        if (package.subdir, package.file_name) in named
    )


def _instruction_files(path: Path, subdir: str | None) -> list[tuple[Path, str | None]]:
    """The files to read, each with its subdir if that is known."""
    if not path.is_dir():
        return [(path, subdir)]
    files = sorted(path.glob(f"*/{INSTRUCTIONS_FILE}"))
    if not files:
        raise ConfigError(f"has no SUBDIR/{INSTRUCTIONS_FILE} in it", path=path)
    return [(file, file.parent.name) for file in files]


def _subdir_of(patch: Patch, known: Mapping[str, Collection[str]], path: Path) -> str:
    """The only subdir that has the packages in the patch; else the subdir that the file's folder is named after."""
    subdirs = sorted(subdir for subdir, names in known.items() if not patch.names().isdisjoint(names))
    if len(subdirs) == 1:
        return subdirs[0]
    if path.absolute().parent.name in known:
        return path.absolute().parent.name
    problem = f"packages of several subdirs: {', '.join(subdirs)}" if subdirs else "no published package"
    raise ConfigError(f"names {problem}", path=path, hint="give the subdir, for example --subdir linux-64")


def retain(
    target: MaintainedTarget,
    rule: Retention,
    *,
    label: str | None,
    dry_run: bool,
    locked_specs: Collection[str] = (),
    remove: Sequence[str] = (),
) -> dict[str, RetentionPlan]:
    """Hide and delete what ``rule`` does not keep; returns by label what was done, or would be with ``dry_run``.

    With ``remove``, that is only what matches these MatchSpecs and file names; UsageError for one that nothing matches.

    What satisfies one of the MatchSpecs ``locked_specs``, from whatever channel they ask for it, is kept as if a lock
    named its file: a solver may choose any.
    """
    locked = [read_spec(spec) for spec in sorted(locked_specs)]
    plans = {}
    for name in _labels(target, label):
        packages = target.packages(name) if locked or remove else ()
        files = {package.file_name for package in packages if any(_may_satisfy(package, spec) for spec in locked)}
        removed: set[str] = set()
        for text in remove:
            matching = select_packages(packages, text)
            _require_some(matching, text, packages, where=f"{target.address}, label {name}")
            removed |= {str(package.key) for package in matching}
        label_rule = replace(rule, locked_files=rule.locked_files | files, removed=frozenset(removed))
        plans[name] = target.retain(label_rule, label=name, dry_run=dry_run)
    return plans


def _satisfies(package: LabelPackage, spec: MatchSpec) -> bool:
    record = record_of(package.index, name=package.name, subdir=package.subdir)
    return matches(spec, record, file_name=package.file_name)


def _may_satisfy(package: LabelPackage, spec: MatchSpec) -> bool:
    """Whether the package satisfies the spec, or that cannot be known."""
    try:
        return _satisfies(package, spec)
    except InvalidRecordError:
        return True


def _labels(target: MaintainedTarget, label: str | None) -> list[str]:
    labels = target.labels()
    if label is None and not labels:
        raise UsageError(
            f"{target.address}: nothing has been published there yet", hint="channel_tools publish --to ..."
        )
    return labels if label is None else [label]


def promoted_keys(target: MaintainedTarget, source: str, names: Sequence[str]) -> tuple[str, ...]:
    """All packages that label ``source`` lists, or with ``names`` those of these names and their dependencies.

    The current foundation packages are always included, since a label without them cannot be used. Raises UsageError
    for a name or a label that does not exist.
    """
    listed = [package for package in target.packages(source) if package.hidden is None]
    if not listed:
        raise UsageError(f"{target.address}: label {source} lists no packages", hint="publish to it first")
    if not names:
        return tuple(str(package.key) for package in listed)
    chosen = {str(package.key) for package in listed if package.foundation}
    closures = Closures(listed)
    for name in names:
        of_name = [package for package in listed if package.name == name]
        _require_some(of_name, name, listed, where=f"{target.address}, label {source}")
        chosen |= {str(member.key) for package in of_name for member in closures.of(package)}
    return tuple(sorted(chosen))


def select_packages(packages: Iterable[LabelPackage], spec: str) -> list[LabelPackage]:
    """The packages that ``spec`` names: a MatchSpec, a file name, or ``subdir/file name``.

    Raises UsageError for an invalid MatchSpec.
    """
    ordered = sorted(packages)
    if spec.endswith(PACKAGE_SUFFIXES):
        return [package for package in ordered if spec in {str(package.key), package.file_name}]
    return _matching(ordered, spec)


def _require_some(matching: Sequence[LabelPackage], spec: str, packages: Iterable[LabelPackage], *, where: str) -> None:
    """Raise UsageError with the nearest names if nothing was ``matching``."""
    if not matching:
        names = {package.file_name if spec.endswith(PACKAGE_SUFFIXES) else package.name for package in packages}
        hint = nearest_names_hint(name_or_none(spec) or spec.rpartition("/")[2], names, noun="package")
        raise UsageError(f"{where}: no package matches {text_without_credentials(spec)!r}", hint=hint)


def _matching(packages: Sequence[LabelPackage], spec: str) -> list[LabelPackage]:
    hint = "for example libswitchml, libswitchml=1.0.0, libswitchml=1.0.0=udp*, or a file name"
    try:
        match_spec = read_spec(spec)
    except InvalidSpecError as err:
        raise UsageError(str(err), hint=hint) from None
    if match_spec.channel is not None or is_on_address(match_spec):
        message = f"{text_without_credentials(spec)!r} names a channel; expected only the package"
        raise UsageError(message, hint=hint)
    return [
        package
        for package in packages
        if package.name == match_spec.name.normalized and _satisfies(package, match_spec)
    ]
