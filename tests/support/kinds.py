"""Messages of every kind that a log can hold, each made from a number: who knows the number knows the message.

A test that finds a message reads its number from the key (`K7`, or `K7.2` for the third member of a batch) and makes
it again with `plan(7)`: nothing about it has to be remembered, also not across the death of the process that put it.

    plain, large, empty     with keys, tags, a unique id, UTF-8 properties, flags
    v6                      born at an IPv6 host
    compressed              zlib body
    batch                   in the producer's form: one record for each member
    inner                   stored as one record (topic of type BatchCQ)
    prepared, rollback      in the log, in no queue
    commit                  what a committed transaction leaves
    retry                   topic of over 127 bytes: records of version 2
    delayed                 in the schedule topic, for two hours from now
    light                   also in light queues
"""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass
from functools import lru_cache

from cometmq.store.log.append import AppendRequest
from cometmq.store.results import PutResult
from cometmq.store.store import Store
from cometmq.wire.record.batch import encode_batch, split_batch
from cometmq.wire.record.message import StoredMessage
from cometmq.wire.record.properties import decode, encode
from cometmq.wire.record.sysflag import (
    COMPRESSED,
    COMPRESSION_ZLIB,
    HOSTS_V6,
    INNER_BATCH,
    NEEDS_UNWRAP,
    TRANSACTION_COMMIT,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)

KINDS = (
    "plain",
    "large",
    "empty",
    "v6",
    "compressed",
    "batch",
    "inner",
    "prepared",
    "rollback",
    "commit",
    "retry",
    "delayed",
    "light",
)
_WEIGHTS = (40, 3, 2, 8, 6, 8, 6, 4, 4, 6, 6, 6, 8)

TOPIC = "EveryKind"
TOPIC_QUEUES = 3
RETRY_TOPIC = "%RETRY%" + "g" * 130
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
LEVEL_2H = 18
INNER_TOPIC = "EveryKindInner"
INNER_QUEUES = 2
LIGHT_TOPICS = ("%LMQ%one", "%LMQ%two", "%LMQ%three")

V4_HOST = b"\x0a\x00\x00\x07\x00\x00\x1f\xbb"
V6_HOST = bytes.fromhex("20010db8000000000000000000000007") + b"\x00\x00\x1f\xbb"
BORN_MS = 1_700_000_000_000


@dataclass(frozen=True, slots=True)
class Plan:
    """`members` are key and body of what consumers see; `properties` are those of the record, but for batches."""

    serial: int
    kind: str
    topic: str
    queue_id: int
    members: tuple[tuple[str, bytes], ...]
    properties: dict[str, str]
    sys_flag: int = 0
    flag: int = 0
    born_host: bytes = V4_HOST
    light: tuple[str, ...] = ()

    @property
    def is_batch(self) -> bool:
        return self.kind == "batch"

    @property
    def in_queue(self) -> bool:
        return self.kind not in ("prepared", "rollback")

    @property
    def is_indexed(self) -> bool:
        return self.kind != "rollback"

    @property
    def queue_count(self) -> int:
        """How many queue offsets it takes."""
        return len(self.members) if self.in_queue else 0

    def record_bodies(self) -> list[bytes]:
        """The body of each record it becomes."""
        if self.kind == "inner":
            return [_packed(self.members)]
        if self.kind == "compressed":
            return [zlib.compress(self.members[0][1], 5)]
        return [body for _, body in self.members]

    def request(self, *, wait: bool = True) -> AppendRequest:
        body = _packed(self.members) if self.is_batch else self.record_bodies()[0]
        return AppendRequest(
            self.topic,
            self.queue_id,
            body,
            encode(self.properties).decode(),
            flag=self.flag,
            sys_flag=self.sys_flag,
            born_time_ms=BORN_MS + self.serial,
            born_host=self.born_host,
            wait=wait,
        )

    def put(self, store: Store, request: AppendRequest) -> PutResult:
        return store.put_batch(request) if self.is_batch else store.put(request)

    def difference(self, found: StoredMessage) -> str:
        """What is not as planned about one of its records; "" if nothing is."""
        number = 0 if "." not in key_of(found) else int(key_of(found).partition(".")[2])
        properties = decode(found.properties)
        if self.is_batch:
            wanted = {"KEYS": self.members[number][0], "member": str(number)}
        else:
            wanted = self.properties
        if (found.topic, found.queue_id) != (self.topic, self.queue_id):
            return f"is in {found.topic}-{found.queue_id}, not in {self.topic}-{self.queue_id}"
        if found.body != self.record_bodies()[number]:
            return f"has a body of {len(found.body)} other bytes"
        if any(properties.get(name) != value for name, value in wanted.items()):
            return f"has properties {properties}, not {wanted}"
        if (found.sys_flag & ~HOSTS_V6, found.born_timestamp_ms) != (self.sys_flag, BORN_MS + self.serial):
            return f"has system flag {found.sys_flag}, born at {found.born_timestamp_ms}"
        return ""


def is_batch_topic(topic: str) -> bool:
    return topic == INNER_TOPIC


