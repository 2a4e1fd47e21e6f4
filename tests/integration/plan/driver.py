# SPDX-License-Identifier: BSD-3-Clause
"""Builds rendered folders one after the other with the engine alone, in a process that ends without teardown.

``python -m tests.integration.plan.driver index FOLDER`` and ``... build FOLDER CHANNEL FOUNDATION`` (prints the file).
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from pathlib import Path

from rattler.index import index_fs
from rattler_build import PlatformConfig, RenderConfig, Stage0Recipe, ToolConfiguration, VariantConfig


def build(folder: Path, channel: Path, foundation: Path) -> None:
    recipe = Stage0Recipe.from_file(folder / "recipe.yaml")
    config = RenderConfig(platform=PlatformConfig(target_platform="linux-64"))
    (variant,) = recipe.render(VariantConfig.from_file(folder / "variants.yaml"), config)
    with tempfile.TemporaryDirectory() as place:
        result = variant.run_build(
            ToolConfiguration(test_strategy="native"),
            output_dir=Path(place),
            channels=[channel.as_uri(), foundation.as_uri()],
        )
        (package,) = result.packages
        shutil.copyfile(package, channel / package.parent.name / package.name)
    index(channel)
    print(f"{package.parent.name}/{package.name}")  # noqa: T201 - read by the test


def index(channel: Path) -> None:
    for subdir in ("linux-64", "noarch"):
        (channel / subdir).mkdir(parents=True, exist_ok=True)
    asyncio.run(index_fs(channel, write_shards=False, write_zst=False))


if __name__ == "__main__":
    if sys.argv[1] == "index":
        index(Path(sys.argv[2]))
    else:
        build(*(Path(name) for name in sys.argv[2:]))
    sys.stdout.flush()
    os._exit(0)
