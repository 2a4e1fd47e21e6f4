# SPDX-License-Identifier: BSD-3-Clause
"""Who may ask for what: tokens, the addresses of files, and the guard that looks at each request."""
