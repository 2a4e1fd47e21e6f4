# SPDX-License-Identifier: BSD-3-Clause
"""Taking a bundle in: verified, then published at the importing site."""
