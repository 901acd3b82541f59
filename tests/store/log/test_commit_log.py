"""Checks cometmq.store.log.commit_log: what is written, what is refused, how records are numbered."""

import logging
from collections import defaultdict
from typing import Any

import pytest

from cometmq.clock import ManualClock
from cometmq.errors import StoreError
from cometmq.store.disk import DiskFull
from cometmq.store.fake_disk import FakeDisk
from cometmq.store.log import write_flags
from cometmq.store.log.commit_log import BUSY_AFTER_STALL_S, CommitLog
from cometmq.store.results import PutResult, PutStatus
from cometmq.wire.hashing import crc31
from cometmq.wire.record.batch import encode_batch
from cometmq.wire.record.crc import crc_matches
from cometmq.wire.record.layout import BLANK_BYTES, RECORD_BYTES_MIN
from cometmq.wire.record.properties import PROPERTIES_BYTES_MAX, decode
from cometmq.wire.record.sysflag import INNER_BATCH, NEEDS_UNWRAP, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from tests.support.logs import LOG_DIR, blanks, make_log, message, records

GOLDEN_RECORD = bytes.fromhex(
    "0000007bdaa320a73610a686000000010000000700000000000000000000000000000000000000000000018bcfe568000a01020300001234"
    "000001a1ddfd7bb07f00000100002a9f00000003000000000000000000000005"
    "68656c6c6f06546f7069634100154b455953016b31206b320254414753015461674102"
)
V6_HOST = bytes(range(16)) + b"\0\0\x2a\x9f"


def test_the_golden_record_of_rocketmq_is_what_append_writes() -> None:
    log = make_log(clock=ManualClock(wall_ms=0x1A1DDFD7BB0))
    request = message("TopicA", 1, b"hello", "KEYS\x01k1 k2\x02TAGS\x01TagA\x02", flag=7, reconsume_times=3)
    request.born_time_ms = 0x18BCFE56800
    request.born_host = bytes.fromhex("0a01020300001234")
    result = log.append(request)
    assert (result.status, result.record_bytes) == (PutStatus.OK, 123)
    written = log.get(0, 123)
    assert written is not None
    assert bytes(written) == GOLDEN_RECORD


def test_body_32_and_topic_6_make_129_bytes() -> None:
    assert make_log().append(message("TopicA", body=bytes(32))).record_bytes == 129


def test_ipv6_hosts_set_their_flags_and_take_20_bytes() -> None:
    log = make_log()
    plain = log.append(message()).record_bytes
    born_v6 = log.append(message(born_host=V6_HOST)).record_bytes
    log.store_host = V6_HOST
    both_v6 = log.append(message(born_host=V6_HOST, sys_flag=1)).record_bytes
    assert (born_v6, both_v6) == (plain + 12, plain + 24)
    assert [record.sys_flag for record in records(log)] == [0, 0x10, 0x31]


def test_only_a_retry_topic_over_127_bytes_makes_version_2() -> None:
    log = make_log()
    assert log.append(message("t" * 127)).status == PutStatus.OK
    assert log.append(message("%RETRY%" + "g" * 121)).status == PutStatus.OK
    assert [record.version for record in records(log)] == [1, 2]


def test_the_result_says_where_the_record_is() -> None:
    clock = ManualClock()
    log = make_log(clock=clock)
    first = log.append(message(body=b"one"))
    clock.advance(1)
    second = log.append(message(queue_id=3, body=b"two"))
    assert (first.physical_offset, first.end_offset) == (0, first.record_bytes)
    assert (second.physical_offset, second.end_offset) == (first.end_offset, log.max_offset)
    assert second.store_time_ms == first.store_time_ms + 1000 == clock.now_ms()
    assert (first.count, first.lengths, second.queue_offset) == (1, (), 0)
    assert log.read_from(log.max_offset) is None
    assert log.get(second.physical_offset, second.record_bytes + 1) is None


# Numbers


def test_each_queue_counts_for_itself() -> None:
    log = make_log()
    seen = defaultdict(list)
    for number in range(60):
        topic, queue_id = f"T{number % 3}", number % 4
        seen[topic, queue_id].append(log.append(message(topic, queue_id)).queue_offset)
    assert all(offsets == list(range(5)) for offsets in seen.values())
    assert log.counters.next_offset("T0", 0) == 5
    log.counters.drop_topic("T0")
    assert log.append(message("T0", 0)).queue_offset == 0


