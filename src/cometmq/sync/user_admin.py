"""The sync twin of `cometmq.client.admin.users.UserAdmin`. Written by scripts/sync_twin.py."""

from collections.abc import Sequence

from cometmq.client.admin import Admin as AsyncAdmin
from cometmq.client.admin.results import Access, AccessChange, AccessEntry, User
from cometmq.client.admin.users import CUSTOM
from cometmq.client.loop_thread import LoopThread


class UserAdmin:
    """Part of the administration: `UserAdmin`."""

    def __init__(self, inner: AsyncAdmin, thread: LoopThread) -> None:
        self._inner: AsyncAdmin = inner
        self._thread = thread

    def create_user(
        self,
        name: str,
        password: str,
        *,
        is_super: bool = False,
        is_enabled: bool = True,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> User:
        """ConfigError if a master knows the name already. A Super user may do everything, and so may its maker only."""
        return self._thread.run(
            self._inner.create_user(
                name, password, is_super=is_super, is_enabled=is_enabled, cluster=cluster, broker=broker
            )
        )

    def alter_user(
        self,
        name: str,
        *,
        password: str | None = None,
        overlap_s: float = 0.0,
        is_super: bool | None = None,
        is_enabled: bool | None = None,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> User:
        """Change what is given, on every broker that knows the user. NotFound.

        A client that changes the password of its own user goes on with the new one. For `overlap_s` the old password
        stays valid beside it, so that programs can be changed one after the other. Brokers of RocketMQ cannot do that:
        ConfigError, and nothing is changed.
        """
        return self._thread.run(
            self._inner.alter_user(
                name,
                password=password,
                overlap_s=overlap_s,
                is_super=is_super,
                is_enabled=is_enabled,
                cluster=cluster,
                broker=broker,
            )
        )

    def delete_user(self, name: str, *, cluster: str | None = None, broker: str | None = None) -> list[str]:
        """With everything that was granted. Gives the names of the brokers that had the user. NotFound."""
        return self._thread.run(self._inner.delete_user(name, cluster=cluster, broker=broker))

    def users(self, part: str = "", *, cluster: str | None = None) -> list[User]:
        """Users whose name has `part` in it, in the order of names."""
        return self._thread.run(self._inner.users(part, cluster=cluster))

    def describe_user(self, name: str) -> User:
        """NotFound if no broker knows the user."""
        return self._thread.run(self._inner.describe_user(name))

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
