"""The stock Python client of RocketMQ 5.x under the orders of tests/compat/harness/grpc_clients.py.

Runs in an environment of its own with `rocketmq-python-client`; the orders and answers are described in that file.
"""

# mypy: ignore-errors

import json
import os
import re
import sys
import threading
import traceback

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)
from rocketmq.grpc_protocol import FilterType

ENDPOINTS, TLS = sys.argv[1], sys.argv[2] == "tls"
PATIENCE_S = 10  # instead of 3: a busy machine must not look like an incompatibility
OUT = threading.Lock()
CLIENTS, HANDED = {}, {}


def say(row):
    with OUT:
        sys.__stdout__.write(json.dumps(row) + "\n")
        sys.__stdout__.flush()


def configuration():
    return ClientConfiguration(ENDPOINTS, Credentials(), request_timeout=PATIENCE_S)


def row(message):
    return {
        "id": message.message_id,
        "body": message.body.decode(),
        "tag": message.tag or "",
        "keys": sorted(message.keys or []),
        "properties": dict(message.properties or {}),
        "group": message.message_group or "",
        "attempt": message.delivery_attempt,
    }


class Checker(TransactionChecker):
    def __init__(self, name):
        self.name = name

    def check(self, message):
        body = message.body.decode()
        say({"name": self.name, "checked": body})
        return TransactionResolution.COMMIT if body.endswith("commit") else TransactionResolution.ROLLBACK


class Listener(MessageListener):
    def __init__(self, name):
        self.name = name

    def consume(self, message):
        say({"name": self.name, "message": row(message)})
        body = message.body.decode()
        fails = body.startswith("bad") or (body.startswith("once") and message.delivery_attempt == 1)
        return ConsumeResult.FAILURE if fails else ConsumeResult.SUCCESS


def subscription(order):
    kind = FilterType.SQL if order.get("sql") else FilterType.TAG
    return {order["topic"]: FilterExpression(order.get("filter", "*"), kind)}


def producer(order):
    client = Producer(configuration(), tuple(order["topics"]), Checker(order["name"]), tls_enable=TLS)
    client.startup()
    CLIENTS[order["name"]] = client


def send(order):
    message = Message()
    message.topic, message.body = order["topic"], order["body"].encode()
    if order.get("tag"):
        message.tag = order["tag"]
    if order.get("key"):
        message.keys = order["key"]
    if order.get("group"):
        message.message_group = order["group"]
    if order.get("deliver_ms"):
        message.delivery_timestamp = order["deliver_ms"] // 1000
    for name, value in order.get("properties", {}).items():
        message.add_property(name, value)
    client = CLIENTS[order["name"]]
    half = order.get("half")
    if not half:
        receipt = client.send(message)
        return {"id": receipt.message_id, "recall": receipt.recall_handle or ""}
    transaction = client.begin_transaction()
    receipt = client.send(message, transaction)
    if half == "commit":
        transaction.commit()
    elif half == "rollback":
        transaction.rollback()
    return {"id": receipt.message_id}


def recall(order):
    return {"id": CLIENTS[order["name"]].recall_message(order["topic"], order["handle"])}


def simple(order):
    client = SimpleConsumer(configuration(), order["group"], subscription(order), 5, tls_enable=TLS)
    client.startup()
    CLIENTS[order["name"]] = client


def receive(order):
    found = CLIENTS[order["name"]].receive(order["count"], order["invisible_s"]) or []
    rows = []
    for message in found:
        with OUT:
            ref = len(HANDED)
            HANDED[ref] = message
        rows.append({**row(message), "ref": ref})
    return {"messages": rows}


def ack(order):
    CLIENTS[order["name"]].ack(HANDED[order["ref"]])


def change(order):
    CLIENTS[order["name"]].change_invisible_duration(HANDED[order["ref"]], order["invisible_s"])


def push(order):
    client = PushConsumer(configuration(), order["group"], Listener(order["name"]), subscription(order), tls_enable=TLS)
    client.startup()
    CLIENTS[order["name"]] = client


def close(order):
    CLIENTS.pop(order["name"]).shutdown()


def code_of(error):
    code = getattr(error, "code", None)
    if isinstance(code, int):
        return int(code)
    found = re.search(r"\b[456]\d{4}\b", str(error))
    return int(found.group()) if found else 0


def serve(order):
    try:
        say({"n": order["n"], "result": globals()[order["op"]](order) or {}})
    except Exception as error:
        say({"n": order["n"], "code": code_of(error), "error": f"{type(error).__name__}: {error}"})
        traceback.print_exc()


say({"ready": True})
for line in sys.stdin:
    threading.Thread(target=serve, args=(json.loads(line),), daemon=True).start()
os._exit(0)
