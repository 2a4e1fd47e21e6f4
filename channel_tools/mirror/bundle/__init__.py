# SPDX-License-Identifier: BSD-3-Clause
"""What a bundle is: its format, its files, and the indexes of its channels."""
