# SPDX-License-Identifier: BSD-3-Clause
"""Access control: tokens, the addresses of files, and the guard that checks each request."""
