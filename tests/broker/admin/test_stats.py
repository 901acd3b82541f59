"""Figures as an operator sees them: after a known workload they are known numbers."""

import time
from pathlib import Path
from typing import Any

import pytest

from cometmq.clock import ManualClock
from cometmq.wire.bodies import (
    BrokerConsumeStats,
    BrokerStatsData,
    ConsumeQueuePage,
    ConsumeStats,
    ConsumeTimeSpans,
    KVTable,
    MessageQueue,
    QueueProgress,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicOffset,
    TopicStats,
)
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import request
from cometmq.wire.hashing import java_string_hash
from tests.broker.running import Running, Session, running_broker

# What mqadmin's clusterList, brokerStatus and the dashboard read as numbers.
NUMBERS = (
    "bootTimestamp", "putMessageEntireTimeMax", "putMessageTimesTotal", "putMessageFailedTimes", "putMessageSizeTotal",
    "putMessageAverageSize", "dispatchMaxBuffer", "getMessageEntireTimeMax", "putLatency99", "putLatency999",
    "commitLogDiskRatio", "consumeQueueDiskRatio", "commitLogMinOffset", "commitLogMaxOffset",
    "msgPutTotalYesterdayMorning", "msgPutTotalTodayMorning", "msgPutTotalTodayNow", "msgGetTotalYesterdayMorning",
    "msgGetTotalTodayMorning", "msgGetTotalTodayNow", "dispatchBehindBytes", "pageCacheLockTimeMills",
    "earliestMessageTimeStamp", "startAcceptSendRequestTimeStamp", "timerReadBehind", "timerOffsetBehind",
    "timerCongestNum", "timerEnqueueTps", "timerDequeueTps", "remainTransientStoreBufferNumbs",
    "sendThreadPoolQueueSize", "sendThreadPoolQueueCapacity", "sendThreadPoolQueueHeadWaitTimeMills",
    "pullThreadPoolQueueSize", "pullThreadPoolQueueCapacity", "pullThreadPoolQueueHeadWaitTimeMills",
    "litePullThreadPoolQueueSize", "litePullThreadPoolQueueCapacity", "litePullThreadPoolQueueHeadWaitTimeMills",
    "queryThreadPoolQueueSize", "queryThreadPoolQueueCapacity", "queryThreadPoolQueueHeadWaitTimeMills",
    "ackThreadPoolQueueSize", "ackThreadPoolQueueCapacity", "ackThreadPoolQueueHeadWaitTimeMills",
    "EndTransactionQueueSize", "EndTransactionThreadPoolQueueCapacity",
)  # fmt: skip
RATES = ("putTps", "getFoundTps", "getMissTps", "getTotalTps", "getTransferredTps")
TEXTS = (
    "runtime", "brokerActive", "brokerVersionDesc", "putMessageDistributeTime", "remainHowManyDataToFlush",
    "commitLogDirCapacity",
)  # fmt: skip


async def runtime(session: Session) -> dict[str, str]:
    answer = await session.ask(Request.GET_BROKER_RUNTIME_INFO)
    assert answer.code == Response.SUCCESS
    return KVTable.decode(answer.body).table


async def figure(session: Session, name: str, key: str) -> BrokerStatsData:
    answer = await session.ask(Request.VIEW_BROKER_STATS_DATA, statsName=name, statsKey=key)
    assert answer.code == Response.SUCCESS, answer.remark
    return BrokerStatsData.decode(answer.body)


def add_topic(running: Running, name: str, queues: int, order: bool = False) -> None:
    topic = TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, order=order)
    running.broker.tables.topics.update([topic])


