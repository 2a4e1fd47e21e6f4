# SPDX-License-Identifier: BSD-3-Clause
"""``python -m benchmarks.rebuild``: which of a channel's packages are built again to the same bytes.

Builds each of our packages in the local channel once more, from the recipe that it carries: in another folder, on one
core, under another umask, locale and time zone. Writes
docs/reference/reproducible.md; names or file names as arguments rebuild only those, and the rows of others stay.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.channel import open_channel, published_packages
from channel_tools.system.settings import make_settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PAGE = Path(__file__).parents[1] / "docs" / "reference" / "reproducible.md"
_ROW = re.compile(r"^\| `([^`]+)` \|.*\n", re.MULTILINE)
_HASH = re.compile(r"_?h[0-9a-f]{7}_[0-9]+_?")
_HEAD = """\
# Reproducible packages

This table shows which packages come out with the same bytes when they are built again. `python -m benchmarks.rebuild`
writes it. It runs `channel_tools rebuild PACKAGE --compare` ([how to](../how-to/rebuild.md)) for packages of a local
channel on the registry foundation: in another folder than the first build, on one core instead of two, with another
umask, locale and time zone, minutes or hours later. Packages and variants that are not listed have not been tried yet.

| package | verdict | what differs |
|---|---|---|
"""


def main() -> int:
    """Rebuild, write the page; 1 when a package differs."""
    settings = make_settings(root=None, output=None, environ=os.environ, cwd=Path.cwd())
    channel = open_channel(settings.channel)
    wanted = sys.argv[1:]
    before = _PAGE.read_text(encoding="utf-8") if _PAGE.is_file() else ""
    rows = {match[1]: match[0] for match in _ROW.finditer(before)}
    differing = 0
    for package in published_packages(channel):
        names = {package.row.name, package.ref.file_name}
        if package.row.origin.inputs and package.hidden is None and (not wanted or names & set(wanted)):
            result = _rebuild(package.path)
            differing += result["verdict"] != "same"
            record = package.row.record
            name = f"{record['name']} {record['version']} {_HASH.sub('', str(record['build']))}".rstrip()
            rows[name] = _row(name, result)
            _PAGE.write_text(_HEAD + "".join(rows[name] for name in sorted(rows)), encoding="utf-8")
            print(rows[name], end="", flush=True)
    return int(differing > 0)


def _rebuild(package: Path) -> Mapping[str, object]:
    """What ``rebuild --json`` says, run as far from the first build's circumstances as an ordinary user can go."""
    core = min(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        command: list[str | Path] = [
            Path(sys.executable).with_name("channel_tools"),
            "rebuild",
            package,
            "--compare",
            "--json",
        ]
        environ = os.environ | {"TZ": "Pacific/Kiritimati", "LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8"}
        done = subprocess.run(
            [*command, "--output-dir", folder],
            env=environ,
            umask=0o077,
            preexec_fn=lambda: os.sched_setaffinity(0, {core}),
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
    return json.loads(done.stdout) if done.stdout else {"verdict": f"no build (exit code {done.returncode})"}


def _row(name: str, result: Mapping[str, object]) -> str:
    return f"| `{name}` | {result['verdict']} | {'; '.join(_differences(result))} |\n"


def _differences(result: Mapping[str, object]) -> Iterator[str]:
    differences = result.get("differences")
    for difference in differences if isinstance(differences, list) else ():
        yield f"`{difference['file']}`: {difference['kind']}, {difference['detail'].replace('|', '/')}"


if __name__ == "__main__":
    sys.exit(main())
