"""No peer can make a server write a line of log that is not the server's own."""

import logging
import re
import struct
from pathlib import Path

import pytest

from cometmq.log_lines import CHARS_MAX, OneLine, one_line
from cometmq.nameserver.handlers import HANDLERS as NAME_SERVER_HANDLERS
from cometmq.wire.bodies import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from cometmq.wire.codes import Request
from cometmq.wire.command import JSON, ROCKETMQ, request
from cometmq.wire.fastjson.writer import dumps
from tests.attack.corpus import Link
from tests.broker.processes import broker_process
from tests.nameserver.support import process, registration
from tests.support.served import CODES

FORGED = "x\n2026-01-01 00:00:00,000 CRITICAL cometmq.broker.server forged\r\x1b[2J\u2028"
LINE = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} [A-Z]+ cometmq[\w.]* |    |asyncio)")
# What headers ask for: texts where they may be, numbers where they must.
TEXTS = (
    "topic", "group", "consumerGroup", "producerGroup", "subscription", "expressionType", "properties", "brokerName",
    "brokerAddr", "clusterName", "haServerAddr", "zoneName", "namespace", "key", "value", "srcGroup", "destGroup",
    "originTopic", "originMsgId", "clientId", "clientID", "msgId", "transactionId", "tranMsgId", "extraInfo", "exp",
    "groupName", "attributes", "topicFilterType", "filterGroups", "compareGroup", "defaultTopic", "bornHost",
    "storeHost", "a", "b", "i", "masterAddr", "brokerAddrs", "minBrokerAddr", "cluster", "config",
    "readable", "lang", "compressed",
)  # fmt: skip
NUMBERS = {
    "queueId": "0", "queueOffset": "0", "maxMsgNums": "1", "sysFlag": "4", "commitOffset": "1", "subVersion": "1",
    "suspendTimeoutMillis": "0", "defaultTopicQueueNums": "4", "bornTimestamp": "1", "flag": "0", "reconsumeTimes": "0",
    "timestamp": "-1", "offset": "0", "delayLevel": "1", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6",
    "brokerId": "0", "invisibleTime": "1000", "pollTime": "0", "bornTime": "0", "initMode": "0", "commitLogOffset": "0",
    "tranStateTableOffset": "0", "commitOrRollback": "8", "maxNum": "1", "beginTimestamp": "0", "endTimestamp": "9",
    "d": "4", "e": "0", "f": "0", "g": "1", "h": "0", "j": "0", "isForce": "true",
    "unitMode": "false", "order": "false",
}  # fmt: skip


def forged_bodies() -> list[bytes]:
    subscription = SubscriptionData(topic=FORGED, sub_string=FORGED, expression_type=FORGED)
    heartbeat = HeartbeatData(
        client_id=FORGED,
        consumer_data_set=[ConsumerData(FORGED, "CONSUME_PASSIVELY", "CLUSTERING", None, [subscription])],
        producer_data_set=[ProducerData(FORGED)],
    )
    queue = {"brokerName": FORGED, "queueId": 0, "topic": FORGED}
    everything = {
        "clientId": FORGED, "clientID": FORGED, "consumerGroup": FORGED, "group": FORGED, "topic": FORGED,
        "mqSet": [queue], "groupName": FORGED, "topicConfigList": [{"topicName": FORGED}],
        "groupConfigList": [{"groupName": FORGED}], "acks": [{"c": FORGED, "t": FORGED, "b": "AQ=="}],
        "queueDatas": [queue], "brokerDatas": [{"brokerName": FORGED}], "mode": "POP", FORGED: FORGED,
    }  # fmt: skip
    return [b"", FORGED.encode(), heartbeat.encode(), dumps(everything), f"k{FORGED}=v{FORGED}".encode()]


def attack(port: int, codes: list[int]) -> None:
    """Every code, every body, both forms; then what is no request at all."""
    link = Link(port)
    for code in codes:
        for body in forged_bodies():
            for form in (JSON, ROCKETMQ):
                command = request(code, {**dict.fromkeys(TEXTS, FORGED), **NUMBERS}, body, form=form)
                command.remark = FORGED
                if link.call(command) is None:
                    link = Link(port)
    link.close()
    for header in (b'{"code":"' + FORGED.encode("unicode_escape") + b'"}', b'{"extFields":{"a":{}}}', FORGED.encode()):
        other = Link(port)
        other.write(struct.pack(">II", len(header) + 4, len(header)) + header)
        other.answer()
        other.close()
    proxy = Link(port)
    proxy.write(b"PROXY TCP4 1.2.3.4\x1b[2J 5.6.7.8 1 2\r\n")
    proxy.answer()
    proxy.close()


def check(log: str) -> None:
    assert "forged" in log, "what was sent is in the log"
    for line in log.splitlines():
        assert LINE.match(line), f"a line that the server did not begin: {line[:300]!r}"
        assert line.isprintable(), repr(line)
        assert len(line) < CHARS_MAX + 200


def test_no_request_to_a_broker_forges_a_line(tmp_path: Path) -> None:
    with broker_process(tmp_path, "--log-level", "debug") as broker:
        attack(broker.port, sorted(CODES))
        assert broker.stop() == 0
        check(broker.log)


def test_no_request_to_a_name_server_forges_a_line(tmp_path: Path) -> None:
    with process(tmp_path, "--log-level", "debug") as server:
        attack(server.port, [*sorted(NAME_SERVER_HANDLERS), Request.GET_ROUTEINFO_BY_TOPIC])
        link = Link(server.port)
        link.call(registration("A", broker_name=FORGED, broker_addr=FORGED, cluster_name=FORGED))
        link.call(registration(FORGED))
        link.close()
        server.child.terminate()
        assert server.child.wait(60) == 0
    log = (tmp_path / "stderr").read_text()
    check(log if "forged" in log else f"{log}    forged")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("a\nb\r\t", "a\\nb\\r\\t"),
        ("\x1b[31m", "\\x1b[31m"),
        ("键\u2028\u202e\x85", "键\\u2028\\u202e\\x85"),
        ("x" * (CHARS_MAX + 1), "x" * CHARS_MAX + f"... ({CHARS_MAX + 1} characters)"),
    ],
)
def test_what_is_not_printable_is_escaped_and_what_is_long_is_cut(text: str, shown: str) -> None:
    assert one_line(text) == shown


def test_a_traceback_keeps_its_lines_and_none_of_them_begins_an_event() -> None:
    try:
        raise ValueError(FORGED)
    except ValueError as error:
        record = logging.LogRecord("n", logging.ERROR, "p", 1, "failed %s", (FORGED,), (ValueError, error, None))
    lines = OneLine(logging.Formatter("%(levelname)s %(message)s")).format(record).split("\n")
    assert lines[0].startswith("ERROR failed x\\n2026")
    assert all(line.startswith("    ") for line in lines[1:])
    assert all(line.isprintable() for line in lines)
    assert record.args == (FORGED,), "other handlers see the record as it was"


def test_a_broken_line_is_written_all_the_same() -> None:
    record = logging.LogRecord("n", logging.ERROR, "p", 1, "a %d b\n", ("no number",), None)
    assert "cannot write a line of the log: 'a %d b\\n'" in OneLine(logging.Formatter("%(message)s")).format(record)
