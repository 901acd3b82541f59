"""Every bound that a peer can run into, by name.

A size that a peer chooses costs memory only up to one of these. What happens at each:

    frame_bytes_max            a longer frame closes its connection
    connections_max            a further connection is closed at once
    opening_s                  PROXY header and TLS handshake take longer, counted from the first byte: cut
    idle_s                     nothing read and nothing written: closed, after an idle event
    partial_grace_s, partial_bytes_per_s_min
                               an incomplete frame older than the grace must have averaged the rate: else cut
    partial_bytes_max          all incomplete frames together: the costliest holders (bytes x age) are cut
    inflight_bytes_max         requests of one connection that wait for their answers: its reading pauses
    inflight_bytes_total_max   the same over all connections: reading of the one that crosses it pauses
    output_bytes_high          unsent answers of one connection: its reading pauses until they have left
    output_grace_s, output_bytes_per_s_min
                               a reader above the high mark for longer than the grace must average the rate: else cut
    output_bytes_max           unsent answers of one connection: cut
    output_bytes_total_max     unsent answers of all connections above their high mark: the costliest are cut
    calls_max, oneway_max      calls and one-way requests under way to peers; more wait, within their own time limit
    calls_waiting_max          of those that wait; more are refused
    refused_max                requests that the guard refused and whose answers wait; the sender of more: closed
    families                   see `dispatch.Family.waiting_max`

Sizes are in bytes, times in seconds. The sweep looks every `sweep_s`, so a time limit acts up to that much later.
"""

from dataclasses import dataclass

MIB = 1 << 20

# The first byte tells a frame from a PROXY header (0x0D or 0x50) and from TLS (0x16) only below this length.
FRAME_BYTES_POSSIBLE = 0x0D000000


@dataclass(frozen=True, slots=True)
class Limits:
    frame_bytes_max: int = 16 * MIB
    connections_max: int = 10_000
    opening_s: float = 10.0
    idle_s: float = 120.0
    sweep_s: float = 1.0
    partial_grace_s: float = 10.0
    partial_bytes_per_s_min: int = 1024
    partial_bytes_max: int = 256 * MIB
    inflight_bytes_max: int = 64 * MIB
    inflight_bytes_total_max: int = 512 * MIB
    output_bytes_high: int = MIB
    output_grace_s: float = 30.0
    output_bytes_per_s_min: int = 1024
    output_bytes_max: int = 64 * MIB
    output_bytes_total_max: int = 512 * MIB
    closing_s: float = 5.0
    calls_max: int = 64
    oneway_max: int = 256
    calls_waiting_max: int = 65_535
    refused_max: int = 1_000
    connect_s: float = 3.0

    def __post_init__(self) -> None:
        if not 8 <= self.frame_bytes_max < FRAME_BYTES_POSSIBLE:
            raise ValueError(f"frame_bytes_max is {self.frame_bytes_max}, allowed are 8 to {FRAME_BYTES_POSSIBLE - 1}")


SERVER_LIMITS = Limits()
CLIENT_LIMITS = Limits(calls_max=65_535, oneway_max=65_535)
