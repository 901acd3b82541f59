"""What a broker and the Java client say about a store directory: how it was left, where queues end, what is in them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from tests.compat.harness import remoting
from tests.compat.harness.servers import Broker
from tests.compat.harness.shell import JavaShell

GET_MAX_OFFSET = 30
READ_TIMEOUT_S = 120.0

Queue = tuple[str, int]

READ_QUEUES = """
    DefaultMQPullConsumer c = use(new DefaultMQPullConsumer("store_reader"));
    c.setNamesrvAddr(args[0]);
    c.start();
    for (int i = 2; i < args.length; i += 2) {
        MessageQueue queue = new MessageQueue(args[i], args[1], Integer.parseInt(args[i + 1]));
        long end = c.maxOffset(queue);
        for (long offset = c.minOffset(queue); offset < end; ) {
            PullResult r = c.pull(queue, "*", offset, 32);
            if (r.getPullStatus() != PullStatus.FOUND) throw new Exception(queue + " at " + offset + ": " + r);
            for (MessageExt m : r.getMsgFoundList()) {
                emit("from", i, "topic", m.getTopic(), "queueId", m.getQueueId(), "queueOffset", m.getQueueOffset(),
                    "commitLogOffset", m.getCommitLogOffset(), "storeSize", m.getStoreSize(),
                    "bodyCRC", m.getBodyCRC(), "flag", m.getFlag(), "sysFlag", m.getSysFlag(),
                    "bornTimestamp", m.getBornTimestamp(), "bornHost", m.getBornHost().toString(),
                    "storeTimestamp", m.getStoreTimestamp(), "storeHost", m.getStoreHost().toString(),
                    "reconsumeTimes", m.getReconsumeTimes(),
                    "preparedTransactionOffset", m.getPreparedTransactionOffset(), "msgId", m.getMsgId(),
                    "offsetMsgId", ((MessageClientExt) m).getOffsetMsgId(),
                    "body", m.getBody() == null ? new byte[0] : m.getBody(), "properties", m.getProperties());
            }
            offset = r.getNextBeginOffset();
        }
    }
"""

# Lines of topic, tab, key; a unique id is a key of its own kind.
QUERY_KEYS = """
    import org.apache.rocketmq.client.QueryResult;
    import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
    DefaultMQAdminExt admin = use(new DefaultMQAdminExt());
    admin.setNamesrvAddr(args[0]);
    admin.start();
    for (String line : args[1].split("\\n")) {
        String[] words = line.split("\\t");
        List<Object> found = new ArrayList<>();
        try {
            QueryResult r = args[2].isEmpty() ? admin.queryMessage(words[0], words[1], 64, 0, Long.MAX_VALUE)
                : admin.queryMessageByUniqKey(args[2], words[0], words[1], 64, 0, Long.MAX_VALUE);
            for (MessageExt m : r.getMessageList()) found.add(m.getCommitLogOffset());
        } catch (MQClientException e) {
            if (e.getResponseCode() != 208) throw e;
        }
        emit(found);
    }
"""

# Lines of topic, tab, offset id.
VIEW_IDS = """
    import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
    DefaultMQAdminExt admin = use(new DefaultMQAdminExt());
    admin.setNamesrvAddr(args[0]);
    admin.start();
    for (String line : args[1].split("\\n")) {
        String[] words = line.split("\\t");
        MessageExt m = admin.viewMessage(words[0], words[1]);
        emit("topic", m.getTopic(), "offset", m.getCommitLogOffset(), "keys", m.getKeys());
    }
"""


def took_it_for_a_crash(broker: Broker) -> bool:
    """What a Java broker's log says about the end before this start."""
    said = re.findall(r"last shutdown (normally|abnormally)", broker.log(since_start=True))
    assert len(said) == 1, broker.log_tail()
    return bool(said[0] == "abnormally")


def recovered_end(broker: Broker) -> int:
    """Where a Java broker found the log to end."""
    (end,) = re.findall(r"message store recover end, and the max phy offset = (\d+)", broker.log(since_start=True))
    return int(end)


def store_errors(broker: Broker) -> list[str]:
    return [line for line in broker.log(since_start=True).splitlines() if " ERROR RocketmqStore" in line]


def queue_ends(broker: Broker, queues: Iterable[Queue]) -> dict[Queue, int]:
    ends = {}
    with remoting.Connection(broker.address) as connection:
        for topic, queue in queues:
            answer = connection.call(GET_MAX_OFFSET, {"topic": topic, "queueId": queue, "committed": "true"})
            assert answer.code == 0, answer
            ends[topic, queue] = int(answer.ext["offset"])
    return ends


def read_queues(java: JavaShell, broker: Broker, queues: list[Queue]) -> dict[Queue, list[dict[str, Any]]]:
    """Every message of the queues as the Java pull consumer gives it; bodies are bytes."""
    words = [word for queue in queues for word in queue]
    run = java.run(READ_QUEUES, broker.namesrv, broker.broker_name, *words, timeout_s=READ_TIMEOUT_S)
    found: dict[Queue, list[dict[str, Any]]] = {queue: [] for queue in queues}
    for row in run.rows:
        row["body"] = row["body"].encode("latin-1")
        found[queues[row.pop("from") // 2 - 1]].append(row)
    return found


def query_keys(
    java: JavaShell, broker: Broker, keys: Iterable[tuple[str, str]], *, unique: bool = False
) -> list[list[int]]:
    """For each (topic, key) the physical offsets of what the admin tool finds; `unique`: the keys are unique ids."""
    cluster = broker.cluster if unique else ""
    return java.run(QUERY_KEYS, broker.namesrv, _lines(keys), cluster, timeout_s=READ_TIMEOUT_S).rows


def view_ids(java: JavaShell, broker: Broker, ids: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
    """For each (topic, offset id) the message that the admin tool shows: topic, offset, keys."""
    return java.run(VIEW_IDS, broker.namesrv, _lines(ids), timeout_s=READ_TIMEOUT_S).rows


def _lines(rows: Iterable[tuple[str, str]]) -> str:
    return "\n".join("\t".join(row) for row in rows)
