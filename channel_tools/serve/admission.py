# SPDX-License-Identifier: BSD-3-Clause
"""Which connections a process keeps: a limited number in all and per address, so that others always find room.

If there is no room, an idle connection (without a request, or whose headers are still incomplete) is closed: one of the
same address if that has used up its share, else one of the address with the most. A connection in use is never closed.
"""

from __future__ import annotations

import ipaddress
import resource
from collections import OrderedDict
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from channel_tools.serve.metrics import Event

FILES_EACH = 3
"""Descriptors that a connection may need: its socket, a copy of it while a file is sent, and the file."""
FILES_KEPT = 64
"""Descriptors for everything else: the listener, the log, and those of the interpreter and a lock."""
_FEWEST = 8
_IPV6_NETWORK_BITS = 64


class Admitted(Protocol):
    """The part of a connection that admission uses."""

    address: str
    network: str
    """Its address as network_of returns it."""

    def drop(self) -> None:
        """Close it at once."""


class _Address:
    """The connections from one address; ``idle`` starts with the one that has been idle longest."""

    __slots__ = ("all", "idle")

    def __init__(self) -> None:
        self.all: set[Admitted] = set()
        self.idle: OrderedDict[Admitted, None] = OrderedDict()

    def drop_idle(self) -> bool:
        """Drop the connection that has been idle longest; returns whether there was one."""
        if not self.idle:
            return False
        longest, _none = self.idle.popitem(last=False)
        self.all.discard(longest)
        longest.drop()
        return True


class Admission:
    """The connections of one process; ``shared`` are addresses, such as a proxy's, that many clients share."""

    def __init__(
        self,
        *,
        total: int,
        each: int,
        shared: frozenset[str] = frozenset(),
        event: Callable[[Event], None] = lambda _event: None,
    ) -> None:
        self._total = total
        self._each = min(each, total)
        self._shared = shared
        self._event = event
        self._count = 0
        self._addresses: dict[str, _Address] = {}

    def admit(self, connection: Admitted) -> bool:
        """Whether a new connection is accepted; it is idle at first."""
        name = connection.network
        own = self._addresses.get(name) or _Address()
        if len(own.all) >= self._each and connection.address not in self._shared and not self._drop_of(own):
            return self._refused()
        if self._count >= self._total and not self._drop_any():
            return self._refused()
        self._addresses[name] = own
        own.all.add(connection)
        own.idle[connection] = None
        self._count += 1
        return True

    def busy(self, connection: Admitted) -> None:
        """Note that the connection has a request."""
        if (own := self._addresses.get(connection.network)) is not None:
            own.idle.pop(connection, None)

    def idle(self, connection: Admitted) -> None:
        """Note that the connection has got its response."""
        own = self._addresses.get(connection.network)
        if own is not None and connection in own.all:
            own.idle[connection] = None

    def lost(self, connection: Admitted) -> None:
        """Note that the connection has ended."""
        name = connection.network
        own = self._addresses.get(name)
        if own is None:
            return
        if connection in own.all:
            own.all.discard(connection)
            own.idle.pop(connection, None)
            self._count -= 1
        if not own.all:
            del self._addresses[name]

    def _drop_of(self, address: _Address) -> bool:
        if not address.drop_idle():
            return False
        self._count -= 1
        self._event("connection_dropped")
        return True

    def _refused(self) -> bool:
        self._event("connection_refused")
        return False

    def _drop_any(self) -> bool:
        """Drop an idle connection of the address with the most connections, among those that have an idle one."""
        having = [client for client in self._addresses.values() if client.idle]
        return bool(having) and self._drop_of(max(having, key=lambda client: len(client.all)))


def network_of(address: str) -> str:
    """What counts as one address: an IPv4 address, or the /64 network of an IPv6 address."""
    if ":" not in address:
        return address
    try:
        parsed = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((parsed, _IPV6_NETWORK_BITS), strict=False))


def raise_files_limit() -> int:
    """Raise this process's limit on open files as far as the system allows; returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def connections_for(files: int, requested: int) -> int:
    """How many connections this many descriptors are enough for, at most ``requested``."""
    if files == resource.RLIM_INFINITY:
        return requested
    return min(requested, max(_FEWEST, (files - FILES_KEPT) // FILES_EACH))
