# SPDX-License-Identifier: BSD-3-Clause
"""Uploads to the server: sets of packages, checked before they are published."""
