# SPDX-License-Identifier: BSD-3-Clause
"""The source store: upstream's sources by hash or commit, fetched once, carried across an air gap, used by builds."""