def key_of(message: StoredMessage) -> str:
    return decode(message.properties).get("KEYS", "")


def serial_of(message: StoredMessage) -> int:
    """The number that the message was made from; -1 if it was not."""
    text = key_of(message).removeprefix("K").partition(".")[0]
    return int(text) if text.isdecimal() else -1


def inner_members(message: StoredMessage) -> list[bytes]:
    return [body for _, body, _ in split_batch(message.body)]


@lru_cache(maxsize=20_000)
def plan(serial: int, kind: str = "") -> Plan:
    """The same for the same number, in every process. `kind` overrides what the number would choose."""
    chance = random.Random(serial)
    chosen = chance.choices(KINDS, _WEIGHTS)[0]
    return _MAKERS.get(kind or chosen, _plain)(serial, kind or chosen, chance)


def _properties(serial: int, chance: random.Random) -> dict[str, str]:
    properties = {"KEYS": f"K{serial}"}
    if chance.random() < 0.7:
        properties["UNIQ_KEY"] = f"{serial:032X}"
    if chance.random() < 0.6:
        properties["TAGS"] = chance.choice(("TagA", "TagB", "标签C"))
    if chance.random() < 0.3:
        properties["名字"] = "值" * chance.randint(1, 60)
    return properties


def _body(chance: random.Random) -> bytes:
    return chance.randbytes(chance.choice((1, 20, 100, 400)))


def _plain(serial: int, kind: str, chance: random.Random) -> Plan:
    body = chance.randbytes(chance.randint(2000, 9000)) if kind == "large" else _body(chance)
    return Plan(
        serial,
        kind,
        TOPIC,
        chance.randrange(TOPIC_QUEUES),
        ((f"K{serial}", b"" if kind == "empty" else body),),
        _properties(serial, chance),
        flag=chance.choice((0, 7, -1)),
        born_host=V6_HOST if kind == "v6" else V4_HOST,
    )


def _compressed(serial: int, kind: str, chance: random.Random) -> Plan:
    body = b"%d " % serial * chance.randint(50, 400)
    flags = COMPRESSED | COMPRESSION_ZLIB
    return Plan(serial, kind, TOPIC, 0, ((f"K{serial}", body),), _properties(serial, chance), sys_flag=flags)


def _members(serial: int, chance: random.Random) -> tuple[tuple[str, bytes], ...]:
    return tuple((f"K{serial}.{number}", _body(chance)) for number in range(chance.randint(1, 6)))


def _packed(members: tuple[tuple[str, bytes], ...]) -> bytes:
    return encode_batch(
        (0, body, encode({"KEYS": key, "member": str(number)})) for number, (key, body) in enumerate(members)
    )


def _batch(serial: int, kind: str, chance: random.Random) -> Plan:
    return Plan(serial, kind, TOPIC, chance.randrange(TOPIC_QUEUES), _members(serial, chance), {})


def _inner(serial: int, kind: str, chance: random.Random) -> Plan:
    members = _members(serial, chance)
    properties = {"KEYS": f"K{serial}", "INNER_NUM": str(len(members)), "UNIQ_KEY": f"{serial:032X}"}
    flags = INNER_BATCH | NEEDS_UNWRAP
    return Plan(serial, kind, INNER_TOPIC, chance.randrange(INNER_QUEUES), members, properties, sys_flag=flags)


def _transaction(serial: int, kind: str, chance: random.Random) -> Plan:
    flags = {"prepared": TRANSACTION_PREPARED, "commit": TRANSACTION_COMMIT, "rollback": TRANSACTION_ROLLBACK}
    properties = {**_properties(serial, chance), "TRAN_MSG": "true", "PGROUP": "group"}
    return Plan(serial, kind, TOPIC, 1, ((f"K{serial}", _body(chance)),), properties, sys_flag=flags[kind])


def _retry(serial: int, kind: str, chance: random.Random) -> Plan:
    properties = {**_properties(serial, chance), "RETRY_TOPIC": TOPIC}
    return Plan(serial, kind, RETRY_TOPIC, 0, ((f"K{serial}", _body(chance)),), properties)


def _delayed(serial: int, kind: str, chance: random.Random) -> Plan:
    properties = {**_properties(serial, chance), "DELAY": str(LEVEL_2H), "REAL_TOPIC": TOPIC, "REAL_QID": "0"}
    return Plan(serial, kind, SCHEDULE_TOPIC, LEVEL_2H - 1, ((f"K{serial}", _body(chance)),), properties)


def _light(serial: int, kind: str, chance: random.Random) -> Plan:
    names = tuple(chance.sample(LIGHT_TOPICS, chance.randint(1, 3)))
    properties = {**_properties(serial, chance), "INNER_MULTI_DISPATCH": ",".join(names)}
    return Plan(serial, kind, TOPIC, 2, ((f"K{serial}", _body(chance)),), properties, light=names)


_MAKERS = {
    "compressed": _compressed,
    "batch": _batch,
    "inner": _inner,
    "prepared": _transaction,
    "commit": _transaction,
    "rollback": _transaction,
    "retry": _retry,
    "delayed": _delayed,
    "light": _light,
}
