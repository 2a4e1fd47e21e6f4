# SPDX-License-Identifier: BSD-3-Clause
"""What each rank of the validation of a process-group backend writes."""

from __future__ import annotations

from dataclasses import dataclass

from channel_tools.validate.rank_values import RankCase, RankFacts, RankPath, RankSpeed


@dataclass(frozen=True, kw_only=True, slots=True)
class DistributedResult(RankFacts):
    """Everything that one rank wrote.

    ``backend`` is the default group's name, ``carrier`` the class of the object that works for it and
    ``carrier_name`` what that object calls itself; ``events`` are the profiler's, by name, of the cases.
    """

    backend: str
    carrier: str
    carrier_name: str
    events: dict[str, int]
    libraries: tuple[str, ...]
    cases: tuple[RankCase, ...]
    speeds: tuple[RankSpeed[RankPath], ...]
