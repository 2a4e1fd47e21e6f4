# SPDX-License-Identifier: BSD-3-Clause
"""The serve stage: channels over HTTP, for users who have a token."""
