# ruff: noqa: RUF012 - msgspec gives every struct its own copy of an empty default
"""The body of REGISTER_BROKER, in its three forms.

    version < 37    TopicConfigTable alone, as JSON
    plain           {"filterServerList":[...],"topicConfigSerializeWrapper":TopicConfigTable}
    compressed      a zlib stream of

        length:4 DataVersion JSON
        topics:4 { length:4 text }*         text = name read write perm filterType [attributes JSON], blank-separated
        length:4 filter server list JSON
        mappings:4 { length:4 JSON }*       from version 413 on

The compressed form loses a topic's `order` and `topic_sys_flag`. Numbers are big-endian.
"""

from __future__ import annotations

import zlib
from typing import Final, Self

from msgspec import field

from cometmq.errors import WireError
from cometmq.wire.bodies.base import I32, Body, convert
from cometmq.wire.bodies.common import DataVersion
from cometmq.wire.bodies.topics import QueueMapping, TopicConfig, TopicConfigTable
from cometmq.wire.codes import Version
from cometmq.wire.json_reader import loads_finite
from cometmq.wire.json_writer import dumps

INFLATED_BYTES_MAX: Final = 64 * 1024 * 1024


class RegisterBrokerBody(Body):
    filter_server_list: list[str] = []
    topics: TopicConfigTable = field(default_factory=TopicConfigTable, name="topicConfigSerializeWrapper")

    @classmethod
    def decode(cls, data: bytes, *, version: int = Version.V5_5_0, compressed: bool = False) -> Self:
        if not data:
            return cls()
        if version < Version.V3_0_11:
            return cls(topics=TopicConfigTable.decode(data))
        if compressed:
            return cls._decode_compressed(data, version)
        return super().decode(data)

    @classmethod
    def _decode_compressed(cls, data: bytes, version: int) -> Self:
        units = _Units(_inflate(data))
        topics = TopicConfigTable(data_version=DataVersion.decode(units.block()))
        for _ in range(units.number()):
            config = _read_topic(units.block())
            topics.topic_config_table[config.topic_name] = config
        filter_servers = convert(loads_finite(units.block()), list[str])
        if version >= Version.V5_0_0:
            for _ in range(units.number()):
                mapping = QueueMapping.decode(units.block())
                topics.topic_queue_mapping_info_map[mapping.topic or ""] = mapping
        return cls(filter_server_list=filter_servers, topics=topics)

    def encode_compressed(self, *, version: int = Version.V5_5_0) -> bytes:
        configs = self.topics.topic_config_table.values()
        parts = [_block(self.topics.data_version.encode()), _number(len(configs))]
        parts += [_block(_topic_text(config)) for config in configs]
        parts.append(_block(dumps(self.filter_server_list)))
        if version >= Version.V5_0_0:
            mappings = self.topics.topic_queue_mapping_info_map.values()
            parts.append(_number(len(mappings)))
            parts += [_block(mapping.encode()) for mapping in mappings]
        return zlib.compress(b"".join(parts), zlib.Z_BEST_COMPRESSION)


class _Units:
    """Takes numbers and blocks one after the other out of an inflated body."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self) -> int:
        return int.from_bytes(self._take(4), "big", signed=True)

    def block(self) -> bytes:
        return self._take(self.number())

    def _take(self, length: int) -> bytes:
        end = self._at + length
        if length < 0 or end > len(self._data):
            raise WireError(f"register body: {length} bytes wanted at {self._at} of {len(self._data)}")
        taken = self._data[self._at : end]
        self._at = end
        return taken


class _TopicNumbers(Body):
    """The numbers of a topic text, for their range checks."""

    read: I32
    write: I32
    perm: I32


def _inflate(data: bytes) -> bytes:
    inflater = zlib.decompressobj()
    try:
        inflated = inflater.decompress(data, INFLATED_BYTES_MAX)
    except zlib.error as error:
        raise WireError(f"register body: not a zlib stream: {error}") from None
    if inflater.unconsumed_tail:
        raise WireError(f"register body: inflates to more than {INFLATED_BYTES_MAX} bytes")
    if not inflater.eof:
        raise WireError("register body: the zlib stream is cut")
    return inflated


def _read_topic(text: bytes) -> TopicConfig:
    try:
        parts = text.decode().split(" ", 5)
    except UnicodeDecodeError as error:
        raise WireError(f"register body: topic text is not UTF-8 at byte {error.start}") from None
    if len(parts) < 5:
        raise WireError(f"register body: topic text has {len(parts)} parts, 5 or 6 are needed")
    numbers = convert(dict(zip(("read", "write", "perm"), parts[1:4], strict=True)), _TopicNumbers)
    attributes = convert(loads_finite(parts[5]), dict[str, str]) if len(parts) == 6 and parts[5] else {}
    return TopicConfig(
        topic_name=parts[0],
        read_queue_nums=numbers.read,
        write_queue_nums=numbers.write,
        perm=numbers.perm,
        topic_filter_type=parts[4],
        attributes=attributes,
    )


def _topic_text(config: TopicConfig) -> bytes:
    head = f"{config.topic_name} {config.read_queue_nums} {config.write_queue_nums} {config.perm} "
    return f"{head}{config.topic_filter_type} ".encode() + dumps(config.attributes)


def _number(value: int) -> bytes:
    return value.to_bytes(4, "big", signed=True)


def _block(data: bytes) -> bytes:
    return _number(len(data)) + data
