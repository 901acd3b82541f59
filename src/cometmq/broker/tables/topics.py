"""Topics of this broker: how many queues each has, who may use it, and how one comes into being.

    first message      send -> create_in_send         from a template topic with the inherit bit (TBW102)
    failed message     heartbeat, send back           %RETRY%group and %DLQ%group, made without a template
    operator           update, delete
    light queue        never made and in no file: with `enableLmq` every %LMQ% name is a topic of one queue

`unsaved` has the topics of which a crash would take something that readers need: settling.py holds back what
is sent to them. Whoever saves the table calls `saved`.

A `TopicConfig` in the table is a value: a change puts another one in its place, so that whoever holds one sees no half
change. Every change raises `changes`, makes a new data version, and is told to `on_change` with the topics that name
servers must hear of at once; a deletion they learn from the next full registration.

The file is RocketMQ's topics.json:

    {"dataVersion":{...},"topicConfigTable":{"T":{"perm":6,"readQueueNums":4,...}}}
"""

import logging
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from cometmq import names
from cometmq.broker.config import BrokerConfig
from cometmq.broker.tables.attributes import TOPIC_ATTRIBUTES, change_attributes
from cometmq.broker.tables.system_topics import PERM_INHERIT, PERM_READ_WRITE, system_topics
from cometmq.broker.tables.versions import first_version, next_version
from cometmq.clock import Clock
from cometmq.rate_limited_log import ThinnedLog
from cometmq.store.queues.consume_queues import LMQ_PREFIX
from cometmq.wire.bodies import DataVersion, TopicConfig, TopicConfigTable
from cometmq.wire.fastjson.dialect import dumps_pretty

logger = logging.getLogger(__name__)

# What one request may ask for. RocketMQ has no bound, and a topic of 2 billion queues stops whoever lists them.
QUEUES_MAX: Final = 65_536
PERM_MAX: Final = 15
# A page of GET_ALL_TOPIC_CONFIG has at most this many topics (RocketMQ: splitMetadataSize).
PAGE_TOPICS_MAX: Final = 2_000

UNIT_SUBSCRIPTION_FLAG: Final = 2

OnChange = Callable[[Sequence[TopicConfig]], object]


