"""What Java clients write down about their messages, read by Java's admin tool, at both brokers."""

from __future__ import annotations

import pytest

from tests.compat.conftest import Cluster
from tests.compat.harness.admin import MqAdmin
from tests.compat.harness.processes import wait_until
from tests.compat.harness.remoting import create_topic
from tests.compat.harness.shell import JavaShell

pytestmark = pytest.mark.interop

ARRIVAL_S = 60.0

TRACED = """
    DefaultMQPushConsumer c = use(new DefaultMQPushConsumer(args[1] + "_g"));
    c.setNamesrvAddr(args[0]);
    c.setEnableTrace(true);
    c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    c.subscribe(args[1], "*");
    c.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
    });
    c.start();
    TransactionMQProducer p = use(new TransactionMQProducer(args[1] + "_p"));
    p.setNamesrvAddr(args[0]);
    p.setEnableTrace(true);
    p.setTransactionListener(new TransactionListener() {
        public LocalTransactionState executeLocalTransaction(Message m, Object said) {
            return LocalTransactionState.COMMIT_MESSAGE;
        }
        public LocalTransactionState checkLocalTransaction(MessageExt m) {
            return LocalTransactionState.COMMIT_MESSAGE;
        }
    });
    p.start();
    emit(p.send(new Message(args[1], "tag", "key1", "plain".getBytes())).getMsgId());
    emit(p.sendMessageInTransaction(new Message(args[1], "tag", "key2", "decided".getBytes()), null).getMsgId());
    awaitStop();
"""


def traces(mqadmin: MqAdmin, namesrv: str, message_id: str) -> list[list[str]]:
    """What the tool prints about a message, without times: what was done, by which group, with which success."""
    lines = mqadmin("queryMsgTraceById", "-i", message_id, namesrv=namesrv, check=False).lines
    rows = [line.split() for line in lines if not line.startswith("#")]
    return [[*row[:2], row[-1]] for row in rows]


def test_the_admin_tool_reads_traces(java55: JavaShell, cluster: Cluster, mqadmin: MqAdmin, topic: str) -> None:
    namesrv = cluster.namesrv.address
    create_topic(cluster.broker.address, topic, queues=1)
    run = java55.begin(TRACED, namesrv, topic)
    expected = [["Pub", f"{topic}_p", "success"], ["Sub", f"{topic}_g", "success"]]
    for message_id in run.take(2):
        # Clients write down what they did some seconds later.
        wait_until(lambda: traces(mqadmin, namesrv, message_id) == expected, f"traces of {message_id}", ARRIVAL_S)  # noqa: B023
    run.stop()
