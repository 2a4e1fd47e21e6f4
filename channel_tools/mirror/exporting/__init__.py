# SPDX-License-Identifier: BSD-3-Clause
"""Making bundles: planning, fetching and signing their content."""
