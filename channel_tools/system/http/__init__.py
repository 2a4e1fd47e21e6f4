# SPDX-License-Identifier: BSD-3-Clause
"""The HTTP client: one set of rules for everything that is fetched or sent."""
