# SPDX-License-Identifier: BSD-3-Clause
"""The base of every stage, independent of conda: errors, files, processes, settings, YAML, ELF, archives."""
