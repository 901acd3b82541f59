"""Records for tests: one with known bytes, and a strategy for all kinds of them."""

from dataclasses import dataclass

from hypothesis import strategies as st

from cometmq.wire.hashing import crc31
from cometmq.wire.record.message import encode_host, encode_record, encode_topic

# Written by RocketMQ 5.5.0.
GOLDEN_RECORD = bytes.fromhex(
    "0000007b daa320a7 3610a686 00000001 00000007 0000000000000000 0000000000000000 00000000"
    "0000018bcfe56800 0a01020300001234 000001a1ddfd7bb0 7f00000100002a9f 00000003 0000000000000000"
    "00000005 68656c6c6f 06 546f70696341 0015 4b455953016b31206b320254414753015461674102"
)

I32 = st.integers(-(2**31), 2**31 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
HOSTS = st.tuples(
    st.one_of(st.binary(min_size=4, max_size=4), st.binary(min_size=16, max_size=16)), st.integers(0, 65535)
)

# The fields of a scan that mean something when its kind is OK.
SCANNED = (
    "kind", "size", "topic", "queue_id", "queue_offset", "physical_offset", "sys_flag", "store_timestamp_ms",
    "prepared_transaction_offset", "properties", "delay_level", "batch_size", "base_offset",
)  # fmt: skip


@dataclass
class Fields:
    """What a message is made of, with hosts of both kinds and both record versions among the drawn ones."""

    version: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: tuple[bytes, int]
    store_timestamp_ms: int
    store_host: tuple[bytes, int]
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    topic: str
    properties: bytes

    def encode(self) -> bytes:
        return encode_record(
            encode_topic(self.topic, self.version),
            self.body,
            self.properties,
            crc31(self.body),
            self.queue_id,
            self.flag,
            self.queue_offset,
            self.physical_offset,
            self.sys_flag,
            self.born_timestamp_ms,
            encode_host(self.born_host),
            self.store_timestamp_ms,
            encode_host(self.store_host),
            self.reconsume_times,
            self.prepared_transaction_offset,
        )


TOPICS = st.text("abcXYZ019_-%|", max_size=127)
FIELDS: st.SearchStrategy[Fields] = st.builds(
    Fields,
    st.sampled_from([1, 2]),
    I32,
    I32,
    I64,
    I64,
    I32,
    I64,
    HOSTS,
    I64,
    HOSTS,
    I32,
    I64,
    st.binary(),
    TOPICS,
    st.binary(max_size=300),
)
