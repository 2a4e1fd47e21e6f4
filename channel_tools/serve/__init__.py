# SPDX-License-Identifier: BSD-3-Clause
"""The serve stage: channels over HTTP, for those who have a token."""
