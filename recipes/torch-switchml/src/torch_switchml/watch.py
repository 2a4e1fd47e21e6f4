# SPDX-License-Identifier: BSD-3-Clause
"""Which rank's process has ended while the ranks of a group set SwitchML up.

Each watches the one before it by gloo's connection to it, which ends with the process, and tells the one after it.
"""

import logging
from types import TracebackType
from typing import TYPE_CHECKING

from torch_switchml.errors import SwitchMLError

if TYPE_CHECKING:
    from torch_switchml import pytorch
    from torch_switchml._C import PeerWatch

logger = logging.getLogger(__name__)


class Watch:
    """A context: within it, the ranks are watched. Nobody is in a group of one rank.

    Nor where the compiled part is missing: then this rank fails, and says why, before it would wait for others.
    `survives`: whether the group is used further where all its ranks come to the same error.
    """

    def __init__(self, gloo: "pytorch.Backend", *, survives: bool) -> None:
        self._survives = survives
        self._peer: PeerWatch | None = None
        if gloo.size() < 2:  # noqa: PLR2004 - nobody else
            return
        try:
            from torch_switchml import _C

            self._peer = _C.PeerWatch(gloo)
        except (ImportError, RuntimeError) as err:
            logger.debug("no rank is watched: %s", err)

    def find_ended(self) -> tuple[int, str] | None:
        """The rank whose process has ended, and how that is known; None while none is known."""
        return self._peer.loss if self._peer is not None else None

    def __enter__(self) -> None:
        """Nothing: the watch began as it was made."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Where the group is used further, its connections stay as they are."""
        agreed = error is None or (self._survives and isinstance(error, SwitchMLError) and error.unanimous)
        if self._peer is not None and agreed:
            self._peer.finish()
        else:
            self.end()

    def end(self) -> None:
        """Watch no longer, also where the ranks have not come to the end."""
        self._peer = None
