# SPDX-License-Identifier: BSD-3-Clause
"""Fuzzing of the C++ of SwitchML; see ``python -m tests.fuzz.switchml --help``."""
