"""`cometmq send TOPIC`: messages from the command line or a pipe.

    cometmq send orders hello                              one message
    cometmq send orders --body hello --key 7 --tag created --property region=eu
    ls | cometmq send files                                one message a line
    cat orders.jsonl | cometmq send orders --jsonl         objects with body, tag, keys, properties (see tail -o json)
    cometmq send orders hello --delay 30s                  or --at 2026-11-15T12:00
    cometmq send orders hello --ordering-key customer-1    same key, same queue, in order
    cometmq send orders hello --transaction commit         as a transaction: half message, then its end

Each receipt is a line of stdout. The first failure ends it; a note says how many were sent before. Exit code 8: all are
stored, but of some the broker could not confirm what it promises (SLAVE_NOT_AVAILABLE, FLUSH_DISK_TIMEOUT and so on).
"""

import argparse
import asyncio
import sys
import time
from collections import Counter, deque
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cometmq.cli.shared import messages, output
from cometmq.cli.shared.arguments import Verb, duration, natural, pair, run_verb
from cometmq.cli.shared.connect import client_of
from cometmq.cli.shared.failures import EXIT_UNCONFIRMED
from cometmq.cli.shared.stdin_lines import lines
from cometmq.cli.shared.times import moment_ms
from cometmq.errors import CometError, ConfigError

if TYPE_CHECKING:
    from cometmq.client.client import Client
    from cometmq.client.messages import SendReceipt
    from cometmq.client.produce.producer import Producer

GROUP: Final = "cometmq-cli"
IN_FLIGHT_MAX: Final = 256


def main(argv: list[str]) -> int:
    return run_verb(SEND, argv)


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic")
    parser.add_argument("bodies", nargs="*", metavar="BODY", help="without any, and without --body: lines of stdin")
    parser.add_argument("--body", metavar="TEXT")
    parser.add_argument("--file", metavar="FILE", help="the whole file is one body; - is stdin")
    parser.add_argument("--jsonl", action="store_true", help="lines of stdin are JSON objects")
    parser.add_argument("-k", "--key", action="append", default=[], metavar="KEY", help="repeatable")
    parser.add_argument("--tag")
    parser.add_argument("-p", "--property", type=pair, action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--delay", type=duration, metavar="TIME", help="visible after 30s, 5m, 2h ...")
    parser.add_argument("--delay-level", type=natural, metavar="N", help="RocketMQ's levels 1 to 18")
    parser.add_argument("--at", metavar="MOMENT", help="visible at a time")
    parser.add_argument("--ordering-key", metavar="KEY", help="same key, same queue, one after the other")
    parser.add_argument("--transaction", choices=("commit", "rollback"), help="as a transaction with this end")
    parser.add_argument("--group", default=GROUP, help=f"producer group; default {GROUP}")
    parser.add_argument("--create", action="store_true", help="let the broker make a topic that does not exist")


async def _send(options: argparse.Namespace) -> int:
    sent = 0
    unconfirmed: Counter[str] = Counter()
    async with client_of(options) as client:
        try:
            if options.transaction:
                async for body, what in _inputs(options):
                    receipt = await _transact(client, options, body, what)
                    _show(options.output, receipt)
                    _count(unconfirmed, receipt)
                    sent += 1
            else:
                async with client.producer(options.group, allow_auto_create=options.create) as producer:
                    async for receipt in _receipts(producer, options):
                        _show(options.output, receipt)
                        _count(unconfirmed, receipt)
                        sent += 1
        except CometError:
            if sent:
                output.note(f"{sent} messages were sent before this:")
            raise
    if sent > 1:
        output.note(f"sent {sent} messages")
    for status, count in sorted(unconfirmed.items()):
        output.note(f"{count} stored but not confirmed: {status}; {_MEANINGS[status]}")
    return EXIT_UNCONFIRMED if unconfirmed else 0


_MEANINGS: Final = {
    "SLAVE_NOT_AVAILABLE": "the broker promises copies (SYNC_MASTER) and has no replica in sync: see cluster health",
    "FLUSH_SLAVE_TIMEOUT": "no replica confirmed it in time: cometmq cluster health",
    "FLUSH_DISK_TIMEOUT": "the disk did not confirm it in time (syncFlushTimeout)",
}


def _count(unconfirmed: Counter[str], receipt: "SendReceipt") -> None:
    if not receipt.is_confirmed:
        unconfirmed[receipt.status.value] += 1


async def _receipts(producer: "Producer[bytes]", options: argparse.Namespace) -> "AsyncIterator[SendReceipt]":
    """In the order of the input. Many are on their way at once, but with an ordering key one after the other.

    The first goes alone: it finds route and connection, which those behind it then use in their order.
    """
    in_flight_max = 1
    under_way: deque[asyncio.Task[SendReceipt]] = deque()
    try:
        async for body, what in _inputs(options):
            topic = what.pop("topic", options.topic)
            under_way.append(asyncio.create_task(producer.send(topic, body, **what)))
            while len(under_way) >= in_flight_max or (under_way and under_way[0].done()):
                yield await under_way.popleft()
                in_flight_max = 1 if options.ordering_key is not None else IN_FLIGHT_MAX
        while under_way:
            yield await under_way.popleft()
    finally:
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)


