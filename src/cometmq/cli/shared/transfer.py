"""`cometmq export` and `cometmq import`: messages of a topic in a file, and back.

    cometmq export orders --file orders.jsonl [--from -1d] [--to now]       JSONL: one object a line
    cometmq export orders --file orders.parquet                             with pyarrow installed
    cometmq import orders --file orders.jsonl [--rate 500]

Each object is what `tail -o json` prints. Import sends new messages with the same body, tag, keys and properties; ids
and times are new. For more than one machine can carry, use the Spark pipelines.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, contextmanager
from typing import IO, TYPE_CHECKING, Any, Final

from cometmq.cli.shared import messages, output
from cometmq.cli.shared.arguments import Verb, count, run_verb
from cometmq.cli.shared.connect import administration, client_of
from cometmq.cli.shared.failures import EXIT_FILE, Failure
from cometmq.cli.shared.progress import Counter
from cometmq.cli.shared.reading import Reader
from cometmq.cli.shared.stdin_lines import lines
from cometmq.cli.shared.times import moment_ms
from cometmq.errors import ConfigError

if TYPE_CHECKING:
    from cometmq.client.messages import SendReceipt

ROWS_AT_ONCE: Final = 1000
IN_FLIGHT_MAX: Final = 256
COLUMNS: Final = ("topic", "broker", "queue", "offset", "id", "tag", "keys", "properties", "born_ms", "stored_ms")


def main_export(argv: list[str]) -> int:
    return run_verb(EXPORT, argv)


def main_import(argv: list[str]) -> int:
    return run_verb(IMPORT, argv)


# Export


def _export_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic")
    parser.add_argument("--file", default="-", metavar="FILE", help="- is stdout; .parquet needs pyarrow")
    parser.add_argument("--from", dest="place", default="earliest", metavar="PLACE", help="default earliest")
    parser.add_argument("--to", dest="end", metavar="MOMENT", help="default: what is there now")
    parser.add_argument("--tag", default="*", metavar="A||B")


async def _export(options: argparse.Namespace) -> None:
    end_ms = moment_ms(options.end, int(time.time() * 1000)) if options.end is not None else None
    progress = Counter("exported")
    async with administration(options) as admin:
        reader = Reader(admin, options.topic, expression=options.tag)
        with _writer(options.file) as write:
            async with aclosing(reader.messages(options.place)) as arrivals:
                async for message in arrivals:
                    if end_ms is None or message.stored_ms < end_ms:
                        write(messages.fields(message))
                        progress.step()
    progress.end()


@contextmanager
def _writer(file: str) -> "Iterator[Any]":
    if file.endswith(".parquet"):
        with _parquet_writer(file) as write:
            yield write
    elif file == "-":
        yield output.line
    else:
        with open(file, "w", encoding="utf-8") as opened:
            yield _JsonLines(opened)


class _JsonLines:
    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def __call__(self, found: dict[str, Any]) -> None:
        import json

        self._file.write(json.dumps(found, ensure_ascii=False, separators=(",", ":")) + "\n")


@contextmanager
def _parquet_writer(file: str) -> "Iterator[Any]":
    arrow, parquet = _pyarrow()
    text, number = arrow.string(), arrow.int64()
    kinds = {"queue": number, "offset": number, "born_ms": number, "stored_ms": number, "keys": arrow.list_(text),
             "properties": arrow.map_(text, text)}  # fmt: skip
    schema = arrow.schema([*[(name, kinds.get(name, text)) for name in COLUMNS], ("body", arrow.binary())])
    waiting: list[dict[str, Any]] = []
    with parquet.ParquetWriter(file, schema) as opened:

        def flush() -> None:
            opened.write_table(arrow.Table.from_pylist(waiting, schema=schema))
            waiting.clear()

        def write(found: dict[str, Any]) -> None:
            row = {name: found[name] for name in COLUMNS}
            waiting.append({**row, "properties": list(row["properties"].items()), "body": messages.body_of(found)})
            if len(waiting) >= ROWS_AT_ONCE:
                flush()

        yield write
        flush()


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow  # type: ignore[import-not-found, unused-ignore]
        import pyarrow.parquet  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        text = "Parquet needs pyarrow: pip install 'cometmq[spark]', or use a .jsonl file"
        raise Failure(EXIT_FILE, text) from None
    return pyarrow, pyarrow.parquet


# Import


def _import_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", nargs="?", help="default: the topic that each message names")
    parser.add_argument("--file", default="-", metavar="FILE", help="- is stdin; .parquet needs pyarrow")
    parser.add_argument("--rate", type=count, metavar="N", help="messages a second; as fast as it goes without it")


async def _import(options: argparse.Namespace) -> None:
    progress = Counter("imported")
    started_s = time.monotonic()
    under_way: list[asyncio.Task[SendReceipt]] = []
    async with client_of(options) as client, client.producer("cometmq-import") as producer:
        try:
            async for found in _objects(options.file):
                topic = options.topic or found.get("topic")
                if not topic:
                    raise ConfigError(f"message {progress.count + 1} names no topic: cometmq import TOPIC")
                if options.rate is not None:
                    due_s = started_s + progress.count / options.rate
                    await asyncio.sleep(max(0.0, due_s - time.monotonic()))
                body, what = messages.body_of(found), messages.what_of(found)
                under_way.append(asyncio.create_task(producer.send(topic, body, **what)))
                progress.step()
                if len(under_way) >= IN_FLIGHT_MAX:
                    await asyncio.gather(*under_way)
                    under_way.clear()
            await asyncio.gather(*under_way)
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)
    progress.end()


async def _objects(file: str) -> AsyncIterator[dict[str, Any]]:
    if file.endswith(".parquet"):
        for row in _parquet_rows(file):
            yield row
        return
    source = sys.stdin.buffer if file == "-" else open(file, "rb")  # noqa: SIM115, ASYNC230 - read by another thread
    try:
        async for line in lines(source):
            if line.strip():
                yield messages.read_fields(line)
    finally:
        if file != "-":
            source.close()


def _parquet_rows(file: str) -> Iterator[dict[str, Any]]:
    import base64

    _, parquet = _pyarrow()
    for batch in parquet.ParquetFile(file).iter_batches():
        for row in batch.to_pylist():
            body = base64.b64encode(row.pop("body")).decode()
            yield {**row, "properties": dict(row["properties"] or ()), "body_base64": body}


EXPORT: Final = Verb("export", "Write messages of a topic to a file.", _export, _export_arguments, output=False,
                     example="cometmq export orders --file orders.jsonl")  # fmt: skip
IMPORT: Final = Verb("import", "Send the messages of a file.", _import, _import_arguments, output=False,
                     example="cometmq import orders --file orders.jsonl")  # fmt: skip
