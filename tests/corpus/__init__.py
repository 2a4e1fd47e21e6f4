# SPDX-License-Identifier: BSD-3-Clause
"""Files that other people made, read by our commands and counted by a second reader (``make corpus FOLDER=...``)."""
