# SPDX-License-Identifier: BSD-3-Clause
"""Channels in a bucket: in any store that keeps objects under keys and supports conditional writes."""
