"""Checks that Python consumers read on at a replica while the master is gone, and go back."""

from pathlib import Path

from cometmq import Client
from tests.nameserver.support import nameserver
from tests.support.aio import run
from tests.support.brokers import Peer, add_topic, running_broker
from tests.support.consuming import Got, quick, send
from tests.support.groups import follow_now, replica
from tests.support.net import until


def test_a_consumer_reads_on_at_the_replica_and_goes_back_to_the_master(tmp_path: Path) -> None:
    async def scene() -> None:
        async with nameserver(tmp_path) as names:
            common: dict[str, object] = {"namesrvAddr": names.address}
            async with (
                running_broker(tmp_path / "replica", **replica(**common)) as follower,
                Client(namesrv=names.address, route_refresh=0.2, heartbeat_interval=0.2) as client,
            ):
                early, late = Got(), Got()
                async with running_broker(tmp_path / "master", **common) as master:
                    add_topic(master, "T", 1)
                    await send(client, "T", 10)
                    await until(lambda: follower.store.log.max_offset == master.store.log.max_offset)
                    await until(lambda: follower.rooms.replicas.table_sync.rounds)
                    await follow_now(follower)
                    consumer = quick(client, "early")
                    consumer.subscribe("T", early.take)
                    await consumer.start()
                    await early.count(10)
                    assert master.rooms.shared.stats.messages()[1] == 10
                    assert follower.rooms.shared.stats.messages()[1] == 0
                # Nobody is left but the replica.
                second = quick(client, "late")
                second.subscribe("T", late.take)
                await second.start()
                await late.count(10)
                assert follower.rooms.shared.stats.messages()[1] >= 10
                async with running_broker(tmp_path / "master", **common) as master, Peer.of(master) as peer:
                    for _ in range(5):
                        assert (await peer.send("T", b"after")).code == 0
                    await early.count(15)
                    await late.count(15)
                    stats = master.rooms.shared.stats
                    await until(lambda: stats.messages()[1] >= 10, "both read from the master again")
                    await consumer.stop()
                    await second.stop()

    run(scene(), timeout_s=90)
