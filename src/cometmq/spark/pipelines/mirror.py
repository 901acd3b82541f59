"""mirror: topics of one cluster to another, each message once, in the same queues.

    cluster A                                         cluster B
    orders queue 2 at broker-a, offset 100     ->     orders queue 2 at broker-x, with the property
                                                      CMQ_SRC = A/orders/broker-a/2/100

The source hands out ranges of offsets; a task reads its range, looks in the target queue which of it are there already,
by CMQ_SRC, and sends the others in order (`once`). The driver then publishes where they went (`mirrortable`), which is
also from where the next look begins. So a mirror may be killed anywhere: what was sent is found, what was not is sent.

A message that came from B, or went through it, is not sent back: its CMQ_SRC names B, or its CMQ_VIA, the clusters that
it has been through before its last. That cuts loops of any length, if every cluster has a name of its own.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from cometmq.client.admin import Admin
from cometmq.errors import BrokerUnknown, ConfigError, NoRoute
from cometmq.spark.live.offsets import Positions, Queue, Range
from cometmq.spark.live.remote import Remote, remote
from cometmq.spark.options import Options
from cometmq.spark.pipelines.mirror_table import Copied, Table, runs_of
from cometmq.spark.pipelines.progress import ProgressLine, follow, progress
from cometmq.spark.pipelines.steps import Summary, at
from cometmq.wire.bodies import MessageQueue
from cometmq.wire.record.properties import Property

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from cometmq.spark.live.fencing import Fence

logger = logging.getLogger(__name__)

SOURCE: Final = "CMQ_SRC"
VIA: Final = "CMQ_VIA"
WINDOW: Final = 512
PAUSE_S: Final = 0.5
# What brokers and clients of the source cluster have made of a message on its way; all else is kept.
DROPPED: Final = frozenset(
    {
        Property.DELAY, Property.REAL_TOPIC, Property.REAL_QID, Property.TRAN_MSG, Property.PGROUP, Property.MIN_OFFSET,
        Property.MAX_OFFSET, Property.TRANSACTION_CHECK_TIMES, Property.TRAN_PREPARED_QUEUE_OFFSET, Property.CLUSTER,
        Property.CHECK_IMMUNITY_TIME_IN_SECONDS, Property.POP_CK, Property.POP_CK_OFFSET, Property.FIRST_POP_TIME,
        Property.INNER_NUM, Property.INNER_BASE, Property.INNER_MULTI_DISPATCH, Property.INNER_MULTI_QUEUE_OFFSET,
        Property.TIMER_DELAY_SEC, Property.TIMER_DELAY_MS, Property.TIMER_DELIVER_MS, Property.TIMER_OUT_MS,
        Property.TIMER_ENQUEUE_MS, Property.TIMER_DEQUEUE_MS, Property.TIMER_ROLL_TIMES, Property.TIMER_DEL_UNIQKEY,
        Property.TIMER_DELAY_LEVEL, Property.CRC32,
    }
)  # fmt: skip


def mirror(
    spark: SparkSession,
    *,
    namesrv: str,
    to_namesrv: str,
    topics: str,
    state: str,
    cluster: str | None = None,
    to_cluster: str | None = None,
    brokers: str | None = None,
    groups: str | None = None,
    rows_per_batch: int = 1_000_000,
    once: bool = True,
    interval_s: float = 5.0,
    **options: str,
) -> Summary:
    """Copies what there is (`once`), or goes on until it is stopped. `state`: a directory for checkpoint and table.

    `cluster`, `to_cluster`: names of the two, if they do not know good ones. `brokers`: which broker's queues go to
    which, as a=x,b=y. `groups`: consumer groups whose positions are carried over at the end. `options`: further ones of
    the source, and with `to_` before them of the sink.
    """
    given = {"namesrvAddr": namesrv, "subscribe": topics, "startingOffsets": "earliest"}
    given |= {"maxOffsetsPerTrigger": str(rows_per_batch), "maxRecordsPerPartition": str(rows_per_batch)}
    given |= {key: value for key, value in options.items() if not key.startswith("to_")}
    sink = {key.removeprefix("to_"): value for key, value in options.items() if key.startswith("to_")}
    sink["namesrvAddr"] = to_namesrv
    link = Link.between(given, sink, cluster, to_cluster, brokers)
    table = Table(state)
    ranges = spark.readStream.format("cometmq").options(**given, emit="ranges").load()
    with progress("mirror") as line:
        batch = _Batch(link, table, line)
        writer = ranges.writeStream.foreachBatch(batch).option("checkpointLocation", f"{state}/checkpoint")
        timed = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=f"{interval_s} seconds")
        follow(timed.start(), line, count=False)
    moved = {group: carry_group(given, sink, table, group) for group in (groups or "").split(",") if group}
    figures = {"rows": batch.rows, "cut": batch.cut, "from": link.name, "to": link.to_name, "table": str(table.folder)}
    return Summary("mirror", figures | {f"group {group}": len(positions) for group, positions in moved.items()})


def translate(*, state: str, namesrv: str, group: str, **options: str) -> Positions:
    """For the offsets of a group on the mirrored cluster those on the mirror at which the same messages come next."""
    from cometmq.spark.live.source import source_options

    table = Table(state)
    cluster = remote(source_options({"namesrvAddr": namesrv, **options}))
    return table.translate(cluster.committed(group, table.sources()))


def carry_group(source: dict[str, str], sink: dict[str, str], table: Table, group: str) -> Positions:
    """A group's positions on A as positions on B; none goes back there."""
    there, here = _remotes(source, sink)
    wanted = table.translate(there.committed(group, table.sources()))
    stands = here.committed(group, wanted)
    ahead = {queue: offset for queue, offset in wanted.items() if offset > stands.get(queue, -1)}
    if ahead:
        here.commit(group, ahead)
    return ahead


