# SPDX-License-Identifier: BSD-3-Clause
"""Which rank's process has ended: each watches the one before it, and tells the one after it.

The system closes the connections of a process with it, at once and however it ends; one that is slow or stopped keeps
them. While the ranks of a group set SwitchML up, those are gloo's (:class:`Watch`): there are no others yet. Once the
session is open, they are the watch's own (:class:`SessionWatch`): gloo closes all of its connections where the limit of
a single call passes, and children made by fork() hold them open.
"""

import hmac
import logging
import os
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from weakref import WeakSet

from torch_switchml.agreement import Agreement
from torch_switchml.errors import SwitchMLError

if TYPE_CHECKING:
    from torch_switchml import pytorch
    from torch_switchml._C import PeerWatch

logger = logging.getLogger(__name__)

# How long a rank tries to reach the one before it, and awaits the one after it: all of them come here at once.
_CONNECTING_LIMIT_S = 2.0
# How long one that has connected may take to give the secret, which a rank gives at once.
_TOKEN_LIMIT_S = 1.0
# A message: a rank whose process has ended, or this.
_MESSAGE = struct.Struct("!i")
_LEAVES = -1
_TOKEN_BYTES = 16

OnEnded = Callable[[str], None]
"""Hears, once and on a thread of its own, which rank's process has ended and how that is known."""


class Watch:
    """A context: within it, the ranks are watched once it has begun. Nobody is in a group of one rank.

    Nor where the compiled part is missing: then this rank fails, and says why, before it would wait for others.
    `survives`: whether the group is used further where all its ranks come to the same error.
    """

    def __init__(self, gloo: "pytorch.Backend", *, survives: bool) -> None:
        self._survives = survives
        self._unwatched: pytorch.Backend | None = gloo
        self._peer: PeerWatch | None = None

    def begin(self) -> None:
        """Watch from now on, for which the compiled part is loaded; nothing where it has begun or ended."""
        gloo, self._unwatched = self._unwatched, None
        if gloo is None or gloo.size() < 2:  # noqa: PLR2004 - nobody else
            return
        try:
            from torch_switchml import _C

            self._peer = _C.PeerWatch(gloo)
        except (ImportError, RuntimeError) as err:
            logger.debug("no rank is watched: %s", err)

    def find_ended(self) -> tuple[int, str] | None:
        """The rank whose process has ended, and how that is known; None while none is known. It begins to watch."""
        self.begin()
        return self._peer.loss if self._peer is not None else None

    def __enter__(self) -> None:
        """Nothing: the ranks say first that they are there, and then load what the watch needs."""

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
        self._unwatched = self._peer = None


class SessionWatch:
    """One rank's part in the watch of all of a group's ranks, for as long as its session is open.

    Made, connected and started by all ranks at once (:func:`watch_session`).
    """

    def __init__(self, rank: int, size: int, host: str) -> None:
        """Listen at this address of the machine for the rank after this one; OSError where that cannot be."""
        self._rank = rank
        self._before_rank = (rank + size - 1) % size
        self._token = secrets.token_hex(_TOKEN_BYTES)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family)
        self._before: socket.socket | None = None
        self._after: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._has_told = False
        self._is_closed = False
        _live.add(self)

    @property
    def address(self) -> str:
        """What the rank after this one needs to reach it: port, a secret, address."""
        host, port, *_ = self._listener.getsockname()
        return f"{port} {self._token} {host}"

    def connect(self, address_of_before: str) -> None:
        """Reach the rank before this one, and be reached by the one after it; OSError where that takes too long."""
        port, token, host = address_of_before.split(" ", 2)
        self._before = socket.create_connection((host, int(port)), timeout=_CONNECTING_LIMIT_S)
        self._before.sendall(token.encode())
        self._before.settimeout(None)
        until = time.monotonic() + _CONNECTING_LIMIT_S
        while self._after is None:
            self._listener.settimeout(_seconds_until(until))
            peer = self._listener.accept()[0]
            self._after = self._admit(peer, min(until, time.monotonic() + _TOKEN_LIMIT_S))
        self._listener.close()

    def start(self, on_ended: OnEnded) -> None:
        """Watch, once all ranks are connected."""
        arguments = (self._before, on_ended)
        thread = threading.Thread(target=self._watch, args=arguments, name="switchml-watch", daemon=True)
        thread.start()
        self._thread = thread  # not one that the system did not give, which close() could not await

    def close(self) -> None:
        """Watch no longer, and have the rank after this one told that it left as it should."""
        self._is_closed = True
        self._tell(_LEAVES)
        if self._before is not None:
            with suppress(OSError):
                self._before.shutdown(socket.SHUT_RDWR)  # ends the thread's wait
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self.let_go()

    def let_go(self) -> None:
        """Close what this process holds of the connections, which others hear of where it was the last to hold them."""
        for connection in (self._listener, self._before, self._after):
            if connection is not None:
                connection.close()

    def _admit(self, peer: socket.socket, until: float) -> socket.socket | None:
        """It, if it knows the secret: others on the network may connect too."""
        with suppress(OSError):
            if hmac.compare_digest(_receive(peer, 2 * _TOKEN_BYTES, until=until), self._token.encode()):
                peer.settimeout(None)
                return peer
        peer.close()
        return None

    def _watch(self, before: socket.socket, on_ended: OnEnded) -> None:
        try:
            message = _receive(before, _MESSAGE.size)
        except ConnectionResetError:
            message = b""
        except OSError as err:  # of the network, not the other's end
            logger.debug("rank %d is watched no longer: %s", self._before_rank, err)
            return
        number = _MESSAGE.unpack(message)[0] if len(message) == _MESSAGE.size else None
        if self._is_closed or number == _LEAVES:
            return
        ended = self._before_rank if number is None else number
        self._tell(ended)
        how = f"its connection to rank {self._rank} has closed"
        if number is not None:
            how = f"rank {self._before_rank} says so"
        on_ended(f"rank {ended}: its process ended ({how})")

    def _tell(self, number: int) -> None:
        """The rank after this one, once."""
        with self._lock:
            if self._after is None or self._has_told:
                return
            self._has_told = True
            try:
                self._after.sendall(_MESSAGE.pack(number))
            except OSError as err:  # it has gone
                logger.debug("the rank after this one cannot be told: %s", err)


