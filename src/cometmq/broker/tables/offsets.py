"""How far each consumer group has come: the next offset it wants, by topic, group and queue.

    commit        what consumers report; the last report counts, and it may go back
    pull_commit   where a group's pulls are; for figures only
    assign_reset  an operator's wish: commits are ignored until the next pull has taken it

Three tables of the same shape, topic -> group -> queue id -> offset, so that a commit is three look-ups and no new
text. On disk and on the wire the first two levels are one key, `topic@group`; RocketMQ's consumerOffset.json:

    {"dataVersion":{...},"offsetTable":{"T@g":{0:250,1:7}},"pullOffsetTable":{...}}

With light queues it is lmqConsumerOffset.json, where light groups, whose only queue is 0, are apart:

    {...,"lmqOffsetTable":{"%LMQ%T@%LMQ%g":250}}

The file is written every few seconds by a thread that reads the live tables: one queue map is copied whole, under the
interpreter's lock, and queues need not agree with each other in time. So a crash takes offsets back by some seconds,
never forward.
"""

import logging
import time
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from cometmq.broker.config import BrokerConfig
from cometmq.broker.tables.versions import first_version, next_version
from cometmq.clock import Clock
from cometmq.rate_limited_log import ThinnedLog
from cometmq.store.queues.consume_queues import LMQ_PREFIX
from cometmq.wire.bodies import ConsumerOffsetTable, DataVersion

logger = logging.getLogger(__name__)

NONE: Final = -1

# After so many keys the encoding thread lets others run: some tenths of a millisecond.
KEYS_PER_TURN: Final = 50

Queues = dict[int, int]
Table = dict[str, dict[str, Queues]]


class Offsets:
    """`changes` goes up only when something is different from before, so idle consumers cause no writes."""

    def __init__(self, config: Callable[[], BrokerConfig], clock: Clock, *, has_light: bool = False) -> None:
        self.data_version: DataVersion = first_version(clock.now_ms())
        self.changes: int = 0
        # Whether there are light queues (`enableLmq`).
        self.has_light: bool = has_light
        self._config = config
        self._clock = clock
        self._committed: Table = {}
        self._pulled: Table = {}
        self._resets: Table = {}
        self._log_back = ThinnedLog(logger, clock)
        self._commits: int = 0
        self._commits_next_version: int = config().offset_version_step

    # On the way of every consumer

    def commit(self, group: str, topic: str, queue_id: int, offset: int, client: str) -> None:
        groups = self._committed.get(topic)
        if groups is None:
            groups = self._committed[topic] = {}
        queues = groups.get(group)
        if queues is None:
            queues = groups[group] = {}
        old = queues.get(queue_id, NONE)
        if offset != old:
            queues[queue_id] = offset
            self.changes += 1
            if offset < old:
                self._log_back.warning(
                    "commit back group=%s topic=%s queue=%d offset=%d old=%d client=%s",
                    group, topic, queue_id, offset, old, client,
                )  # fmt: skip
        self._commits += 1
        if self._commits >= self._commits_next_version:
            self._commits_next_version = self._commits + self._config().offset_version_step
            self.data_version = next_version(self.data_version, self._clock.now_ms())
            self.changes += 1

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """The committed offset, or the one that a reset waits to give; NONE (-1) if there is neither."""
        if self._resets:
            reset = self._find(self._resets, group, topic).get(queue_id)
            if reset is not None:
                return reset
        return self._find(self._committed, group, topic).get(queue_id, NONE)

    def pull_commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        groups = self._pulled.get(topic)
        if groups is None:
            groups = self._pulled[topic] = {}
        queues = groups.get(group)
        if queues is None:
            queues = groups[group] = {}
        if queues.get(queue_id) != offset:
            queues[queue_id] = offset
            self.changes += 1

    def query_pull(self, group: str, topic: str, queue_id: int) -> int:
        """Where the group pulls; where it has committed, if it was not seen pulling."""
        pulled = self._find(self._pulled, group, topic).get(queue_id)
        return pulled if pulled is not None else self.query(group, topic, queue_id)

    # Reset by the server

    def assign_reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Send the group to `offset`: at its next pull if it is running, else when it comes back."""
        self._resets.setdefault(topic, {}).setdefault(group, {})[queue_id] = offset
        self._committed.setdefault(topic, {}).setdefault(group, {})[queue_id] = offset
        self.changes += 1

    def has_reset(self, group: str, topic: str, queue_id: int) -> bool:
        return bool(self._resets) and queue_id in self._find(self._resets, group, topic)

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The offset that a pull must go to, once."""
        if not self._resets:
            return None
        offset = self._find(self._resets, group, topic).pop(queue_id, None)
        if offset is not None:
            _prune(self._resets, group, topic)
        return offset

    # Administration

    def of_group(self, group: str, topic: str) -> Queues:
        """Committed offsets by queue. Not to be changed."""
        return self._find(self._committed, group, topic)

    def topics_of_group(self, group: str) -> list[str]:
        return sorted(topic for topic, groups in self._committed.items() if group in groups)

    def groups_of_topic(self, topic: str) -> list[str]:
        return sorted(self._committed.get(topic, ()))

    def groups(self) -> list[str]:
        return sorted({group for groups in self._committed.values() for group in groups})

    def clone(self, source: str, target: str, topic: str) -> None:
        """Let `target` go on where `source` is."""
        queues = self._find(self._committed, source, topic)
        if queues:
            self._committed[topic][target] = queues.copy()
            self.changes += 1

    def remove_topic(self, topic: str) -> None:
        for table in (self._committed, self._pulled, self._resets):
            if table.pop(topic, None) is not None:
                self.changes += 1

    def remove_group(self, group: str) -> None:
        for table in (self._committed, self._pulled, self._resets):
            for topic in [topic for topic, groups in table.items() if group in groups]:
                del table[topic][group]
                if not table[topic]:
                    del table[topic]
                self.changes += 1

    # The file, and what a replica copies

    def restore(self, content: bytes) -> None:
        read = ConsumerOffsetTable.decode(content)
        self._committed = _nested(read.offset_table | _light_of(read))
        self._pulled = _nested(read.pull_offset_table or {})
        self.data_version = read.data_version

    def follow(self, master: ConsumerOffsetTable) -> None:
        """Take over what another broker of the replica group has; groups that it does not know stay."""
        for mine, theirs in (
            (self._committed, master.offset_table | _light_of(master)),
            (self._pulled, master.pull_offset_table or {}),
        ):
            for topic, groups in _nested(theirs).items():
                mine.setdefault(topic, {}).update(groups)
        self.data_version = master.data_version
        self.changes += 1

    def snapshot(self) -> Callable[[], bytes]:
        version = self.data_version
        return lambda: self.encode(version, line="\n")

    def encode(self, version: DataVersion, line: str = "") -> bytes:
        """For any thread. `line` is what begins a line: nothing for the wire, a line feed for the file."""
        inner = line and line + "\t"
        members = [
            ("dataVersion", _version_text(version, inner)),
            ("offsetTable", _table_text(self._committed, inner, self.has_light)),
            # RocketMQ's replica does not know it and can skip it only if its keys are quoted. Its own master's are not.
            ("pullOffsetTable", _table_text(self._pulled, inner, quote='"' if not line else "")),
        ]
        if self.has_light:
            members.insert(1, ("lmqOffsetTable", _light_text(self._committed, inner)))
        return _object((f'"{name}":{text}' for name, text in members), line).encode()

    @staticmethod
    def _find(table: Table, group: str, topic: str) -> Queues:
        groups = table.get(topic)
        queues = groups.get(group) if groups is not None else None
        return queues if queues is not None else {}


