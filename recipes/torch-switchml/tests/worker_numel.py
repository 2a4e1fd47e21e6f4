# SPDX-License-Identifier: BSD-3-Clause
"""How many elements the worker reduces, known to the worker and to whoever counts them."""

NUMEL = 100_003
