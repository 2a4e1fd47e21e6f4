# SPDX-License-Identifier: BSD-3-Clause
"""recipes/compiled-in.sh, which collects the licence texts of what recipes compile in."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "recipes" / "compiled-in.sh"


def install(prefix: Path, name: str, texts: dict[str, str]) -> None:
    """A package as clients record it, unpacked in a cache."""
    unpacked = prefix.parent / "pkgs" / f"{name}-1.0-0"
    (unpacked / "info").mkdir(parents=True)
    for path, text in texts.items():
        (unpacked / "info/licenses" / path).parent.mkdir(parents=True, exist_ok=True)
        (unpacked / "info/licenses" / path).write_text(text)
    (prefix / "conda-meta").mkdir(parents=True, exist_ok=True)
    record = {"name": name, "extracted_package_dir": str(unpacked), "files": []}
    (prefix / f"conda-meta/{name}-1.0-0.json").write_text(json.dumps(record, indent=2))


def collect(prefix: Path, *names: str) -> subprocess.CompletedProcess[str]:
    work = prefix.parent / "work"
    work.mkdir()
    return subprocess.run(
        ["/bin/bash", SCRIPT, *names],
        cwd=work,
        env={"PREFIX": str(prefix), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_texts_of_the_named_packages_are_copied(tmp_path: Path) -> None:
    prefix = tmp_path / "host env"
    install(prefix, "lower", {"LICENSE": "lower", "third/COPYING": "third"})
    install(prefix, "lower-dev", {"LICENSE": "dev"})
    assert collect(prefix, "lower", "gone").returncode == 0
    found = {
        path.relative_to(tmp_path / "work").as_posix() for path in (tmp_path / "work").rglob("*") if path.is_file()
    }
    assert found == {"compiled-in/lower/LICENSE", "compiled-in/lower/third/COPYING"}


def test_a_package_without_texts_stops_the_build(tmp_path: Path) -> None:
    install(tmp_path / "env", "lower", {})
    done = collect(tmp_path / "env", "lower")
    assert done.returncode == 1
    assert done.stderr.startswith("lower: is compiled in, but its package has no licence text")


@pytest.mark.parametrize("recipe", sorted(path.parent.name for path in SCRIPT.parent.glob("*/recipe.yaml")))
def test_a_recipe_that_collects_texts_packs_them(recipe: str) -> None:
    folder = SCRIPT.parent / recipe
    text, script = (folder / "recipe.yaml").read_text(), folder / "build.sh"
    collects = script.is_file() and "compiled-in.sh" in script.read_text()
    assert ("path: ../compiled-in.sh" in text) == collects
    assert ("compiled-in/" in text.partition("license_file:")[2]) == collects
