# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import pytest
from rattler import Subdir

from channel_tools.conda import platforms
from channel_tools.conda.platforms import current_platform
from channel_tools.system.errors import UsageError


def test_the_platform_is_this_machines() -> None:
    assert current_platform() == str(Subdir.current())


def test_a_machine_that_no_recipe_is_built_on_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platforms, "SUPPORTED_PLATFORMS", ("linux-s390x", "linux-ppc64le"))
    with pytest.raises(UsageError, match="packages are built on linux-s390x and linux-ppc64le"):
        current_platform()
