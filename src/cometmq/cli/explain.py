"""`cometmq explain CODE`: what a response code means, who gives it, and what to do about it.

Codes below 10000 are RocketMQ's, on the wire; from 10001 on they are given by the client, RocketMQ's and ours alike.
"""

import argparse
from typing import Final

from cometmq.cli.shared import output
from cometmq.cli.shared.arguments import Verb, run_verb
from cometmq.cli.shared.failures import EXIT_MISSING, Failure

# Code: name, meaning, what to do.
CODES: Final[dict[int, tuple[str, str, str]]] = {
    -1006: ("RPC_TIME_OUT", "inside RocketMQ's own client only, never on the wire", "nothing"),
    -1004: ("RPC_SEND_TO_CHANNEL_FAILED", "inside RocketMQ's own client only, never on the wire", "nothing"),
    -1002: ("RPC_ADDR_IS_NULL", "inside RocketMQ's own client only, never on the wire", "nothing"),
    -1000: ("RPC_UNKNOWN", "inside RocketMQ's own client only, never on the wire", "nothing"),
    0: ("SUCCESS", "done", "nothing"),
    1: ("SYSTEM_ERROR", "a failure without a code of its own", "read the remark and the broker's log"),
    2: ("SYSTEM_BUSY", "refused before anything was done: too much waits, or the disk is slow",
        "send again after a moment; if it lasts: cometmq cluster health, more brokers, or a faster disk"),
    3: ("REQUEST_CODE_NOT_SUPPORTED", "the server has no handler for the request",
        "the server is older than the tool, or lacks the feature; compare cometmq cluster list"),
    4: ("TRANSACTION_FAILED", "not given by any current broker", "nothing"),
    10: ("FLUSH_DISK_TIMEOUT", "stored, but not known to be on disk in time (SYNC_FLUSH)",
         "treat as unknown: a power cut may take it; look at the disk, or raise syncFlushTimeout"),
    11: ("SLAVE_NOT_AVAILABLE", "stored, but no replica is there; or a request that only a master serves",
         "start the replica, or ask the master"),
    12: ("FLUSH_SLAVE_TIMEOUT", "stored, but no replica confirmed it in time (SYNC_MASTER)",
         "treat as unknown; look at the replica and the network, or raise slaveTimeout"),
    13: ("MESSAGE_ILLEGAL", "body or properties too large, a bad batch, a bad delay",
         "make it smaller (maxMessageSize is 4 MiB), or read the remark"),
    14: ("SERVICE_NOT_AVAILABLE", "the store takes no writes: disk full, disk failed, stopping, or a replica",
         "free disk space; after a failed disk restart the broker; send to the master"),
    15: ("VERSION_NOT_SUPPORTED", "given by RocketMQ's proxy only", "use another client version"),
    16: ("NO_PERMISSION", "permission of the topic, group, broker or user, or a switched-off feature",
         "cometmq topic describe and cometmq group describe show permissions; of a user: cometmq acl explain"),
    17: ("TOPIC_NOT_EXIST", "nobody knows the topic", "cometmq topic create NAME; or check its spelling"),
    18: ("TOPIC_EXIST_ALREADY", "not given by any current broker", "nothing"),
    19: ("PULL_NOT_FOUND", "no new message", "nothing: pull again, with a hold time"),
    20: ("PULL_RETRY_IMMEDIATELY", "nothing matched the filter so far", "pull again from the offset in the answer"),
    21: ("PULL_OFFSET_MOVED", "the offset is outside the queue: expired, or never written",
         "go on from the offset in the answer; what lies between is gone"),
    22: ("QUERY_NOT_FOUND", "no offset, message or key-value entry", "a new group has no offset yet: consume first"),
    23: ("SUBSCRIPTION_PARSE_FAILED", "the filter expression is not valid", "mend it; the remark says where"),
    24: ("SUBSCRIPTION_NOT_EXIST", "the group has no such subscription at this broker",
         "all members of a group must subscribe to the same topics; wait for a heartbeat"),
    25: ("SUBSCRIPTION_NOT_LATEST", "the broker has an older subscription", "wait for the next heartbeat"),
    26: ("SUBSCRIPTION_GROUP_NOT_EXIST", "the consumer group does not exist", "cometmq group create NAME"),
    27: ("FILTER_DATA_NOT_EXIST", "the SQL filter was not registered", "is enablePropertyFilter on?"),
    28: ("FILTER_DATA_NOT_LATEST", "the SQL filter is an older one", "wait for the next heartbeat"),
    29: ("INVALID_PARAMETER", "a name, queue number or count that cannot be", "read the remark"),
    200: ("TRANSACTION_SHOULD_COMMIT", "not given by any current broker", "nothing"),
    201: ("TRANSACTION_SHOULD_ROLLBACK", "not given by any current broker", "nothing"),
    202: ("TRANSACTION_STATE_UNKNOW", "not given by any current broker", "nothing"),
    203: ("TRANSACTION_STATE_GROUP_WRONG", "not given by any current broker", "nothing"),
    204: ("NO_BUYER_ID", "not given by any current broker; clients try again", "nothing"),
    205: ("NOT_IN_CURRENT_UNIT", "not given by any current broker; clients try again", "nothing"),
    206: ("CONSUMER_NOT_ONLINE", "no consumer of the group is connected", "start one; offsets can be moved without"),
    207: ("CONSUME_MSG_TIMEOUT", "a consumer did not answer in time", "is it stuck in a handler?"),
    208: ("NO_MESSAGE", "an acknowledgement of a message that is not in the queue", "nothing: it has expired"),
    209: ("POLLING_FULL", "too many POP requests wait at the broker", "fewer consumers, or longer waits"),
    210: ("POLLING_TIMEOUT", "no message came while a POP request waited", "nothing: ask again"),
    211: ("BROKER_NOT_EXIST", "not given by any current broker", "nothing"),
    212: ("BROKER_DISPATCH_NOT_COMPLETE", "not given by any current broker", "nothing"),
    213: ("BROADCAST_CONSUMPTION", "the group consumes by broadcast: its offsets are at its members",
          "ask the members; the broker does not know"),
    215: ("FLOW_CONTROL", "not given by RocketMQ's own broker; consumers wait 20 ms", "nothing"),
    501: ("NOT_LEADER_FOR_QUEUE", "a queue of a static topic is at another broker", "ask for the route again"),
    604: ("ILLEGAL_OPERATION", "too late: a transaction's end, or a recall of a delayed message", "nothing"),
    1500: ("GO_AWAY", "the server is stopping", "nothing: clients connect again and repeat"),
    2000: ("CONTROLLER_FENCED_MASTER_EPOCH", "controller: an older master", "nothing: it steps down"),
    2001: ("CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH", "controller: an older set of replicas", "nothing: asked again"),
    2002: ("CONTROLLER_INVALID_MASTER", "controller: that broker is not the master", "read the controller's log"),
    2003: ("CONTROLLER_INVALID_REPLICAS", "controller: unknown replicas", "read the controller's log"),
    2004: ("CONTROLLER_MASTER_NOT_AVAILABLE", "controller: there is no master now", "wait for the election"),
    2005: ("CONTROLLER_INVALID_REQUEST", "controller: a request that cannot be", "read the remark"),
    2006: ("CONTROLLER_BROKER_NOT_ALIVE", "controller: the broker sends no heartbeats", "look at that broker"),
    2007: ("CONTROLLER_NOT_LEADER", "controller: another one leads", "ask the leader"),
    2008: ("CONTROLLER_BROKER_METADATA_NOT_EXIST", "controller: unknown broker", "let it register"),
    2009: ("CONTROLLER_INVALID_CLEAN_BROKER_METADATA", "controller: that broker is in use", "stop it first"),
    2010: ("CONTROLLER_BROKER_NEED_TO_BE_REGISTERED", "controller: the broker must register first", "let it register"),
    2011: ("CONTROLLER_MASTER_STILL_EXIST", "controller: the master is alive, no election", "nothing"),
    2012: ("CONTROLLER_ELECT_MASTER_FAILED", "controller: no replica can become master", "start one that is in sync"),
    2013: ("CONTROLLER_ALTER_SYNC_STATE_SET_FAILED", "controller: the set did not change", "read its log"),
    2014: ("CONTROLLER_BROKER_ID_INVALID", "controller: a broker id that is taken or wrong", "read its log"),
    2015: ("CONTROLLER_JRAFT_INTERNAL_ERROR", "controller: its consensus failed", "read its log"),
    2016: ("CONTROLLER_BROKER_LIVE_INFO_NOT_EXISTS", "controller: it knows no heartbeat of the broker", "wait"),
    2017: ("LMQ_QUOTA_EXCEEDED", "too many light queues at the broker", "raise maxLmqConsumeQueueNum"),
    2018: ("LITE_SUBSCRIPTION_QUOTA_EXCEEDED", "too many lite subscriptions", "fewer of them"),
    3001: ("USER_NOT_EXIST", "access control knows no such user", "create the user, or check the access key"),
    3002: ("POLICY_NOT_EXIST", "access control has no such policy", "create it"),
    10001: ("CLIENT_CALL_FAILED", "client: a server could not be reached, or the connection was lost",
            "is it running, and is that its address? cometmq rtt"),
    10002: ("CLIENT_TIMEOUT", "client: no answer in time; whether it was done is unknown",
            "look for the message or repeat; cometmq cluster health"),
    10003: ("CLIENT_BROKER_UNKNOWN", "client: a route names a broker whose address nobody knows",
            "its master is down: cometmq cluster list"),
    10004: ("CLIENT_NO_NAME_SERVER", "client: nobody said where the name servers are", "COMETMQ_NAMESRV, or --namesrv"),
    10005: ("CLIENT_NO_ROUTE", "client: no name server knows the topic", "cometmq topic create NAME"),
    10006: ("CLIENT_REQUEST_TIMEOUT", "client: the request was stored, but no reply came in time",
            "is the replying consumer running? raise the timeout"),
    10007: ("CLIENT_CANNOT_REPLY", "client: the message is not a request", "reply only to messages that ask for it"),
}  # fmt: skip


def main(argv: list[str]) -> int:
    return run_verb(EXPLAIN, argv)


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("code", nargs="?", help="a number or a name; all of them without it")


def _explain(options: argparse.Namespace) -> None:
    if options.code is None:
        output.rows(options.output, [_entry(code) for code in CODES], ("code", "name", "meaning"), ("fix",))
        return
    output.record(options.output, _entry(_find(options.code)))


def _find(text: str) -> int:
    if text.lstrip("-").isdecimal() and int(text) in CODES:
        return int(text)
    for code, (name, _, _) in CODES.items():
        if name == text.upper().replace("-", "_"):
            return code
    raise Failure(EXIT_MISSING, f"there is no response code {text!r}: cometmq explain lists all of them")


def _entry(code: int) -> dict[str, object]:
    name, meaning, fix = CODES[code]
    return {"code": code, "name": name, "meaning": meaning, "fix": fix}


EXPLAIN: Final = Verb("explain", "What a response code means and what to do.", _explain, _arguments, cluster=False,
                      example="cometmq explain 14")  # fmt: skip
