# SPDX-License-Identifier: BSD-3-Clause
"""What every stage stands on, knowing nothing of conda: errors, files, processes, settings, YAML, ELF, archives."""
