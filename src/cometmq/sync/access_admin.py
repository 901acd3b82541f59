"""The sync twin of `cometmq.client.admin.access.AccessAdmin`. Written by scripts/sync_twin.py."""

from collections.abc import Sequence

from cometmq.client.admin import Admin as AsyncAdmin
from cometmq.client.admin.access import CUSTOM
from cometmq.client.admin.results import Access, AccessChange, AccessEntry
from cometmq.client.loop_thread import LoopThread


class AccessAdmin:
    """Part of the administration: `AccessAdmin`."""

    def __init__(self, inner: AsyncAdmin, thread: LoopThread) -> None:
        self._inner: AsyncAdmin = inner
        self._thread = thread

    def grant(
        self, user: str, entry: AccessEntry, *, cluster: str | None = None, broker: str | None = None
    ) -> list[AccessChange]:
        """Give a user an entry, or more actions in one that there is. Gives what changed, broker by broker.

        `AccessEntry("Topic:orders_*", ("Pub", "Sub"))`; ConfigError for words that are not known, NotFound.
        """
        return self._thread.run(self._inner.grant(user, entry, cluster=cluster, broker=broker))

    def plan_grant(
        self, user: str, entry: AccessEntry, *, cluster: str | None = None, broker: str | None = None
    ) -> list[AccessChange]:
        """What `grant` would change."""
        return self._thread.run(self._inner.plan_grant(user, entry, cluster=cluster, broker=broker))

    def revoke(
        self,
        user: str,
        resource: str | None = None,
        actions: Sequence[str] = (),
        *,
        policy: str = CUSTOM,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> list[AccessChange]:
        """Take actions of an entry from a user; the whole entry without `actions`, everything without `resource`."""
        return self._thread.run(
            self._inner.revoke(user, resource, actions, policy=policy, cluster=cluster, broker=broker)
        )

    def plan_revoke(
        self,
        user: str,
        resource: str | None = None,
        actions: Sequence[str] = (),
        *,
        policy: str = CUSTOM,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> list[AccessChange]:
        """What `revoke` would change. NotFound if no broker has such an entry."""
        return self._thread.run(
            self._inner.plan_revoke(user, resource, actions, policy=policy, cluster=cluster, broker=broker)
        )

    def accesses(self, user_part: str = "", resource_part: str = "", *, cluster: str | None = None) -> list[Access]:
        """What users whose name has `user_part` in it were given on resources that have `resource_part` in theirs."""
        return self._thread.run(self._inner.accesses(user_part, resource_part, cluster=cluster))

    def describe_access(self, user: str) -> Access:
        """What one user was given. NotFound if no broker knows the user."""
        return self._thread.run(self._inner.describe_access(user))
