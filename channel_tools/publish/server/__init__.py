# SPDX-License-Identifier: BSD-3-Clause
"""Publishing to a channel_tools server, and the protocol between it and its clients."""