def test_a_refused_put_leaves_no_hole_in_the_numbers() -> None:
    disk = FakeDisk()
    log = make_log(disk, segment_bytes=4096)
    assert [log.append(message(body=bytes(1500))).queue_offset for _ in range(2)] == [0, 1]
    disk.full_after(0)
    end = log.max_offset
    refused = log.append(message(body=bytes(1500)))
    assert (refused.status, refused.physical_offset) == (PutStatus.SERVICE_NOT_AVAILABLE, -1)
    assert "no room" in refused.remark
    assert log.append_batch(message(body=encode_batch([(0, bytes(1500), b"")] * 2))).status == refused.status
    assert log.max_offset == end
    # The segment is not closed either: what is small enough still goes in.
    assert log.append(message(body=bytes(100))).queue_offset == 2
    disk.full_after(None)
    assert log.append(message(body=bytes(1500))).queue_offset == 3
    assert [record.queue_offset for record in records(log)] == [0, 1, 2, 3]


@pytest.mark.parametrize("transaction", [TRANSACTION_PREPARED, TRANSACTION_ROLLBACK])
def test_prepared_and_rolled_back_records_have_number_0_and_raise_nothing(transaction: int) -> None:
    log = make_log()
    log.append(message())
    log.append(message())
    assert log.append(message(sys_flag=transaction)).queue_offset == 0
    assert log.append(message()).queue_offset == 2
    assert [record.queue_offset for record in records(log)] == [0, 1, 0, 2]


def test_store_times_do_not_fall_when_the_clock_does() -> None:
    clock = ManualClock(wall_ms=10_000)
    log = make_log(clock=clock)
    times = []
    for wall_ms in (10_000, 10_005, 9_000, 10_004, 10_006):
        clock._wall_start_ms = wall_ms
        times.append(log.append(message()).store_time_ms)
    assert times == [10_000, 10_005, 10_005, 10_005, 10_006]


# Batches


def test_a_batch_becomes_records_of_its_own() -> None:
    log = make_log()
    log.append(message(queue_id=2))
    members = [(number, b"body %d" % number, b"k\x01%d\x02" % number) for number in range(5)]
    result = log.append_batch(message(queue_id=2, body=encode_batch(members), sys_flag=1, born_time_ms=77))
    assert (result.status, result.count, result.queue_offset) == (PutStatus.OK, 5, 1)
    written = records(log)[1:]
    assert [(record.flag, record.body, record.properties) for record in written] == members
    assert [record.queue_offset for record in written] == [1, 2, 3, 4, 5]
    assert [record.record_bytes for record in written] == list(result.lengths)
    assert sum(result.lengths) == result.record_bytes == result.end_offset - result.physical_offset
    assert {(record.sys_flag, record.born_timestamp_ms, record.store_timestamp_ms) for record in written} == {
        (1, 77, result.store_time_ms)
    }
    assert all(record.body_crc == crc31(record.body) for record in written)
    assert log.append(message(queue_id=2)).queue_offset == 6


@pytest.mark.parametrize(
    ("body", "fields", "fault"),
    [
        (b"", {}, "empty"),
        (b"\0" * 21, {}, "malformed"),
        (encode_batch([(0, b"x", b"")])[:-1], {}, "malformed"),
        (encode_batch([(0, b"x", b"")]), {"sys_flag": TRANSACTION_PREPARED}, "transaction"),
        (encode_batch([(0, b"x", b"")]), {"properties": "DELAY\x013\x02"}, "delayed"),
        (encode_batch([(0, bytes(900), b"")] * 5), {}, "maxMessageSize=4096"),
        (encode_batch([(0, bytes(1), b"")] * 60), {}, "fit no segment"),
    ],
)
def test_a_batch_that_cannot_be_is_refused_whole(body: bytes, fields: dict[str, Any], fault: str) -> None:
    log = make_log(segment_bytes=4096, message_bytes_max=4096)
    result = log.append_batch(message(body=body, **fields))
    assert (result.status, log.max_offset) == (PutStatus.MESSAGE_ILLEGAL, 0)
    assert fault in result.remark


