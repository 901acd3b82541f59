"""Who is connected: consumers by group with their subscriptions, and producers by group.

    heartbeat     -> register      makes or refreshes a member
    unregister    -> unregister    the client says goodbye to a group
    close         -> on_close      its connection is gone, so it is gone from every group
    silence       -> expire        no heartbeat for two minutes: the connection is to be closed

A member is a connection, not a client id: one id may be there twice for a moment, while a client reconnects.

Pure state. A change of membership that the others must hear of is returned as a `Notice`; whoever holds the sockets
sends it. Times are monotonic milliseconds. As in RocketMQ, expiry by silence gives no notice, and what a group is
(model, start rule, subscriptions) is what the last heartbeat of any member said.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from cometmq.broker.config import BrokerConfig
from cometmq.broker.filters import Subscription
from cometmq.wire.bodies import ConsumerData, SubscriptionData
from cometmq.wire.command import Command

logger = logging.getLogger(__name__)

BROADCASTING: Final = "BROADCASTING"
CONSUME_ACTIVELY: Final = "CONSUME_ACTIVELY"

# Producers expire after this, whatever channelExpiredTimeout says.
PRODUCER_EXPIRED_MS: Final = 120_000
_NO_GROUPS: Final[frozenset[str]] = frozenset()
# What pulls that carry their own subscription may leave behind, in entries and in bytes.
SILENT_MAX: Final = 10_000
SILENT_BYTES_MAX: Final = 16 << 20
# How many members are looked at for one that can be written to.
PICK_TRIES_MAX: Final = 3


class Link(Protocol):
    """A connection, as far as the broker's state and its handlers need one."""

    @property
    def peer_text(self) -> str: ...

    @property
    def is_open(self) -> bool: ...

    @property
    def is_writable(self) -> bool: ...

    def send_oneway(self, command: Command, /) -> None: ...

    def close(self, reason: str, /) -> None: ...


class Member:
    """A client in one group; never shared between groups, because each is refreshed on its own."""

    __slots__ = ("link", "client_id", "language", "version", "seen_ms")

    def __init__(self, link: Link, client_id: str, language: int, version: int, seen_ms: int) -> None:
        self.link: Link = link
        self.client_id: str = client_id
        self.language: int = language
        self.version: int = version
        self.seen_ms: int = seen_ms


class Notice:
    """To be told to `links`: the members of `group` have changed."""

    __slots__ = ("group", "links")

    def __init__(self, group: str, links: list[Link]) -> None:
        self.group: str = group
        self.links: list[Link] = links


class ConsumerGroup:
    """`notify`: whether the group's configuration lets members hear of changes."""

    __slots__ = (
        "name", "consume_type", "message_model", "consume_from_where",
        "subscriptions", "members", "fingerprint", "notify", "kept_bytes",
    )  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name: str = name
        self.consume_type: str | None = None
        self.message_model: str | None = None
        self.consume_from_where: str | None = None
        self.subscriptions: dict[str, Subscription] = {}
        self.members: dict[Link, Member] = {}
        self.fingerprint: int | None = None
        self.notify: bool = True
        self.kept_bytes: int = 0

    def client_ids(self) -> list[str]:
        """Each once: allocation over a list with a client twice would leave queues without owner."""
        return list(dict.fromkeys(member.client_id for member in self.members.values()))

    def find(self, client_id: str) -> Member | None:
        return next((member for member in self.members.values() if member.client_id == client_id), None)

    def take_fingerprint(self, fingerprint: int, *, short: bool) -> bool:
        """Remember the fingerprint of a heartbeat; True if the client must send its full form next.

        That is so if another one was known, or if the short form came and no subscription is known, as after a restart
        of this broker.
        """
        old, self.fingerprint = self.fingerprint, fingerprint
        return (old is not None and old != fingerprint) or (short and not self.subscriptions)

    def notice(self) -> Notice | None:
        """What the members must hear after a change; None if nobody must hear it."""
        if not self.notify or self.message_model == BROADCASTING or not self.members:
            return None
        return Notice(self.name, list(self.members))

    def subscribe(self, wanted: Iterable[SubscriptionData]) -> bool:
        """Take over what a heartbeat says; True if a topic came or went. A newer version alone is no change."""
        changed = False
        topics: set[str] = set()
        for data in wanted:
            if data.topic is None:
                continue
            topics.add(data.topic)
            old = self.subscriptions.get(data.topic)
            if old is None or data.sub_version > old.version:
                self.subscriptions[data.topic] = Subscription(data)
                changed = changed or old is None
        for topic in self.subscriptions.keys() - topics:
            logger.info("drop subscription group=%s topic=%s", self.name, topic)
            del self.subscriptions[topic]
            changed = True
        self.kept_bytes = sum(known.kept_bytes for known in self.subscriptions.values())
        return changed


