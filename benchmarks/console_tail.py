"""What a live tail of the console costs the broker: messages sent a second, with nobody looking and with a tail.

    python -m benchmarks.console_tail                        60 s of 5,000 messages/s, three rounds of each
    python -m benchmarks.console_tail --seconds 2 --rounds 1

A broker and a console as processes of their own; the sender is here. The promise: less than 2 % between the two.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path

from cometmq.client.client import Client

PROMISE = 0.02


async def first_words(process: asyncio.subprocess.Process, start: str) -> dict[str, str]:
    assert process.stdout is not None
    line = (await process.stdout.readline()).decode()
    assert line.startswith(start), line
    return dict(word.split("=", 1) for word in line.split()[1:] if "=" in word) | {"rest": line.split()[-1]}


async def send(client: Client, seconds: float, rate: int) -> float:
    """Messages stored a second, asked for at that rate."""
    async with client.producer("bench") as producer:
        began_s = time.perf_counter()
        sent = 0
        while (elapsed_s := time.perf_counter() - began_s) < seconds:
            due = int(elapsed_s * rate) - sent
            if due < 50:
                await asyncio.sleep(0.005)
                continue
            receipts = [producer.send_soon("clicks", b"x" * 100) for _ in range(due)]
            await asyncio.gather(*receipts)
            sent += due
        return sent / (time.perf_counter() - began_s)


async def tail(address: str) -> None:
    port = int(address.rstrip("/").rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /api/topics/clicks/tail HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    try:
        while await reader.read(65536):
            pass
    finally:
        writer.close()


async def main(seconds: float, rate: int, rounds: int) -> int:
    tool = [sys.executable, "-m", "cometmq.cli.main"]
    with tempfile.TemporaryDirectory() as folder:
        words = ["up", "--no-console", "--data", str(Path(folder, "data")), "--namesrv-port", "0", "--broker-port", "0"]
        broker = await asyncio.create_subprocess_exec(*tool, *words, stdout=asyncio.subprocess.PIPE)
        namesrv = (await first_words(broker, "ready "))["namesrv"]
        words = ["console", "--namesrv", namesrv, "--port", "0", "--state", str(Path(folder, "console"))]
        console = await asyncio.create_subprocess_exec(*tool, *words, stdout=asyncio.subprocess.PIPE)
        address = (await first_words(console, "console "))["rest"]
        alone, looked_at = [], []
        try:
            async with Client(namesrv) as client:
                async with client.admin() as admin:
                    await admin.create_topic("clicks", queues=4)
                await send(client, min(seconds, 5), rate)
                for _ in range(rounds):
                    alone.append(await send(client, seconds, rate))
                    looking = asyncio.create_task(tail(address))
                    looked_at.append(await send(client, seconds, rate))
                    looking.cancel()
                    await asyncio.gather(looking, return_exceptions=True)
        finally:
            for process in (console, broker):
                process.terminate()
                await process.wait()
    before, after = statistics.median(alone), statistics.median(looked_at)
    fall = 1 - after / before
    print(f"nobody looks {before:,.0f}/s   a tail {after:,.0f}/s   fall {fall:.1%} (promise: below {PROMISE:.0%})")
    return int(fall >= PROMISE)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    sys.exit(asyncio.run(main(options.seconds, options.rate, options.rounds)))
