# SPDX-License-Identifier: BSD-3-Clause
"""Says what would carry a stack's data on this machine, and why not its fabric. Changes nothing, needs no rights."""

from channel_tools.doctor.examine import examine
from channel_tools.doctor.model import Finding, Subject, subject_of, uses_fabric

__all__ = ["Finding", "Subject", "examine", "subject_of", "uses_fabric"]
