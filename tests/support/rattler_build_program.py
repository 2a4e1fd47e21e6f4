#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Stands in for the program ``rattler-build`` where only its Python package can be had, so that conda-smithy works.

conda-smithy calls ``rattler-build build --render-only`` and ``rattler-build --version``, and nothing else. Both are
passed to the functions of py-rattler-build that the program is made of: what is printed comes from there. Copy this
file as ``bin/rattler-build`` into conda-smithy's environment, which needs py-rattler-build, too.
"""

import argparse
from pathlib import Path

import rattler_build


def main() -> None:
    """Print the recipe's variants as JSON; any other use of rattler-build is an error of the command line."""
    parser = argparse.ArgumentParser(prog="rattler-build", allow_abbrev=False)
    version = f"rattler-build {rattler_build.rattler_build_version()}"
    parser.add_argument("--version", action="version", version=version)
    parser.add_argument("command", choices=["build"])
    parser.add_argument("--render-only", action="store_true", required=True)
    parser.add_argument("--recipe", type=Path, required=True)
    parser.add_argument("--target-platform", required=True)
    parser.add_argument("--build-platform", required=True)
    parser.add_argument("-m", "--variant-config", action="append", default=[])
    given = parser.parse_args()
    recipe = given.recipe / "recipe.yaml" if given.recipe.is_dir() else given.recipe
    rattler_build.build_recipes(
        [recipe],
        render_only=True,
        target_platform=given.target_platform,
        build_platform=given.build_platform,
        variant_config=given.variant_config,
    )


if __name__ == "__main__":
    main()