@pytest.mark.mission("MO-01")
async def test_after_a_known_workload_requests_28_and_315_say_exactly_what_was_done(tmp_path: Path) -> None:
    """Ten messages a second for 100 s to one topic, half as many to another; one group reads all of the first."""
    clock = ManualClock()
    async with running_broker(tmp_path, clock, mappedFileSizeCommitLog=8 << 20) as running:
        session = await running.connect()
        broker = running.broker
        for second in range(100):
            for number in range(10):
                await session.send_message("T", b"x" * 100, queue_id=number % 2, properties="UNIQ_KEY\x01u\x02")
                if number % 2:
                    await session.send_message("U", b"x" * 100, properties="UNIQ_KEY\x01u\x02")
            assert (await session.send_message("bad/name")).code == Response.INVALID_PARAMETER
            for queue_id in (0, 1):
                found = await session.pull("T", second * 5, queue_id=queue_id)
                assert found.code == Response.SUCCESS
                missed = await session.pull("T", second * 5 + 5, queue_id=queue_id)
                assert missed.code == Response.PULL_NOT_FOUND
            clock.advance(1)
        size = broker.store.log.max_offset // 1500

        table = await runtime(session)
        assert int(table["putMessageTimesTotal"]) == 1500
        assert int(table["putMessageSizeTotal"]) == broker.store.log.max_offset == int(table["commitLogMaxOffset"])
        assert float(table["putMessageAverageSize"]) == broker.store.log.max_offset / 1500
        assert (table["msgPutTotalTodayNow"], table["msgGetTotalTodayNow"]) == ("1500", "1000")
        assert table["runtime"] == "[ 0 days, 0 hours, 1 minutes, 40 seconds ]"
        for key, expected in (("putTps", 15.0), ("getFoundTps", 2.0), ("getMissTps", 2.0), ("getTotalTps", 4.0),
                              ("getTransferredTps", 10.0)):  # fmt: skip
            rates = [float(text) for text in table[key].split(" ")]
            assert rates == [pytest.approx(expected, rel=0.1)] * 3, key

        minute = (await figure(session, "TOPIC_PUT_NUMS", "T")).stats_minute
        assert (minute.sum, minute.avgpt) == (600, 1.0)
        assert minute.tps == pytest.approx(10.0, rel=0.1)
        assert (await figure(session, "TOPIC_PUT_SIZE", "U")).stats_minute.sum == 300 * size
        assert (await figure(session, "BROKER_PUT_NUMS", "DefaultCluster")).stats_minute.sum == 900
        group = (await figure(session, "GROUP_GET_NUMS", "T@g")).stats_minute
        assert (group.sum, group.avgpt) == (600, 5.0)
        assert (await figure(session, "GROUP_GET_SIZE", "T@g")).stats_minute.sum == 600 * size
        assert (await figure(session, "GROUP_GET_FALL_SIZE", "1@T@g")).stats_minute.sum == 2 * size
        assert (await figure(session, "GROUP_GET_FALL_TIME", "1@T@g")).stats_minute.sum == 0


@pytest.mark.mission("MO-01")
async def test_puts_that_the_store_refuses_and_the_slowest_put_and_get_are_shown(tmp_path: Path) -> None:
    async with running_broker(tmp_path, maxMessageSize=1000) as running:
        session = await running.connect()
        assert (await session.send_message("T", b"x" * 1001)).code == Response.MESSAGE_ILLEGAL
        assert (await session.send_message("T", b"x" * 1000)).code == Response.SUCCESS
        running.broker.store.log.metrics.took(0.7)
        running.broker.store.reading.longest_s = 0.03
        table = await runtime(session)
        assert (table["putMessageFailedTimes"], table["putMessageTimesTotal"]) == ("1", "1")
        assert (table["putMessageEntireTimeMax"], table["getMessageEntireTimeMax"]) == ("700", "30")
        assert "[0~1ms]:1 " in table["putMessageDistributeTime"]
        assert "[500~1000ms]:1 " in table["putMessageDistributeTime"]
        assert (table["putLatency99"], table["putLatency999"]) == ("1000.00", "1000.00")


