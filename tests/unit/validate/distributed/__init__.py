# SPDX-License-Identifier: BSD-3-Clause
"""Tests of the method ``distributed``."""
