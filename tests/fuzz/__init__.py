# SPDX-License-Identifier: BSD-3-Clause
"""Fuzzing of what reads bytes of others; see ``python -m tests.fuzz --help``."""