@pytest.mark.mission("MO-01")
@pytest.mark.parametrize("empty", [True, False])
async def test_every_value_can_be_read_as_what_tools_read_it_as(tmp_path: Path, empty: bool) -> None:
    async with running_broker(tmp_path) as running:
        session = await running.connect()
        if not empty:
            await session.send_message("T", properties="DELAY\x013\x02")
            await session.pull("T", 0)
        table = await runtime(session)
        assert all(table.values()), [key for key, value in table.items() if not value]
        for key in NUMBERS:
            float(table[key])
        for key in RATES:
            assert len([float(text) for text in table[key].split(" ")]) == 3
        assert set(TEXTS) <= table.keys()
        assert table["brokerVersionDesc"] == "V5_5_0"
        int(table["earliestMessageTimeStamp"])
        log_path = running.broker.store.options.commitlog_dirs()[0]
        assert table[f"commitLogDiskRatio_{log_path}"] == table["commitLogDiskRatio"]


async def test_delay_levels_show_how_far_they_are_delivered(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as running:
        session = await running.connect()
        for level in (1, 1, 3):
            await session.send_message("T", properties=f"DELAY\x01{level}\x02")
        clock.advance(2)
        table = await runtime(session)
        assert table["scheduleMessageOffset_1"] == "2,2"
        assert table.get("scheduleMessageOffset_3", "0,1") == "0,1"
        assert table["msgPutTotalTodayNow"] == "2"


@pytest.mark.mission("MO-06")
async def test_files_flush_and_dispatch_are_shown_as_they_are(tmp_path: Path) -> None:
    tomorrow = ManualClock(time.time_ns() // 1_000_000 + 86_400_000)  # by then today's files are old
    async with running_broker(tmp_path, tomorrow, maxIndexNum=50, fileReservedTime=1) as running:
        session = await running.connect()
        store = running.broker.store
        await session.send_message("T")
        store.flush_now()
        store.flush_queues_now()

        def files(table: dict[str, str]) -> tuple[int, ...]:
            names = ("mappedFiles", "mappedBytes", "queueFiles", "queueBytes")
            return tuple(int(table[f"cometmq.{name}"]) for name in names)

        start = files(await runtime(session))
        assert start[0] == len(store.segments.segments) + len(store.index.files) == 2

        for number in range(40):
            await session.send_message("U", b"x" * 100_000, queue_id=number % 4)
        table = await runtime(session)
        assert int(table["cometmq.flushBehindBytes"]) == store.log.max_offset - store.log.flushed_offset > 3 << 20
        assert table["remainHowManyDataToFlush"].endswith(" MiB")
        assert table["dispatchBehindBytes"] == "0"
        store.write_queues()
        grown = files(await runtime(session))
        assert grown[0] == len(store.segments.segments) + len(store.index.files) > start[0]
        segment_bytes = sum(segment.size for segment in store.segments.segments)
        assert grown[1] == segment_bytes + sum(file.file.size for file in store.index.files)
        assert grown[2] == start[2] + 4

        running.broker.tables.topics.delete("U")
        store.delete_topic("U")
        store.flush_now()
        store.retention.delete_by_hand()
        store.retention.run_now()
        assert (await session.ask(Request.CLEAN_EXPIRED_CONSUMEQUEUE)).code == Response.SUCCESS
        assert files(await runtime(session)) == start
        assert (await runtime(session))["cometmq.flushBehindBytes"] == "0"


async def test_parked_pulls_are_not_taken_for_a_full_queue(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as running:
        session = await running.connect()
        await session.send_message("T")
        waiting = await running.connect()
        fields = {
            "consumerGroup": "g", "topic": "T", "queueId": "0", "queueOffset": "1", "maxMsgNums": "32",
            "sysFlag": "6", "commitOffset": "0", "suspendTimeoutMillis": "15000", "subscription": "*",
            "subVersion": "0",
        }  # fmt: skip
        waiting.send(request(Request.PULL_MESSAGE, fields, opaque=9))
        while not running.broker.rooms.consume.longpoll.count:
            await session.ask(Request.GET_MAX_OFFSET, topic="T", queueId=0)
        table = await runtime(session)
        assert table["cometmq.parkedPulls"] == "1"
        assert table["pullThreadPoolQueueSize"] == "0"


async def test_a_figure_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as running:
        session = await running.connect()
        answer = await session.ask(Request.VIEW_BROKER_STATS_DATA, statsName="TOPIC_PUT_NUMS", statsKey="T")
        assert answer.code == Response.SYSTEM_ERROR
        assert answer.remark == "The stats <TOPIC_PUT_NUMS> <T> not exist"


async def test_a_topic_shows_bounds_and_last_message_of_each_queue(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as running:
        session = await running.connect()
        add_topic(running, "T", 2)
        for _ in range(5):
            await session.send_message("T", queue_id=1)
            clock.advance(2)
        answer = await session.ask(Request.GET_TOPIC_STATS_INFO, topic="T")
        stats = TopicStats.decode(answer.body)
        assert stats.offset_table == {
            MessageQueue("broker-a", 0, "T"): TopicOffset(0, 0, 0),
            MessageQueue("broker-a", 1, "T"): TopicOffset(clock.now_ms() - 2_000, 5, 0),
        }
        assert b'{{"brokerName":"broker-a","queueId":0,"topic":"T"}:{' in answer.body
        clock.advance(10)
        later = TopicStats.decode((await session.ask(Request.GET_TOPIC_STATS_INFO, topic="T")).body)
        assert later.topic_put_tps == 0.25
        unknown = await session.ask(Request.GET_TOPIC_STATS_INFO, topic="U")
        assert (unknown.code, unknown.remark) == (Response.TOPIC_NOT_EXIST, "topic[U] not exist")


async def test_a_group_shows_where_it_is_in_each_queue(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as running:
        session = await running.connect()
        offsets = running.broker.tables.offsets
        for topic in ("T", "U", "V"):
            add_topic(running, topic, 2)
        stored_ms = clock.now_ms()
        for _ in range(4):
            await session.send_message("T", queue_id=1)
            clock.advance(1)
        await session.pull("T", 0, queue_id=1, count=3)
        clock.advance(10)
        offsets.commit("g", "T", 1, 2, "test")
        offsets.commit("g", "U", 0, 0, "test")
        offsets.commit("g", "gone", 0, 7, "test")

        async def progress(**ext: Any) -> ConsumeStats:
            answer = await session.ask(Request.GET_CONSUME_STATS, consumerGroup="g", **ext)
            return ConsumeStats.decode(answer.body)

        everything = await progress()
        assert {queue.topic for queue in everything.offset_table} == {"T", "U"}
        assert everything.offset_table[MessageQueue("broker-a", 1, "T")] == QueueProgress(
            broker_offset=4, consumer_offset=2, last_timestamp=stored_ms + 1_000, pull_offset=3
        )
        assert everything.offset_table[MessageQueue("broker-a", 0, "T")] == QueueProgress()
        assert everything.consume_tps == running.broker.rooms.shared.stats.get_rate("g", "T") > 0.1

        assert {queue.topic for queue in (await progress(topic="V")).offset_table} == {"V"}
        assert {queue.topic for queue in (await progress(topic="V", topicList="T;U;")).offset_table} == {"T", "U"}


async def test_topics_that_a_live_group_no_longer_subscribes_are_left_out_unless_asked_for(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as running:
        session = await running.connect()
        add_topic(running, "T", 1)
        add_topic(running, "old", 1)
        for topic in ("T", "old"):
            running.broker.tables.offsets.commit("g", topic, 0, 0, "test")

        async def topics(**ext: Any) -> set[str]:
            answer = await session.ask(Request.GET_CONSUME_STATS, consumerGroup="g", **ext)
            return {queue.topic for queue in ConsumeStats.decode(answer.body).offset_table}

        assert await topics() == {"T", "old"}
        consumer = await running.connect()
        await consumer.join("c1", group="g", topic="T")
        assert await topics() == {"T"}
        assert await topics(topicList="old") == {"old"}


async def test_all_groups_are_shown_with_their_lag(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as running:
        session = await running.connect()
        add_topic(running, "T", 1)
        add_topic(running, "ordered", 1, order=True)
        running.broker.tables.groups.update([SubscriptionGroupConfig(group_name="g")])
        for _ in range(5):
            await session.send_message("T")
            await session.send_message("ordered")
        running.broker.tables.offsets.commit("g", "T", 0, 2, "test")
        running.broker.tables.offsets.pull_commit("g", "T", 0, 4)
        running.broker.tables.offsets.commit("g", "ordered", 0, 1, "test")

        async def stats(only_ordered: bool) -> BrokerConsumeStats:
            answer = await session.ask(Request.GET_BROKER_CONSUME_STATS, isOrder=only_ordered)
            return BrokerConsumeStats.decode(answer.body)

        everything = await stats(False)
        assert everything.broker_addr == running.broker.address
        by_group = {name: stats for entry in everything.consume_stats_list for name, stats in entry.items()}
        assert by_group["TOOLS_CONSUMER"] == []
        topics = [queue.topic for one in by_group["g"] for queue in one.offset_table]
        assert sorted(topics) == ["T", "ordered"]
        assert (everything.total_diff, everything.total_inflight_diff) == (3 + 4, 2)
        assert (await stats(True)).total_diff == 4


async def test_the_times_of_a_queue_are_shown_for_a_group(tmp_path: Path) -> None:
    clock = ManualClock()
    start = clock.now_ms()
    async with running_broker(tmp_path, clock) as running:
        session = await running.connect()
        add_topic(running, "T", 2)
        for _ in range(4):
            await session.send_message("T")
            clock.advance(1)
        running.broker.tables.offsets.commit("g", "T", 0, 2, "test")
        answer = await session.ask(Request.QUERY_CONSUME_TIME_SPAN, topic="T", group="g")
        first, empty = ConsumeTimeSpans.decode(answer.body).consume_time_span_set
        assert first.message_queue == MessageQueue("broker-a", 0, "T")
        times = (first.min_time_stamp, first.max_time_stamp, first.consume_time_stamp, first.delay_time)
        assert times == (start, start + 3_000, start + 1_000, 2_000)
        day = time.strftime("%Y-%m-%d#%H:%M:%S", time.localtime(start // 1000))
        assert first.min_time_stamp_str == f"{day}:{start % 1000:03d}"
        assert (empty.min_time_stamp, empty.max_time_stamp, empty.delay_time) == (-1, -1, 0)
        unknown = await session.ask(Request.QUERY_CONSUME_TIME_SPAN, topic="U", group="g")
        assert unknown.code == Response.TOPIC_NOT_EXIST


async def test_entries_of_a_queue_are_shown_as_they_are(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as running:
        session = await running.connect()
        for tag in ("A", "B", "A"):
            await session.send_message("T", properties=f"TAGS\x01{tag}\x02UNIQ_KEY\x01u\x02")
        size = running.broker.store.log.max_offset // 3

        async def page(**ext: Any) -> ConsumeQueuePage:
            fields: dict[str, Any] = {"topic": "T", "queueId": 0, "index": 1, "count": 10, **ext}
            answer = await session.ask(Request.QUERY_CONSUME_QUEUE, **fields)
            assert answer.code == Response.SUCCESS
            return ConsumeQueuePage.decode(answer.body)

        shown = await page()
        assert (shown.min_queue_index, shown.max_queue_index) == (0, 3)
        entries = [(entry.physic_offset, entry.physic_size, entry.tags_code) for entry in shown.queue_data]
        assert entries == [(size, size, java_string_hash("B")), (2 * size, size, java_string_hash("A"))]
        assert len((await page(index=0, count=1)).queue_data) == 1
        assert (await page(consumerGroup="g")).filter_data == "g@T is not online!"
        await session.pull("T", 0)
        with_filter = await page(consumerGroup="g")
        assert with_filter.subscription_data is not None
        assert [entry.eval for entry in with_filter.queue_data] == [True, True]
        for index in (-1, 3, 100):
            answer = await session.ask(Request.QUERY_CONSUME_QUEUE, topic="T", queueId=0, index=index, count=1)
            assert (answer.code, answer.remark) == (0, f"Index {index} of 0@T is not exist!")
        unknown = await session.ask(Request.QUERY_CONSUME_QUEUE, topic="U", queueId=0, index=0, count=1)
        assert (unknown.code, unknown.remark) == (Response.SYSTEM_ERROR, "0@U is not exist!")