_live: WeakSet[SessionWatch] = WeakSet()


def _let_go_in_child() -> None:
    """A child made by fork() may outlive the rank, whose connections are to end with it."""
    for watch in list(_live):
        watch.let_go()


os.register_at_fork(after_in_child=_let_go_in_child)


def watch_session(agreement: Agreement, controller: str, *, timeout: timedelta) -> SessionWatch | None:
    """A watch that is connected, to be started and closed; None on all ranks where one of them cannot have it.

    Nor is there any in a group of one rank. The ranks meet at the addresses from which they reach the controller,
    `host[:port]`. SwitchMLError where a rank ends, or does not come within `timeout`.
    """
    if agreement.size == 1:
        return None
    watch, error = _try_listen(agreement, controller)
    try:
        addresses = agreement.exchange(stage="watch", value=watch.address if watch else "", timeout=timeout)
        if watch is not None and all(addresses):
            error = _try_connect(watch, addresses[agreement.rank - 1])
        errors = agreement.exchange(stage="watched", value=error, timeout=timeout)
    except BaseException:
        if watch is not None:
            watch.let_go()
        raise
    if watch is not None and any(errors):
        watch.let_go()
        watch = None
    if watch is None and agreement.rank == 0:
        reasons = "; ".join(f"rank {rank}: {reason}" for rank, reason in enumerate(errors) if reason)
        logger.warning("a rank that is killed will be known when its lease ends, no earlier: %s", reasons)
    return watch


def _try_listen(agreement: Agreement, controller: str) -> tuple[SessionWatch | None, str]:
    try:
        return SessionWatch(agreement.rank, agreement.size, _address_towards(controller)), ""
    except (OSError, ValueError) as err:  # ValueError: no address to urllib
        return None, f"cannot listen for another rank: {err}"


def _try_connect(watch: SessionWatch, address: str) -> str:
    try:
        watch.connect(address)
    except OSError as err:
        return f"cannot connect to another rank: {err}"
    return ""


def _address_towards(controller: str) -> str:
    """Of this machine, as the route to the controller has it; OSError where there is none."""
    parts = urlsplit(f"//{controller}")
    family, kind, protocol, _, address = socket.getaddrinfo(parts.hostname, parts.port or 1, type=socket.SOCK_DGRAM)[0]
    with closing(socket.socket(family, kind, protocol)) as probe:
        probe.connect(address)  # sends nothing
        return str(probe.getsockname()[0])


def _receive(connection: socket.socket, size: int, *, until: float | None = None) -> bytes:
    """So many bytes, or fewer where the other side has closed it; TimeoutError where they have not come by `until`."""
    received = b""
    while len(received) < size:
        if until is not None:
            connection.settimeout(_seconds_until(until))
        more = connection.recv(size - len(received))
        if not more:
            break
        received += more
    return received


def _seconds_until(moment: float) -> float:
    """TimeoutError where it has passed."""
    left_s = moment - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("timed out")
    return left_s
