"""The embedded cluster: the real name server and the real broker, on a temporary directory and free ports.

    Cluster ── EmbeddedNameServer      namesrv/
            ├─ EmbeddedBroker a        broker-a/          start, stop, kill, restart; always at the same address
            └─ EmbeddedBroker b        broker-b/

Files are small so that a cluster starts and stops in a fraction of a second; any broker setting can be given. Time is
real, and can be moved ahead: see `clock`. What clients of this cluster do has the same time; other programs may connect
too, in theirs.

With `secure` the brokers check who sends a request and what it may do. Clients of the cluster are then a Super user,
unless they are given keys; `create_user` makes others.

Killing a broker: its connections break without a word, and its directory is put back to what it was in that moment,
byte for byte what the kernel had of a process killed with SIGKILL. The rest of the object is stopped behind the scenes.
"""

import contextlib
import json
import secrets
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypedDict, Unpack

from cometmq import state_file
from cometmq.broker.admin import settings as broker_live
from cometmq.broker.server import Broker
from cometmq.client.admin import AccessEntry
from cometmq.client.client import Client
from cometmq.client.messages import Message
from cometmq.client.options import ClientKeywords
from cometmq.errors import CometError, ConfigError, NotRunning
from cometmq.nameserver import settings as nameserver_live
from cometmq.nameserver.server import NameServer
from cometmq.testing.clock import MovableClock

Setting = str | int | float | bool

FREE_PORT_ATTEMPTS: Final = 5

SMALL: Final[dict[str, Setting]] = {
    "mappedFileSizeCommitLog": 4 << 20,
    "mappedFileSizeConsumeQueue": 20 * 2_000,
    "maxHashSlotNum": 2_000,
    "maxIndexNum": 8_000,
    # A busy machine may stop a test for seconds, which fast failure rightly answers with refusals.
    "brokerFastFailureEnable": False,
    # Nor is its disk the test's business.
    "diskMaxUsedSpaceRatio": 95,
    "diskSpaceCleanForciblyRatio": 99,
    "diskSpaceWarningLevelRatio": 99,
}


SUPER_USER: Final = "admin"
SERVERS_USER: Final = "servers"
KEYS_FILE: Final = "keys.json"


class Keys(TypedDict):
    """What a client needs to be one user: `cluster.client(**keys)`."""

    access_key: str
    secret_key: str


class EmbeddedNameServer:
    """`stop` and `start` again at the same address; it forgets everything but its key values."""

    def __init__(self, directory: Path, clock: MovableClock) -> None:
        self.directory = directory
        self._clock = clock
        self._port = 0
        self._server: NameServer | None = None

    @property
    def is_running(self) -> bool:
        return self._server is not None

    @property
    def address(self) -> str:
        if not self._port:
            raise NotRunning("the name server was not started yet: use `async with Cluster()`")
        return f"127.0.0.1:{self._port}"

    async def start(self) -> None:
        if self._server is not None:
            return
        texts = {
            "bindAddress": "127.0.0.1",
            "listenPort": str(self._port),
            "kvConfigPath": str(self.directory / "kvConfig.json"),
            "configStorePath": str(self.directory / "namesrv.properties"),
        }
        server = NameServer(nameserver_live.load(texts), self._clock)
        await server.start()
        self._server, self._port = server, server.port

    async def stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.stop()


