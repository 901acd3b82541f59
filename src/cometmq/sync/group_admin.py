"""The sync twin of `cometmq.client.admin.groups.GroupAdmin`. Written by scripts/sync_twin.py."""

from collections.abc import Mapping

from cometmq.client.admin import Admin as AsyncAdmin
from cometmq.client.admin import results
from cometmq.client.admin.results import ConsumerState, DirectResult, Group, GroupConnections
from cometmq.client.loop_thread import LoopThread


class GroupAdmin:
    """Part of the administration: `GroupAdmin`."""

    def __init__(self, inner: AsyncAdmin, thread: LoopThread) -> None:
        self._inner: AsyncAdmin = inner
        self._thread = thread

    def create_group(
        self,
        group: str,
        *,
        retries_max: int = 16,
        ordered: bool = False,
        broadcast_allowed: bool = True,
        enabled: bool = True,
        attributes: Mapping[str, str] | None = None,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> Group:
        """Make a consumer group, or bring it into this form where it is there already."""
        return self._thread.run(
            self._inner.create_group(
                group,
                retries_max=retries_max,
                ordered=ordered,
                broadcast_allowed=broadcast_allowed,
                enabled=enabled,
                attributes=attributes,
                cluster=cluster,
                broker=broker,
            )
        )

    def alter_group(
        self,
        group: str,
        *,
        retries_max: int | None = None,
        ordered: bool | None = None,
        broadcast_allowed: bool | None = None,
        enabled: bool | None = None,
        attributes: Mapping[str, str | None] | None = None,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> Group:
        """Change what is given, on every broker that knows the group. NotFound."""
        return self._thread.run(
            self._inner.alter_group(
                group,
                retries_max=retries_max,
                ordered=ordered,
                broadcast_allowed=broadcast_allowed,
                enabled=enabled,
                attributes=attributes,
                cluster=cluster,
                broker=broker,
            )
        )

    def delete_group(
        self, group: str, *, offsets: bool = False, cluster: str | None = None, broker: str | None = None
    ) -> list[str]:
        """Forget a group, with `offsets` also how far it was. Gives the names of the brokers that had it. NotFound."""
        return self._thread.run(self._inner.delete_group(group, offsets=offsets, cluster=cluster, broker=broker))

    def groups(self, *, system: bool = False, cluster: str | None = None) -> list[str]:
        """Names of consumer groups; with `system` also those that servers made for themselves."""
        return self._thread.run(self._inner.groups(system=system, cluster=cluster))

    def describe_group(self, group: str) -> Group:
        """NotFound if no broker knows it."""
        return self._thread.run(self._inner.describe_group(group))

    def group_topics(self, group: str) -> list[str]:
        """Topics for which a group has offsets, its retry topic among them."""
        return self._thread.run(self._inner.group_topics(group))

    def group_connections(self, group: str) -> GroupConnections:
        """Members that are online now. NotFound if there is none."""
        return self._thread.run(self._inner.group_connections(group))

    def producer_connections(self, group: str) -> list[results.Connection]:
        """Producers of a group that are online now. NotFound if there is none."""
        return self._thread.run(self._inner.producer_connections(group))

    def producer_groups(self) -> dict[str, list[results.Connection]]:
        """Every producer group that is online, with its members."""
        return self._thread.run(self._inner.producer_groups())

    def consumer_state(self, group: str, client_id: str, *, stacks: bool = False) -> ConsumerState:
        """What a member says about itself. NotFound if it is not online."""
        return self._thread.run(self._inner.consumer_state(group, client_id, stacks=stacks))

    def consume_directly(self, group: str, client_id: str, offset_id: str, topic: str = "") -> DirectResult:
        """Let a member handle one stored message now; its offsets do not change. NotFound if it is not online."""
        return self._thread.run(self._inner.consume_directly(group, client_id, offset_id, topic))
