# SPDX-License-Identifier: BSD-3-Clause
"""The rules: facts in, findings out, nothing read or written."""