class Consumers:
    """`table` is for reading. `on_empty` is told the name of a group that its last member has left."""

    def __init__(self, config: Callable[[], BrokerConfig], on_empty: Callable[[str], None] | None = None) -> None:
        self.table: dict[str, ConsumerGroup] = {}
        self._config = config
        self._on_empty = on_empty
        self._groups_of: dict[Link, set[str]] = {}
        self._postponed: dict[str, Notice] = {}
        # (group, topic) -> (subscription, last seen), the one not seen for longest first: pulls without heartbeats
        self._silent: dict[tuple[str, str], tuple[Subscription, int]] = {}
        self._silent_bytes = 0

    # Asking

    def get(self, group: str) -> ConsumerGroup | None:
        return self.table.get(group)

    def find_member(self, group: str, client_id: str) -> Member | None:
        found = self.table.get(group)
        return found.find(client_id) if found is not None else None

    def find_subscription(self, group: str, topic: str) -> Subscription | None:
        """From heartbeats, else from pulls of a consumer that sends none."""
        found = self.table.get(group)
        subscription = found.subscriptions.get(topic) if found is not None else None
        if subscription is None:
            silent = self._silent.get((group, topic))
            subscription = silent[0] if silent is not None else None
        return subscription

    def subscribers(self, topic: str) -> list[str]:
        """Groups with a live member that subscribe to the topic."""
        return sorted(name for name, group in self.table.items() if topic in group.subscriptions)

    def count_groups(self, link: Link, and_also: set[str]) -> int:
        """Of how many groups the connection would be a member with these."""
        return len(self._groups_of.get(link, _NO_GROUPS) | and_also)

    def kept_bytes(self, link: Link, but: set[str]) -> int:
        """What subscriptions take in the groups of a connection, without these groups."""
        names = self._groups_of.get(link, _NO_GROUPS)
        return sum(self.table[name].kept_bytes for name in names if name not in but)

    # Changes

    def register(
        self, data: ConsumerData, member: Member, *, notify: bool, with_subscriptions: bool = True
    ) -> Notice | None:
        """A heartbeat for one group. `with_subscriptions` False keeps those that are known."""
        name = data.group_name
        assert name, "a heartbeat for a group without name"
        group = self.table.get(name)
        if group is None:
            group = self.table[name] = ConsumerGroup(name)
        group.notify = notify
        group.consume_type = data.consume_type
        group.message_model = data.message_model
        group.consume_from_where = data.consume_from_where
        changed = self._put_member(group, member)
        if with_subscriptions and group.subscribe(data.subscription_data_set):
            changed = True
        return group.notice() if changed else None

    def _put_member(self, group: ConsumerGroup, member: Member) -> bool:
        old = group.members.get(member.link)
        if old is not None and old.client_id == member.client_id:
            old.seen_ms = member.seen_ms
            return False
        group.members[member.link] = member
        if old is not None:
            logger.warning(
                "replace member group=%s peer=%s old=%s new=%s",
                group.name, member.link.peer_text, old.client_id, member.client_id,
            )  # fmt: skip
            return False
        logger.info("add consumer group=%s client=%s peer=%s", group.name, member.client_id, member.link.peer_text)
        self._groups_of.setdefault(member.link, set()).add(group.name)
        return True

    def unregister(self, group: str, link: Link) -> Notice | None:
        found = self.table.get(group)
        if found is None or link not in found.members:
            return None
        groups = self._groups_of[link]
        groups.discard(group)
        if not groups:
            del self._groups_of[link]
        return self._remove(found, link)

    def on_close(self, link: Link) -> list[Notice]:
        groups = self._groups_of.pop(link, ())
        notices = [self._remove(self.table[name], link) for name in sorted(groups)]
        return [notice for notice in notices if notice is not None]

    def _remove(self, group: ConsumerGroup, link: Link) -> Notice | None:
        member = group.members.pop(link)
        logger.info("remove consumer group=%s client=%s peer=%s", group.name, member.client_id, link.peer_text)
        if not group.members:
            del self.table[group.name]
            if self._on_empty is not None:
                self._on_empty(group.name)
        return group.notice()

    def expire(self, now_ms: int) -> list[Link]:
        """Remove members that were silent too long; their connections are to be closed. Also forgets old pulls.

        The closing connection then leaves its other groups, with notice.
        """
        limit_ms = now_ms - self._config().channel_expired_ms
        expired = _silent_since(limit_ms, ((group.name, group.members) for group in self.table.values()))
        for group, link in expired:
            logger.warning("expire consumer group=%s peer=%s", group, link.peer_text)
            self.unregister(group, link)
        self._expire_pulls(now_ms - self._config().subscription_expired_ms)
        return list({link for _, link in expired})

    # Consumers that never send a heartbeat

    def note_pull(self, group: str, topic: str, subscription: Subscription, now_ms: int) -> None:
        """A pull that carries its own subscription: keeps the consumer visible to administration."""
        self._forget_pull((group, topic))
        self._silent[group, topic] = (subscription, now_ms)
        self._silent_bytes += subscription.kept_bytes
        while len(self._silent) > SILENT_MAX or self._silent_bytes > SILENT_BYTES_MAX:
            self._forget_pull(next(iter(self._silent)))

    def _forget_pull(self, key: tuple[str, str]) -> None:
        known = self._silent.pop(key, None)
        if known is not None:
            self._silent_bytes -= known[0].kept_bytes

    def _expire_pulls(self, limit_ms: int) -> None:
        for key in [key for key, (_, seen_ms) in self._silent.items() if seen_ms < limit_ms]:
            self._forget_pull(key)

    # Notices that are sent together (realTimeNotifyConsumerChange=false)

    def postpone(self, notice: Notice) -> None:
        self._postponed[notice.group] = notice

    def take_postponed(self) -> list[Notice]:
        notices = list(self._postponed.values())
        self._postponed.clear()
        return notices


