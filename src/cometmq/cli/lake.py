"""`cometmq lake`: topics that are Iceberg tables (docs/lake.md).

    cometmq lake create orders --catalog sql:/lake/catalog.db      its table mq.orders
    cometmq lake run                                               what arrives goes to the tables, until Ctrl-C
    cometmq lake status

Catalog and warehouse: --catalog and --warehouse, else COMETMQ_LAKE_CATALOG and COMETMQ_LAKE_WAREHOUSE. Spark runs in
this process (`--master` for a cluster that sees the warehouse); `run` only needs it.
"""

import argparse
from typing import TYPE_CHECKING, Any, Final

from cometmq.cli.context import resolve
from cometmq.cli.pipeline import connection_options
from cometmq.cli.shared import output
from cometmq.cli.shared.arguments import Verb, count, duration, run_noun
from cometmq.cli.shared.connect import administration
from cometmq.errors import BrokerError, ConfigError

if TYPE_CHECKING:
    from cometmq.spark.tables.catalog import Place

ATTRIBUTE: Final = "cometmq.lake"
MESSAGES: Final = 10_000


def main(argv: list[str]) -> int:
    return run_noun("lake", "Topics that are Iceberg tables.", VERBS, argv)


def _place_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--catalog", metavar="WHERE", help="sql:FILE, sql:URI, rest:URI, glue: or a configured name")
    parser.add_argument("--warehouse", metavar="DIR", help="where files go; default: the directory of sql:FILE")


def _topics_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="default: all that have a table")
    _place_arguments(parser)


def _place(options: argparse.Namespace) -> "Place":
    try:
        import pyiceberg  # noqa: F401 - only whether it is there

        from cometmq.spark.tables.catalog import Place
    except ImportError as error:
        raise ConfigError(f"{error.name} is not installed: pip install 'cometmq[spark,lake]'") from None
    return Place.of(options.catalog, options.warehouse)


def _connection(options: argparse.Namespace) -> dict[str, str]:
    target = resolve(options)
    return {"namesrvAddr": target.namesrv, **connection_options(target)}


def _create_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    _place_arguments(parser)


async def _create(options: argparse.Namespace) -> None:
    place = _place(options)
    from cometmq.spark.tables.catalog import opened
    from cometmq.spark.tables.table import create, reached, table_name

    async with administration(options) as admin:
        await admin.describe_topic(options.topic)
        with opened(place) as catalog, reached(place):
            made = create(catalog, options.topic)
        try:
            await admin.alter_topic(options.topic, attributes={ATTRIBUTE: "iceberg"})
        except BrokerError as error:  # RocketMQ's brokers know their own attributes only
            output.note(f"a broker does not keep the attribute {ATTRIBUTE}: {error}; `lake run` goes by the catalog")
    output.record(options.output, {"topic": options.topic, "table": table_name(options.topic), "made": made})


def _run_arguments(parser: argparse.ArgumentParser) -> None:
    _topics_arguments(parser)
    parser.add_argument("--once", action="store_true", help="end when all that is there is in the tables")
    parser.add_argument("--commit-every", type=duration, default=30.0, metavar="TIME", help="default: 30s")
    parser.add_argument("--batch-every", type=duration, default=10.0, metavar="TIME", help="default: 10s")
    parser.add_argument("--rows-per-batch", type=count, default=1_000_000, metavar="N", help="default: 1000000")
    parser.add_argument("--maintain-every", type=duration, default=3600.0, metavar="TIME", help="0: never; default: 1h")
    parser.add_argument("--keep", type=duration, default=7 * 86_400.0, metavar="TIME", help="snapshots; default: 7d")
    parser.add_argument("--leave-gaps", action="store_true", help="go on without messages that the broker has deleted")
    parser.add_argument("--master", metavar="URL", help="where Spark runs; default: in this process, on all cores")