async def _inputs(options: argparse.Namespace) -> AsyncIterator[tuple[bytes, dict[str, Any]]]:
    """Bodies, each with what is said about it."""
    what = _what(options)
    given = [*([options.body] if options.body is not None else []), *options.bodies]
    if options.file is not None:
        yield _whole(options.file), dict(what)
        return
    for body in given:
        yield body.encode(), dict(what)
    if given:
        return
    if sys.stdin.isatty():
        output.note("sending each line of the terminal; end with Ctrl-D")
    async for line in lines(sys.stdin.buffer):
        if not options.jsonl:
            yield line, dict(what)
        elif line.strip():
            found = messages.read_fields(line)
            yield messages.body_of(found), _merged(what, messages.what_of(found))


def _whole(file: str) -> bytes:
    return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()


def _what(options: argparse.Namespace) -> dict[str, Any]:
    what: dict[str, Any] = {"tag": options.tag, "keys": options.key, "properties": dict(options.property)}
    times = {"delay": options.delay, "delay_level": options.delay_level}
    if options.at is not None:
        times["deliver_at"] = datetime.fromtimestamp(moment_ms(options.at, int(time.time() * 1000)) / 1000, UTC)
    chosen = {name: value for name, value in times.items() if value is not None}
    if len(chosen) > 1:
        raise ConfigError("--delay, --delay-level and --at: give one of them")
    if options.ordering_key is not None:
        what["ordering_key"] = options.ordering_key
    return what | chosen


def _merged(common: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """A line's own tag wins; keys and properties are put together."""
    return {
        **common,
        "tag": own["tag"] or common["tag"],
        "keys": [*common["keys"], *own["keys"]],
        "properties": {**common["properties"], **own["properties"]},
    }


async def _transact(client: "Client", options: argparse.Namespace, body: bytes, what: dict[str, Any]) -> "SendReceipt":
    from cometmq.client.produce.transactions import Tx

    end = Tx.COMMIT if options.transaction == "commit" else Tx.ROLLBACK

    async def check(_: object) -> Tx:
        return end

    what.pop("ordering_key", None)
    async with client.transaction_producer(f"{options.group}-tx", check=check) as producer:
        async with producer.begin(options.topic, body, **what) as transaction:
            if end is Tx.ROLLBACK:
                transaction.rollback()
        return transaction.receipt


def _show(form: str, receipt: "SendReceipt") -> None:
    found = {
        "id": receipt.id,
        "topic": receipt.topic,
        "broker": receipt.queue.broker_name,
        "queue": receipt.queue.queue_id,
        "offset": receipt.offset,
        "offset_id": receipt.offset_id,
        "status": receipt.status.value,
    }
    if form == "json":
        output.line(found)
    elif form == "yaml":
        print("---\n" + output.yaml(found))
    else:
        place = f"{found['broker']} {found['queue']} {found['offset']}"
        ids = f"{receipt.id}  {receipt.offset_id}" if form == "wide" else receipt.id
        print(f"{receipt.status.value}  {place}  {ids}", flush=True)


SEND: Final = Verb("send", "Send messages from the command line or a pipe.", _send, _arguments,
                   example="cometmq send orders hello --key 7 --tag created")  # fmt: skip