def test_delay_level_zero_is_no_delay() -> None:
    request = message(body=encode_batch([(0, b"x", b"")]), properties="DELAY\x010\x02")
    assert make_log().append_batch(request).status == PutStatus.OK


# The end of a segment


def fill_to(log: CommitLog, left: int) -> int:
    """Append until exactly `left` bytes of the first segment are free; returns how many messages."""
    size = log.segments.segment_bytes
    count = 0
    while size - log.max_offset - left:
        rest = size - log.max_offset - left
        # The last one takes what is left, so a step must leave nothing or room for one more.
        body = rest - 97 if rest < 700 else 300
        result = log.append(message("TopicA", body=bytes(body)))
        assert result.status == PutStatus.OK
        count += 1
    return count


@pytest.mark.mission("ST-07")
@pytest.mark.parametrize("batch", [False, True], ids=["single", "batch"])
def test_every_remainder_of_a_file_ends_in_a_blank_and_loses_nothing(batch: bool) -> None:
    """Every remainder from 0 to 300: 0 to 7 cannot be reached, for a record always leaves 8 bytes."""
    for left in range(BLANK_BYTES, 301):
        log = make_log(segment_bytes=8192)
        before = fill_to(log, left)
        end = log.max_offset
        assert end == 8192 - left
        if batch:
            result = log.append_batch(message("TopicA", body=encode_batch([(0, b"a", b""), (0, b"b", b"")])))
        else:
            result = log.append(message("TopicA", body=b"ab"))
        assert result.status == PutStatus.OK
        fits = result.record_bytes + BLANK_BYTES <= left
        assert result.physical_offset == (end if fits else 8192), f"left={left}"
        assert blanks(log) == ([] if fits else [(end, left)])
        # Whole, in one segment, and every message is there.
        assert result.physical_offset // 8192 == (result.end_offset - 1) // 8192
        assert [record.queue_offset for record in records(log)] == list(range(before + result.count))


@pytest.mark.mission("ST-07")
def test_a_record_that_leaves_exactly_8_bytes_fits_and_one_byte_more_does_not() -> None:
    for extra, fits in ((0, True), (1, False)):
        log = make_log(segment_bytes=4096)
        fill_to(log, 500)
        result = log.append(message("TopicA", body=bytes(500 - BLANK_BYTES - 97 + extra)))
        assert result.physical_offset == (4096 - 500 if fits else 4096)
    # Remainders below 8 do not exist: a record that would leave one is refused its place.
    for left in range(BLANK_BYTES):
        log = make_log(segment_bytes=4096)
        at = 4096 - 500
        fill_to(log, 500)
        result = log.append(message("TopicA", body=bytes(500 - left - 97)))
        assert (result.physical_offset, blanks(log)) == (4096, [(at, 500)])


@pytest.mark.mission("ST-07")
def test_a_record_that_fits_no_file_is_refused_and_nothing_is_written() -> None:
    for used in (0, 1000):
        log = make_log(segment_bytes=4096)
        if used:
            log.append(message(body=bytes(used)))
        end, files = log.max_offset, len(log.segments.segments)
        largest = 4096 - BLANK_BYTES - RECORD_BYTES_MIN - len("TopicA")
        assert log.append(message(body=bytes(largest + 1))).status == PutStatus.MESSAGE_ILLEGAL
        assert (log.max_offset, len(log.segments.segments)) == (end, files)
        assert log.append(message(body=bytes(largest))).status == PutStatus.OK


def test_the_blank_is_not_written_before_the_next_segment_is_there() -> None:
    log = make_log(segment_bytes=4096)
    log.append(message(body=bytes(3000)))
    end = log.max_offset
    log.segments.make = lambda start: None
    refused = log.append(message(body=bytes(2000)))
    assert refused.status == PutStatus.CREATE_FILE_FAILED
    assert "not ready" in refused.remark
    assert (log.max_offset, blanks(log)) == (end, [])


