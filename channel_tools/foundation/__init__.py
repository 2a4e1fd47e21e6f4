# SPDX-License-Identifier: BSD-3-Clause
"""The registry foundation: a channel under conda-forge's names, made from wheels and Debian packages."""
