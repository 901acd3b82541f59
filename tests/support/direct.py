"""A peer without a socket: bytes go straight into a connection of the server, answers are kept. For tests in bulk."""

import asyncio

from cometmq.net.connection import Connection
from cometmq.net.server import Server
from cometmq.wire.command import Command, encode
from cometmq.wire.frame import FrameSplitter


class DirectPeer:
    """Stands for the socket and for who is behind it; reads all that it is sent at once."""

    def __init__(self, server: Server, port: int = 50_000) -> None:
        self.answers: list[Command] = []
        self.closed = False
        self.is_paused = False
        self._port = port
        self._splitter = FrameSplitter()
        self.connection = Connection(server.endpoint, server.dispatcher, True)
        self.connection.connection_made(self)

    def feed(self, data: bytes) -> None:
        self.connection.data_received(data)

    async def feed_in_turn(self, data: bytes) -> None:
        """As a loop would: nothing more while the connection waits for its turn."""
        self.feed(data)
        while self.is_paused:  # noqa: ASYNC110 - the connection says so, and no event
            await asyncio.sleep(0)

    def send(self, command: Command) -> None:
        self.feed(encode(command))

    def leave(self) -> None:
        """The peer closes its end."""
        self.connection.eof_received()

    # What a transport is asked for

    def get_extra_info(self, name: str) -> tuple[str, int]:
        return ("127.0.0.1", self._port) if name == "peername" else ("127.0.0.1", 10_911)

    def write(self, data: bytes) -> None:
        self.answers += self._splitter.feed(data)

    def writelines(self, parts: list[bytes]) -> None:
        self.write(b"".join(parts))

    def set_write_buffer_limits(self, high: int) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            asyncio.get_running_loop().call_soon(self.connection.connection_lost, None)

    def abort(self) -> None:
        self.close()