def test_an_error_while_creating_a_segment_refuses_only_that_put() -> None:
    disk = FakeDisk()
    log = make_log(disk, segment_bytes=4096)
    disk.fail("allocate", 1)
    assert log.append(message()).status == PutStatus.CREATE_FILE_FAILED
    assert disk.list_files(LOG_DIR) == []
    assert log.append(message()).status == PutStatus.OK


def sparse_log(disk: FakeDisk) -> CommitLog:
    """An empty log, whose only segment has its length and no blocks."""
    disk.open(f"{LOG_DIR}/{0:020d}", 4096, create=True, allocate=False)
    log = make_log(disk, segment_bytes=4096)
    log.segments.load()
    log.segments.cut(0)
    log.refresh()
    return log


def test_a_sparse_segment_is_owned_before_the_first_byte_goes_in() -> None:
    """Java leaves its segments sparse; on a full disk, writing to such a map would end the process."""
    disk = FakeDisk()
    log = sparse_log(disk)
    disk.full_after(100)
    assert log.append(message()).status == PutStatus.SERVICE_NOT_AVAILABLE
    assert disk.read_bytes(f"{LOG_DIR}/{0:020d}") == bytes(4096)
    disk.full_after(None)
    assert log.append(message()).physical_offset == 0


# Checks


def refused_by(log: CommitLog, result: PutResult, end: int) -> int:
    assert log.max_offset == end, "a refused put moved the end of the log"
    assert result.physical_offset == result.queue_offset == -1
    assert result.remark
    return result.status


