# SPDX-License-Identifier: BSD-3-Clause
"""``python -m tests.corpus FOLDER``: try on each file of other people what the command that reads it would do.

Prints per kind how many parts were read, refused, crashed or differ from the second reader's count, then each crash and
difference and each reason for a refusal with an example. Exits with 1 if anything crashed or differs.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.corpus.attempts import Attempt, kind_of
from tests.corpus.trees import PINNING
from tests.support.command_line import run_tool, start_server

_IGNORED = frozenset({".git", "__pycache__", "node_modules"})
_SPECIFIC = re.compile(r"/\S+|'[^']*'|\"[^\"]*\"|\b\d+\b")
_NAMES = re.compile(r"(?:[\w.+-]+(?:,| and \d+ more:|:) )+(?=an? |pip |packages )")


def main() -> None:
    """Walk the folder and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m tests.corpus", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", action="append", help="A kind, such as 'pixi.lock'; may be repeated.")
    parser.add_argument("--every", type=int, default=1, help="Only every Nth file.")
    parser.add_argument("--pinning", type=Path, help="conda-forge's conda_build_config.yaml, for recipes.")
    given = parser.parse_args()
    if given.pinning is not None:
        os.environ[PINNING] = str(given.pinning.resolve())
    start_server()
    folder = given.folder.resolve()
    files = sorted(_files(folder))[:: given.every]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = [attempt for attempts in pool.map(lambda path: _try(path, given.only), files) for attempt in attempts]
    print_report(found, folder)
    sys.exit(any(attempt.verdict in {"crashed", "differs"} for attempt in found))


def _files(folder: Path) -> Iterable[Path]:
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in _IGNORED]
        yield from (path for name in names if (path := Path(place, name)).is_file() and not path.is_symlink())


def _try(path: Path, only: Sequence[str] | None) -> list[Attempt]:
    kind = kind_of(path)
    return [] if kind is None or (only and kind.name not in only) else list(kind.attempts(run_tool, path))


def print_report(found: Sequence[Attempt], folder: Path) -> None:
    """Print the table of kinds, then what is to be read by eye."""
    columns = ("files", "parts", "read", "refused", "crashed", "differs", "entries", "taken")
    sys.stdout.write(f"| kind | {' | '.join(columns)} |\n|---|{'---:|' * len(columns)}\n")
    for kind in sorted({attempt.kind for attempt in found}):
        sys.stdout.write(f"| {kind} | {' | '.join(map(str, _row([one for one in found if one.kind == kind])))} |\n")
    for attempt in found:
        if attempt.verdict in {"crashed", "differs"}:
            counts = f" {attempt.entries} entries, {attempt.taken} taken" if attempt.verdict == "differs" else ""
            place = attempt.path.relative_to(folder)
            sys.stdout.write(f"\n{attempt.verdict}: {place} {attempt.part}{counts}\n    {attempt.reason}\n")
    reasons: dict[tuple[str, str], list[Attempt]] = defaultdict(list)
    for attempt in found:
        if attempt.verdict == "refused":
            reasons[attempt.kind, _generic(attempt.reason)].append(attempt)
    for (kind, _), attempts in sorted(reasons.items(), key=lambda item: (item[0][0], -len(item[1]))):
        example = attempts[0]
        place = example.path.relative_to(folder)
        sys.stdout.write(
            f"\nrefused, {kind}, {len(attempts)} times, first {place} {example.part}\n    {example.reason}\n"
        )


def _generic(reason: str) -> str:
    """The reason without what differs from file to file, so that equal ones are counted together."""
    return _SPECIFIC.sub("...", _NAMES.sub("", reason))


def _row(attempts: Sequence[Attempt]) -> tuple[int, ...]:
    verdicts = Counter(attempt.verdict for attempt in attempts)
    counted = [one for one in attempts if one.entries is not None and one.taken is not None]
    return (
        len({attempt.path for attempt in attempts}),
        len(attempts),
        verdicts["read"],
        verdicts["refused"],
        verdicts["crashed"],
        verdicts["differs"],
        sum(one.entries or 0 for one in counted),
        sum(one.taken or 0 for one in counted),
    )


if __name__ == "__main__":
    main()
