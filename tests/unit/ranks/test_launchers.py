# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import pytest

from channel_tools.ranks.launchers import pmi_kinds


@pytest.mark.parametrize(
    ("installed", "kinds"),
    [
        ({"mpich": "4.0.2 h0_0"}, ("pmi2",)),
        ({"mpich": "4.3.2 external_cray_h0_0"}, ("cray_shasta", "pmi2")),
        ({"mpich-abi": "5.0.2 h0_0"}, ("pmi2",)),
        ({"openmpi": "4.1.6 h0_0"}, ("pmix", "pmi2")),
        ({"openmpi": "5.0.11 h0_0"}, ("pmix",)),
    ],
    ids=["mpich", "cray", "standard abi", "open mpi 4", "open mpi 5"],
)
def test_srun_is_asked_for_a_plug_in_that_the_mpi_understands(
    installed: dict[str, str], kinds: tuple[str, ...]
) -> None:
    assert pmi_kinds(installed) == kinds