def _remotes(source: dict[str, str], sink: dict[str, str]) -> tuple[Remote, Remote]:
    from cometmq.spark.live.sink import sink_options
    from cometmq.spark.live.source import source_options

    return remote(source_options(source)), remote(sink_options(sink))


class Link:
    """The two clusters: their options, their names, and which queue goes to which."""

    def __init__(
        self, source: dict[str, str], sink: dict[str, str], name: str, to_name: str, brokers: dict[str, str]
    ) -> None:
        self.source = source
        self.sink = sink
        self.name = name
        self.to_name = to_name
        self.brokers = brokers

    @classmethod
    def between(
        cls, source: dict[str, str], sink: dict[str, str], name: str | None, to_name: str | None, brokers: str | None
    ) -> Link:
        there, here = (_members(one) for one in _remotes(source, sink))
        name = name or min(there.values())
        to_name = to_name or min(here.values())
        if name == to_name:
            raise ConfigError(f"both clusters are called {name}: tell them apart with cluster=... and to_cluster=...")
        if "/" in name + to_name or "," in name + to_name:
            raise ConfigError(f"cluster names {name} and {to_name} must have no / and no comma")
        return cls(source, sink, name, to_name, _brokers(sorted(there), sorted(here), brokers))

    def target(self, queue: Queue) -> Queue:
        if queue.broker not in self.brokers:
            raise ConfigError(f"broker {queue.broker} of the source is new: say where its queues go with brokers=...")
        return Queue(queue.topic, self.brokers[queue.broker], queue.number)

    def make_room(self, queues: list[Queue]) -> None:
        """Topics and queues that the target lacks are made. A broker that is away may have them: it is waited for."""
        here = _remotes(self.source, self.sink)[1]
        wanted = {self.target(queue) for queue in queues}
        give_up_s = time.monotonic() + here.connection.retry_s
        while missing := wanted - _known(here, wanted):
            if time.monotonic() > give_up_s:
                names = ", ".join(map(str, sorted(missing)))
                raise BrokerUnknown(f"the target has no {names}, or its broker is away: see `cometmq cluster list`")
            lacking = here.gone(missing)
            for topic, broker in sorted({(queue.topic, queue.broker) for queue in lacking}):
                count = 1 + max(queue.number for queue in wanted if (queue.topic, queue.broker) == (topic, broker))
                logger.info("create topic=%s broker=%s queues=%d", topic, broker, count)
                here.run(Admin(here.instance).create_topic(topic, queues=count, broker=broker))
            if lacking != missing:
                time.sleep(PAUSE_S)


def _known(cluster: Remote, wanted: set[Queue]) -> set[Queue]:
    """The queues of these topics that a route names."""
    found: set[Queue] = set()
    for topic in sorted({queue.topic for queue in wanted}):
        with contextlib.suppress(NoRoute):
            found |= set(cluster.queues([topic]))
    return found


def _members(cluster: Remote) -> dict[str, str]:
    """Names of brokers -> of their clusters."""
    return {member.name: member.cluster for member in cluster.run(Admin(cluster.instance).members())}


def _brokers(there: list[str], here: list[str], stated: str | None) -> dict[str, str]:
    if stated is not None:
        pairs = dict(part.partition("=")[::2] for part in stated.split(","))
        strange = sorted(set(pairs.values()) - set(here))
        if strange:
            raise ConfigError(f"brokers={stated}: {', '.join(strange)} is none of {', '.join(here)}")
        return pairs
    if set(there) <= set(here):
        return dict(zip(there, there, strict=True))
    if len(there) > len(here):
        raise ConfigError(
            f"the source has the brokers {', '.join(there)}, the target only {', '.join(here)}: "
            "say which goes where with brokers=a=x,b=x"
        )
    return dict(zip(there, here, strict=False))


