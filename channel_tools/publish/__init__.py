# SPDX-License-Identifier: BSD-3-Clause
"""The publish stage: uploads built packages to where people install them from, in whole sets, under labels."""
