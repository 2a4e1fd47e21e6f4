# SPDX-License-Identifier: BSD-3-Clause
"""Build, validate and serve a private conda channel for PyTorch on special fabrics."""

__version__ = "0.3.0"