class Producers:
    """`table`: group -> link -> member, for reading."""

    def __init__(self) -> None:
        self.table: dict[str, dict[Link, Member]] = {}
        self._link_of: dict[str, Link] = {}
        self._groups_of: dict[Link, set[str]] = {}
        self._turn: int = 0

    def register(self, group: str, member: Member) -> None:
        members = self.table.get(group)
        if members is None:
            members = self.table[group] = {}
        old = members.get(member.link)
        if old is not None:
            old.seen_ms = member.seen_ms
            return
        members[member.link] = member
        self._link_of[member.client_id] = member.link
        self._groups_of.setdefault(member.link, set()).add(group)
        logger.info("add producer group=%s client=%s peer=%s", group, member.client_id, member.link.peer_text)

    def unregister(self, group: str, link: Link) -> None:
        if link not in self.table.get(group, {}):
            return
        groups = self._groups_of[link]
        groups.discard(group)
        if not groups:
            del self._groups_of[link]
        self._remove(group, link)

    def on_close(self, link: Link) -> None:
        for group in self._groups_of.pop(link, ()):
            self._remove(group, link)

    def _remove(self, group: str, link: Link) -> None:
        members = self.table[group]
        member = members.pop(link)
        logger.info("remove producer group=%s client=%s peer=%s", group, member.client_id, link.peer_text)
        if not members:
            del self.table[group]
        # Another group of the same client may still use the connection.
        if link not in self._groups_of and self._link_of.get(member.client_id) is link:
            del self._link_of[member.client_id]

    def expire(self, now_ms: int) -> list[Link]:
        """Remove members that were silent too long; their connections are to be closed."""
        expired = _silent_since(now_ms - PRODUCER_EXPIRED_MS, self.table.items())
        for group, link in expired:
            logger.warning("expire producer group=%s peer=%s", group, link.peer_text)
            self.unregister(group, link)
        return list({link for _, link in expired})

    def count_groups(self, link: Link, and_also: set[str]) -> int:
        """Of how many groups the connection would be a member with these."""
        return len(self._groups_of.get(link, _NO_GROUPS) | and_also)

    def find(self, client_id: str) -> Link | None:
        """The connection of a client, as for the reply to its request."""
        return self._link_of.get(client_id)

    def pick(self, group: str) -> Link | None:
        """A connection of the group, in turn; one that is open and takes data if a few tries find it."""
        links = list(self.table.get(group, ()))
        if not links:
            return None
        self._turn += 1
        tries = [links[(self._turn + step) % len(links)] for step in range(PICK_TRIES_MAX)]
        is_open = [link for link in tries if link.is_open]
        return next((link for link in is_open if link.is_writable), is_open[-1] if is_open else None)


def _silent_since(limit_ms: int, groups: Iterable[tuple[str, dict[Link, Member]]]) -> list[tuple[str, Link]]:
    return [(name, link) for name, members in groups for link, member in members.items() if member.seen_ms < limit_ms]
