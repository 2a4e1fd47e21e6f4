# SPDX-License-Identifier: BSD-3-Clause
"""The rules: functions from facts to findings, which read and write nothing."""
