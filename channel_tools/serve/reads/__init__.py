# SPDX-License-Identifier: BSD-3-Clause
"""Reading channels: the application, the cache of unchanged files, and the responses to requests for them."""
