# SPDX-License-Identifier: BSD-3-Clause
"""The source store: upstream's sources by what they are, fetched once, carried across an air gap, read by builds."""
