# SPDX-License-Identifier: BSD-3-Clause
"""The package's version, as in pyproject.toml (a test compares them)."""

__version__ = "1.0.0"