class Topics:
    """`table` is for reading. `config` is asked anew each time, because settings change while the broker runs."""

    def __init__(
        self, config: Callable[[], BrokerConfig], clock: Clock, on_change: OnChange, *, has_light: bool = False
    ) -> None:
        self.table: dict[str, TopicConfig] = {}
        self.data_version: DataVersion = first_version(clock.now_ms())
        self.changes: int = 0
        # Whether there are light queues (`enableLmq`).
        self.has_light: bool = has_light
        # Name -> the change with which the file will have it as readers need it.
        self.unsaved: dict[str, int] = {}
        self._config = config
        self._clock = clock
        self._on_change = on_change
        self._log_refused = ThinnedLog(logger, clock)
        self._own_names: set[str] = set()
        self._sorted_names: list[str] | None = None

    # Asking

    def get(self, name: str) -> TopicConfig | None:
        found = self.table.get(name)
        if found is None and self.has_light and name.startswith(LMQ_PREFIX):
            return TopicConfig(topic_name=name, read_queue_nums=1, write_queue_nums=1, perm=PERM_READ_WRITE)
        return found

    def is_system(self, name: str) -> bool:
        """Made by servers; neither clients nor operators may redefine it."""
        return name in self._own_names or names.is_system_topic(name)

    def system_names(self) -> list[str]:
        return sorted(self._own_names | names.SYSTEM_TOPICS)

    def is_ordered(self, name: str) -> bool:
        topic = self.table.get(name)
        return topic is not None and topic.order

    def page(self, version: DataVersion | None, start: int, count: int) -> dict[str, TopicConfig]:
        """`count` topics by name from the `start`-th on; from the first on if the caller's version is not ours."""
        if self._sorted_names is None:
            self._sorted_names = sorted(self.table)
        first = max(start, 0) if version == self.data_version else 0
        page = self._sorted_names[first : first + max(min(count, PAGE_TOPICS_MAX), 0)]
        return {name: self.table[name] for name in page}

    # Creating and changing

    def create_in_send(self, topic: str, default_topic: str, queues: int, sys_flag: int) -> TopicConfig | None:
        """The topic of a message that is being sent; None if it is not there and may not be made.

        `topic` has passed `names.topic_fault`. `queues` is the producer's wish.
        """
        existing = self.table.get(topic)
        if existing is not None:
            return existing
        template = self.table.get(default_topic)
        if template is None or not self._may_inherit(template):
            self._log_refused.warning(
                "refuse topic=%s template=%s known=%s", topic, default_topic, template is not None
            )
            return None
        queues = max(0, min(queues, template.write_queue_nums))
        created = TopicConfig(
            topic_name=topic,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=template.perm & ~PERM_INHERIT,
            topic_sys_flag=sys_flag,
            topic_filter_type=template.topic_filter_type,
        )
        logger.info("create topic=%s template=%s queues=%d", topic, default_topic, queues)
        self._put(created)
        return created

    def _may_inherit(self, template: TopicConfig) -> bool:
        if template.topic_name == names.AUTO_CREATE_TOPIC and not self._config().auto_create_topic:
            return False
        return template.perm & PERM_INHERIT != 0

    def create_in_send_back(
        self, topic: str, queues: int, perm: int, *, order: bool | None = None, sys_flag: int = 0
    ) -> TopicConfig:
        """A retry or dead letter topic. One that exists stays as it is, but for a known and different `order`."""
        existing = self.table.get(topic)
        if existing is not None and (order is None or order == existing.order):
            return existing
        if existing is not None:
            topic_config = msgspec.structs.replace(existing, order=order)
        else:
            queues = max(0, queues)
            topic_config = TopicConfig(
                topic_name=topic,
                read_queue_nums=queues,
                write_queue_nums=queues,
                perm=perm,
                order=bool(order),
                topic_sys_flag=sys_flag,
            )
            logger.info("create topic=%s queues=%d", topic, queues)
        self._put(topic_config)
        return topic_config

    def changed(self, wanted: TopicConfig, changes: Mapping[str, str]) -> TopicConfig | None:
        """What `wanted` comes to with the attributes changed by `changes`; None if nothing is new. Alters nothing."""
        current = self.table.get(wanted.topic_name)
        attributes = change_attributes(current.attributes if current else None, changes, TOPIC_ATTRIBUTES)
        final = msgspec.structs.replace(wanted, attributes=attributes)
        return None if final == current else final

    def update(self, topics: Iterable[TopicConfig]) -> None:
        """Create or replace; all of them are one change."""
        updated = list(topics)
        for topic in updated:
            old = self.table.get(topic.topic_name)
            logger.info("update topic=%s old=%s new=%s", topic.topic_name, old, topic)
            self._note_unsaved(old, topic)
            self.table[sys.intern(topic.topic_name)] = topic
        self._raise_version(updated)

    def delete(self, name: str) -> bool:
        if name not in self.table:
            return False
        logger.info("delete topic=%s", name)
        del self.table[name]
        self._raise_version([])
        return True

    def set_ordered(self, ordered: Iterable[str]) -> None:
        """Mark the topics that the name servers list as ordered."""
        current = [self.table[name] for name in ordered if name in self.table]
        marked = [msgspec.structs.replace(topic, order=True) for topic in current if not topic.order]
        if marked:
            self.table.update({topic.topic_name: topic for topic in marked})
            self._raise_version(marked)

    def touch(self) -> None:
        """A new version without another change, as when the broker's own permission changed."""
        self._raise_version([])

    def make_system_topics(self) -> None:
        """At the start, after `restore`: what is missing is made, what is there stays. Not a change of version."""
        if self._renew_system_topics() is not None:
            self.changes += 1

    def follow_settings(self) -> None:
        """While running, when settings have changed: a switch of auto-creation adds or removes its template."""
        made = self._renew_system_topics()
        if made is not None:
            self._raise_version(made)

    def _renew_system_topics(self) -> list[TopicConfig] | None:
        """The topics that were made; None if everything was as it should be."""
        wanted = system_topics(self._config())
        self._own_names = set(wanted)
        missing = [topic for name, topic in wanted.items() if name not in self.table]
        self.table.update({topic.topic_name: topic for topic in missing})
        dropped = names.AUTO_CREATE_TOPIC not in wanted and self.table.pop(names.AUTO_CREATE_TOPIC, None) is not None
        self._sorted_names = None
        return missing if missing or dropped else None

    # The file, and what a replica copies

    def restore(self, content: bytes) -> None:
        self._replace(TopicConfigTable.decode(content))

    def follow(self, master: TopicConfigTable) -> None:
        """Be as the master is, version included."""
        self._replace(master)
        self.changes += 1
        self._on_change([])

    def _replace(self, read: TopicConfigTable) -> None:
        self.table = {
            sys.intern(name): topic if topic.topic_name else msgspec.structs.replace(topic, topic_name=name)
            for name, topic in read.topic_config_table.items()
        }
        self.data_version = read.data_version
        self._sorted_names = None

    def snapshot(self) -> Callable[[], bytes]:
        content = {"dataVersion": self.data_version, "topicConfigTable": self.table.copy()}
        return lambda: dumps_pretty(content)

    def saved(self, changes: int) -> None:
        """The file has the table as it was when `changes` was this."""
        if self.unsaved:
            self.unsaved = {name: needed for name, needed in self.unsaved.items() if needed > changes}

    def _note_unsaved(self, old: TopicConfig | None, new: TopicConfig) -> None:
        """Before the change is counted: what a reader needs of a topic is that it is there, its queues and its perm."""
        if old is None or _for_readers(old) != _for_readers(new):
            self.unsaved[sys.intern(new.topic_name)] = self.changes + 1

    def _put(self, topic: TopicConfig) -> None:
        self._note_unsaved(self.table.get(topic.topic_name), topic)
        self.table[sys.intern(topic.topic_name)] = topic
        self._raise_version([topic])

    def _raise_version(self, changed: Sequence[TopicConfig]) -> None:
        self.data_version = next_version(self.data_version, self._clock.now_ms())
        self.changes += 1
        self._sorted_names = None
        self._on_change(changed)


def _for_readers(topic: TopicConfig) -> tuple[int, int, int]:
    return topic.read_queue_nums, topic.write_queue_nums, topic.perm
