"""Memory does not grow with traffic, nor with connections that came and went."""

import asyncio
import gc
import multiprocessing
import os
import resource
import sys
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

import pytest
import uvloop

from cometmq.wire.command import encode, reply
from tests.support.aio import run
from tests.support.net import ECHO, RawPeer, asked, serving, until

FRAMES = 1_000_000
CHUNK_FRAMES = 2_000
CONNECTIONS = 1_000


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def exchange(peer: RawPeer, frames: int) -> None:
    """Send frames in large chunks and count the bytes of their answers."""
    one = asked(ECHO, 1000, bytes(64))
    chunk = encode(one) * CHUNK_FRAMES
    answer_bytes = len(encode(reply(one, 0, None, one.ext, one.body))) * CHUNK_FRAMES
    for _ in range(frames // CHUNK_FRAMES):
        peer.write(chunk)
        missing = answer_bytes
        while missing > 0:
            missing -= len(await peer.reader.read(1 << 20))


async def come_and_go(port: int, connections: int) -> None:
    peers = [await asyncio.open_connection("127.0.0.1", port) for _ in range(connections)]
    for _, writer in peers:
        writer.close()
    for _, writer in peers:
        await writer.wait_closed()


async def measure() -> list[int]:
    """Resident memory after warming up, after the frames, and after the connections."""
    found: list[int] = []
    async with serving() as server, RawPeer.connected(server.port, limit=1 << 20) as peer:
        for frames, connections in [(40_000, CONNECTIONS), (FRAMES, 0), (0, CONNECTIONS)]:
            await exchange(peer, frames)
            await come_and_go(server.port, connections)
            await until(lambda: len(server.connections) == 1)
            found.append(resident_bytes())
    return found


def measure_in_child(pipe: Pipe) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(4 * CONNECTIONS, hard)), hard))
    pipe.send(run(measure(), timeout_s=240, loop_factory=uvloop.new_event_loop))


@pytest.mark.skipif(sys.platform != "linux", reason="reads resident memory from /proc")
@pytest.mark.mission("RM-16")
def test_memory_is_flat_after_a_million_frames_and_a_thousand_connections() -> None:
    # In a process of its own: memory that earlier tests freed would hide growth.
    pipe, child_pipe = multiprocessing.Pipe()
    child = multiprocessing.get_context("spawn").Process(target=measure_in_child, args=(child_pipe,))
    child.start()
    child_pipe.close()
    start, after_frames, after_connections = pipe.recv()
    child.join()
    print(f"resident MB: {start / 1e6:.1f} {after_frames / 1e6:.1f} {after_connections / 1e6:.1f}")
    assert after_frames < start * 1.05
    assert after_connections < start * 1.05
