# SPDX-License-Identifier: BSD-3-Clause
"""The audit stage: no package enters a channel that would not work at another place or on another machine."""
