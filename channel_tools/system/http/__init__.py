# SPDX-License-Identifier: BSD-3-Clause
"""HTTP as a client: one set of rules for everything that is fetched or sent."""
