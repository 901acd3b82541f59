"""`cometmq message`: single messages, found by id, key or time; what happened to them; sending one again.

    cometmq message get ID --topic orders        ID as `send` printed it; an offset id needs no topic
    cometmq message find orders --key 7
    cometmq message find orders --from -1h --to now
    cometmq message trace ID                     needs clients that trace (producer option trace=True)
    cometmq message resend ID --topic orders     a new message with the same body, tag, keys and properties
"""

import argparse
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from cometmq.cli.shared import messages, output
from cometmq.cli.shared.arguments import Verb, count, run_noun
from cometmq.cli.shared.connect import administration
from cometmq.cli.shared.failures import EXIT_MISSING, Failure
from cometmq.cli.shared.times import moment_ms, time_text
from cometmq.errors import ConfigError, NoRoute

if TYPE_CHECKING:
    from cometmq.client.messages import Message

TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"


def main(argv: list[str]) -> int:
    return run_noun("message", "Single messages: get, find, trace, resend.", VERBS, argv)


def show(options: argparse.Namespace, found: "list[Message[bytes]]") -> None:
    """Some messages: rows of a table, or everything about them."""
    if options.output in ("json", "yaml"):
        output.rows(options.output, [messages.fields(one, options.decode) for one in found], ())
        return
    shown = [
        {
            "queue": one.queue.queue_id if one.queue is not None else None,
            "offset": one.offset,
            "id": one.id,
            "tag": one.tag,
            "keys": list(one.keys),
            "stored": time_text(one.stored_ms),
            "broker": one.queue.broker_name if one.queue is not None else None,
            "properties": one.user_properties,
            "body": messages.body_text(one.body, options.decode),
        }
        for one in found
    ]
    wide = options.output == "wide"
    columns = ("broker", "queue", "offset", "id", "tag", "keys", "stored", "properties", "body")
    output.rows(options.output, shown, columns if wide else ("queue", "offset", "id", "tag", "keys", "stored", "body"))


def decoder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--decode", choices=messages.DECODERS, default="auto")


def _get_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id")
    parser.add_argument("--topic", help="where it is; without it every topic is asked")
    decoder(parser)


async def _get(options: argparse.Namespace) -> None:
    async with administration(options) as admin:
        message = await (admin.message(options.id, options.topic) if options.topic else admin.find_message(options.id))
        groups = await admin.topic_groups(message.topic) if options.output == "wide" else []
    found = messages.fields(message, options.decode)
    if options.output == "wide":
        found["groups"] = groups
    if options.output in ("table", "wide"):
        found["born"], found["stored"] = time_text(found.pop("born_ms")), time_text(found.pop("stored_ms"))
    output.record(options.output, found)


def _find_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic")
    parser.add_argument("-k", "--key")
    parser.add_argument("--from", dest="begin", metavar="MOMENT", help="2026-11-15T12:00, or how long ago: -1h")
    parser.add_argument("--to", dest="end", metavar="MOMENT")
    parser.add_argument("-n", "--count", type=count, default=64, metavar="N", help="at most; default 64")
    decoder(parser)


async def _find(options: argparse.Namespace) -> None:
    begin, end = _moment(options.begin), _moment(options.end)
    if options.key is None and begin is None:
        raise ConfigError("find what? give --key, or --from for messages by time")
    found: list[Message[bytes]] = []
    async with administration(options) as admin:
        if options.key is not None:
            found = await admin.find(options.topic, key=options.key, begin=begin, end=end, max_messages=options.count)
        elif begin is not None:
            async for message in admin.find_by_time(options.topic, begin, end):
                found.append(message)
                if len(found) >= options.count:
                    break
    if not found:
        raise Failure(EXIT_MISSING, f"topic {options.topic} has no such message: it was deleted, or never there")
    show(options, found)
    if len(found) >= options.count:
        output.note(f"there may be more than {options.count}: --count N")


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    return datetime.fromtimestamp(moment_ms(text, int(time.time() * 1000)) / 1000, UTC)


def _trace_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id")
    parser.add_argument("--trace-topic", default=TRACE_TOPIC, metavar="TOPIC")


async def _trace(options: argparse.Namespace) -> None:
    async with administration(options) as admin:
        try:
            records = await admin.trace(options.id, trace_topic=options.trace_topic)
        except NoRoute as error:
            text = f"no broker keeps traces in {options.trace_topic}: set traceTopicEnable=true, and let clients trace"
            raise Failure(EXIT_MISSING, text) from error
    if not records:
        raise Failure(EXIT_MISSING, f"nobody traced message {options.id}: switch tracing on in producers and consumers")
    rows: list[dict[str, Any]] = [
        {
            "what": one.kind,
            "time": time_text(one.time_ms),
            "group": one.group,
            "topic": one.topic,
            "success": one.success,
            "cost_ms": one.cost_ms,
            "address": one.address,
            "outcome": one.outcome or one.state,
            "retries": one.retries,
        }
        for one in records
    ]
    columns = ("what", "time", "group", "success", "cost_ms", "outcome")
    output.rows(options.output, rows, columns, ("topic", "address", "retries"))


def _resend_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id")
    parser.add_argument("--topic", help="where it is; not needed for an offset id")
    parser.add_argument("--to", metavar="TOPIC", help="send it there; default: where it was sent first")
    parser.add_argument("--yes", action="store_true", help="do it; without this only the plan is shown")


async def _resend(options: argparse.Namespace) -> None:
    from cometmq.client.admin import origin_topic

    async with administration(options) as admin:
        message = await admin.message(options.id, options.topic)
        target = options.to or origin_topic(message)
        output.note(f"send {message.id} ({len(message.body)} bytes, tag {message.tag or '-'}) again, to {target}")
        if not options.yes:
            output.note("nothing was changed: add --yes to do it")
            return
        receipt = await admin.resend(message, target)
    output.record(options.output, {"id": message.id, "topic": target, "new_id": receipt.id})


VERBS: Final = (
    Verb("get", "one message by its id", _get, _get_arguments),
    Verb("find", "messages by key or time", _find, _find_arguments, example="cometmq message find orders --key 7"),
    Verb("trace", "who sent it, who consumed it, when", _trace, _trace_arguments),
    Verb("resend", "send one again", _resend, _resend_arguments),
)
