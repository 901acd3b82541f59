"""The sync twin of `cometmq.client.admin.users.UserAdmin`. Written by scripts/sync_twin.py."""

from cometmq.client.admin import Admin as AsyncAdmin
from cometmq.client.admin.results import User
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

        A client that changes its own user's password signs with the new one from then on. The old one stays valid for
        `overlap_s`, so that programs can be changed one by one. RocketMQ's brokers cannot do that: ConfigError,
        and nothing is changed.
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
