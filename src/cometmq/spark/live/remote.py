"""A cluster as Spark's processes see it: blocking calls over one asyncio client in a thread of its own.

Workers are reused by Spark, so clients are kept per process and address, and closed when the process ends. A forked
worker has none of its parent's. Requests that fail for a while (time-out, broker away or busy) are tried again for
`retryMs`; what an answer says for good is raised at once. A broker that no route names is away, not gone: its queues
are lost only if it is there and does not have them (`gone`).
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import os
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Final, NamedTuple, TypeVar

from cometmq.client.cluster.credentials import Credentials, configured
from cometmq.client.cluster.instance import Instance
from cometmq.client.cluster.namespaces import strip, wrap
from cometmq.client.cluster.queue_client import Pulled, QueueClient, pull_command, read_pull
from cometmq.client.loop_thread import LoopThread
from cometmq.client.options import ClientOptions
from cometmq.errors import BrokerError, BrokerUnknown, CallError, CometError, ConfigError, NoRoute
from cometmq.net.tls import ClientTls
from cometmq.secret_text import read_secret
from cometmq.spark.live.offsets import Positions, Queue
from cometmq.spark.options import Options
from cometmq.wire import java_properties
from cometmq.wire.bodies import ClusterInfo, MessageQueue, SubscriptionGroupConfig, TopicList
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import Command

T = TypeVar("T")

CONNECTION_OPTIONS: Final[dict[str, str | None]] = {
    "namesrvAddr": None,
    "accessKey": None,
    "secretKey": None,
    "securityToken": None,
    "tls": "false",
    "tlsTrust": None,
    "tlsVerify": "true",
    "tlsName": None,
    "tlsCert": None,
    "tlsKey": None,
    "tlsKeyPassword": None,
    "namespace": None,
    "pullTimeoutMs": "3000",
    "retryMs": "120000",
}
CONNECTION_ALIASES: Final = {"nameServer": "namesrvAddr", "kafka.bootstrap.servers": "namesrvAddr"} | {
    "tls.enable": "tls",
    "tls.client.authServer": "tlsVerify",
    "tls.client.trustCertPath": "tlsTrust",
    "tls.client.serverName": "tlsName",
    "tls.client.certPath": "tlsCert",
    "tls.client.keyPath": "tlsKey",
    "tls.client.keyPassword": "tlsKeyPassword",
}
# A group for pulls of readers that name none; system groups need not be created.
READER_GROUP: Final = "CID_RMQ_SYS_cometmq_spark"

# Codes that pass: too busy, not available, going away, route not there yet.
_PASSING: Final = frozenset({2, 14, 1500})
_RETRY_FIRST_S: Final = 0.05
_RETRY_MOST_S: Final = 1.0


_TOPIC_LISTS: Final = (Request.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, Request.GET_SYSTEM_TOPIC_LIST_FROM_NS)


class Bounds(NamedTuple):
    first: int
    last: int


class Connection(NamedTuple):
    """What it takes to reach a cluster; hashable, so that it can be the key of a client."""

    namesrv: str
    credentials: Credentials | None
    tls: ClientTls | None
    namespace: str | None
    timeout_s: float
    retry_s: float

    @classmethod
    def of(cls, options: Options) -> Connection:
        return cls(
            options.text("namesrvAddr", "the name server, host:port;host:port"),
            _credentials(options),
            _tls(options),
            options.get("namespace"),
            options.number("pullTimeoutMs", 1) / 1000,
            options.number("retryMs") / 1000,
        )

    def client_options(self) -> ClientOptions:
        keys = self.credentials
        return ClientOptions(
            namesrv=self.namesrv,
            access_key=keys.access_key if keys is not None else None,
            secret_key=keys.secret_key if keys is not None else None,
            security_token=keys.security_token if keys is not None else None,
            namespace=self.namespace,
            tls=self.tls,
            binary_headers=True,
        )


def _credentials(options: Options) -> Credentials | None:
    """Each may be `@FILE`, and without them the environment is asked: both where this runs, so on executors too."""
    given = {name: options.get(name) for name in ("accessKey", "secretKey", "securityToken")}
    if bool(given["accessKey"]) != bool(given["secretKey"]):
        raise ConfigError("accessKey and secretKey belong together: give both or neither")
    read = {name: read_secret(f"option {name}", text) if text else None for name, text in given.items()}
    return configured(read["accessKey"], read["secretKey"], read["securityToken"])


def _tls(options: Options) -> ClientTls | None:
    if not options.flag("tls"):
        return None
    return ClientTls(
        verify=options.flag("tlsVerify"),
        trust_path=options.get("tlsTrust"),
        certificate_path=options.get("tlsCert"),
        key_path=options.get("tlsKey"),
        key_password=read_secret("option tlsKeyPassword", options.get("tlsKeyPassword") or "") or None,
        server_name=options.get("tlsName"),
    )


class Remote:
    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._store_paths: dict[str, tuple[str, str]] = {}
        self._thread = LoopThread("cometmq-spark")
        self._thread.start()
        self.instance: Instance = self.run(self._started())
        self._patiently = QueueClient(self.instance, self._ask)
        self._at_once = QueueClient(self.instance, self._ask_once)

    async def _started(self) -> Instance:
        instance = Instance(self.connection.client_options())
        await instance.start()
        return instance

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs it in the client's thread, and waits."""
        return self._thread.run(work)

    def start(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Runs it in the client's thread; a future to wait with."""
        return self._thread.submit(work)

    def close(self) -> None:
        try:
            self.run(self.instance.stop())
        finally:
            self._thread.stop()

    # What there is

    def topics(self) -> list[str]:
        """All topics of the cluster that are not its own."""
        return self.run(self._topics())

    async def _topics(self) -> list[str]:
        names, places = [await self._topic_list(code) for code in _TOPIC_LISTS]
        # Clusters and brokers have a topic of their name, and clusters one for replies.
        own = {*places, *(f"{place}_REPLY_TOPIC" for place in places)}
        return sorted(strip(self.instance.namespace, name) for name in names if name not in own)

    async def _topic_list(self, code: int) -> list[str]:
        answer = await self.instance.nameservers.ask(self.instance.request(code, {}), self.connection.timeout_s)
        return TopicList.decode(answer.body).topic_list

    def queues(self, topics: Iterable[str]) -> list[Queue]:
        """The queues of these topics that can be read. NoRoute for a topic that is not there."""
        return self.run(self._queues(list(topics)))

    async def _queues(self, topics: list[str]) -> list[Queue]:
        async def of(topic: str) -> list[Queue]:
            route = await self.patient(lambda: self.instance.refresh_route(self._wire(topic)))
            return [Queue(topic, queue.broker_name, queue.queue_id) for queue in route.subscribe]

        found = await asyncio.gather(*map(of, topics))
        return sorted(queue for queues in found for queue in queues)

    def gone(self, queues: Iterable[Queue]) -> set[Queue]:
        """Those that their broker, which is there, does not have any more."""
        return self.run(self._gone(set(queues)))

    async def _gone(self, queues: set[Queue]) -> set[Queue]:
        # Asked before and after: a broker that comes or goes meanwhile says nothing about its queues.
        before = await self._brokers()
        missing = set(queues)
        for topic in {queue.topic for queue in queues}:
            try:
                missing -= set(await self._queues([topic]))
            except NoRoute as error:
                if error.__cause__ is not None:  # no name server answers
                    raise
        after = await self._brokers()
        return {queue for queue in missing if queue.broker in before and queue.broker in after}

    async def _brokers(self) -> set[str]:
        command = self.instance.request(Request.GET_BROKER_CLUSTER_INFO, {})
        answer = await self.instance.nameservers.ask(command, self.connection.timeout_s)
        return set(ClusterInfo.decode(answer.body).broker_addr_table)

    def bounds(self, queues: Iterable[Queue]) -> dict[Queue, Bounds]:
        return self.run(self._for_all(queues, self._bounds_of))

    def maximums(self, queues: Iterable[Queue]) -> Positions:
        return self.run(self._for_all(queues, lambda queue: self._patiently.end(self._wired(queue))))

    def maximums_at_hand(self, queues: Iterable[Queue]) -> Positions:
        """Of the queues whose broker answers at once; the others are left out."""

        async def of(queue: Queue) -> int:
            try:
                return await self._at_once.end(self._wired(queue))
            except (CometError, OSError):
                return -1

        return {queue: offset for queue, offset in self.run(self._for_all(queues, of)).items() if offset >= 0}

    def at_time(self, queues: Iterable[Queue], time_ms: int) -> Positions:
        """The first offset that was stored at or after that moment."""
        return self.run(self._for_all(queues, lambda queue: self._patiently.at_ms(self._wired(queue), time_ms)))

    async def _bounds_of(self, queue: Queue) -> Bounds:
        wired = self._wired(queue)
        first, last = await asyncio.gather(self._patiently.begin(wired), self._patiently.end(wired))
        return Bounds(first, last)

    async def _for_all(self, queues: Iterable[Queue], ask: Callable[[Queue], Awaitable[T]]) -> dict[Queue, T]:
        wanted = list(queues)
        return dict(zip(wanted, await asyncio.gather(*map(ask, wanted)), strict=True))

    async def _ask(self, queue: MessageQueue, command: Command) -> Command:
        return await self.patient(lambda: self._ask_once(queue, command))

    async def _ask_once(self, queue: MessageQueue, command: Command) -> Command:
        command.ext["bname"] = queue.broker_name
        try:
            address = await self.instance.master(queue.broker_name, queue.topic)
        except NoRoute as error:
            raise BrokerUnknown(f"broker {queue.broker_name} of {queue.topic} is away: {error}") from error
        return await self.instance.ask(address, command, self.connection.timeout_s)

    def asked(self, code: int, queue: Queue, more: dict[str, str]) -> Command:
        """What the master of a queue answers; waits while it is away."""
        wired = self._wired(queue)
        ext = {"topic": wired.topic, "queueId": str(wired.queue_id), **more}
        return self.run(self._ask(wired, self.instance.request(code, ext)))

    def _wire(self, name: str) -> str:
        return wrap(self.instance.namespace, name)

    def _wired(self, queue: Queue) -> MessageQueue:
        return MessageQueue(queue.broker, queue.number, self._wire(queue.topic))

    def store_paths(self, queue: Queue) -> tuple[str, str]:
        """Directories of the store and of the log, on the broker's own machine; asked once for each broker."""
        if queue.broker not in self._store_paths:
            command = self.instance.request(Request.GET_BROKER_CONFIG, {})
            answer = self.run(self._ask_once(self._wired(queue), command))
            settings = java_properties.parse(answer.body)
            root = settings.get("storePathRootDir", "")
            log = settings.get("storePathCommitLog") or os.path.join(root, "commitlog")
            self._store_paths[queue.broker] = root, log
        return self._store_paths[queue.broker]

    # Groups

    def committed(self, group: str, queues: Iterable[Queue]) -> Positions:
        """Where the group stands; queues in which it has no position are left out."""

        async def of(queue: Queue) -> int | None:
            return await self._patiently.committed(self._wire(group), self._wired(queue))

        found = self.run(self._for_all(queues, of))
        return {queue: offset for queue, offset in found.items() if offset is not None and offset >= 0}

    def commit(self, group: str, positions: Positions) -> None:
        async def one(queue: Queue) -> None:
            name, wired = self._wire(group), self._wired(queue)
            try:
                await self._patiently.commit(name, wired, positions[queue])
            except BrokerError as error:
                if error.code != Response.SUBSCRIPTION_GROUP_NOT_EXIST:
                    raise
                await self._create_group(queue, group)
                await self._patiently.commit(name, wired, positions[queue])

        self.run(self._for_all(positions, one))

    async def _create_group(self, queue: Queue, group: str) -> None:
        body = SubscriptionGroupConfig(group_name=self._wire(group)).encode()
        address = await self.instance.master(queue.broker, self._wire(queue.topic))
        command = self.instance.request(Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
        await self.patient(lambda: self.instance.ask(address, command, self.connection.timeout_s))

    # Messages

    async def pull(
        self, queue: Queue, offset: int, count: int, bytes_max: int, group: str, filter_: tuple[str, str]
    ) -> Pulled:
        kind, expression = filter_
        wired = self._wired(queue)

        async def once() -> Pulled:
            reader = self.instance.brokers.reader(queue.broker)
            if reader is None:
                with contextlib.suppress(NoRoute):
                    await self.instance.refresh_route(wired.topic)
                reader = self.instance.brokers.reader(queue.broker)
            if reader is None:
                raise BrokerUnknown(f"no route names a member of broker {queue.broker} for topic {queue.topic}")
            command = pull_command(
                self.instance, wired, group, offset, count_max=count, bytes_max=bytes_max, subscription=expression,
                kind=kind, bulk=True,
            )  # fmt: skip
            answer = await self.instance.net.call(reader[0], command, self.connection.timeout_s)
            return read_pull(answer, reader[0], command)

        return await self.patient(once)

    async def patient(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Tries again for `retryMs` while what goes wrong may pass."""
        give_up_s = time.monotonic() + self.connection.retry_s
        pause_s = _RETRY_FIRST_S
        while True:
            try:
                return await attempt()
            except (CallError, BrokerError, BrokerUnknown, OSError) as error:
                passing = not isinstance(error, BrokerError) or error.code in _PASSING
                if not passing or isinstance(error, NoRoute) or time.monotonic() + pause_s > give_up_s:
                    raise
            await asyncio.sleep(pause_s)
            pause_s = min(_RETRY_MOST_S, pause_s * 2)


_remotes: dict[tuple[int, Connection], Remote] = {}
_lock = threading.Lock()


def remote(options: Options) -> Remote:
    """The client of this process for these options."""
    connection = Connection.of(options)
    key = (os.getpid(), connection)
    with _lock:
        found = _remotes.get(key)
        if found is None:
            found = _remotes[key] = Remote(connection)
        return found


def close_all() -> None:
    for (pid, _), one in list(_remotes.items()):
        if pid == os.getpid():
            one.close()
    _remotes.clear()


atexit.register(close_all)