def _run(options: argparse.Namespace) -> None:
    place = _place(options)
    from cometmq.spark import session
    from cometmq.spark.tables.run import run

    output.note("lake run: starting Spark")
    spark = session("cometmq-lake", master=options.master)
    given: dict[str, Any] = _connection(options)
    if options.leave_gaps:
        given["failOnDataLoss"] = "false"
    try:
        done = run(
            spark, place=place, namesrv=given.pop("namesrvAddr"), topics=options.topics, once=options.once,
            interval_s=options.batch_every, commit_every_s=options.commit_every, keep_s=options.keep,
            maintain_every_s=options.maintain_every, rows_per_batch=options.rows_per_batch, **given,
        )  # fmt: skip
    finally:
        spark.stop()
    output.record(options.output, done.figures)


def _status(options: argparse.Namespace) -> None:
    place = _place(options)
    from cometmq.spark.tables.status import status

    found = status(place, options.topics, _connection(options))
    output.rows(
        options.output, found, ("topic", "table", "rows", "behind", "behind_s", "committed_s"),
        ("files", "bytes", "snapshots", "waiting"),
    )  # fmt: skip


def _schema_arguments(parser: argparse.ArgumentParser) -> None:
    _create_arguments(parser)
    parser.add_argument("--from-messages", action="store_true", help="columns for bodies, from the newest messages")
    parser.add_argument("--messages", type=count, default=MESSAGES, metavar="N", help=f"that many; default: {MESSAGES}")


def _schema(options: argparse.Namespace) -> None:
    place = _place(options)
    from cometmq.spark.tables.schemas import columns_of, plan

    found = (
        plan(place, options.topic, options.messages) if options.from_messages else columns_of(place, options.topic)
    )
    output.rows(options.output, found, ("column", "type", "note"))


def _compact_arguments(parser: argparse.ArgumentParser) -> None:
    _topics_arguments(parser)
    parser.add_argument("--today", action="store_true", help="also the day that is not over")


def _compact(options: argparse.Namespace) -> None:
    place = _place(options)
    from cometmq.spark.tables.upkeep import compact

    with place.locked():
        made = compact(place, options.topics, today=options.today)
    found: list[dict[str, Any]] = [
        {"topic": one.topic, "day": one.day, "files": one.files, "into": one.into, "rows": one.rows} for one in made
    ]
    output.rows(options.output, found, ("topic", "day", "files", "into", "rows"))


def _expire_arguments(parser: argparse.ArgumentParser) -> None:
    _topics_arguments(parser)
    parser.add_argument("--keep", type=duration, default=7 * 86_400.0, metavar="TIME", help="snapshots; default: 7d")
    parser.add_argument("--strays", type=duration, default=86_400.0, metavar="TIME",
                        help="files that nothing names, from this age on; default: 1d")  # fmt: skip


def _expire(options: argparse.Namespace) -> None:
    place = _place(options)
    from cometmq.spark.tables.upkeep import expire

    with place.locked():
        gone = expire(place, options.topics, keep_s=options.keep, stray_s=options.strays)
    found = [{"topic": topic, "snapshots": one[0], "files": one[1]} for topic, one in sorted(gone.items())]
    output.rows(options.output, found, ("topic", "snapshots", "files"))


VERBS: Final = (
    Verb("create", "make the table of a topic", _create, _create_arguments,
         example="cometmq lake create orders --catalog sql:/lake/catalog.db"),
    Verb("run", "write new messages to the tables, each once", _run, _run_arguments,
         example="cometmq lake run --catalog sql:/lake/catalog.db --once"),
    Verb("status", "what is in the tables, and how far they are behind", _status, _topics_arguments, watch=True),
    Verb("schema", "columns of a table, or those that its bodies could have", _schema, _schema_arguments,
         cluster=False, example="cometmq lake schema orders --from-messages"),
    Verb("compact", "join small files of days that are over", _compact, _compact_arguments, cluster=False),
    Verb("expire", "drop old snapshots and the files of no use", _expire, _expire_arguments, cluster=False),
)  # fmt: skip
