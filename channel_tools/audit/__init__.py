# SPDX-License-Identifier: BSD-3-Clause
"""The audit stage: keeps packages out of a channel that would not work under another prefix or on another machine."""
