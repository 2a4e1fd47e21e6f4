# SPDX-License-Identifier: BSD-3-Clause
"""From variant files and recipes to one evaluated recipe per package and variant: files in, values out."""

from channel_tools.matrix.expand import expand_stack
from channel_tools.matrix.load import load_tree
from channel_tools.matrix.model import (
    FoundationKind,
    LoadedTree,
    Pin,
    RecipeFile,
    RenderedPackage,
    Requirement,
    Source,
    Stack,
    VariantScalar,
)
from channel_tools.matrix.nearest import nearest_names_hint
from channel_tools.matrix.stacks import find_stack
from channel_tools.matrix.variants import ZIP_KEYS

__all__ = [
    "ZIP_KEYS",
    "FoundationKind",
    "LoadedTree",
    "Pin",
    "RecipeFile",
    "RenderedPackage",
    "Requirement",
    "Source",
    "Stack",
    "VariantScalar",
    "expand_stack",
    "find_stack",
    "load_tree",
    "nearest_names_hint",
]