class _Batch:
    """What is done for each micro-batch, in the driver."""

    def __init__(self, link: Link, table: Table, line: ProgressLine) -> None:
        self.link = link
        self.table = table
        self.line = line
        self.rows = 0
        self.cut = 0

    def __call__(self, ranges: DataFrame, batch: int) -> None:
        context: Any = ranges.sparkSession.sparkContext
        query = str(context.getLocalProperty("sql.streaming.queryId"))
        if self.table.is_published(query, batch):
            logger.info("skip batch=%d: it was published", batch)
            return
        queues = [Queue(row["topic"], row["brokerName"], row["queueId"]) for row in ranges.collect()]
        self.link.make_room(queues)
        work = _Copy(self.link, {queue: self.table.end(queue) for queue in queues})
        copied = [Copied.from_json(row["stated"]) for row in ranges.mapInArrow(work, "stated STRING").collect()]
        at("written")
        self.table.publish(query, batch, copied)
        at("committed")
        self.rows += sum(one.rows for one in copied)
        self.cut += sum(one.cut for one in copied)
        self.line(rows=self.rows)


class _Copy:
    """Reads ranges and sends them; runs in the executors."""

    def __init__(self, link: Link, floors: Positions) -> None:
        self.link = link
        self.floors = floors

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            for row in batch.to_pylist():
                queue = Queue(row["topic"], row["brokerName"], row["queueId"])
                stated = self._copy(Range(queue, row["firstOffset"], row["lastOffset"])).to_json()
                yield pa.RecordBatch.from_arrays([pa.array([stated])], names=["stated"])

    def _copy(self, one: Range) -> Copied:
        from cometmq.spark.live.exactly_once import OffsetsById, marked, send_once, since
        from cometmq.spark.live.fencing import Fence
        from cometmq.spark.live.sending import producer_of
        from cometmq.spark.live.sink import sink_options

        options = sink_options(self.link.sink)
        here = remote(options)
        producer = here.run(producer_of(here, options, once=True))
        target = self.link.target(one.queue)
        prefix = f"{self.link.name}/{one.queue.topic}/{one.queue.broker}/{one.queue.number}/"
        fence = Fence(here, target.topic, f"{prefix}{one.first}-{one.last}")
        letters = _Letters(self.link, one, target, prefix, producer, fence)

        def look() -> OffsetsById:
            fence.rise()
            here.queues([target.topic])  # the route anew: a queue whose broker was away may be back
            return marked(here, since(here, [], {target: self.floors[one.queue]}), SOURCE, prefix)

        window = options.number("maxInFlight", 1) if "maxInFlight" in options.given else WINDOW
        there = send_once(here, iter(letters), look, window)
        places = [(int(offset), place) for offset, place in there.items()]
        inside = [(offset, place) for offset, place in places if one.first <= offset < one.last]
        return Copied(one.queue, target, runs_of(inside), letters.cut)


class _Letters:
    """The messages of a range, each as it is sent; those that came from the target are left out and counted."""

    def __init__(self, link: Link, one: Range, target: Queue, prefix: str, producer: Any, fence: Fence) -> None:
        self.link = link
        self.range = one
        self.queue = MessageQueue(target.broker, target.number, target.topic)
        self.prefix = prefix
        self.producer = producer
        self.fence = fence
        self.cut = 0

    def __iter__(self) -> Iterator[Any]:
        from cometmq.spark.columns import chosen
        from cometmq.spark.live.exactly_once import Pending
        from cometmq.spark.live.reading import read_range
        from cometmq.spark.live.source import pull_options, source_options

        options: Options = source_options(self.link.source)
        columns = tuple(chosen(["queueOffset", "body", "properties", "flag"]))
        for batch in read_range(remote(options), self.range, pull_options(options, columns)):
            for row in batch.to_pylist():
                properties = self._properties(dict(row["properties"] or ()), row["queueOffset"])
                if properties is None:
                    self.cut += 1
                    continue
                yield Pending(str(row["queueOffset"]), partial(self._send, row["body"], properties, row["flag"]))

    async def _send(self, body: bytes, properties: dict[str, str], flag: int) -> Any:
        fenced = properties | self.fence.mark(self.queue.broker_name)
        return await self.producer.send_record(self.queue.topic, body, fenced, flag=flag, queue=self.queue)

    def _properties(self, given: dict[str, str], offset: int) -> dict[str, str] | None:
        """None for a message that the target has had."""
        kept = {key: value for key, value in given.items() if key not in DROPPED}
        before = kept.pop(SOURCE, None)
        if before is not None:
            passed = [*filter(None, kept.get(VIA, "").split(",")), before.partition("/")[0]]
            if self.link.to_name in passed:
                return None
            kept[VIA] = ",".join(passed)
        return kept | {SOURCE: f"{self.prefix}{offset}"}