class EmbeddedBroker:
    """One broker of a cluster; `server` is the real one while it runs."""

    def __init__(self, name: str, directory: Path, settings: Mapping[str, Setting], clock: MovableClock) -> None:
        self.name = name
        self.directory = directory
        self._settings = dict(settings)
        self._clock = clock
        self._server: Broker | None = None

    @property
    def is_running(self) -> bool:
        return self._server is not None

    @property
    def server(self) -> Broker:
        if self._server is None:
            raise NotRunning(f"broker {self.name} does not run: start it first")
        return self._server

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._settings.get('listenPort', 0)}"

    async def start(self) -> None:
        """Serve, and be known to the name server when this returns."""
        if self._server is not None:
            return
        attempts = FREE_PORT_ATTEMPTS if not self._settings.get("listenPort") else 1
        for left in reversed(range(attempts)):
            try:
                self._server = await self._started()
            except CometError as error:
                if not left or not isinstance(error.__cause__, OSError):
                    raise
                continue  # another process took the port that was free
            self._settings["listenPort"] = self._server.port
            return

    async def _started(self) -> Broker:
        # A free port unless one is given: the default is that of a broker that may run on this machine.
        own = {"storePathRootDir": str(self.directory / "store"), "brokerName": self.name, "listenPort": 0}
        texts = own | self._settings
        server = Broker(broker_live.load({key: _text(value) for key, value in texts.items()}), self._clock)
        await server.start()
        return server

    async def stop(self) -> None:
        """As an operator stops it: everything is saved."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop()

    async def kill(self) -> None:
        """As SIGKILL ends it: what was answered is there after a restart, nothing was saved or said."""
        server, self._server = self._server, None
        if server is None:
            return
        await server.server.stop(0)
        await server.fast_server.stop(0)
        left = self.directory / "left"
        shutil.copytree(self.directory / "store", left, copy_function=_copy)
        await server.stop()
        shutil.rmtree(self.directory / "store")
        left.rename(self.directory / "store")

    async def restart(self, *, kill: bool = False) -> None:
        await (self.kill() if kill else self.stop())
        await self.start()


class Cluster:
    """`settings` are the brokers', by RocketMQ's keys; `topics` are made at the start, on every broker.

    `directory` keeps the files after the end; without it they are in a temporary one and go. `secure`: requests are
    signed, and users may do what they were granted.
    """

    def __init__(
        self,
        *,
        brokers: int = 1,
        topics: Iterable[str] = (),
        queues: int = 4,
        settings: Mapping[str, Setting] | None = None,
        directory: str | Path | None = None,
        secure: bool = False,
    ) -> None:
        if not 1 <= brokers <= 26:
            raise ConfigError(f"brokers is {brokers}, allowed are 1 to 26")
        self.clock = MovableClock()
        self._given = Path(directory) if directory is not None else None
        self._made: Path | None = None
        self._topics = tuple(topics)
        self._queues = queues
        self._count = brokers
        self._is_secure = secure
        self._keys: Keys | None = None
        self._settings = {**SMALL, **(settings or {})}
        self._clients: list[Client] = []
        self.brokers: list[EmbeddedBroker] = []
        self._nameserver: EmbeddedNameServer | None = None

    # Life

    async def start(self) -> None:
        if self._given is None:
            self._made = Path(tempfile.mkdtemp(prefix="cometmq-"))
        directory = self._given or self._made
        assert directory is not None
        try:
            await self._start(directory)
        except BaseException:
            await self.stop()
            raise

    async def _start(self, directory: Path) -> None:
        self._nameserver = EmbeddedNameServer(directory / "namesrv", self.clock)
        await self._nameserver.start()
        access: dict[str, Setting] = {}
        if self._is_secure:
            self._keys, servers = _kept_keys(directory / KEYS_FILE)
            access = _access_settings(self._keys, servers)
        own: dict[str, Setting] = {
            "bindAddress": "127.0.0.1",
            "brokerIP1": "127.0.0.1",
            "listenPort": 0,
            "namesrvAddr": self._nameserver.address,
        }
        for number in range(self._count):
            name = "broker-" + chr(ord("a") + number)
            broker = EmbeddedBroker(name, directory / name, own | access | self._settings, self.clock)
            self.brokers.append(broker)
            await broker.start()
        for topic in self._topics:
            await self.create_topic(topic, queues=self._queues)

    async def stop(self) -> None:
        """Clients that came from here, brokers, the name server, the files. Idempotent."""
        for client in reversed(self._clients):
            await client.stop()
        self._clients.clear()
        for broker in self.brokers:
            await broker.stop()
        if self._nameserver is not None:
            await self._nameserver.stop()
        self.clock.stop()
        if self._made is not None:
            shutil.rmtree(self._made, ignore_errors=True)
            self._made = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # Parts

    @property
    def nameserver(self) -> EmbeddedNameServer:
        if self._nameserver is None:
            raise NotRunning("the cluster was not started: use `async with Cluster()`")
        return self._nameserver

    @property
    def namesrv(self) -> str:
        """The address that clients of every language connect to."""
        return self.nameserver.address

    @property
    def broker(self) -> EmbeddedBroker:
        """The first one."""
        if not self.brokers:
            raise NotRunning("the cluster was not started: use `async with Cluster()`")
        return self.brokers[0]

    @property
    def keys(self) -> Keys:
        """Those of the Super user, for other programs: COMETMQ_ACCESS_KEY and COMETMQ_SECRET_KEY."""
        if self._keys is None:
            raise ConfigError("there are no keys: make the cluster with secure=True, and start it")
        return self._keys

    def client(self, **options: Unpack[ClientKeywords]) -> Client:
        """A client of this cluster, with its time, to be used with `async with`; stopped with the cluster at last.

        Without keys it is the Super user of a secure cluster."""
        if self._keys is not None and options.get("access_key") is None:
            options = {**options, **self._keys}
        client = Client(self.namesrv, clock=self.clock, **options)
        self._clients.append(client)
        return client

    # Time

    def now(self) -> datetime:
        """The cluster's time, UTC."""
        return datetime.fromtimestamp(self.clock.now_ms() / 1000, UTC)

    async def advance(self, seconds: float) -> None:
        """Move the cluster's time ahead. What is due meanwhile happens: delays end, retries come, clients go silent."""
        await self.clock.advance(seconds)

    # Content

    async def create_user(self, name: str, rights: Mapping[str, str] | None = None) -> Keys:
        """A user of a secure cluster with rights like {"Topic:orders_*": "Pub,Sub"}; gives its keys."""
        keys = _new_keys(name)
        async with self._own_client() as client, client.admin() as admin:
            await admin.create_user(name, keys["secret_key"])
            for resource, actions in (rights or {}).items():
                await admin.grant(name, AccessEntry(resource, tuple(actions.split(","))))
        return keys

    async def create_topic(self, topic: str, *, queues: int = 4, kind: str | None = None) -> None:
        """On every broker that runs; clients find it when this returns."""
        async with self._own_client() as client, client.admin() as admin:
            await admin.create_topic(topic, queues=queues, kind=kind)

    async def messages(self, topic: str) -> list[Message[bytes]]:
        """Everything that is in a topic now, queue by queue, in the order of its offsets."""
        async with self._own_client() as client, client.admin() as admin:
            found: list[Message[bytes]] = []
            for queue in await admin.topic_queues(topic):
                found += [message async for message in admin.read(queue)]
            return found

    def _own_client(self) -> Client:
        if self._keys is None:
            return Client(self.namesrv, clock=self.clock)
        return Client(self.namesrv, clock=self.clock, **self._keys)


def _new_keys(name: str) -> Keys:
    return {"access_key": name, "secret_key": secrets.token_hex(16)}


def _kept_keys(file: Path) -> tuple[Keys, Keys]:
    """Of the Super user and of the servers: those of an earlier cluster in the same directory, whose users it has."""
    if file.exists():
        first, servers = json.loads(file.read_bytes())
        return first, servers
    first, servers = _new_keys(SUPER_USER), _new_keys(SERVERS_USER)
    state_file.save(file, json.dumps([first, servers]).encode(), state_file.PRIVATE_FILES)
    return first, servers


def _access_settings(keys: Keys, servers: Keys) -> dict[str, Setting]:
    return {
        "authenticationEnabled": True,
        "authorizationEnabled": True,
        "initAuthenticationUser": json.dumps({"username": keys["access_key"], "password": keys["secret_key"]}),
        "innerClientAuthenticationCredentials": json.dumps(
            {"accessKey": servers["access_key"], "secretKey": servers["secret_key"]}
        ),
    }


def _copy(source: str, target: str) -> None:
    """Temporary files may go while we copy."""
    with contextlib.suppress(FileNotFoundError):
        shutil.copy2(source, target)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