@pytest.mark.mission("ST-02")
def test_the_first_check_that_fails_decides(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    log = make_log(clock=clock)
    log.append(message())
    end = log.max_offset
    bad = message("t" * 128, body=b"", properties="p\x01" + "v" * PROPERTIES_BYTES_MAX)
    bad.body = None

    log.closed = "the store is closed"
    log.flags.set(write_flags.DISK_FULL)
    log._busy_until_s = clock.monotonic() + BUSY_AFTER_STALL_S
    assert refused_by(log, log.append(bad), end) == PutStatus.SERVICE_NOT_AVAILABLE
    assert "closed" in log.append(bad).remark
    log.closed = "this broker is a replica"
    assert "replica" in log.append(bad).remark
    log.closed = ""
    assert refused_by(log, log.append(bad), end) == PutStatus.SERVICE_NOT_AVAILABLE
    assert "disk full" in log.append(bad).remark
    log.flags.clear(write_flags.DISK_FULL)
    assert refused_by(log, log.append(bad), end) == PutStatus.MESSAGE_ILLEGAL
    assert "128 bytes, the limit is 127" in log.append(bad).remark
    bad.topic = "t" * 127
    assert refused_by(log, log.append(bad), end) == PutStatus.MESSAGE_ILLEGAL
    assert "no body" in log.append(bad).remark
    bad.body = b"body"
    assert refused_by(log, log.append(bad), end) == PutStatus.OS_PAGE_CACHE_BUSY
    clock.advance(BUSY_AFTER_STALL_S)
    assert refused_by(log, log.append(bad), end) == PutStatus.PROPERTIES_SIZE_EXCEEDED
    bad.properties = "p\x01" + "v" * (PROPERTIES_BYTES_MAX - 3) + "\x02"
    assert len(bad.properties) == PROPERTIES_BYTES_MAX
    assert log.append(bad).status == PutStatus.OK


@pytest.mark.mission("ST-02")
@pytest.mark.parametrize(
    ("topic", "accepted"),
    [
        ("t" * 127, True),
        ("t" * 128, False),
        ("%RETRY%" + "g" * 248, True),
        ("%RETRY%" + "g" * 249, False),
        ("%DLQ%" + "g" * 123, False),
        ("", False),
        ("\ud800", False),
    ],
)
def test_topics_at_their_limit_and_one_byte_over_it(topic: str, accepted: bool) -> None:
    log = make_log()
    result = log.append(message(topic))
    assert result.status == (PutStatus.OK if accepted else PutStatus.MESSAGE_ILLEGAL)
    assert (log.max_offset > 0) == accepted
    assert log.append_batch(message(topic, body=encode_batch([(0, b"", b"")]))).status == result.status


@pytest.mark.mission("ST-02")
@pytest.mark.parametrize("bit", [2, 4, 8, 16, 32, 64])
def test_every_flag_but_not_readable_stops_puts(bit: int) -> None:
    log = make_log()
    log.flags.set(bit)
    assert refused_by(log, log.append(message()), 0) == PutStatus.SERVICE_NOT_AVAILABLE
    batch = log.append_batch(message(body=encode_batch([(0, b"", b"")])))
    assert refused_by(log, batch, 0) == PutStatus.SERVICE_NOT_AVAILABLE
    log.flags.clear(bit)
    log.flags.set(write_flags.NOT_READABLE)
    assert log.append(message()).status == PutStatus.OK


@pytest.mark.mission("ST-02")
@pytest.mark.parametrize(("stall_ms", "busy"), [(1000, False), (1001, True)])
def test_an_append_over_the_limit_makes_the_store_busy_for_a_moment(stall_ms: int, busy: bool) -> None:
    clock = ManualClock()
    disk = FakeDisk()
    log = make_log(disk, clock)
    disk.on_call = lambda operation, _path: clock.advance(stall_ms / 1000) if operation == "allocate" else None
    assert log.append(message()).status == PutStatus.OK
    assert log.busy is busy
    end = log.max_offset
    if busy:
        assert refused_by(log, log.append(message()), end) == PutStatus.OS_PAGE_CACHE_BUSY
        clock.advance(BUSY_AFTER_STALL_S)
    assert log.append(message()).status == PutStatus.OK
    assert log.metrics.longest_s == pytest.approx(stall_ms / 1000)


@pytest.mark.mission("ST-02")
def test_refusals_are_logged_once_per_50_000_of_a_kind(caplog: pytest.LogCaptureFixture) -> None:
    log = make_log()
    too_long = message("t" * 128)
    no_body = message()
    no_body.body = None
    with caplog.at_level(logging.WARNING):
        for _ in range(50_000):
            log.append(too_long)
        log.append(no_body)
        assert len(caplog.records) == 2
        log.append(too_long)
    assert len(caplog.records) == 3
    assert log.metrics.failed == 50_002
    assert "seen=50001" in caplog.records[-1].getMessage()


def test_a_lone_surrogate_or_a_number_over_32_bits_is_refused() -> None:
    log = make_log()
    for request in (message(properties="k\x01\ud800\x02"), message(flag=1 << 31), message(queue_id=1 << 31)):
        assert log.append(request).status == PutStatus.MESSAGE_ILLEGAL
    assert log.max_offset == 0
    assert log.append(message()).queue_offset == 0


# Sizes


def test_body_at_the_limit_is_accepted_and_one_byte_more_is_not_until_the_limit_is_raised() -> None:
    log = make_log(segment_bytes=16 << 20)
    assert log.append(message(body=bytes(4_194_304))).status == PutStatus.OK
    end = log.max_offset
    refused = log.append(message(body=bytes(4_194_305)))
    assert (refused.status, log.max_offset) == (PutStatus.MESSAGE_ILLEGAL, end)
    assert "maxMessageSize=4194304" in refused.remark
    log.message_bytes_max = 5_000_000
    assert log.append(message(body=bytes(4_194_305))).status == PutStatus.OK


def test_the_whole_record_may_have_64_kib_more_than_the_body() -> None:
    log = make_log(message_bytes_max=100, segment_bytes=1 << 20)
    properties = "p\x01" + "v" * 32_000 + "\x02"
    assert log.append(message(body=bytes(100), properties=properties)).status == PutStatus.OK


# Property CRC


def test_with_the_setting_every_record_ends_with_its_crc() -> None:
    log = make_log(property_crc_append=True)
    log.append(message(properties="a\x011\x02__CRC32#\x010000000000\x02b\x012"))
    log.append(message(properties=""))
    log.append_batch(message(body=encode_batch([(0, b"x", b"c\x013\x02__CRC32#\x010000000000\x02"), (0, b"y", b"")])))
    written = records(log)
    assert len(written) == 4
    for record in written:
        record_bytes = log.get(record.physical_offset, record.record_bytes)
        assert record_bytes is not None
        text = record.properties.decode()
        assert text[-20:].startswith("__CRC32#\x01")
        assert text.count("__CRC32#") == 1
        assert crc_matches(record_bytes, 0, record.record_bytes, text)
    assert decode(written[0].properties)["b"] == "2"
    assert decode(written[2].properties)["c"] == "3"


def test_the_reserve_for_the_crc_counts_as_properties() -> None:
    log = make_log(property_crc_append=True)
    fits = "p\x01" + "v" * (PROPERTIES_BYTES_MAX - 23) + "\x02"
    assert log.append(message(properties=fits)).status == PutStatus.OK
    assert log.append(message(properties=fits.replace("p", "pp"))).status == PutStatus.PROPERTIES_SIZE_EXCEEDED


# Inner batches


def test_an_inner_batch_is_one_record_that_takes_inner_num_offsets() -> None:
    log = make_log()
    log.counters.is_batch_topic = lambda topic: topic == "Batches"
    sys_flag = INNER_BATCH | NEEDS_UNWRAP
    first = log.append(message("Batches", properties="INNER_NUM\x015\x02", sys_flag=sys_flag))
    second = log.append(message("Batches", properties="INNER_NUM\x013", sys_flag=sys_flag))
    assert (first.queue_offset, second.queue_offset, first.count) == (0, 5, 5)
    assert log.counters.next_offset("Batches", 0) == 8
    assert [decode(record.properties) for record in records(log)] == [
        {"INNER_NUM": "5", "INNER_BASE": "0"},
        {"INNER_NUM": "3", "INNER_BASE": "5"},
    ]


def test_a_batch_for_a_topic_of_batches_is_one_record() -> None:
    log = make_log()
    log.counters.is_batch_topic = lambda topic: topic == "Batches"
    body = encode_batch([(0, b"body %d" % number, b"") for number in range(5)])
    log.append_batch(message("Batches", body=body))
    result = log.append_batch(message("Batches", body=body, properties="UNIQ_KEY\x01u"))
    assert (result.status, result.count, result.queue_offset, result.lengths) == (PutStatus.OK, 5, 5, ())
    assert log.metrics.messages == 10
    record = records(log)[1]
    assert (record.body, record.queue_offset, record.sys_flag) == (body, 5, INNER_BATCH | NEEDS_UNWRAP)
    assert decode(record.properties) == {"UNIQ_KEY": "u", "INNER_NUM": "5", "INNER_BASE": "5"}


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        (b"", {}),
        (b"\0" * 21, {}),
        (encode_batch([(0, b"x", b"")]), {"sys_flag": TRANSACTION_PREPARED}),
        (encode_batch([(0, b"x", b"")]), {"properties": "DELAY\x013\x02"}),
        (encode_batch([(0, b"", b"")] * 32_768), {}),
    ],
)
def test_what_is_no_batch_is_refused_in_a_topic_of_batches_too(body: bytes, fields: dict[str, Any]) -> None:
    log = make_log()
    log.counters.is_batch_topic = lambda topic: topic == "Batches"
    result = log.append_batch(message("Batches", body=body, **fields))
    assert refused_by(log, result, 0) == PutStatus.MESSAGE_ILLEGAL


