# SPDX-License-Identifier: BSD-3-Clause
"""Measures the commands, and what they do beside others that do the same."""
