# SPDX-License-Identifier: BSD-3-Clause
"""``python -m tests.fuzz TARGET --minutes 10``: look for inputs of new behaviour, and keep those that fail.

Atheris (libFuzzer) changes known inputs and keeps what reaches new branches of this program. Inputs lie in
``output/fuzz/TARGET``, so that the next run goes on from there; what fails is written to ``findings`` in it, once per
place. A finding becomes a file of ``tests/fuzz/findings/TARGET``, which tests/unit/test_fuzz.py reads in each run.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import traceback
from pathlib import Path
from typing import Any

_MOST_BYTES = 16 << 10
_MEMORY_MB = 3000
_LONGEST_S = 30
TARGETS = ("packages", "records", "bundles", "documents", "unpacked")


def main() -> None:
    """Fuzz one target; ends the process."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzz what reads bytes of others.")
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--corpus", type=Path, default=Path("output/fuzz"), help="Where inputs and findings are kept.")
    given = parser.parse_args()
    import atheris  # noqa: PLC0415 - of the extra "fuzz"

    with atheris.instrument_imports(include=["channel_tools"]):
        from channel_tools.system.work_folder import temporary_folder  # noqa: PLC0415
        from tests.fuzz import targets  # noqa: PLC0415
    corpus, found = given.corpus / given.target / "corpus", given.corpus / given.target / "findings"
    for folder in (corpus, found):
        folder.mkdir(parents=True, exist_ok=True)
    kind = getattr(targets, given.target.capitalize())
    with temporary_folder() as work:  # libFuzzer ends the process: the next that makes one removes it
        _fuzz(kind(work), corpus, found, minutes=given.minutes)


def _fuzz(target: Any, corpus: Path, found: Path, *, minutes: float) -> None:  # noqa: ANN401 - one of the targets' classes
    """Run the target on inputs from the corpus and changed ones; ends the process."""
    import atheris  # noqa: PLC0415 - of the extra "fuzz"

    for seed in target.seeds():
        (corpus / hashlib.sha256(seed).hexdigest()[:16]).write_bytes(seed)

    def run(data: bytes) -> None:
        try:
            target.run(data)
        except Exception as err:  # noqa: BLE001 - each is a finding; the run goes on to find others
            _keep(found, data, err)

    options = [f"-max_total_time={int(minutes * 60)}", f"-max_len={_MOST_BYTES}", f"-rss_limit_mb={_MEMORY_MB}"]
    options += [f"-timeout={_LONGEST_S}", f"-artifact_prefix={found}/", "-print_final_stats=1", "-len_control=0"]
    atheris.Setup([sys.argv[0], *options, str(corpus)], run)
    atheris.Fuzz()


def _keep(folder: Path, data: bytes, err: Exception) -> None:
    """Write the input and what it did, named after the place, unless one of that place is there."""
    frames = traceback.extract_tb(err.__traceback__)
    place = f"{type(err).__name__} {frames[-1].filename}:{frames[-1].lineno}"
    name = hashlib.sha256(place.encode()).hexdigest()[:12]
    if not (folder / name).exists():
        (folder / name).write_bytes(data)
        (folder / f"{name}.txt").write_text("".join(traceback.format_exception(err)), errors="backslashreplace")
        sys.stderr.write(f"finding {name}: {place}: {str(err)[:200]!r}\n")


if __name__ == "__main__":
    main()