@pytest.mark.parametrize(
    ("topic", "properties", "sys_flag"),
    [
        ("Batches", "INNER_NUM\x015\x02", 0),
        ("Plain", "INNER_NUM\x015\x02", INNER_BATCH),
        ("Plain", "", INNER_BATCH),
        ("Batches", "INNER_NUM\x010\x02", INNER_BATCH),
        ("Batches", "INNER_NUM\x01x\x02", INNER_BATCH),
        ("Batches", "INNER_NUM\x0132768\x02", INNER_BATCH),
    ],
)
def test_batch_flag_count_and_topic_type_must_agree(topic: str, properties: str, sys_flag: int) -> None:
    log = make_log()
    log.counters.is_batch_topic = lambda topic: topic == "Batches"
    result = log.append(message(topic, properties=properties, sys_flag=sys_flag))
    assert refused_by(log, result, 0) == PutStatus.MESSAGE_ILLEGAL


# Light queues


def light_log(**options: object) -> CommitLog:
    return make_log(lmq_enabled=True, multi_dispatch_enabled=True, **options)  # type: ignore[arg-type]


def multi(log: CommitLog, names: str, topic: str = "TopicA") -> PutResult:
    return log.append(message(topic, properties=f"INNER_MULTI_DISPATCH\x01{names}\x02WAIT\x01true\x02"))