def _light_of(read: ConsumerOffsetTable) -> dict[str, Queues]:
    """A light queue is the only one of its topic."""
    return {key: {0: offset} for key, offset in (read.lmq_offset_table or {}).items()}


def _prune(table: Table, group: str, topic: str) -> None:
    """Forget an emptied entry: look-ups in an empty table are free."""
    groups = table[topic]
    if not groups[group]:
        del groups[group]
    if not groups:
        del table[topic]


def _nested(flat: dict[str, Queues]) -> Table:
    table: Table = {}
    for key, queues in flat.items():
        # A group may contain the separator (RocketMQ writes `group@broadcast`), a topic cannot.
        topic, separator, group = key.partition("@")
        if not separator:
            logger.warning("skip offsets key=%s reason=no @ between topic and group", key)
            continue
        table.setdefault(topic, {})[group] = queues
    return table


def _version_text(version: DataVersion, line: str) -> str:
    members = (("counter", version.counter), ("stateVersion", version.state_version), ("timestamp", version.timestamp))
    return _object((f'"{name}":{value}' for name, value in members), line)


def _table_text(table: Table, line: str, without_light: bool = False, quote: str = "") -> str:
    inner = line and line + "\t"
    return _object(_entries(table, inner, without_light, quote), line)


def _light_text(table: Table, line: str) -> str:
    entries = (
        f"{_quoted(topic + '@' + group)}:{queues.get(0, 0)}"
        for topic, groups in table.copy().items()
        for group, queues in groups.copy().items()
        if group.startswith(LMQ_PREFIX)
    )
    return _object(entries, line)


def _entries(table: Table, line: str, without_light: bool, quote: str) -> Iterator[str]:
    """The loop may change the tables meanwhile; `copy()` of a dictionary is one step for it."""
    before = line and line + "\t"
    between = "," + before
    count = 0
    for topic, groups in table.copy().items():
        for group, queues in groups.copy().items():
            if queues and not (without_light and group.startswith(LMQ_PREFIX)):
                ordered = sorted(queues.copy().items())
                pairs = between.join([f"{quote}{queue_id}{quote}:{offset}" for queue_id, offset in ordered])
                yield f"{_quoted(topic + '@' + group)}:{{{before}{pairs}{line}}}"
            count += 1
            if count % KEYS_PER_TURN == 0:
                time.sleep(0)


def _object(members: Iterator[str], line: str) -> str:
    inner = line and line + "\t"
    joined = ("," + inner).join(members)
    return f"{{{inner}{joined}{line}}}" if joined else "{}"


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()
