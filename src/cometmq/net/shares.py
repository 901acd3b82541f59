"""Who has to make room when a bound that all peers share is reached: the largest holder, never the newcomer.

    requests that wait   while three quarters of a family's bound are taken, a connection may hold a quarter of it and
                         an address half: one that is alone may use most of it, the rest is for others. When the
                         family is full, the largest connection of the largest address is answered code 2 for some of
                         its parked requests
    bytes that wait      the same by bytes, over all families (`inflight_bytes_total_max`)
    connections          when there is no room for another, one of the address that has most of them is cut

"Parked" is what a handler keeps to answer later; only families that say how to forget such a request (`on_evict`) lose
some of them. What a task works on cannot be taken back: it ends by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cometmq.wire.codes import Response
from cometmq.wire.command import reply

if TYPE_CHECKING:
    from cometmq.net.endpoint import Endpoint
    from cometmq.net.family import Family
    from cometmq.net.peer import Peer

CONNECTION_SHARE: Final = 4
ADDRESS_SHARE: Final = 2
# Evicted together, of a bound: one in so many.
BATCH_SHARE: Final = 20
# A bound below these was set by somebody who means it: a share of a few requests would be none.
SHARED_MIN: Final = 1_000
EVICTING_MIN: Final = 64


def is_over_share(family: Family, connection: Peer) -> str | None:
    """Why this connection may not hold one more request of the family; None if it may."""
    bound = family.waiting_max
    if bound < SHARED_MIN or family.waiting < bound * 3 // 4:
        return None
    held = _held_of(connection, family)
    if held >= bound // CONNECTION_SHARE:
        return (
            f"[OVERLOAD]{held} {family.name} requests of this connection are waiting, its share is "
            f"{bound // CONNECTION_SHARE} of {bound}"
        )
    held = family.waiting_of.get(connection.peer[0], 0)
    if held >= bound // ADDRESS_SHARE:
        return (
            f"[OVERLOAD]{held} {family.name} requests from {connection.peer[0]} are waiting, its share is "
            f"{bound // ADDRESS_SHARE} of {bound}"
        )
    return None


def make_room(endpoint: Endpoint, family: Family, newcomer: Peer) -> None:
    """The family is full: let the largest holder go without, unless that is the newcomer itself."""
    if family.waiting_max < EVICTING_MIN or not family.waiting_of:
        return
    address = max(family.waiting_of, key=family.waiting_of.__getitem__)
    held = [(_held_of(it, family), it) for it in endpoint.connections if it.peer[0] == address]
    if not held:
        return
    count, largest = max(held, key=_count)
    if largest is newcomer or count <= _held_of(newcomer, family) + 1:
        return
    batch = max(1, min(count // 2, family.waiting_max // BATCH_SHARE))
    evicted = _evict(largest, family, batch, 0)
    if evicted:
        endpoint.log_evicted.warning(
            "evict requests peer=%s family=%s count=%d cause=%d wait, the bound is %d",
            largest.peer_text, family.name, evicted, family.waiting, family.waiting_max,
        )  # fmt: skip


def relieve(endpoint: Endpoint, newcomer: Peer) -> bool:
    """All requests that wait hold too much. False: the newcomer is the one who has to wait."""
    by_address: dict[str, int] = {}
    for connection in endpoint.connections:
        held_bytes = _held_bytes(connection)
        if held_bytes:
            by_address[connection.peer[0]] = by_address.get(connection.peer[0], 0) + held_bytes
    if not by_address:
        return False
    address = max(by_address, key=by_address.__getitem__)
    held = [(_held_bytes(it), it) for it in endpoint.connections if it.peer[0] == address]
    size_bytes, largest = max(held, key=_count)
    if largest is newcomer or size_bytes <= _held_bytes(newcomer) * 2:
        return False
    wanted_bytes = max(endpoint.inflight_bytes - endpoint.inflight_bytes_total_max * 15 // 16, 0)
    evicted = _evict(largest, None, 0, min(wanted_bytes, size_bytes // 2))
    if evicted:
        endpoint.log_evicted.warning(
            "evict requests peer=%s count=%d cause=%d bytes wait, inflight_bytes_total_max is %d",
            largest.peer_text, evicted, endpoint.inflight_bytes, endpoint.inflight_bytes_total_max,
        )  # fmt: skip
    return endpoint.inflight_bytes <= endpoint.inflight_bytes_total_max


def make_room_for_connection(endpoint: Endpoint, newcomer: Peer) -> bool:
    """False: the newcomer's address has the most connections already."""
    counts = endpoint.connections_of
    address = max(counts, key=counts.__getitem__)
    if counts[address] <= counts.get(newcomer.peer[0], 0) + 1:
        return False
    victim = next((it for it in endpoint.connections if it.peer[0] == address), None)
    if victim is None:
        return False
    victim.cut(f"over connections_max={endpoint.limits.connections_max}, its address has {counts[address]}")
    return True


def _held_of(connection: Peer, family: Family) -> int:
    return connection.requests.count_of(family) if connection.requests is not None else 0


def _held_bytes(connection: Peer) -> int:
    return connection.requests.size_bytes if connection.requests is not None else 0


def _count(held: tuple[int, Peer]) -> int:
    return held[0]


def _evict(largest: Peer, family: Family | None, count: int, size_bytes: int) -> int:
    """Answer parked requests of a connection, the oldest first: `count` of a family, or until they held so much."""
    evicted = 0
    freed = 0
    touched: set[Family] = set()
    for request, of, held_bytes in largest.requests.parked() if largest.requests is not None else ():
        if of.on_evict is None or (family is not None and of is not family) or (family is None and freed >= size_bytes):
            continue
        if family is not None and evicted >= count:
            break
        remark = f"[OVERLOAD]too many {of.name} requests wait and this client has the most: use fewer, or more clients"
        largest.answer(request, reply(request, Response.SYSTEM_BUSY, remark))
        evicted += 1
        freed += held_bytes
        touched.add(of)
    for one in touched:
        if one.on_evict is not None:
            one.on_evict()
    return evicted
