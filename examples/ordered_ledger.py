"""A ledger: bookings of one account are applied in the order in which they were sent.

    sender     ordering_key=account      all bookings of an account go to one queue, one after the other
    broker     a queue keeps its order
    group      ordered=True              one member holds the lock of a queue and handles one message at a time

Two members share the queues; one comes later and one leaves early, so queues change hands twice. What breaks the order
of a key: changing the number of queues while messages are under way, several senders for one key, a handler that
gives its work to tasks of its own.
"""

import asyncio
import os
from collections import defaultdict

from cometmq import Client, Message, json_codec
from cometmq.client.consume.push import PushConsumer
from cometmq.client.options import StartFrom

NAMESRV = os.environ.get("COMETMQ_NAMESRV", "127.0.0.1:9876")
TOPIC = "example-ledger"
ACCOUNTS = [f"account-{number}" for number in range(8)]
PER_PHASE = 20


class Ledger:
    """Applied bookings by account, and who applied them."""

    def __init__(self) -> None:
        self.applied: dict[str, list[int]] = defaultdict(list)
        self.by: dict[str, set[str]] = defaultdict(set)
        self.changed = asyncio.Event()

    def member(self, client: Client, name: str) -> PushConsumer:
        app = client.push_consumer("example-ledger-cg", start=StartFrom.FIRST, rebalance_retry=0.2)

        @app.on(TOPIC, ordered=True, codec=json_codec)
        async def apply(message: Message[dict[str, int]]) -> None:
            account, number = message.keys[0], message.value["number"]
            done = self.applied[account]
            if done and number <= done[-1]:
                return  # delivered again after a change of hands: it was applied before
            assert number == len(done), f"{account}: booking {number} came after {done[-1:]}"
            done.append(number)
            self.by[account].add(name)
            self.changed.set()

        return app

    async def reach(self, count: int) -> None:
        while any(len(self.applied[account]) < count for account in ACCOUNTS):
            self.changed.clear()
            await asyncio.wait_for(self.changed.wait(), 60)


async def book(client: Client, phase: int) -> None:
    """One sender, and an account's next booking only after the last was stored."""
    async with client.producer(f"example-bank-{phase}", codec=json_codec) as producer:
        for number in range(phase * PER_PHASE, (phase + 1) * PER_PHASE):
            for account in ACCOUNTS:
                await producer.send(TOPIC, {"number": number}, keys=[account], ordering_key=account)


async def main() -> Ledger:
    ledger = Ledger()
    async with Client(NAMESRV) as one, Client(NAMESRV) as two, one.admin() as admin:
        await admin.create_topic(TOPIC, queues=4)
        async with ledger.member(one, "one"):
            sending = asyncio.create_task(book(one, 0))
            await ledger.reach(1)
            second = ledger.member(two, "two")
            await second.start()  # queues change hands while bookings are under way
            await sending
            await ledger.reach(PER_PHASE)
            sending = asyncio.create_task(book(one, 1))
            await ledger.reach(PER_PHASE + 1)
            await second.stop()  # and back again
            await sending
            await ledger.reach(2 * PER_PHASE)
    for account in ACCOUNTS:
        print(f"{account}: {len(ledger.applied[account])} bookings in order, applied by {sorted(ledger.by[account])}")
    return ledger


if __name__ == "__main__":
    asyncio.run(main())
