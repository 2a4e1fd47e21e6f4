# SPDX-License-Identifier: BSD-3-Clause
"""Making a bundle: what goes into it, and how it gets there."""
