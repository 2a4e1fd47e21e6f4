# SPDX-License-Identifier: BSD-3-Clause
"""``python -m benchmarks.matrix``: what of the matrix was built and validated, as docs/reference/matrix.md.

Every cell comes from what the local channel keeps of its own builds and validations; what it knows nothing of is empty.
"""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.channel import open_channel, published_packages
from channel_tools.channel.results import last_built, read_builds, read_validations
from channel_tools.conda.package import split_file_name
from channel_tools.conda.platforms import current_platform
from channel_tools.matrix import expand_stacks, load_tree
from channel_tools.matrix.choice import choices, default_variants, fits, version_of
from channel_tools.system.settings import make_settings
from channel_tools.workflow.plan import offered_versions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from channel_tools.channel.model import IndexedFile
    from channel_tools.channel.results import BuildRecord, ValidationRecord
    from channel_tools.matrix import RenderedPackage
    from channel_tools.matrix.choice import Choice
    from channel_tools.system.settings import Settings

_PAGE = Path(__file__).parents[1] / "docs" / "reference" / "matrix.md"
_HEAD = """\
# What was built and validated

`python -m benchmarks.matrix` writes this table from a channel's records: a row is a stack with a Python and a PyTorch
for which the channel has every package; the [default variant](variants.md#the-default-variant) is bold. *Built and
tested* says when the last of its packages was built, after its recipe's tests and the audit, and how many seconds all
of them took; *validated* is the last `channel_tools validate`. An empty cell means that nothing is recorded.

| stack | Python | PyTorch | foundation | built and tested | seconds | validated | ranks | seconds |
|---|---|---|---|---|---|---|---|---|
"""


def main() -> None:
    """Write the page."""
    settings = make_settings(root=None, output=None, environ=os.environ, cwd=Path.cwd())
    _PAGE.write_text(_HEAD + "".join(_rows(settings)), encoding="utf-8")


def _rows(settings: Settings) -> Iterator[str]:
    channel = open_channel(settings.channel)
    loaded = load_tree(settings.tree)
    foundation = channel.foundation
    builds, validations = read_builds(channel.path), read_validations(channel.path)
    published = [package for package in published_packages(channel) if package.row.origin.variant is not None]
    published.sort(key=lambda package: package.hidden is not None)  # what solves see goes before former builds
    for stack in loaded.stacks.values():
        packages = expand_stacks(
            loaded, [stack], foundation_kind=foundation.kind, base=foundation.base, platform=current_platform()
        )
        default = choices(default_variants(packages, offered_versions(foundation)))
        for choice in choices(packages):
            wanted = _of(packages, choice)
            present = _published(wanted, published)
            known = [builds[package.path.name] for package in present if package.path.name in builds]
            built = _built(present, known) if present else None
            run = next((item for item in validations if item.stack == stack.name and _is_of(item, choice)), None)
            if built is not None or run is not None:
                mark = "**" if choice in default else ""
                versions = [f"{mark}{version_of(value)}{mark}" for _key, value in reversed(choice)]
                yield _row([stack.name, *versions, foundation.kind, *(built or ("", "")), *_validated(run, known)])


def _of(packages: Sequence[RenderedPackage], choice: Choice) -> list[RenderedPackage]:
    """What the stack is made of on a pair: the packages for it, and those for any."""
    return [item for item in packages if all(item.variant.get(key, value) == value for key, value in choice)]


def _published(wanted: Sequence[RenderedPackage], published: Sequence[IndexedFile]) -> list[IndexedFile]:
    """A build of each of the packages; none unless the channel has them all."""
    published_builds = [
        next((package for package in published if _is_build_of(package, item)), None) for item in wanted
    ]
    present = [package for package in published_builds if package is not None]
    return present if len(present) == len(wanted) else []


def _built(present: Sequence[IndexedFile], known: Sequence[BuildRecord]) -> tuple[str, str]:
    """When the last of the packages was built, and the seconds of all."""
    if len(known) < len(present):
        return "yes", ""
    day, seconds = last_built(known)
    return day, "" if seconds is None else f"{seconds:.0f}"


def _is_build_of(package: IndexedFile, wanted: RenderedPackage) -> bool:
    made = package.row.origin.variant or {}
    named = split_file_name(package.path.name) or ()
    return named[:2] == (wanted.name, wanted.version) and all(
        made.get(key, str(value)) == str(value) for key, value in wanted.variant.items()
    )


def _is_of(run: ValidationRecord, choice: Choice) -> bool:
    installed = {"python": run.python, "pytorch": run.pytorch}
    return all(fits(value, installed[key]) for key, value in choice)


def _validated(run: ValidationRecord | None, builds: Sequence[BuildRecord]) -> tuple[str, str, str]:
    if run is None:
        return "", "", ""
    started = datetime.fromisoformat(run.started)
    earlier = any(datetime.fromisoformat(build.finished) > started for build in builds)
    state = f"{'passed' if run.passed else 'failed'}, {run.started[:10]}{', with earlier builds' if earlier else ''}"
    return state, str(run.ranks), f"{run.seconds:.0f}"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


if __name__ == "__main__":
    main()
