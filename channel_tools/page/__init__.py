# SPDX-License-Identifier: BSD-3-Clause
"""The page stage: a channel folder as a static site, beside the files that conda clients read."""
