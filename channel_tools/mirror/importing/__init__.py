# SPDX-License-Identifier: BSD-3-Clause
"""Importing a bundle: it is verified, then published at the importing site."""
