"""A client of either language behind the same words, so that a test of a behaviour has one source.

    side.send(topic, Out("hello", tag="a"))           every kind of send
    with side.consume(topic, group) as consuming:     push consumption
        consuming.take(3)
    side.pull, side.transact, side.request, side.serve

`JavaSide` runs snippets in the resident JVM. `PythonSide` is in `python_side.py`. Bodies are text here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import Any, Protocol, Self

from tests.compat.harness.programs import text
from tests.compat.harness.shell import JavaShell, Run

TAKE_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Out:
    """A message to be sent. With a `key` it goes where RocketMQ's hash of it says."""

    body: str
    tag: str | None = None
    keys: str = ""
    properties: dict[str, str] = field(default_factory=dict)
    key: str | None = None
    delay_level: int = 0


@dataclass(frozen=True, slots=True)
class Sent:
    id: str
    status: str
    queue_id: int
    offset: int


@dataclass(frozen=True, slots=True)
class Got:
    """A message as a handler saw it; `times` is how often it failed before."""

    body: str
    id: str
    topic: str
    tag: str | None
    keys: str
    properties: dict[str, str]
    queue_id: int
    offset: int
    times: int


class Consuming(Protocol):
    """A running consumer."""

    def take(self, count: int = 1, timeout_s: float = TAKE_TIMEOUT_S) -> list[Got]:
        """The next messages, each once."""

    @property
    def seen(self) -> list[Got]:
        """All so far."""

    def stop(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Pulling(Protocol):
    """A pull consumer that has been given all queues of a topic, and commits only when told."""

    def seek(self, queue_id: int, offset: int) -> None: ...

    def poll(self) -> list[str]:
        """Bodies of whatever there is, after some waiting."""

    def commit(self) -> None:
        """Remember what was polled."""

    def committed(self, queue_id: int) -> int: ...

    def stop(self) -> None: ...


class Transacting(Protocol):
    """A transaction producer. States are commit, rollback, unknown; `answer` is what a check will be told."""

    def send(self, body: str, state: str, answer: str = "commit") -> None: ...

    def await_asked(self, *bodies: str) -> None:
        """Until each of these was asked for."""

    def stop(self) -> None: ...


class Side(Protocol):
    name: str

    def send(
        self, topic: str, *messages: Out, how: str = "sync", compression: str = "zlib", namespace: str = ""
    ) -> list[Sent]:
        """`how`: sync, async, oneway, batch."""

    def consume(
        self,
        topic: str,
        group: str,
        *,
        tag: str = "*",
        sql: str = "",
        ordered: bool = False,
        broadcast: bool = False,
        member: str = "",
        fails: int = 0,
        retries_max: int = 16,
        namespace: str = "",
    ) -> Consuming:
        """From the first message on. One whose body begins with `bad` fails `fails` times."""

    def pull(self, topic: str, group: str) -> Pulling: ...

    def transact(self, topic: str, group: str) -> Transacting: ...

    def request(self, topic: str, *bodies: str) -> list[str]:
        """The reply to each."""

    def serve(self, topic: str, group: str) -> Consuming:
        """Replies `re: ` and the body."""


SEND = """
    import com.alibaba.fastjson2.*;
    import org.apache.rocketmq.common.compression.CompressionType;
    JSONObject o = JSON.parseObject(args[1]);
    String how = o.getString("how");
    String topic = args[2];
    DefaultMQProducer p = use(new DefaultMQProducer(topic + "_p"));
    if (!o.getString("namespace").isEmpty()) p.setNamespace(o.getString("namespace"));
    p.setNamesrvAddr(args[0]);
    p.setCompressType(CompressionType.of(o.getString("compression").toUpperCase()));
    p.start();
    List<Message> all = new ArrayList<>();
    List<String> keys = new ArrayList<>();
    for (Object each : o.getJSONArray("messages")) {
        JSONObject given = (JSONObject) each;
        Message m = new Message(topic, given.getString("body").getBytes(StandardCharsets.UTF_8));
        if (given.getString("tag") != null) m.setTags(given.getString("tag"));
        if (!given.getString("keys").isEmpty()) m.setKeys(given.getString("keys"));
        JSONObject properties = given.getJSONObject("properties");
        for (String name : properties.keySet()) m.putUserProperty(name, properties.getString(name));
        if (given.getIntValue("delay_level") > 0) m.setDelayTimeLevel(given.getIntValue("delay_level"));
        all.add(m);
        keys.add(given.getString("key"));
    }
    List<SendResult> results = new ArrayList<>();
    if (how.equals("batch")) {
        results.add(p.send(all));
    } else if (how.equals("async")) {
        CompletableFuture<SendResult>[] futures = new CompletableFuture[all.size()];
        for (int i = 0; i < futures.length; i++) {
            CompletableFuture<SendResult> future = futures[i] = new CompletableFuture<>();
            p.send(all.get(i), new SendCallback() {
                public void onSuccess(SendResult r) { future.complete(r); }
                public void onException(Throwable e) { future.completeExceptionally(e); }
            });
        }
        for (CompletableFuture<SendResult> future : futures) results.add(future.get(20, TimeUnit.SECONDS));
    } else {
        for (int i = 0; i < all.size(); i++) {
            if (how.equals("oneway")) p.sendOneway(all.get(i));
            else if (keys.get(i) != null) results.add(p.send(all.get(i), new SelectMessageQueueByHash(), keys.get(i)));
            else results.add(p.send(all.get(i)));
        }
    }
    for (SendResult r : results) {
        String[] ids = r.getMsgId().split(",");
        for (int i = 0; i < ids.length; i++) {
            emit("id", ids[i], "status", r.getSendStatus(), "queue_id", r.getMessageQueue().getQueueId(),
                "offset", r.getQueueOffset() + i);
        }
    }
"""

CONSUME = """
    import com.alibaba.fastjson2.*;
    import org.apache.rocketmq.client.utils.MessageUtil;
    import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;
    JSONObject o = JSON.parseObject(args[1]);
    DefaultMQPushConsumer c = use(new DefaultMQPushConsumer(args[3]));
    if (!o.getString("namespace").isEmpty()) c.setNamespace(o.getString("namespace"));
    c.setNamesrvAddr(args[0]);
    if (!o.getString("member").isEmpty()) c.setInstanceName(o.getString("member"));
    c.setPollNameServerInterval(1_000);
    c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    c.setMaxReconsumeTimes(o.getIntValue("retries_max"));
    c.setSuspendCurrentQueueTimeMillis(100);
    if (o.getBooleanValue("broadcast")) c.setMessageModel(MessageModel.BROADCASTING);
    String sql = o.getString("sql");
    if (sql.isEmpty()) c.subscribe(args[2], o.getString("tag"));
    else c.subscribe(args[2], MessageSelector.bySql(sql));
    int fails = o.getIntValue("fails");
    DefaultMQProducer back = null;
    if (o.getBooleanValue("serve")) {
        back = use(new DefaultMQProducer(args[3] + "_back"));
        back.setNamesrvAddr(args[0]);
        back.start();
    }
    final DefaultMQProducer replier = back;
    java.util.function.Predicate<List<MessageExt>> handle = messages -> {
        boolean good = true;
        for (MessageExt m : messages) {
            String body = new String(m.getBody(), StandardCharsets.UTF_8);
            emit("body", m.getBody(), "id", m.getMsgId(), "topic", m.getTopic(), "tag", m.getTags(),
                "keys", m.getKeys() == null ? "" : m.getKeys(), "properties", m.getProperties(),
                "queue_id", m.getQueueId(), "offset", m.getQueueOffset(), "times", m.getReconsumeTimes());
            good &= !(body.startsWith("bad") && m.getReconsumeTimes() < fails);
            if (replier != null) {
                try {
                    replier.send(MessageUtil.createReplyMessage(m, ("re: " + body).getBytes(StandardCharsets.UTF_8)));
                } catch (Exception e) {
                    emit(e.toString());
                }
            }
        }
        return good;
    };
    if (o.getBooleanValue("ordered")) {
        c.registerMessageListener((MessageListenerOrderly) (messages, context) -> handle.test(messages)
            ? ConsumeOrderlyStatus.SUCCESS : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
    } else {
        c.registerMessageListener((MessageListenerConcurrently) (messages, context) -> handle.test(messages)
            ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER);
    }
    c.start();
    awaitStop();
"""

PULL = """
    DefaultLitePullConsumer c = use(new DefaultLitePullConsumer(args[2]));
    c.setNamesrvAddr(args[0]);
    c.setAutoCommit(false);
    c.start();
    Map<Integer, MessageQueue> queues = new TreeMap<>();
    for (MessageQueue q : c.fetchMessageQueues(args[1])) queues.put(q.getQueueId(), q);
    c.assign(queues.values());
    for (String order = receive(); order != null; order = receive()) {
        String[] words = order.split(" ");
        switch (words[0]) {
            case "seek":
                c.seek(queues.get(Integer.parseInt(words[1])), Long.parseLong(words[2]));
                emit("done");
                break;
            case "poll":
                List<String> bodies = new ArrayList<>();
                for (MessageExt m : c.poll(2_000)) bodies.add(new String(m.getBody(), StandardCharsets.UTF_8));
                emit(bodies);
                break;
            case "commit":
                c.commit(new HashSet<>(queues.values()), true);
                emit("done");
                break;
            default:
                emit(c.committed(queues.get(Integer.parseInt(words[1]))));
        }
    }
"""

TRANSACT = """
    TransactionMQProducer p = use(new TransactionMQProducer(args[2]));
    p.setNamesrvAddr(args[0]);
    Map<String, LocalTransactionState> states = Map.of("commit", LocalTransactionState.COMMIT_MESSAGE,
        "rollback", LocalTransactionState.ROLLBACK_MESSAGE, "unknown", LocalTransactionState.UNKNOW);
    p.setTransactionListener(new TransactionListener() {
        public LocalTransactionState executeLocalTransaction(Message m, Object said) {
            return states.get(said);
        }
        public LocalTransactionState checkLocalTransaction(MessageExt m) {
            emit("asked", new String(m.getBody(), StandardCharsets.UTF_8));
            return states.get(m.getUserProperty("answer"));
        }
    });
    p.start();
    for (String order = receive(); order != null; order = receive()) {
        String[] words = order.split("\\t");
        Message m = new Message(args[1], words[0].getBytes(StandardCharsets.UTF_8));
        m.putUserProperty("answer", words[2]);
        p.sendMessageInTransaction(m, words[1]);
        emit("sent", words[0]);
    }
"""

REQUEST = """
    DefaultMQProducer p = use(new DefaultMQProducer(args[1] + "_asker"));
    p.setNamesrvAddr(args[0]);
    p.start();
    for (int i = 2; i < args.length; i++) {
        Message asked = new Message(args[1], args[i].getBytes(StandardCharsets.UTF_8));
        emit("body", p.request(asked, 20_000).getBody());
    }
"""


class JavaConsuming:
    def __init__(self, run: Run) -> None:
        self._run = run

    def take(self, count: int = 1, timeout_s: float = TAKE_TIMEOUT_S) -> list[Got]:
        return [_got(row) for row in self._run.take(count, timeout_s)]

    @property
    def seen(self) -> list[Got]:
        return [_got(row) for row in self._run.rows]

    def stop(self) -> None:
        self._run.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._run.ended:
            self.stop()


def _got(row: dict[str, Any]) -> Got:
    return Got(**{**row, "body": text(row["body"])})


class JavaPulling:
    def __init__(self, run: Run) -> None:
        self._run = run

    def _ask(self, order: str) -> Any:
        self._run.send(order)
        return self._run.next()

    def seek(self, queue_id: int, offset: int) -> None:
        self._ask(f"seek {queue_id} {offset}")

    def poll(self) -> list[str]:
        bodies: list[str] = self._ask("poll")
        return bodies

    def commit(self) -> None:
        self._ask("commit")

    def committed(self, queue_id: int) -> int:
        return int(self._ask(f"committed {queue_id}"))

    def stop(self) -> None:
        self._run.stop()


class JavaTransacting:
    def __init__(self, run: Run) -> None:
        self._run = run
        self._asked: list[str] = []
        self._sent: list[str] = []

    def send(self, body: str, state: str, answer: str = "commit") -> None:
        self._run.send(f"{body}\t{state}\t{answer}")
        while body not in self._sent:
            self._hear(self._run.next())

    def await_asked(self, *bodies: str) -> None:
        while not set(bodies) <= set(self._asked):
            self._hear(self._run.next())

    def _hear(self, row: dict[str, str]) -> None:
        if "asked" in row:
            self._asked.append(row["asked"])
        else:
            self._sent.append(row["sent"])

    def stop(self) -> None:
        self._run.stop()


class JavaSide:
    name = "java"

    def __init__(self, java: JavaShell, namesrv: str) -> None:
        self._java = java
        self._namesrv = namesrv

    def send(
        self, topic: str, *messages: Out, how: str = "sync", compression: str = "zlib", namespace: str = ""
    ) -> list[Sent]:
        options = {"how": how, "compression": compression, "namespace": namespace}
        given = json.dumps({**options, "messages": [asdict(message) for message in messages]})
        return [Sent(**row) for row in self._java.run(SEND, self._namesrv, given, topic).rows]

    def consume(self, topic: str, group: str, **options: Any) -> Consuming:
        defaults = {
            "tag": "*", "sql": "", "ordered": False, "broadcast": False, "member": "", "fails": 0, "retries_max": 16,
            "namespace": "", "serve": False,
        }  # fmt: skip
        given = json.dumps({**defaults, **options})
        return JavaConsuming(self._java.begin(CONSUME, self._namesrv, given, topic, group))

    def pull(self, topic: str, group: str) -> Pulling:
        return JavaPulling(self._java.begin(PULL, self._namesrv, topic, group))

    def transact(self, topic: str, group: str) -> Transacting:
        return JavaTransacting(self._java.begin(TRANSACT, self._namesrv, topic, group))

    def request(self, topic: str, *bodies: str) -> list[str]:
        return [text(row["body"]) for row in self._java.run(REQUEST, self._namesrv, topic, *bodies).rows]

    def serve(self, topic: str, group: str) -> Consuming:
        return self.consume(topic, group, serve=True)


def bodies(got: Sequence[Got]) -> list[str]:
    return [each.body for each in got]
