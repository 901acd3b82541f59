"""Three brokers of RocketMQ 5.5.0 in a set, with its own controller in its name server: the anchor for ours."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.compat.harness import remoting
from tests.compat.harness.processes import free_ports
from tests.compat.harness.servers import JavaBroker, JavaNameServer
from tests.failover.real_set import Load

HEALTHY_S = 120.0
LOOK_S = 0.1
GET_SYNC_STATE_DATA = 1006
ELECT_MASTER = 1002
# What keeps messages as ours do: two copies before an ack, and consumers see what two have.
STRICT = {"inSyncReplicas": 2, "minInSyncReplicas": 2}


class RocketMqSet:
    def __init__(self, home: Path, settings: dict[str, object] | None = None) -> None:
        self.controller = f"127.0.0.1:{free_ports(0)}"
        home.mkdir(parents=True, exist_ok=True)
        self._names = JavaNameServer(
            home,
            {
                "enableControllerInNamesrv": "true",
                "controllerDLegerGroup": "compat",
                "controllerDLegerPeers": f"n0-{self.controller}",
                "controllerDLegerSelfId": "n0",
                "controllerStorePath": home / "controller",
            },
        ).start()
        self.name_server = self._names.address
        self.brokers: list[JavaBroker] = []
        for number in range(3):
            directory = home / f"broker{number}"
            directory.mkdir()
            mode = {"enableControllerMode": "true", "controllerAddr": self.controller, **(settings or STRICT)}
            broker = JavaBroker(directory, self.name_server, mode, name="a")
            self.brokers.append(broker)
            broker.launch()

    def stop(self) -> None:
        for broker in self.brokers:
            with suppress(Exception):
                os.killpg(broker.pid, signal.SIGCONT)
            broker.close()
        self._names.close()

    def state(self) -> dict[str, Any]:
        """Of the set; empty while nobody says."""
        with suppress(OSError, ValueError, KeyError):
            answer = remoting.call(self.controller, GET_SYNC_STATE_DATA, {}, b'["a"]')
            found: dict[str, Any] = answer.json()["replicasInfoTable"]["a"]
            return found
        return {}

    def master(self) -> JavaBroker:
        address = self.state()["masterAddress"]
        return next(broker for broker in self.brokers if broker.address == address)

    async def healthy(self, load: Load) -> bool:
        """Three in sync and acks come; False: not within two minutes."""
        end_s = time.monotonic() + HEALTHY_S
        while time.monotonic() < end_s:
            count = len(load.acked)
            await asyncio.sleep(LOOK_S)
            state = await asyncio.to_thread(self.state)
            if len(state.get("inSyncReplicas", ())) == 3 and len(load.acked) > count:
                return True
        return False

    # Faults

    async def kill(self, load: Load) -> None:
        broker = self.master()
        broker.kill()
        await acks(load)
        broker.launch()

    async def freeze(self, load: Load) -> None:
        broker = self.master()
        os.killpg(broker.pid, signal.SIGSTOP)
        await acks(load)
        os.killpg(broker.pid, signal.SIGCONT)

    async def planned(self, load: Load) -> None:
        state = self.state()
        heir = next(
            each["brokerId"] for each in state["inSyncReplicas"] if each["brokerId"] != state["masterBrokerId"]
        )
        fields = {"clusterName": "compat", "brokerName": "a", "brokerId": heir, "designateElect": "true"}
        await asyncio.to_thread(remoting.call, self.controller, ELECT_MASTER, fields)
        await acks(load)


async def acks(load: Load) -> None:
    """Until 20 more are there, or it takes too long to wait for."""
    began_s = time.monotonic()
    while not load.goes_on_since(began_s) and time.monotonic() < began_s + HEALTHY_S:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
