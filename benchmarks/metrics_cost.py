"""What metrics cost a send: processor time of a broker that times requests and is scraped, by one that does not.

    python -m benchmarks.metrics_cost [--rounds N]
    PYTHONPATH=build/compiled python -m benchmarks.metrics_cost        the compiled build

One broker in this process; rounds with and without take turns, so that whatever slows the machine slows both. A round
with metrics has as many scrapes as one every five seconds at 20,000 sends a second: one for each 100,000.
"""

import argparse
import asyncio
import gc
import statistics
import tempfile
import time

from benchmarks.broker_path import CountingTransport, chunks, feed, send_frame
from cometmq.broker.admin import settings
from cometmq.broker.server import Broker
from cometmq.net.connection import Connection
from cometmq.net.meter import Meter
from cometmq.wire.exposition import as_text

MESSAGES = 5_000
MESSAGES_PER_SCRAPE = 100_000


async def measure(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        texts = {"storePathRootDir": directory, "listenPort": "0", "mappedFileSizeCommitLog": str(1 << 28)}
        broker = Broker(settings.load(texts))
        await broker.start()
        await asyncio.sleep(2.5)
        connection = Connection(broker.server.endpoint, broker.server.dispatcher, True)
        transport = CountingTransport()
        connection.connection_made(transport)
        sends = chunks([send_frame(number, b"x" * 1024) for number in range(MESSAGES)], 4)
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 10, 10)
        meter = Meter()
        costs: dict[bool, list[float]] = {False: [], True: []}
        for number in range(2 * rounds + 2):
            is_on = number % 2 == 1
            broker.server.endpoint.meter = meter if is_on else None
            cpu_s = await feed(connection, sends)
            if number > 1:
                costs[is_on].append(cpu_s / MESSAGES)
        began_s = time.process_time()
        for _ in range(20):
            as_text(await broker.rooms.metrics.families())
        scrape_s = (time.process_time() - began_s) / 20
        assert b'"code":0' in transport.last, transport.last
        connection.connection_lost(None)
        await broker.stop()
    off_s = statistics.median(costs[False])
    on_s = statistics.median(costs[True]) + scrape_s / MESSAGES_PER_SCRAPE
    print(f"send without metrics {off_s * 1e6:.2f} us, with {on_s * 1e6:.2f} us: {on_s / off_s - 1:+.2%}")
    print(f"one scrape: {scrape_s * 1e3:.1f} ms of processor time")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    asyncio.run(measure(parser.parse_args().rounds))


if __name__ == "__main__":
    main()
