"""Clusters: brokers and what they say about themselves, settings, write permission, key values, cleaning up."""

from collections.abc import Mapping

from cometmq.client.admin.calls import Calls, each
from cometmq.client.admin.results import BrokerMember, BrokerState, BrokerStats, StatsWindow
from cometmq.errors import BrokerError, CallError, NotFound
from cometmq.wire import java_properties
from cometmq.wire.bodies import BrokerStatsData, BrokerStatsItem, HaStatus, KVTable
from cometmq.wire.codes import Request, Response
from cometmq.wire.headers import (
    AddWritePermissionResponse,
    ChangeWritePermission,
    GetKvConfigResponse,
    GetKvList,
    KvConfigKey,
    PutKvConfig,
    ViewBrokerStats,
    WipeWritePermissionResponse,
)


class ClusterAdmin(Calls):
    async def brokers(self, cluster: str | None = None) -> list[BrokerMember]:
        """Every broker that the name server knows, masters and slaves."""
        return [member for member in await self.members() if cluster in (None, member.cluster)]

    async def cluster_state(self, cluster: str | None = None) -> list[BrokerState]:
        """Every broker with version and figures; one that does not answer says why."""
        return await each(await self.brokers(cluster), self._state)

    async def broker_figures(self, broker: str) -> dict[str, str]:
        """Runtime figures by RocketMQ's names: one broker by name (its master) or address."""
        (member,) = await self.masters(broker=broker)
        response = await self.ask(member.address, Request.GET_BROKER_RUNTIME_INFO)
        return dict(sorted(KVTable.decode(response.body).table.items()))

    async def broker_stats(self, broker: str, name: str, key: str) -> BrokerStats:
        """One counter, say TOPIC_PUT_NUMS of a topic. NotFound if the broker has not counted it yet."""
        (member,) = await self.masters(broker=broker)
        try:
            response = await self.ask(member.address, Request.VIEW_BROKER_STATS_DATA, ViewBrokerStats(name, key))
        except BrokerError as error:
            if error.code == Response.SYSTEM_ERROR:
                raise NotFound(f"broker {broker} has no counter {name} of {key}: {error.remark}") from error
            raise
        data = BrokerStatsData.decode(response.body)
        return BrokerStats(_window(data.stats_minute), _window(data.stats_hour), _window(data.stats_day))

    async def replication(self, broker: str) -> HaStatus:
        """What a master knows about its slaves."""
        (member,) = await self.masters(broker=broker)
        return HaStatus.decode((await self.ask(member.address, Request.GET_BROKER_HA_STATUS)).body)

    # Settings

    async def broker_config(self, broker: str) -> dict[str, str]:
        """Every setting by RocketMQ's key."""
        (member,) = await self.masters(broker=broker)
        response = await self.ask(member.address, Request.GET_BROKER_CONFIG)
        return dict(sorted(java_properties.parse(response.body).items()))

    async def set_broker_config(
        self, settings: Mapping[str, str], *, broker: str | None = None, cluster: str | None = None
    ) -> list[str]:
        """Change settings of running brokers, all of them or none on each; gives the names of the brokers.

        NotFound for a key that no broker knows, BrokerError for one that cannot be changed while running.
        """
        masters = await self.masters(cluster, broker)
        for master in masters:
            unknown = settings.keys() - (await self.broker_config(master.address)).keys()
            if unknown:
                raise NotFound(f"broker {master.name} has no setting {', '.join(sorted(unknown))}: check the spelling")
        body = java_properties.write(settings).encode()
        await each(masters, lambda master: self.ask(master.address, Request.UPDATE_BROKER_CONFIG, None, body))
        return [master.name for master in masters]

    async def name_server_config(self, address: str | None = None) -> dict[str, dict[str, str]]:
        """Settings of name servers by address, of one or all."""
        addresses = self.name_servers(address)
        responses = await each(addresses, lambda it: self.ask(it, Request.GET_NAMESRV_CONFIG))
        parsed = [dict(sorted(java_properties.parse(response.body).items())) for response in responses]
        return dict(zip(addresses, parsed, strict=True))

    async def set_name_server_config(self, settings: Mapping[str, str], address: str | None = None) -> list[str]:
        """On one name server or every one; gives their addresses."""
        addresses = self.name_servers(address)
        body = java_properties.write(settings).encode()
        await each(addresses, lambda it: self.ask(it, Request.UPDATE_NAMESRV_CONFIG, None, body))
        return addresses

    # Write permission: how a broker is emptied before it is taken away

    async def wipe_write_permission(self, broker: str) -> int:
        """No client writes to this broker any more; readers go on. Gives the number of topics. NotFound."""
        await self.masters(broker=broker)
        header = ChangeWritePermission(broker)
        responses = await self.ask_name_servers(Request.WIPE_WRITE_PERM_OF_BROKER, header)
        return max(WipeWritePermissionResponse.decode(response.ext).wipe_topic_count for response in responses)

    async def add_write_permission(self, broker: str) -> int:
        """Undo it. Gives the number of topics. NotFound."""
        await self.masters(broker=broker)
        responses = await self.ask_name_servers(Request.ADD_WRITE_PERM_OF_BROKER, ChangeWritePermission(broker))
        return max(AddWritePermissionResponse.decode(response.ext).add_topic_count for response in responses)

    # Key values that name servers keep

    async def key_values(self, namespace: str) -> dict[str, str]:
        """Everything in a namespace; empty if nobody ever put anything there."""
        try:
            response = await self.ask_name_server(Request.GET_KVLIST_BY_NAMESPACE, GetKvList(namespace))
        except BrokerError as error:
            if error.code == Response.QUERY_NOT_FOUND:
                return {}
            raise
        return dict(sorted(KVTable.decode(response.body).table.items()))

    async def key_value(self, namespace: str, key: str) -> str | None:
        try:
            response = await self.ask_name_server(Request.GET_KV_CONFIG, KvConfigKey(namespace, key))
        except BrokerError as error:
            if error.code == Response.QUERY_NOT_FOUND:
                return None
            raise
        return GetKvConfigResponse.decode(response.ext).value

    async def put_key_value(self, namespace: str, key: str, value: str) -> None:
        await self.ask_name_servers(Request.PUT_KV_CONFIG, PutKvConfig(namespace, key, value))

    async def delete_key_value(self, namespace: str, key: str) -> None:
        await self.ask_name_servers(Request.DELETE_KV_CONFIG, KvConfigKey(namespace, key))

    # Cleaning up on demand

    async def delete_expired_files(self, broker: str | None = None, *, cluster: str | None = None) -> list[str]:
        """Segments of the log that are past their time, now instead of at night. Gives the names of the brokers."""
        return await self._clean(Request.DELETE_EXPIRED_COMMITLOG, broker, cluster)

    async def clean_expired_queues(self, broker: str | None = None, *, cluster: str | None = None) -> list[str]:
        """Queue files whose messages are gone."""
        return await self._clean(Request.CLEAN_EXPIRED_CONSUMEQUEUE, broker, cluster)

    async def clean_unused_topics(self, broker: str | None = None, *, cluster: str | None = None) -> list[str]:
        """Queues of topics that the broker does not have any more."""
        return await self._clean(Request.CLEAN_UNUSED_TOPIC, broker, cluster)

    async def _clean(self, code: int, broker: str | None, cluster: str | None) -> list[str]:
        masters = await self.masters(cluster, broker)
        await each(masters, lambda master: self.ask(master.address, code))
        return [master.name for master in masters]

    async def _state(self, member: BrokerMember) -> BrokerState:
        try:
            response = await self.ask(member.address, Request.GET_BROKER_RUNTIME_INFO)
        except (CallError, BrokerError) as error:
            return BrokerState(member, error=str(error))
        figures = dict(sorted(KVTable.decode(response.body).table.items()))
        return BrokerState(member, figures.get("brokerVersionDesc", ""), figures)


def _window(item: BrokerStatsItem) -> StatsWindow:
    return StatsWindow(item.sum, item.tps, item.avgpt)
