"""`cometmq up --set-of 3`: a set of brokers that elects its master, on one machine, for a first look.

    this process ── etcd, one node                 data/etcd
                 ├─ two name servers               data/namesrv-1, data/namesrv-2; mqadmin may ask them, too
                 └─ three brokers of one name      data/broker-1, data/broker-2, data/broker-3

Each is a process of its own, so that one can be killed: the set goes on, and the broker is started again soon.
When all serve, one line goes to stdout:

    ready namesrv=127.0.0.1:9876;127.0.0.1:9877 brokers=127.0.0.1:10911,127.0.0.1:10921,127.0.0.1:10931 store=etcd://...

Not for production: there is one machine, and one etcd. docs/failover.md has three machines in ten commands.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from cometmq.broker.hosts import free_port
from cometmq.cli.shared import serving
from cometmq.errors import CometError, ConfigError

PORTS_APART: Final = 10
NAME_SERVERS: Final = 2
START_S: Final = 60.0
ETCD_LOOK_S: Final = 0.05
AGAIN_S: Final = 2.0
STOP_S: Final = 30.0
SET_NAME: Final = "broker-a"


class Child:
    """One process of ours; what it logs goes to a file of its own."""

    def __init__(self, name: str, log: Path, *command: str) -> None:
        self.name = name
        self.log = log
        self._command = command
        self.process: asyncio.subprocess.Process | None = None

    async def start(self, *, says_ready: bool) -> str:
        """The line that it says when it serves. CometError if it ends or takes too long."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            out = asyncio.subprocess.PIPE if says_ready else log
            self.process = await asyncio.create_subprocess_exec(
                *self._command, stdout=out, stderr=log, start_new_session=True
            )
        if self.process.stdout is None:
            return ""
        try:
            async with asyncio.timeout(START_S):
                line = (await self.process.stdout.readline()).decode().strip()
        except TimeoutError:
            line = ""
        if not line.startswith("ready "):
            raise CometError(f"{self.name} does not start: see {self.log}")
        return line

    def send(self, number: signal.Signals) -> None:
        if self.process is not None and self.process.returncode is None:
            with suppress(ProcessLookupError):
                self.process.send_signal(number)

    async def end(self) -> None:
        if self.process is None:
            return
        try:
            async with asyncio.timeout(STOP_S):
                await self.process.wait()
        except TimeoutError:
            self.send(signal.SIGKILL)
            await self.process.wait()


class Etcd(Child):
    """ConfigError: there is none on this machine."""

    def __init__(self, data: Path) -> None:
        program = shutil.which("etcd")
        if program is None:
            raise ConfigError(
                "a set that elects its master keeps its document in etcd, and there is no etcd on the path: install it "
                "(Debian and Ubuntu: apt install etcd-server), or leave out --set-of"
            )
        self.port, peer = free_port(), free_port()
        at, among = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{peer}"
        super().__init__(
            "etcd", data / "etcd.log", program, "--name", "first-look", "--data-dir", str(data / "etcd"),
            "--listen-client-urls", at, "--advertise-client-urls", at,
            "--listen-peer-urls", among, "--initial-advertise-peer-urls", among,
            "--initial-cluster", f"first-look={among}",
        )  # fmt: skip

    async def serve(self) -> None:
        await self.start(says_ready=False)
        assert self.process is not None
        end_s = asyncio.get_running_loop().time() + START_S
        while not await self._answers():
            if self.process.returncode is not None or asyncio.get_running_loop().time() >= end_s:
                raise CometError(f"etcd does not start: see {self.log}")
            await asyncio.sleep(ETCD_LOOK_S)

    async def _answers(self) -> bool:
        from cometmq.clock import SystemClock
        from cometmq.failover.stores import StoreUnknown, open_store

        store = open_store(self.address, SystemClock())
        try:
            await store.get("/cometmq/first-look")
        except StoreUnknown:
            return False
        else:
            return True
        finally:
            await store.stop()

    @property
    def address(self) -> str:
        return f"etcd://127.0.0.1:{self.port}"


