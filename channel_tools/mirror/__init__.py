# SPDX-License-Identifier: BSD-3-Clause
"""The mirror stage: signed bundles that carry a stack to sites without a network, and their import there."""
