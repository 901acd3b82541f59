"""Who may what: kinds of users by kinds of requests, for our broker in every suite and for RocketMQ's beside it.

`MAY` says which requests are let through for whom; `STRICTER` are those for which RocketMQ 5.5.0 asks nothing of a user
that signs.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True)
class Ask:
    code: int
    ext: dict[str, str]
    body: bytes = b""


def _send(code: int, topic: str, body: bytes = b"x") -> Ask:
    ext = {"a": "producers", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000", "h": "0",
           "i": "", "j": "0", "k": "false", "m": str(code == 320).lower()}  # fmt: skip
    return Ask(code, ext, body)


def _pull(code: int, topic: str, group: str = "g") -> Ask:
    ext = {"consumerGroup": group, "topic": topic, "queueId": "0", "queueOffset": "0", "maxMsgNums": "1",
           "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
           "expressionType": "TAG"}  # fmt: skip
    return Ask(code, ext)


_HEARTBEAT: Final = {
    "clientID": "c1",
    "producerDataSet": [{"groupName": "producers"}],
    "consumerDataSet": [
        {
            "groupName": "g",
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "unitMode": False,
            "subscriptionDataSet": [
                {"topic": "orders", "subString": "*", "subVersion": 1, "tagsSet": [], "codeSet": []},
                {"topic": "%RETRY%g", "subString": "*", "subVersion": 1, "tagsSet": [], "codeSet": []},
            ],
        }
    ],
}
_LOCK: Final = {
    "consumerGroup": "g",
    "clientId": "c1",
    "mqSet": [{"topic": "orders", "brokerName": "broker-a", "queueId": 0}],
}
_TOPIC: Final = {"defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
                 "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}  # fmt: skip
_QUEUE: Final = {"consumerGroup": "g", "topic": "orders", "queueId": "0"}

REQUESTS: Final[dict[str, Ask]] = {
    "send": _send(310, "orders"),
    "send to another": _send(310, "bills"),
    "send retry": _send(310, "%RETRY%g"),
    "batch": _send(320, "orders", bytes.fromhex("0000001700000000000000000000000000000001780000")),
    "pull": _pull(11, "orders"),
    "pull own retry": _pull(11, "%RETRY%g"),
    "lite pull": _pull(361, "orders"),
    "heartbeat": Ask(34, {}, json.dumps(_HEARTBEAT).encode()),
    "bad heartbeat": Ask(34, {}, b"["),
    "query offset": Ask(14, _QUEUE),
    "commit offset": Ask(15, {**_QUEUE, "commitOffset": "0"}),
    "lock": Ask(41, {}, json.dumps(_LOCK).encode()),
    "max offset": Ask(30, {"topic": "orders", "queueId": "0"}),
    "group members": Ask(38, {"consumerGroup": "g"}),
    "create topic": Ask(17, {**_TOPIC, "topic": "orders_new"}),
    "create foreign topic": Ask(17, {**_TOPIC, "topic": "fresh"}),
    "delete topic": Ask(215, {"topic": "orders_new"}),
    "stats": Ask(202, {"topic": "orders"}),
    "runtime": Ask(28, {}),
    "settings": Ask(26, {}),
    "topics": Ask(21, {}),
    "users": Ask(3005, {}),
    "create user": Ask(3001, {"username": "operator"}, b'{"password":"password of operator"}'),
    "unknown": Ask(99_999, {}),
}
STRICTER: Final = frozenset(("lite pull", "runtime", "settings", "topics"))

ALL: Final = frozenset(REQUESTS)
_PUBLISH: Final = frozenset(("send", "batch", "unknown"))
_SUBSCRIBE: Final = frozenset(
    (
        "pull", "pull own retry", "lite pull", "heartbeat", "query offset", "commit offset", "lock", "group members",
        "send retry", "unknown",
    )
)  # fmt: skip
_LOOK: Final = frozenset(("max offset", "stats", "query offset", "group members", "unknown"))

# user: policy entries as (decision, resource, actions, sources)
Entry = tuple[str, str, tuple[str, ...], tuple[str, ...]]
POLICIES: Final[dict[str, tuple[str, list[Entry]]]] = {
    "everything": ("Custom", [("Allow", "*", ("All",), ())]),
    "operator": ("Custom", [("Allow", "Cluster:*", ("All",), ())]),
    "owner": ("Custom", [("Allow", "Topic:orders*", ("All",), ()), ("Allow", "Group:g*", ("All",), ())]),
    "publisher": ("Custom", [("Allow", "Topic:orders", ("Pub",), ())]),
    "subscriber": ("Custom", [("Allow", "Topic:orders", ("Sub",), ()), ("Allow", "Group:g", ("Sub",), ())]),
    "reader": ("Custom", [("Allow", "Topic:orders", ("Get",), ()), ("Allow", "Group:g", ("Get",), ())]),
    "denied": ("Custom", [("Allow", "Topic:*", ("Pub",), ()), ("Deny", "Topic:orders", ("Pub",), ())]),
    "by default": ("Default", [("Allow", "Topic:orders", ("Pub",), ())]),
    "from elsewhere": ("Custom", [("Allow", "Topic:orders", ("Pub",), ("10.0.0.1",))]),
    "from here": ("Custom", [("Allow", "Topic:orders", ("Pub",), ("10.0.0.1", "127.0.0.0/8"))]),
    "nothing": ("Custom", []),
    "disabled": ("Custom", [("Allow", "*", ("All",), ())]),
}
MAY: Final[dict[str, frozenset[str]]] = {
    "root": ALL,
    "everything": ALL - {"bad heartbeat"},
    "operator": frozenset(("runtime", "settings", "users", "create user", "unknown")),
    "owner": _PUBLISH | _SUBSCRIBE | _LOOK | {"create topic", "delete topic"},
    "publisher": _PUBLISH,
    "subscriber": _SUBSCRIBE,
    "reader": _LOOK,
    "denied": frozenset(("send to another", "unknown")),
    "by default": _PUBLISH,
    "from elsewhere": frozenset(("unknown",)),
    "from here": _PUBLISH,
    "nothing": frozenset(("unknown",)),
    "with a token": ALL,
    "disabled": frozenset(),
    "wrong": frozenset(),
    "stranger": frozenset(),
    "nobody": frozenset(),
}
# Who guesses gets late answers, so they are asked for less than what makes them late.
GUESSING: Final = frozenset(("wrong", "stranger"))
GUESSES: Final = 5
REFUSED: Final = (
    "no permission to access",
    "username cannot be null",
    "check signature failed",
    "is disabled",
    "is not found",
    "parse authorization context error",
)


def asks_of(kind: str) -> list[str]:
    return list(REQUESTS)[:GUESSES] if kind in GUESSING else list(REQUESTS)


def name_of(kind: str) -> str:
    return kind.replace(" ", "_")


def credentials(kind: str) -> tuple[str, str, str | None] | None:
    """User name, secret, token. What a kind of caller signs with; None: it does not."""
    if kind == "nobody":
        return None
    if kind == "wrong":
        return "root", "not the password of root", None
    if kind == "with a token":
        return "root", "password of root", "a token"
    return name_of(kind), f"password of {name_of(kind)}", None


def signed(kind: str, ask: Ask) -> dict[str, str]:
    """The fields of the request. Signed apart from the code under test."""
    keys = credentials(kind)
    if keys is None:
        return dict(ask.ext)
    name, secret, token = keys
    ext = {**ask.ext, "AccessKey": name, **({"SecurityToken": token} if token else {})}
    content = "".join(ext[key] for key in sorted(ext)).encode() + ask.body
    digest = hmac.new(secret.encode(), content, hashlib.sha1).digest()
    return {**ext, "Signature": base64.b64encode(digest).decode()}


def is_refused(code: int, remark: str | None) -> bool:
    return code == 16 and any(words in (remark or "") for words in REFUSED)


def acl_body(kind: str) -> bytes:
    policy, entries = POLICIES[kind]
    rows: list[dict[str, Any]] = [
        {"resource": resource, "actions": list(actions), "decision": decision, "sourceIps": list(sources) or None}
        for decision, resource, actions, sources in entries
    ]
    acl = {"subject": f"User:{name_of(kind)}", "policies": [{"policyType": policy, "entries": rows}]}
    return json.dumps(acl).encode()


def preparing() -> list[Ask]:
    """What the Super user asks for beforehand."""
    asks = [Ask(17, {**_TOPIC, "topic": topic}) for topic in ("orders", "bills")]
    for kind, (_, entries) in POLICIES.items():
        name = name_of(kind)
        asks.append(Ask(3001, {"username": name}, json.dumps({"password": f"password of {name}"}).encode()))
        if entries:
            asks.append(Ask(3006, {"subject": f"User:{name}"}, acl_body(kind)))
    asks.append(Ask(3002, {"username": "disabled"}, b'{"userStatus":"disable"}'))
    return asks
