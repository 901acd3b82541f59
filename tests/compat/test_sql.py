"""Property filters: every expression of the table at both brokers, with the Java client; and what both refuse.

COMETMQ_FUZZ_EXPRESSIONS sets how many more are generated, COMETMQ_FUZZ_SEED the seed; both are printed by a failure.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator

import pytest

from cometmq.broker.sql import SqlError, compile_filter
from tests.compat.conftest import Cluster, Clusters
from tests.compat.harness import remoting
from tests.compat.harness.shell import JavaFailed, JavaShell
from tests.support.expressions import MESSAGES, REFUSED, SELECTED

pytestmark = pytest.mark.interop

UPDATE_BROKER_CONFIG = 25
CHECK_CLIENT_CONFIG = 46
SUBSCRIPTION_PARSE_FAILED = 23
TABLE_TIMEOUT_S = 120.0
GENERATED = int(os.environ.get("COMETMQ_FUZZ_EXPRESSIONS", "4000"))
SEED = int(os.environ.get("COMETMQ_FUZZ_SEED", "20261115"))
REPLAY = f"COMETMQ_FUZZ_SEED={SEED} COMETMQ_FUZZ_EXPRESSIONS={GENERATED} pytest tests/compat/test_sql.py -k generated"


def switch(cluster: Cluster, on: bool) -> None:
    text = f"enablePropertyFilter={str(on).lower()}"
    assert remoting.call(cluster.broker.address, UPDATE_BROKER_CONFIG, body=text.encode()).code == 0


@pytest.fixture
def filtering(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with property filters switched on."""
    switch(cluster, True)
    yield cluster
    switch(cluster, False)


SEND = """
    DefaultMQProducer p = use(new DefaultMQProducer("compat_properties"));
    p.setNamesrvAddr(args[0]);
    p.start();
    for (int i = 2; i < args.length; i++) {
        String[] parts = args[i].split("\\u0001");
        Message m = new Message(args[1], parts[0].getBytes(StandardCharsets.UTF_8));
        for (int j = 1; j < parts.length; j += 2) m.putUserProperty(parts[j], parts[j + 1]);
        p.send(m);
    }
"""


def send(java: JavaShell, cluster: Cluster, topic: str, messages: dict[str, dict[str, str]]) -> None:
    """One after the other; the body is the name."""
    texts = ["\1".join([name, *(text for pair in found.items() for text in pair)]) for name, found in messages.items()]
    java.run(SEND, cluster.namesrv.address, topic, *texts)


# What is selected

SELECT = """
    DefaultMQPullConsumer c = use(new DefaultMQPullConsumer(args[2]));
    c.setNamesrvAddr(args[0]);
    c.start();
    MessageQueue q = c.fetchSubscribeMessageQueues(args[1]).iterator().next();
    // The answer to a heartbeat, which follows the first contact, tells the client that this broker knows expressions.
    for (int left = 600; left > 0; left--) {
        try {
            c.pull(q, MessageSelector.bySql("TRUE"), 0, 1);
            break;
        } catch (MQClientException e) {
            c.getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory().sendHeartbeatToAllBrokerWithLock();
            Thread.sleep(50);
        }
    }
    for (int i = 3; i < args.length; i++) {
        List<String> names = new ArrayList<>();
        for (long next = 0, end = c.maxOffset(q); next < end; ) {
            PullResult r = c.pull(q, MessageSelector.bySql(args[i]), next, 32);
            if (r.getPullStatus() == PullStatus.FOUND)
                for (MessageExt m : r.getMsgFoundList()) names.add(new String(m.getBody(), StandardCharsets.UTF_8));
            next = r.getNextBeginOffset();
        }
        emit(names);
    }
"""


@pytest.mark.mission("FI-02")
def test_every_expression_of_the_table_selects_the_same_messages(
    java55: JavaShell, filtering: Cluster, topic: str
) -> None:
    assert len(SELECTED) >= 60
    remoting.create_topic(filtering.broker.address, topic, queues=1)
    send(java55, filtering, topic, MESSAGES)
    filtering.broker.await_dispatch()
    arguments = (filtering.namesrv.address, topic, f"{topic}_g", *SELECTED)
    rows = java55.run(SELECT, *arguments, timeout_s=TABLE_TIMEOUT_S).rows
    found = {expression: set(names) for expression, names in zip(SELECTED, rows, strict=True)}
    wrong = {expression: (found[expression], SELECTED[expression]) for expression in SELECTED
             if found[expression] != SELECTED[expression]}  # fmt: skip
    assert not wrong


