"""Consumer groups of this broker: what each may do, and how one comes into being.

A group is made by its first use (heartbeat, pull, send back), if `autoCreateSubscriptionGroup` allows, or by an
operator. Configurations are values, as in `topics`: a change puts another one in its place. With `enableLmq` every
%LMQ% name is a group, which is never made and is in no file.

`unsaved` has the groups that a crash would take, as in `topics`.

The forbidden table bars a group from a topic: group -> topic -> bits, of which bit 2 means reading.

The file is RocketMQ's subscriptionGroup.json:

    {"dataVersion":{...},"forbiddenTable":{"g":{"T":4}},"subscriptionGroupTable":{"g":{"retryMaxTimes":16,...}}}
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from cometmq import names
from cometmq.broker.config import BrokerConfig
from cometmq.broker.tables.attributes import GROUP_ATTRIBUTES, change_attributes
from cometmq.broker.tables.versions import first_version, next_version
from cometmq.clock import Clock
from cometmq.store.queues.consume_queues import LMQ_PREFIX
from cometmq.wire.bodies import DataVersion, SubscriptionGroupConfig, SubscriptionGroupTable
from cometmq.wire.fastjson.dialect import dumps_pretty

logger = logging.getLogger(__name__)

SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
BUILT_IN_GROUPS: Final = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
)
FORBIDDEN_READ: Final = 1 << 2
# A page of GET_ALL_SUBSCRIPTIONGROUP_CONFIG has at most this many groups (RocketMQ: splitMetadataSize).
PAGE_GROUPS_MAX: Final = 2_000


class Groups:
    """`table` is for reading."""

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        clock: Clock,
        on_change: Callable[[], object],
        *,
        has_light: bool = False,
    ) -> None:
        self.table: dict[str, SubscriptionGroupConfig] = {}
        self.forbidden: dict[str, dict[str, int]] = {}
        self.data_version: DataVersion = first_version(clock.now_ms())
        self.changes: int = 0
        # Whether there are light queues (`enableLmq`).
        self.has_light: bool = has_light
        # Name -> the change with which the file will have it.
        self.unsaved: dict[str, int] = {}
        self._config = config
        self._clock = clock
        self._on_change = on_change
        self._sorted_names: list[str] | None = None

    # Asking

    def get(self, name: str) -> SubscriptionGroupConfig | None:
        found = self.table.get(name)
        if found is None and self.has_light and name.startswith(LMQ_PREFIX):
            return SubscriptionGroupConfig(group_name=name)
        return found

    def find(self, name: str) -> SubscriptionGroupConfig | None:
        """The group, made now if it is not there and may be made."""
        group = self.get(name)
        if group is not None:
            return group
        config = self._config()
        if not (config.auto_create_group or (config.create_system_groups and name.startswith(SYSTEM_GROUP_PREFIX))):
            return None
        if names.group_fault(name) is not None:
            return None
        group = SubscriptionGroupConfig(group_name=name)
        logger.info("create group=%s", name)
        self._put(group)
        return group

    def may_read(self, group: str, topic: str) -> bool:
        if not self.forbidden:
            return True
        topics = self.forbidden.get(group)
        return topics is None or topics.get(topic, 0) & FORBIDDEN_READ == 0

    def page(self, version: DataVersion | None, start: int, count: int) -> dict[str, SubscriptionGroupConfig]:
        """`count` groups by name from the `start`-th on; from the first on if the caller's version is not ours."""
        if self._sorted_names is None:
            self._sorted_names = sorted(self.table)
        first = max(start, 0) if version == self.data_version else 0
        page = self._sorted_names[first : first + max(min(count, PAGE_GROUPS_MAX), 0)]
        return {name: self.table[name] for name in page}

    # Changing

    def update(self, groups: Iterable[SubscriptionGroupConfig]) -> None:
        """Create or replace, all or none. The keys of their attributes are changes, with a sign (`attributes`)."""
        final = [self._with_attributes(group) for group in groups]
        for group in final:
            logger.info("update group=%s old=%s new=%s", group.group_name, self.table.get(group.group_name), group)
            self._note_unsaved(group.group_name)
            self.table[group.group_name] = group
        self._raise_version()

    def _with_attributes(self, group: SubscriptionGroupConfig) -> SubscriptionGroupConfig:
        current = self.table.get(group.group_name)
        attributes = change_attributes(current.attributes if current else None, group.attributes, GROUP_ATTRIBUTES)
        return msgspec.structs.replace(group, attributes=attributes)

    def delete(self, name: str) -> bool:
        """Also what it was forbidden; its offsets are another table's."""
        known = self.table.pop(name, None) is not None
        barred = self.forbidden.pop(name, None) is not None
        if known or barred:
            logger.info("delete group=%s", name)
            self._raise_version()
        return known

    def allow_reading(self, group: str, topic: str, allowed: bool) -> None:
        bits = self.forbidden.get(group, {}).get(topic, 0)
        wanted = bits & ~FORBIDDEN_READ if allowed else bits | FORBIDDEN_READ
        if wanted == bits:
            return
        topics = self.forbidden.setdefault(group, {})
        if wanted:
            topics[topic] = wanted
        else:
            del topics[topic]
        if not topics:
            del self.forbidden[group]
        logger.info("change forbidden group=%s topic=%s bits=%d", group, topic, wanted)
        self._raise_version()

    def disable_slow(self, bytes_behind: Mapping[str, int], bytes_max: int) -> list[str]:
        """Stop the groups that read too far behind, until an operator enables them again; their names."""
        slow = [
            group
            for name, behind in bytes_behind.items()
            if behind > bytes_max and (group := self.table.get(name)) is not None and group.consume_enable
        ]
        for group in slow:
            behind = bytes_behind[group.group_name]
            logger.warning("disable slow group=%s bytes_behind=%d bytes_max=%d", group.group_name, behind, bytes_max)
            self.table[group.group_name] = msgspec.structs.replace(group, consume_enable=False)
        if slow:
            self._raise_version()
        return [group.group_name for group in slow]

    def make_built_in_groups(self) -> None:
        """At the start, after `restore`: what is missing is made, what is there stays. Not a change of version."""
        missing = [name for name in BUILT_IN_GROUPS if name not in self.table]
        self.table.update({name: SubscriptionGroupConfig(group_name=name) for name in missing})
        if missing:
            self._sorted_names = None
            self.changes += 1

    # The file, and what a replica copies

    def restore(self, content: bytes) -> None:
        self._replace(SubscriptionGroupTable.decode(content))

    def follow(self, master: SubscriptionGroupTable) -> None:
        """Be as the master is, version included."""
        self._replace(master)
        self.changes += 1
        self._on_change()

    def _replace(self, read: SubscriptionGroupTable) -> None:
        self.table = {
            name: group if group.group_name else msgspec.structs.replace(group, group_name=name)
            for name, group in read.subscription_group_table.items()
        }
        self.forbidden = read.forbidden_table
        self.data_version = read.data_version
        self._sorted_names = None

    def snapshot(self) -> Callable[[], bytes]:
        content = {
            "dataVersion": self.data_version,
            "forbiddenTable": {group: topics.copy() for group, topics in self.forbidden.items()},
            "subscriptionGroupTable": self.table.copy(),
        }
        return lambda: dumps_pretty(content)

    def saved(self, changes: int) -> None:
        """The file has the table as it was when `changes` was this."""
        if self.unsaved:
            self.unsaved = {name: needed for name, needed in self.unsaved.items() if needed > changes}

    def _note_unsaved(self, name: str) -> None:
        if name not in self.table:
            self.unsaved[name] = self.changes + 1

    def _put(self, group: SubscriptionGroupConfig) -> None:
        self._note_unsaved(group.group_name)
        self.table[group.group_name] = group
        self._raise_version()

    def _raise_version(self) -> None:
        self.data_version = next_version(self.data_version, self._clock.now_ms())
        self.changes += 1
        self._sorted_names = None
        self._on_change()