async def serve(options: argparse.Namespace) -> int:
    if options.secure:
        return serving.fail("up", serving.EXIT_SETTINGS, "--set-of has no --secure: docs/security.md has the settings")
    stopping = serving.stop_signal()
    data = Path(options.data)
    children: list[Child] = []
    again: list[asyncio.Task[None]] = []
    try:
        etcd = Etcd(data)
        children.append(etcd)
        await etcd.serve()
        names = [_name_server(options, data, etcd.address, number) for number in range(NAME_SERVERS)]
        children += names
        found = await asyncio.gather(*(each.start(says_ready=True) for each in names))
        name_server = ";".join(_field(line, "namesrv") for line in found)
        ports = _ports(options.broker_port, options.set_of)
        brokers = [_broker(options, data, etcd.address, name_server, *each) for each in enumerate(ports)]
        children += brokers
        lines = await asyncio.gather(*(each.start(says_ready=True) for each in brokers))
        await _told(name_server, options.set_of)
        addresses = [_field(line, "broker") for line in lines]
        serving.say_ready(f"ready namesrv={name_server} brokers={','.join(addresses)} store={etcd.address}")
        _say(options, brokers, name_server, etcd.address)
        again = [asyncio.create_task(_keep(each)) for each in brokers]
        await stopping.wait()
    except (CometError, OSError) as error:
        return serving.fail("up", serving.exit_code_of(error), error)
    finally:
        for task in again:
            task.cancel()
        for child in reversed(children[1:]):
            child.send(signal.SIGTERM)
        await asyncio.gather(*(child.end() for child in children[1:]))
        for child in children[:1]:
            child.send(signal.SIGTERM)
            await child.end()
    return 0


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "cometmq.cli.main", *arguments]


def _name_server(options: argparse.Namespace, data: Path, store: str, number: int) -> Child:
    name = f"namesrv-{number + 1}"
    kept = data / name
    port = options.namesrv_port + number if options.namesrv_port else 0
    return Child(
        name, data / f"{name}.log",
        *_command(
            "nameserver", "--listen", f"{options.host}:{port}", "--controller", store,
            f"--set=kvConfigPath={kept / 'kvConfig.json'}", f"--set=configStorePath={kept / 'namesrv.properties'}",
        ),
    )  # fmt: skip


def _ports(first: int, count: int) -> list[int]:
    """A broker has one port two below its own and one above it."""
    if first:
        return [first + number * PORTS_APART for number in range(count)]
    ports: list[int] = []
    while len(ports) < count:
        port = free_port()
        if all(abs(port - other) >= PORTS_APART for other in ports):
            ports.append(port)
    return ports


def _broker(
    options: argparse.Namespace, data: Path, store: str, name_server: str, number: int, port: int
) -> Child:
    given = dict(options.set)
    own = {
        "brokerName": SET_NAME,
        **given,
        "enableControllerMode": "true",
        "controllerStore": store,
        "storePathRootDir": str(data / f"broker-{number + 1}"),
        "bindAddress": options.host,
        "listenPort": str(port),
        "namesrvAddr": name_server,
    }
    if options.grpc_port is not None:
        own["grpcServerPort"] = str(options.grpc_port + number * PORTS_APART if options.grpc_port else 0)
    texts = [f"--set={key}={value}" for key, value in own.items()]
    config = ["-c", options.config] if options.config else []
    return Child(f"broker {number + 1}", data / f"broker-{number + 1}.log", *_command("broker", *config, *texts))


def _field(line: str, name: str) -> str:
    return next(word.partition("=")[2] for word in line.split() if word.startswith(f"{name}="))


async def _told(name_server: str, count: int) -> None:
    """Until the name server knows all of them, or some seconds have passed: clients that come now find them."""
    from cometmq.client.admin import Admin
    from cometmq.client.cluster.instance import Instance
    from cometmq.client.options import ClientOptions

    instance = Instance(ClientOptions(name_server))
    await instance.start()
    try:
        async with Admin(instance, 1.0) as admin:
            for _ in range(200):
                with suppress(CometError):
                    if len(await admin.members()) >= count:
                        return
                await asyncio.sleep(ETCD_LOOK_S)
    finally:
        await instance.stop()


async def _keep(child: Child) -> None:
    """Start it again when it ends: somebody has killed it to see what happens."""
    while True:
        assert child.process is not None
        code = await child.process.wait()
        print(f"cometmq up: {child.name} ended with {code}, starts again", file=sys.stderr, flush=True)
        await asyncio.sleep(AGAIN_S)
        try:
            line = await child.start(says_ready=True)
        except (CometError, OSError) as error:
            print(f"cometmq up: {error}", file=sys.stderr, flush=True)
            continue
        print(f"cometmq up: {child.name} pid={child.process.pid} {line}", file=sys.stderr, flush=True)


def _say(options: argparse.Namespace, brokers: list[Child], name_server: str, store: str) -> None:
    """For people, on stderr."""
    pids = [f"{each.name} pid={each.process.pid}" for each in brokers if each.process is not None]
    at = f"COMETMQ_NAMESRV='{name_server}' COMETMQ_CONTROLLER_STORE={store} "
    lines = (
        f"  a set of {options.set_of}   {', '.join(pids)}",
        f"  data         {os.path.abspath(options.data)}",
        "  who leads    " + at + "cometmq cluster sets",
        f"  switch       {at}cometmq cluster elect {SET_NAME} 2 --yes",
        "  fail over    kill -9 PID of the one that leads; it is started again",
        "  stop         Ctrl-C",
    )
    print("\n".join(lines), file=sys.stderr, flush=True)