PUSH = """
    DefaultMQPushConsumer c = use(new DefaultMQPushConsumer(args[2]));
    c.setNamesrvAddr(args[0]);
    c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    c.setPollNameServerInterval(1000);  // a consumer that runs learns only so where a further topic is
    c.subscribe(args[1], MessageSelector.bySql(args[3]));
    c.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
        for (MessageExt m : messages) emit(new String(m.getBody(), StandardCharsets.UTF_8));
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
    });
    c.start();
    for (String text; (text = receive()) != null; ) c.subscribe(text, MessageSelector.bySql("size > 5"));
"""


@pytest.mark.mission("FI-02")
def test_a_running_consumer_is_woken_and_takes_a_further_topic(java: JavaShell, filtering: Cluster, topic: str) -> None:
    further = f"{topic}_further"
    for name in (topic, further):
        remoting.create_topic(filtering.broker.address, name, queues=2)
    send(java, filtering, topic, MESSAGES)
    expression = "region = 'eu' AND (size < 5 OR size > 10)"
    consumer = java.begin(PUSH, filtering.namesrv.address, topic, f"{topic}_g", expression)
    assert consumer.next() == "eu"
    send(java, filtering, topic, {"waiting": {"region": "eu", "size": "11"}, "not": {"region": "eu", "size": "7"}})
    assert consumer.next() == "waiting"
    consumer.send(further)
    send(java, filtering, further, {"no": {"size": "5"}, "yes": {"size": "6"}})
    assert consumer.next() == "yes"
    consumer.stop()
    assert consumer.rows == ["eu", "waiting", "yes"]


# What is refused


def checked(cluster: Cluster, expression: str, kind: str = "SQL92") -> int:
    wanted = {
        "classFilterMode": False,
        "codeSet": [],
        "expressionType": kind,
        "subString": expression,
        "subVersion": 1,
        "tagsSet": [],
        "topic": "T",
    }
    body = {"clientId": "c", "group": "g", "subscriptionData": wanted}
    return remoting.call(cluster.broker.address, CHECK_CLIENT_CONFIG, body=json.dumps(body).encode()).code


def test_the_same_expressions_are_refused(filtering: Cluster) -> None:
    accepted = [expression for expression in REFUSED if checked(filtering, expression) != SUBSCRIPTION_PARSE_FAILED]
    assert accepted == []
    refused = [expression for expression in SELECTED if checked(filtering, expression) != 0]
    assert refused == []
    assert checked(filtering, "//a", "XPATH") == SUBSCRIPTION_PARSE_FAILED
    assert checked(filtering, "a >", "TAG") == 0


@pytest.mark.parametrize("expression", ["a >", "a = NULL", "a > 'x'"])
def test_a_consumer_with_a_wrong_expression_does_not_start(
    java: JavaShell, filtering: Cluster, topic: str, expression: str
) -> None:
    remoting.create_topic(filtering.broker.address, topic)
    with pytest.raises(JavaFailed, match="CODE: 23"):
        java.run(PUSH, filtering.namesrv.address, topic, f"{topic}_g", expression)


@pytest.mark.mission("FI-02")
def test_without_property_filters_a_consumer_does_not_start_and_is_told_why(
    java: JavaShell, clusters: Clusters, topic: str
) -> None:
    for cluster, words in zip(clusters.both, ("does not support", "enablePropertyFilter=true"), strict=True):
        remoting.create_topic(cluster.broker.address, topic)
        with pytest.raises(JavaFailed, match="CODE: 1 ") as caught:
            java.run(PUSH, cluster.namesrv.address, topic, f"{topic}_g", "a > 5")
        assert words in str(caught.value)


# Generated expressions, without a broker

LITERALS = [
    *("5", "5L", "0", "-5", "5.5", "5.0", "1e3", ".5", "2147483647", "2147483648", "9223372036854775807", "TRUE"),
    *("FALSE", "NULL", "'5'", "'x'", "'abc'", "''", "'true'", "'it''s'", "9007199254740993", "9007199254740992.0"),
]
TEXTS = ["'5'", "'x'", "'e'", "''", "'true'", "'abc'", "'it''s'"]
NOISE = "()'-+*/=<>!., \n\rabeE0159LlNOTx;\"é$_"


