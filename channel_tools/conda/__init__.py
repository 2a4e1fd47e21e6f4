# SPDX-License-Identifier: BSD-3-Clause
"""The formats and words of conda as values and functions: packages, their records, channel addresses, solving."""
