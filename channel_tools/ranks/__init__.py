# SPDX-License-Identifier: BSD-3-Clause
"""Starts a script as ranks: on this machine, on several hosts, and in the job of a scheduler."""
