# SPDX-License-Identifier: BSD-3-Clause
"""The command line: parses, calls one function of channel_tools.workflow, prints. Nothing imports it."""
