# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.system.errors import UsageError
from channel_tools.system.progress import SilentProgress
from channel_tools.system.settings import make_settings
from channel_tools.workflow.environment import InstallRequest, ValidateRequest, validate_installed
from tests.unit.matrix.toytree import FILES, write_tree


def test_a_stack_without_validation_is_not_validated(tmp_path: Path) -> None:
    stacks = FILES["variants/stacks.yaml"].replace("    validate: {method: switchml, num_threads: 2}\n", "")
    root = write_tree(tmp_path, {"variants/stacks.yaml": stacks}).root
    settings = make_settings(root=root, output=None, environ={}, cwd=tmp_path)
    request = ValidateRequest(install=InstallRequest(), ranks=2, prefix=None, keep=False, timeout_s=1.0, environ={})
    with pytest.raises(UsageError, match="the stack udp has no validation"):
        validate_installed(settings, request, progress=SilentProgress())
    assert not settings.output.exists()
