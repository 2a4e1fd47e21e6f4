# SPDX-License-Identifier: BSD-3-Clause
"""The stages put together: what one command does from its settings to its result, without printing."""
