# ruff: noqa: RUF012 - msgspec gives every struct its own copy of an empty default
"""The body of REGISTER_BROKER, in its three forms.

    version < 37    TopicConfigTable alone, as JSON
    plain           {"filterServerList":[...],"topicConfigSerializeWrapper":TopicConfigTable}
    compressed      a zlib stream of

        length:4 DataVersion JSON
        topics:4 { length:4 text }*         text = name read write perm filterType [attributes JSON], blank-separated
        length:4 filter server list JSON
        mappings:4 { length:4 JSON }*       from version 413 on

A registration is the one request that may be large. Where it is, it is cut into its topics, each of which is decoded
by itself, so that the thread that does it lets the event loop run in between (`decode_large`).

The compressed form loses a topic's `order` and `topic_sys_flag`. Numbers are big-endian.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from typing import Final, Self

import msgspec
from msgspec import field

from cometmq.errors import WireError
from cometmq.wire.bodies.base import (
    I32,
    REQUEST_OTHER_FORMS_BYTES_MAX,
    Body,
    check_size,
    convert,
)
from cometmq.wire.bodies.common import DataVersion
from cometmq.wire.bodies.topics import QueueMapping, TopicConfig, TopicConfigTable
from cometmq.wire.codes import Version
from cometmq.wire.fastjson.reader import loads_finite
from cometmq.wire.fastjson.writer import dumps

INFLATED_BYTES_MAX: Final = 64 * 1024 * 1024
TOPICS_MAX: Final = 65_536
ENTRY_BYTES_MAX: Final = 32_768
# Up to here a registration is decoded in one go.
WHOLE_BYTES_MAX: Final = 256 << 10
_INFLATED_AT_ONCE: Final = 1 << 20

# `"name":{...}` and the comma or brace behind it; the object has at most one level of objects inside.
_TEXT: Final = rb'"(?:[^"\\]|\\.)*+"'
_INNER: Final = rb"\{(?:" + _TEXT + rb'|[^{}"])*+\}'
_ENTRY: Final = re.compile(
    rb'\s*+"([^"\\\x00-\x1f]*+)"\s*+:\s*+(\{(?:[^{}"]++|' + _TEXT + rb"|" + _INNER + rb")*+\})\s*+([,}])", re.DOTALL
)


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
    def decode_large(cls, data: bytes, *, version: int = Version.V5_5_0, compressed: bool = False) -> Self:
        """The same of what a peer sent, for a thread: no step of it takes longer than a few milliseconds."""
        if compressed or version < Version.V3_0_11 or len(data) <= WHOLE_BYTES_MAX:
            if not compressed:
                check_size(cls.__name__, data, cls.OBJECTS_MAX)
            return cls.decode(data, version=version, compressed=compressed)
        try:
            outer = _outer.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise WireError(f"register body: {error}") from None
        topics = TopicConfigTable(
            data_version=DataVersion.decode_request(bytes(outer.topics.data_version)),
            topic_config_table=dict(_entries(bytes(outer.topics.topic_config_table))),
            topic_queue_mapping_info_map=_mappings(bytes(outer.topics.topic_queue_mapping_info_map)),
        )
        return cls(filter_server_list=_filter_servers(bytes(outer.filter_server_list)), topics=topics)

    @classmethod
    def _decode_compressed(cls, data: bytes, version: int) -> Self:
        units = _Units(_inflate(data))
        topics = TopicConfigTable(data_version=DataVersion.decode_request(units.block()))
        for _ in range(units.count()):
            config = _read_topic(units.block())
            topics.topic_config_table[config.topic_name] = config
        filter_servers = _filter_servers(units.block())
        if version >= Version.V5_0_0:
            for _ in range(units.count()):
                mapping = QueueMapping.decode_request(units.block())
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

    def count(self) -> int:
        number = self.number()
        if number > TOPICS_MAX:
            raise WireError(f"register body: {number} topics, at most {TOPICS_MAX} are allowed")
        return number

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


class _OuterTable(msgspec.Struct, rename="camel"):
    data_version: msgspec.Raw = msgspec.Raw(b"{}")
    topic_config_table: msgspec.Raw = msgspec.Raw(b"{}")
    topic_queue_mapping_info_map: msgspec.Raw = msgspec.Raw(b"{}")


class _Outer(msgspec.Struct):
    topics: _OuterTable = field(default_factory=_OuterTable, name="topicConfigSerializeWrapper")
    filter_server_list: msgspec.Raw = field(default_factory=lambda: msgspec.Raw(b"[]"), name="filterServerList")


_outer: Final = msgspec.json.Decoder(_Outer)


def _entries(table: bytes) -> Iterator[tuple[str, TopicConfig]]:
    at = table.find(b"{") + 1
    if table[at:-1].isspace() or at == len(table) - 1:
        return
    count = 0
    mark = b","
    while mark == b",":
        entry = _ENTRY.match(table, at, at + ENTRY_BYTES_MAX)
        count += 1
        if entry is None:
            raise WireError(
                f"register body: at byte {at} of the topic table is no topic of at most {ENTRY_BYTES_MAX} bytes"
            )
        if count > TOPICS_MAX:
            raise WireError(f"register body: more than {TOPICS_MAX} topics")
        name, config, mark = entry.groups()
        at = entry.end()
        try:
            yield name.decode(), TopicConfig.decode_request(config)
        except UnicodeDecodeError:
            raise WireError(f"register body: a topic name before byte {at} is not UTF-8") from None


def _mappings(table: bytes) -> dict[str, QueueMapping]:
    check_size("topicQueueMappingInfoMap", table, 10_000)
    return convert(loads_finite(table, REQUEST_OTHER_FORMS_BYTES_MAX), dict[str, QueueMapping])


def _filter_servers(data: bytes) -> list[str]:
    check_size("filterServerList", data, 0)
    return convert(loads_finite(data, REQUEST_OTHER_FORMS_BYTES_MAX), list[str])


def _inflate(data: bytes) -> bytes:
    """Piece by piece: a thread that does it lets others run, and a bomb costs no more than the limit."""
    inflater = zlib.decompressobj()
    pieces: list[bytes] = []
    size = 0
    rest = data
    try:
        while True:
            piece = inflater.decompress(rest, _INFLATED_AT_ONCE)
            rest = inflater.unconsumed_tail
            pieces.append(piece)
            size += len(piece)
            if size > INFLATED_BYTES_MAX:
                raise WireError(f"register body: inflates to more than {INFLATED_BYTES_MAX} bytes")
            if inflater.eof or (not piece and not rest):
                break
    except zlib.error as error:
        raise WireError(f"register body: not a zlib stream: {error}") from None
    if not inflater.eof:
        raise WireError("register body: the zlib stream is cut")
    return b"".join(pieces)


def _read_topic(text: bytes) -> TopicConfig:
    if len(text) > ENTRY_BYTES_MAX:
        raise WireError(f"register body: topic text of {len(text)} bytes, at most {ENTRY_BYTES_MAX} are allowed")
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
