# SPDX-License-Identifier: BSD-3-Clause
"""Tests of channel_tools.conda."""
