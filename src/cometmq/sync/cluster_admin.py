"""The sync twin of `cometmq.client.admin.cluster.ClusterAdmin`. Written by scripts/sync_twin.py."""

from collections.abc import Mapping

from cometmq.client.admin import Admin as AsyncAdmin
from cometmq.client.admin.results import BrokerMember, BrokerState, BrokerStats
from cometmq.client.loop_thread import LoopThread
from cometmq.wire.bodies import HaStatus


class ClusterAdmin:
    """Part of the administration: `ClusterAdmin`."""

    def __init__(self, inner: AsyncAdmin, thread: LoopThread) -> None:
        self._inner: AsyncAdmin = inner
        self._thread = thread

    def brokers(self, cluster: str | None = None) -> list[BrokerMember]:
        """Every broker that the name server knows, masters and slaves."""
        return self._thread.run(self._inner.brokers(cluster))

    def cluster_state(self, cluster: str | None = None) -> list[BrokerState]:
        """Every broker with version and figures; one that does not answer says why."""
        return self._thread.run(self._inner.cluster_state(cluster))

    def broker_figures(self, broker: str) -> dict[str, str]:
        """Runtime figures by RocketMQ's names: one broker by name (its master) or address."""
        return self._thread.run(self._inner.broker_figures(broker))

    def broker_stats(self, broker: str, name: str, key: str) -> BrokerStats:
        """One counter, say TOPIC_PUT_NUMS of a topic. NotFound if the broker has not counted it yet."""
        return self._thread.run(self._inner.broker_stats(broker, name, key))

    def replication(self, broker: str) -> HaStatus:
        """What a master knows about its slaves."""
        return self._thread.run(self._inner.replication(broker))

    def broker_config(self, broker: str) -> dict[str, str]:
        """Every setting by RocketMQ's key."""
        return self._thread.run(self._inner.broker_config(broker))

    def set_broker_config(
        self, settings: Mapping[str, str], *, broker: str | None = None, cluster: str | None = None
    ) -> list[str]:
        """Change settings of running brokers, all of them or none on each; gives the names of the brokers.

        NotFound for a key that no broker knows, BrokerError for one that cannot be changed while running.
        """
        return self._thread.run(self._inner.set_broker_config(settings, broker=broker, cluster=cluster))

    def name_server_config(self, address: str | None = None) -> dict[str, dict[str, str]]:
        """Settings of name servers by address, of one or all."""
        return self._thread.run(self._inner.name_server_config(address))

    def set_name_server_config(self, settings: Mapping[str, str], address: str | None = None) -> list[str]:
        """On one name server or every one; gives their addresses."""
        return self._thread.run(self._inner.set_name_server_config(settings, address))

    def wipe_write_permission(self, broker: str) -> int:
        """No client writes to this broker any more; readers go on. Gives the number of topics. NotFound."""
        return self._thread.run(self._inner.wipe_write_permission(broker))

    def add_write_permission(self, broker: str) -> int:
        """Undo it. Gives the number of topics. NotFound."""
        return self._thread.run(self._inner.add_write_permission(broker))

    def key_values(self, namespace: str) -> dict[str, str]:
        """Everything in a namespace; empty if nobody ever put anything there."""
        return self._thread.run(self._inner.key_values(namespace))

    def key_value(self, namespace: str, key: str) -> str | None:
        return self._thread.run(self._inner.key_value(namespace, key))

    def put_key_value(self, namespace: str, key: str, value: str) -> None:
        self._thread.run(self._inner.put_key_value(namespace, key, value))

    def delete_key_value(self, namespace: str, key: str) -> None:
        self._thread.run(self._inner.delete_key_value(namespace, key))

    def delete_expired_files(self, broker: str | None = None, *, cluster: str | None = None) -> list[str]:
        """Segments of the log that are past their time, now instead of at night. Gives the names of the brokers."""
        return self._thread.run(self._inner.delete_expired_files(broker, cluster=cluster))

    def clean_expired_queues(self, broker: str | None = None, *, cluster: str | None = None) -> list[str]:
        """Queue files whose messages are gone."""
        return self._thread.run(self._inner.clean_expired_queues(broker, cluster=cluster))

    def clean_unused_topics(self, broker: str | None = None, *, cluster: str | None = None) -> list[str]:
        """Queues of topics that the broker does not have any more."""
        return self._thread.run(self._inner.clean_unused_topics(broker, cluster=cluster))
