# SPDX-License-Identifier: BSD-3-Clause
"""Finds what would carry a stack's data on this machine, and what keeps its fabric from doing so.

Changes nothing and needs no special rights.
"""

from channel_tools.doctor.examine import examine
from channel_tools.doctor.model import Diagnosis, ExaminedStack, subject_of, uses_fabric

__all__ = ["Diagnosis", "ExaminedStack", "examine", "subject_of", "uses_fabric"]
