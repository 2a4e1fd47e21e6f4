# SPDX-License-Identifier: BSD-3-Clause
"""Where packages come from."""