def test_each_light_queue_numbers_for_itself() -> None:
    log = light_log()
    for names in ("%LMQ%a,%LMQ%b", "%LMQ%b", "%LMQ%a,plain,%LMQ%b"):
        assert multi(log, names).status == PutStatus.OK
    assert [decode(record.properties)["INNER_MULTI_QUEUE_OFFSET"] for record in records(log)] == ["0,0", "1", "1,,2"]
    assert all("WAIT" not in decode(record.properties) for record in records(log))
    assert (log.counters.next_offset("%LMQ%a", 0), log.counters.next_offset("%LMQ%b", 0)) == (2, 3)
    assert "plain" not in log.counters.topics
    assert log.counters.light_queues == 2


def test_a_refused_put_raises_no_light_queue() -> None:
    log = light_log(message_bytes_max=200)
    request = message(properties="INNER_MULTI_DISPATCH\x01%LMQ%a\x02", body=bytes(150))
    assert log.append(request).status == PutStatus.MESSAGE_ILLEGAL
    assert (log.counters.next_offset("%LMQ%a", 0), log.counters.light_queues) == (0, 0)


def test_retry_and_system_topics_and_switched_off_stores_number_no_light_queues() -> None:
    log = light_log()
    for topic in ("%RETRY%g", "%DLQ%g", "rmq_sys_x", "SCHEDULE_TOPIC_XXXX"):
        multi(log, "%LMQ%a", topic)
    multi(off := make_log(), "%LMQ%a")
    for record in records(log) + records(off):
        assert "INNER_MULTI_QUEUE_OFFSET" not in decode(record.properties)
    assert log.counters.light_queues == 0


def test_the_quota_stops_new_light_queues_only() -> None:
    log = light_log(lmq_quota_enabled=True, lmq_queues_max=2)
    assert multi(log, "%LMQ%a,%LMQ%b").status == PutStatus.OK
    end = log.max_offset
    assert refused_by(log, multi(log, "%LMQ%a,%LMQ%c"), end) == PutStatus.LMQ_QUOTA_EXCEEDED
    assert multi(log, "%LMQ%b").status == PutStatus.OK
    log.counters.drop_topic("%LMQ%a")
    assert multi(log, "%LMQ%c").status == PutStatus.OK


# Replicas


def test_raw_bytes_of_another_log_make_the_same_log() -> None:
    master = make_log(segment_bytes=4096)
    for number in range(20):
        master.append(message(body=bytes(number * 40)))
    replica = make_log(segment_bytes=4096)
    position = 0
    while (found := master.read_from(position)) is not None:
        start, data = found
        assert start == position
        piece = data[:777]
        replica.append_raw(start, piece)
        position += len(piece)
    assert replica.max_offset == master.max_offset
    assert [record.encode() for record in records(replica)] == [record.encode() for record in records(master)]
    with pytest.raises(StoreError, match=f"this log ends at {master.max_offset}"):
        replica.append_raw(master.max_offset + 1, b"x")


def test_a_replica_owns_the_blocks_of_a_sparse_segment_before_it_writes() -> None:
    disk = FakeDisk()
    log = sparse_log(disk)
    disk.full_after(100)
    with pytest.raises(DiskFull):
        log.append_raw(0, b"bytes of the master")
    assert (log.max_offset, disk.read_bytes(f"{LOG_DIR}/{0:020d}")) == (0, bytes(4096))
    disk.full_after(None)
    log.append_raw(0, b"bytes of the master")
    assert log.max_offset == 19


def test_figures_count_messages_bytes_and_times() -> None:
    log = make_log()
    log.append(message(body=bytes(100)))
    log.append_batch(message(body=encode_batch([(0, bytes(300), b""), (0, b"", b"")])))
    no_body = message()
    no_body.body = None
    log.append(no_body)
    figures = log.metrics
    assert (figures.messages, figures.bytes, figures.failed) == (3, log.max_offset, 1)
    assert figures.largest_bytes == 300 + RECORD_BYTES_MIN + len("TopicA")
    assert sum(figures.times) == 2
