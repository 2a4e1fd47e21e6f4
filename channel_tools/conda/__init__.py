# SPDX-License-Identifier: BSD-3-Clause
"""Conda's formats and terms as values and functions: packages, their records, channel addresses, solving."""
