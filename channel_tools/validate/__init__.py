# SPDX-License-Identifier: BSD-3-Clause
"""Validates a stack: installs it from the channel alone, runs a distributed allreduce, reports what carried it."""

from channel_tools.validate.history import kept_file
from channel_tools.validate.model import ValidationReport
from channel_tools.validate.page import write_page
from channel_tools.validate.report import (
    ReportTable,
    bandwidth_tables,
    doubts,
    raise_for_failures,
    report_document,
    report_tables,
    result_line,
    write_report,
)
from channel_tools.validate.runner import ValidationSetup, check_request, validate_stack

__all__ = [
    "ReportTable",
    "ValidationReport",
    "ValidationSetup",
    "bandwidth_tables",
    "check_request",
    "doubts",
    "kept_file",
    "raise_for_failures",
    "report_document",
    "report_tables",
    "result_line",
    "validate_stack",
    "write_page",
    "write_report",
]
