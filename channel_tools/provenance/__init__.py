# SPDX-License-Identifier: BSD-3-Clause
"""Where packages come from: attestations of how each was built, bills of materials, licences."""