class Generator:
    """Expressions near the grammar: most are in it, some are not quite."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def expression(self) -> str:
        text = self.either(self.chance.randint(0, 2))
        for _ in range(self.chance.choice([0, 0, 0, 1, 2])):
            at = self.chance.randrange(len(text) + 1)
            text = (
                text[:at] + self.chance.choice([self.chance.choice(NOISE), ""]) + text[at + self.chance.randint(0, 2) :]
            )
        return text

    def either(self, depth: int) -> str:
        text = self.equality(depth)
        while self.chance.random() < 0.3:
            text += self.chance.choice([" AND ", " OR "]) + self.equality(depth)
        return text

    def equality(self, depth: int) -> str:
        text = self.comparison(depth)
        while self.chance.random() < 0.3:
            text += self.chance.choice([" = ", " <> ", " IS NULL", " IS NOT NULL"])
            if text.endswith(" "):
                text += self.comparison(depth)
        return text

    def comparison(self, depth: int) -> str:
        text = self.unary(depth)
        negated = self.chance.choice(["", "NOT "])
        match self.chance.randrange(8):
            case 0 | 1:
                text += f" {self.chance.choice(['>', '<', '>=', '<='])} {self.unary(depth)}"
            case 2:
                text += f" {negated}BETWEEN {self.unary(0)} AND {self.unary(0)}"
            case 3:
                text += f" {negated}IN ({', '.join(self.chance.choices(TEXTS, k=2))})"
            case 4:
                word = self.chance.choice(["CONTAINS", "STARTSWITH", "ENDSWITH"])
                text += f" {negated}{word} {self.chance.choice(TEXTS)}"
        return text

    def unary(self, depth: int) -> str:
        sign = self.chance.choices(["", "-", "+", "NOT "], [85, 6, 3, 6])[0]
        kind = self.chance.random()
        if depth and kind < 0.25:
            return f"{sign}({self.either(depth - 1)})"
        return sign + self.chance.choice(["a", "b", "A"] if kind < 0.65 else LITERALS)


EVALUATE = """
    import org.apache.rocketmq.filter.FilterFactory;
    import org.apache.rocketmq.filter.expression.*;
    List<Map<String, String>> messages = new ArrayList<>();
    for (String message : args[0].split("\u0002")) {
        String[] parts = message.split("\u0001");
        Map<String, String> properties = new HashMap<>();
        for (int j = 1; j < parts.length; j += 2) properties.put(parts[j], parts[j + 1]);
        messages.add(properties);
    }
    for (int i = 1; i < args.length; i++) emit(selected(args[i], messages));
}

String selected(String text, List<Map<String, String>> messages) {
    Expression expression;
    try {
        expression = FilterFactory.INSTANCE.get("SQL92").compile(text);
    } catch (Throwable t) {
        return "refused";
    }
    StringBuilder found = new StringBuilder();
    for (Map<String, String> properties : messages) {
        Object value;
        try {
            value = expression.evaluate(new EvaluationContext() {
                public Object get(String name) { return properties.get(name); }
                public Map<String, Object> keyValues() { return new HashMap<>(properties); }
            });
        } catch (Throwable t) {
            value = null;
        }
        found.append(Boolean.TRUE.equals(value) ? '1' : '0');
    }
    return found.toString();
"""


def test_generated_expressions_are_what_they_are_in_java(java55: JavaShell) -> None:
    generator = Generator(SEED)
    expressions = [generator.expression() for _ in range(GENERATED)]
    texts = ["\1".join([name, *(text for pair in found.items() for text in pair)]) for name, found in MESSAGES.items()]
    rows = java55.run(EVALUATE, "\2".join(texts), *expressions, timeout_s=TABLE_TIMEOUT_S).rows
    compiled = 0
    for expression, theirs in zip(expressions, rows, strict=True):
        try:
            matches = compile_filter(expression).matches
        except SqlError:
            ours = "refused"
        else:
            compiled += 1
            ours = "".join("01"[matches(properties)] for properties in MESSAGES.values())
        assert ours == theirs, f"{expression!r}, replay with {REPLAY}"
    assert GENERATED // 5 < compiled < GENERATED
