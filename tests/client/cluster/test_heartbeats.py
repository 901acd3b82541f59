"""Heartbeats that want to go out while others are under way."""

import asyncio

from cometmq.client.cluster.heartbeats import Heartbeats
from cometmq.client.cluster.instance import Instance
from cometmq.client.options import ClientOptions


class Counted(Heartbeats):
    """Fails instead of turning for ever."""

    composed = 0

    def _compose(self) -> bytes | None:
        self.composed += 1
        assert self.composed < 100, "it turns without waiting"
        return str(self.composed).encode()


async def test_a_beat_goes_out_in_the_moment_in_which_another_one_ends() -> None:
    instance = Instance(ClientOptions("127.0.0.1:1"))
    await instance.start()
    beats = Counted(instance)
    first = asyncio.ensure_future(beats.beat())
    # Done, but its callbacks were not called yet.
    while beats._beating is None or not beats._beating.done():  # noqa: ASYNC110
        await asyncio.sleep(0)
    await beats.beat()
    await first
    assert beats.composed >= 2
    await instance.stop()
