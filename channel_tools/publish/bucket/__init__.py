# SPDX-License-Identifier: BSD-3-Clause
"""Channels in a bucket: any store that holds objects under keys and writes them on condition."""
