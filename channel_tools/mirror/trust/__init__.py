# SPDX-License-Identifier: BSD-3-Clause
"""Who is trusted to make bundles: keys, their rotation, and the signed metadata (The Update Framework)."""
