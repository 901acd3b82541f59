"""Every record that RocketMQ left in the golden stores and frames, read and written again."""

import ipaddress
from functools import cache
from typing import Any

import pytest

from cometmq.wire.compression import decompress
from cometmq.wire.record import sysflag
from cometmq.wire.record.message import StoredMessage, decode_record, decode_records
from cometmq.wire.record.message_id import decode_offset_id, encode_offset_id, offset_id_prefix, split_ids
from cometmq.wire.record.properties import decode
from cometmq.wire.record.scan import BAD, OK, scan_record
from tests.support.golden import (
    StoreName,
    golden_commitlog,
    golden_frames,
    golden_messages,
    golden_sent,
)

both_stores = pytest.mark.parametrize("name", ["clean", "crash"])


@cache
def records(name: StoreName) -> dict[int, tuple[StoredMessage, bytes]]:
    """Decoded and raw, by physical offset. The logs fit their first file and end in zeros."""
    start, data = golden_commitlog(name)[0]
    found: dict[int, tuple[StoredMessage, bytes]] = {}
    position = 0
    while True:
        scan = scan_record(data, position, len(data), True)
        if scan.kind != OK:
            assert scan.kind == BAD
            assert not any(data[position:])
            return found
        raw = data[position : position + scan.size]
        found[start + position] = (decode_record(data, position), raw)
        position += scan.size


def java_host(host: tuple[bytes, int]) -> str:
    address, port = host
    return f"/{ipaddress.ip_address(address)}:{port}"


def as_java_reads_it(message: StoredMessage) -> dict[str, Any]:
    properties = decode(message.properties)
    body = decompress(message.body, message.sys_flag)
    return {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "commitLogOffset": message.physical_offset,
        "storeSize": message.record_bytes,
        "bodyCRC": message.body_crc,
        "flag": message.flag,
        "sysFlag": message.sys_flag & ~sysflag.COMPRESSED,
        "bornTimestamp": message.born_timestamp_ms,
        "bornHost": java_host(message.born_host),
        "storeTimestamp": message.store_timestamp_ms,
        "storeHost": java_host(message.store_host),
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "msgId": properties["UNIQ_KEY"],
        "bodyHex": body.hex(),
        "properties": properties,
    }


@both_stores
def test_every_record_encodes_back_to_its_bytes(name: StoreName) -> None:
    assert len(records(name)) > 340
    for physical_offset, (message, raw) in records(name).items():
        assert message.physical_offset == physical_offset
        assert message.encode() == raw


@both_stores
def test_every_message_reads_as_the_java_consumer_read_it(name: StoreName) -> None:
    expected = golden_messages(name)
    compressed = 0
    for java in expected:
        # The Java client adds these two on reading.
        java["properties"].pop("MIN_OFFSET")
        java["properties"].pop("MAX_OFFSET")
        message, _ = records(name)[java["commitLogOffset"]]
        assert as_java_reads_it(message) == java
        compressed += message.sys_flag & sysflag.COMPRESSED
    assert len(expected) == 311
    assert compressed > 0


@both_stores
def test_every_offset_id_that_java_reported_leads_to_its_message(name: StoreName) -> None:
    checked = 0
    for sent in golden_sent(name):
        if sent["offsetMsgId"] is None:
            continue
        pairs = zip(split_ids(sent["offsetMsgId"]), split_ids(sent["msgId"]), strict=True)
        for offset_id, unique_id in pairs:
            address, port, physical_offset = decode_offset_id(offset_id)
            message, _ = records(name)[physical_offset]
            assert message.store_host == (address, port)
            assert decode(message.properties)["UNIQ_KEY"] == unique_id
            assert encode_offset_id(offset_id_prefix(address, port), physical_offset) == offset_id
            checked += 1
    assert checked > 300


def test_messages_in_golden_answers_encode_back_to_their_bytes() -> None:
    count = 0
    for row in golden_frames():
        body = bytes.fromhex(row["frame_hex"])[-row["body_len"] :] if row["body_len"] else b""
        if body[4:8] != b"\xda\xa3\x20\xa7":
            continue
        messages = decode_records(body)
        assert b"".join(message.encode() for message in messages) == body
        count += len(messages)
    assert count > 0
