# SPDX-License-Identifier: BSD-3-Clause
"""Turns variant files and recipes into one evaluated recipe per package and variant: files in, values out."""

from channel_tools.matrix.expand import choices_of_recipes, expand_stacks
from channel_tools.matrix.load import find_stack, load_tree
from channel_tools.matrix.model import (
    LoadedTree,
    Pin,
    RecipeFile,
    RecipeSource,
    RenderedPackage,
    Requirement,
    Stack,
    VariantScalar,
)
from channel_tools.matrix.variants import ZIP_KEYS
from channel_tools.requests.names import FoundationKind

__all__ = [
    "ZIP_KEYS",
    "FoundationKind",
    "LoadedTree",
    "Pin",
    "RecipeFile",
    "RecipeSource",
    "RenderedPackage",
    "Requirement",
    "Stack",
    "VariantScalar",
    "choices_of_recipes",
    "expand_stacks",
    "find_stack",
    "load_tree",
]
