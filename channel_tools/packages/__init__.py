# SPDX-License-Identifier: BSD-3-Clause
"""The ``.conda`` file format: writing packages from folders and reading their metadata, as streams."""
