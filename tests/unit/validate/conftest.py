# SPDX-License-Identifier: BSD-3-Clause
"""A report for the tests of this folder."""

from __future__ import annotations

import pytest

from channel_tools.validate.model import ValidationReport
from tests.unit.validate.reports import whole_report


@pytest.fixture
def report() -> ValidationReport:
    return whole_report()
