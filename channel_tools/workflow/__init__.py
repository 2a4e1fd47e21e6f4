# SPDX-License-Identifier: BSD-3-Clause
"""Combines the stages: what one command does, from its settings to its result, without printing."""
