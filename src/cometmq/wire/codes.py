"""Numbers of the protocol: request and response codes, tiers, languages, versions.

A command carries one `code`. In a request it says what is asked (`Request`), in a response what came of it
(`Response`); the flag of the command tells which of the two it is. Both classes are namespaces of plain ints, so that
tables, comparisons and the wire use the same value without conversion.

    TIER[code]   "A"  ordinary producers and consumers, and the broker/name-server link under them
                 "B"  administration
                 "C"  replication, controller, container, cold data, RocksDB
                 "-"  number without a handler: retired, reserved, or newer than what we serve

The binary header form keeps 16 bits of a code, which cuts the POP family. `POP_CODE_BY_LOW_16_BITS` maps them back;
none of its keys is a code of its own.
"""

from __future__ import annotations

from typing import Final

# The id of a master in its group of brokers; replicas have others.
MASTER_ID: Final = 0


class PullFlag:
    """Bits of `sysFlag` in pulls. BULK is not RocketMQ's, whose brokers overlook it."""

    COMMIT: Final = 1
    SUSPEND: Final = 2
    SUBSCRIPTION: Final = 4
    CLASS_FILTER: Final = 8
    LITE: Final = 16
    BULK: Final = 1 << 16


class Request:
    """Request codes, ascending. Tier `-` codes are answered with REQUEST_CODE_NOT_SUPPORTED."""

    SEND_MESSAGE: Final = 10
    PULL_MESSAGE: Final = 11
    QUERY_MESSAGE: Final = 12
    QUERY_BROKER_OFFSET: Final = 13
    QUERY_CONSUMER_OFFSET: Final = 14
    UPDATE_CONSUMER_OFFSET: Final = 15
    UPDATE_AND_CREATE_TOPIC: Final = 17
    UPDATE_AND_CREATE_TOPIC_LIST: Final = 18
    GET_ALL_TOPIC_CONFIG: Final = 21
    GET_TOPIC_CONFIG_LIST: Final = 22
    GET_TOPIC_NAME_LIST: Final = 23
    UPDATE_BROKER_CONFIG: Final = 25
    GET_BROKER_CONFIG: Final = 26
    TRIGGER_DELETE_FILES: Final = 27
    GET_BROKER_RUNTIME_INFO: Final = 28
    SEARCH_OFFSET_BY_TIMESTAMP: Final = 29
    GET_MAX_OFFSET: Final = 30
    GET_MIN_OFFSET: Final = 31
    GET_EARLIEST_MSG_STORETIME: Final = 32
    VIEW_MESSAGE_BY_ID: Final = 33
    HEART_BEAT: Final = 34
    UNREGISTER_CLIENT: Final = 35
    CONSUMER_SEND_MSG_BACK: Final = 36
    END_TRANSACTION: Final = 37
    GET_CONSUMER_LIST_BY_GROUP: Final = 38
    CHECK_TRANSACTION_STATE: Final = 39
    NOTIFY_CONSUMER_IDS_CHANGED: Final = 40
    LOCK_BATCH_MQ: Final = 41
    UNLOCK_BATCH_MQ: Final = 42
    GET_ALL_CONSUMER_OFFSET: Final = 43
    GET_ALL_DELAY_OFFSET: Final = 45
    CHECK_CLIENT_CONFIG: Final = 46
    GET_CLIENT_CONFIG: Final = 47
    UPDATE_AND_CREATE_ACL_CONFIG: Final = 50
    DELETE_ACL_CONFIG: Final = 51
    GET_BROKER_CLUSTER_ACL_INFO: Final = 52
    UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: Final = 53
    GET_BROKER_CLUSTER_ACL_CONFIG: Final = 54
    GET_TIMER_CHECK_POINT: Final = 60
    GET_TIMER_METRICS: Final = 61
    PUT_KV_CONFIG: Final = 100
    GET_KV_CONFIG: Final = 101
    DELETE_KV_CONFIG: Final = 102
    REGISTER_BROKER: Final = 103
    UNREGISTER_BROKER: Final = 104
    GET_ROUTEINFO_BY_TOPIC: Final = 105
    GET_BROKER_CLUSTER_INFO: Final = 106
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: Final = 200
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG: Final = 201
    GET_TOPIC_STATS_INFO: Final = 202
    GET_CONSUMER_CONNECTION_LIST: Final = 203
    GET_PRODUCER_CONNECTION_LIST: Final = 204
    WIPE_WRITE_PERM_OF_BROKER: Final = 205
    GET_ALL_TOPIC_LIST_FROM_NAMESERVER: Final = 206
    DELETE_SUBSCRIPTIONGROUP: Final = 207
    GET_CONSUME_STATS: Final = 208
    SUSPEND_CONSUMER: Final = 209
    RESUME_CONSUMER: Final = 210
    RESET_CONSUMER_OFFSET_IN_CONSUMER: Final = 211
    RESET_CONSUMER_OFFSET_IN_BROKER: Final = 212
    ADJUST_CONSUMER_THREAD_POOL: Final = 213
    WHO_CONSUME_THE_MESSAGE: Final = 214
    DELETE_TOPIC_IN_BROKER: Final = 215
    DELETE_TOPIC_IN_NAMESRV: Final = 216
    REGISTER_TOPIC_IN_NAMESRV: Final = 217
    GET_KVLIST_BY_NAMESPACE: Final = 219
    RESET_CONSUMER_CLIENT_OFFSET: Final = 220
    GET_CONSUMER_STATUS_FROM_CLIENT: Final = 221
    INVOKE_BROKER_TO_RESET_OFFSET: Final = 222
    INVOKE_BROKER_TO_GET_CONSUMER_STATUS: Final = 223
    GET_TOPICS_BY_CLUSTER: Final = 224
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: Final = 225
    QUERY_TOPIC_CONSUME_BY_WHO: Final = 300
    REGISTER_FILTER_SERVER: Final = 301
    REGISTER_MESSAGE_FILTER_CLASS: Final = 302
    QUERY_CONSUME_TIME_SPAN: Final = 303
    GET_SYSTEM_TOPIC_LIST_FROM_NS: Final = 304
    GET_SYSTEM_TOPIC_LIST_FROM_BROKER: Final = 305
    CLEAN_EXPIRED_CONSUMEQUEUE: Final = 306
    GET_CONSUMER_RUNNING_INFO: Final = 307
    QUERY_CORRECTION_OFFSET: Final = 308
    CONSUME_MESSAGE_DIRECTLY: Final = 309
    SEND_MESSAGE_V2: Final = 310
    GET_UNIT_TOPIC_LIST: Final = 311
    GET_HAS_UNIT_SUB_TOPIC_LIST: Final = 312
    GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: Final = 313
    CLONE_GROUP_OFFSET: Final = 314
    VIEW_BROKER_STATS_DATA: Final = 315
    CLEAN_UNUSED_TOPIC: Final = 316
    GET_BROKER_CONSUME_STATS: Final = 317
    UPDATE_NAMESRV_CONFIG: Final = 318
    GET_NAMESRV_CONFIG: Final = 319
    SEND_BATCH_MESSAGE: Final = 320
    QUERY_CONSUME_QUEUE: Final = 321
    QUERY_DATA_VERSION: Final = 322
    RESUME_CHECK_HALF_MESSAGE: Final = 323
    SEND_REPLY_MESSAGE: Final = 324
    SEND_REPLY_MESSAGE_V2: Final = 325
    PUSH_REPLY_MESSAGE_TO_CLIENT: Final = 326
    ADD_WRITE_PERM_OF_BROKER: Final = 327
    GET_ALL_PRODUCER_INFO: Final = 328
    DELETE_EXPIRED_COMMITLOG: Final = 329
    QUERY_TOPICS_BY_CONSUMER: Final = 343
    QUERY_SUBSCRIPTION_BY_CONSUMER: Final = 345
    GET_TOPIC_CONFIG: Final = 351
    GET_SUBSCRIPTIONGROUP_CONFIG: Final = 352
    UPDATE_AND_GET_GROUP_FORBIDDEN: Final = 353
    CHECK_ROCKSDB_CQ_WRITE_PROGRESS: Final = 354
    EXPORT_ROCKSDB_CONFIG_TO_JSON: Final = 355
    LITE_PULL_MESSAGE: Final = 361
    RECALL_MESSAGE: Final = 370
    QUERY_ASSIGNMENT: Final = 400
    SET_MESSAGE_REQUEST_MODE: Final = 401
    GET_ALL_MESSAGE_REQUEST_MODE: Final = 402
    UPDATE_AND_CREATE_STATIC_TOPIC: Final = 513
    GET_BROKER_MEMBER_GROUP: Final = 901
    ADD_BROKER: Final = 902
    REMOVE_BROKER: Final = 903
    BROKER_HEARTBEAT: Final = 904
    NOTIFY_MIN_BROKER_ID_CHANGE: Final = 905
    EXCHANGE_BROKER_HA_INFO: Final = 906
    GET_BROKER_HA_STATUS: Final = 907
    RESET_MASTER_FLUSH_OFFSET: Final = 908
    CONTROLLER_ALTER_SYNC_STATE_SET: Final = 1001
    CONTROLLER_ELECT_MASTER: Final = 1002
    CONTROLLER_REGISTER_BROKER: Final = 1003
    CONTROLLER_GET_REPLICA_INFO: Final = 1004
    CONTROLLER_GET_METADATA_INFO: Final = 1005
    CONTROLLER_GET_SYNC_STATE_DATA: Final = 1006
    GET_BROKER_EPOCH_CACHE: Final = 1007
    NOTIFY_BROKER_ROLE_CHANGED: Final = 1008
    UPDATE_CONTROLLER_CONFIG: Final = 1009
    GET_CONTROLLER_CONFIG: Final = 1010
    CLEAN_BROKER_DATA: Final = 1011
    CONTROLLER_GET_NEXT_BROKER_ID: Final = 1012
    CONTROLLER_APPLY_BROKER_ID: Final = 1013
    BROKER_CLOSE_CHANNEL_REQUEST: Final = 1014
    CHECK_NOT_ACTIVE_BROKER_REQUEST: Final = 1015
    GET_BROKER_LIVE_INFO_REQUEST: Final = 1016
    GET_SYNC_STATE_DATA_REQUEST: Final = 1017
    RAFT_BROKER_HEART_BEAT_EVENT_REQUEST: Final = 1018
    UPDATE_COLD_DATA_FLOW_CTR_CONFIG: Final = 2001
    REMOVE_COLD_DATA_FLOW_CTR_CONFIG: Final = 2002
    GET_COLD_DATA_FLOW_CTR_INFO: Final = 2003
    SET_COMMITLOG_READ_MODE: Final = 2004
    AUTH_CREATE_USER: Final = 3001
    AUTH_UPDATE_USER: Final = 3002
    AUTH_DELETE_USER: Final = 3003
    AUTH_GET_USER: Final = 3004
    AUTH_LIST_USER: Final = 3005
    AUTH_CREATE_ACL: Final = 3006
    AUTH_UPDATE_ACL: Final = 3007
    AUTH_DELETE_ACL: Final = 3008
    AUTH_GET_ACL: Final = 3009
    AUTH_LIST_ACL: Final = 3010
    SWITCH_TIMER_ENGINE: Final = 5001
    RAISE_FENCE: Final = 30101  # CometMQ's own: broker/produce/fences.py
    POP_MESSAGE: Final = 200050
    ACK_MESSAGE: Final = 200051
    PEEK_MESSAGE: Final = 200052
    CHANGE_MESSAGE_INVISIBLETIME: Final = 200053
    NOTIFICATION: Final = 200054
    POLLING_INFO: Final = 200055
    POP_ROLLBACK: Final = 200056
    POP_LITE_MESSAGE: Final = 200070
    LITE_SUBSCRIPTION_CTL: Final = 200071
    ACK_LITE_MESSAGE: Final = 200072
    NOTIFY_UNSUBSCRIBE_LITE: Final = 200073
    GET_BROKER_LITE_INFO: Final = 200074
    GET_PARENT_TOPIC_INFO: Final = 200075
    GET_LITE_TOPIC_INFO: Final = 200076
    GET_LITE_CLIENT_INFO: Final = 200077
    GET_LITE_GROUP_INFO: Final = 200078
    TRIGGER_LITE_DISPATCH: Final = 200079
    BATCH_ACK_MESSAGE: Final = 200151


class Response:
    """Response codes, ascending. Negative ones never travel; they are internal to Java's RPC layer."""

    RPC_TIME_OUT: Final = -1006
    RPC_SEND_TO_CHANNEL_FAILED: Final = -1004
    RPC_ADDR_IS_NULL: Final = -1002
    RPC_UNKNOWN: Final = -1000
    SUCCESS: Final = 0
    SYSTEM_ERROR: Final = 1
    SYSTEM_BUSY: Final = 2
    REQUEST_CODE_NOT_SUPPORTED: Final = 3
    TRANSACTION_FAILED: Final = 4
    FLUSH_DISK_TIMEOUT: Final = 10
    SLAVE_NOT_AVAILABLE: Final = 11
    FLUSH_SLAVE_TIMEOUT: Final = 12
    MESSAGE_ILLEGAL: Final = 13
    SERVICE_NOT_AVAILABLE: Final = 14
    VERSION_NOT_SUPPORTED: Final = 15
    NO_PERMISSION: Final = 16
    TOPIC_NOT_EXIST: Final = 17
    TOPIC_EXIST_ALREADY: Final = 18
    PULL_NOT_FOUND: Final = 19
    PULL_RETRY_IMMEDIATELY: Final = 20
    PULL_OFFSET_MOVED: Final = 21
    QUERY_NOT_FOUND: Final = 22
    SUBSCRIPTION_PARSE_FAILED: Final = 23
    SUBSCRIPTION_NOT_EXIST: Final = 24
    SUBSCRIPTION_NOT_LATEST: Final = 25
    SUBSCRIPTION_GROUP_NOT_EXIST: Final = 26
    FILTER_DATA_NOT_EXIST: Final = 27
    FILTER_DATA_NOT_LATEST: Final = 28
    INVALID_PARAMETER: Final = 29
    TRANSACTION_SHOULD_COMMIT: Final = 200
    TRANSACTION_SHOULD_ROLLBACK: Final = 201
    TRANSACTION_STATE_UNKNOW: Final = 202
    TRANSACTION_STATE_GROUP_WRONG: Final = 203
    NO_BUYER_ID: Final = 204
    NOT_IN_CURRENT_UNIT: Final = 205
    CONSUMER_NOT_ONLINE: Final = 206
    CONSUME_MSG_TIMEOUT: Final = 207
    NO_MESSAGE: Final = 208
    POLLING_FULL: Final = 209
    POLLING_TIMEOUT: Final = 210
    BROKER_NOT_EXIST: Final = 211
    BROKER_DISPATCH_NOT_COMPLETE: Final = 212
    BROADCAST_CONSUMPTION: Final = 213
    FLOW_CONTROL: Final = 215
    NOT_LEADER_FOR_QUEUE: Final = 501
    ILLEGAL_OPERATION: Final = 604
    GO_AWAY: Final = 1500
    CONTROLLER_FENCED_MASTER_EPOCH: Final = 2000
    CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH: Final = 2001
    CONTROLLER_INVALID_MASTER: Final = 2002
    CONTROLLER_INVALID_REPLICAS: Final = 2003
    CONTROLLER_MASTER_NOT_AVAILABLE: Final = 2004
    CONTROLLER_INVALID_REQUEST: Final = 2005
    CONTROLLER_BROKER_NOT_ALIVE: Final = 2006
    CONTROLLER_NOT_LEADER: Final = 2007
    CONTROLLER_BROKER_METADATA_NOT_EXIST: Final = 2008
    CONTROLLER_INVALID_CLEAN_BROKER_METADATA: Final = 2009
    CONTROLLER_BROKER_NEED_TO_BE_REGISTERED: Final = 2010
    CONTROLLER_MASTER_STILL_EXIST: Final = 2011
    CONTROLLER_ELECT_MASTER_FAILED: Final = 2012
    CONTROLLER_ALTER_SYNC_STATE_SET_FAILED: Final = 2013
    CONTROLLER_BROKER_ID_INVALID: Final = 2014
    CONTROLLER_JRAFT_INTERNAL_ERROR: Final = 2015
    CONTROLLER_BROKER_LIVE_INFO_NOT_EXISTS: Final = 2016
    LMQ_QUOTA_EXCEEDED: Final = 2017
    LITE_SUBSCRIPTION_QUOTA_EXCEEDED: Final = 2018
    USER_NOT_EXIST: Final = 3001
    POLICY_NOT_EXIST: Final = 3002


class Language:
    """What a peer says it is written in: a number in the binary header, the name in the JSON header."""

    JAVA: Final = 0
    CPP: Final = 1
    DOTNET: Final = 2
    PYTHON: Final = 3
    DELPHI: Final = 4
    ERLANG: Final = 5
    RUBY: Final = 6
    OTHER: Final = 7
    HTTP: Final = 8
    GO: Final = 9
    PHP: Final = 10
    OMS: Final = 11
    RUST: Final = 12
    NODE_JS: Final = 13


class Version:
    """Protocol versions that change what a receiver does, and those that real peers announce.

    The number counts a snapshot and a release for every version, so neighbours differ by two.
    """

    V3_0_7_SNAPSHOT: Final = 28
    V3_0_11: Final = 37
    V3_1_8_SNAPSHOT: Final = 62
    V3_4_9: Final = 121
    V4_1_0_SNAPSHOT: Final = 232
    V4_9_3: Final = 399
    V4_9_4: Final = 401
    V4_9_7: Final = 407
    V5_0_0: Final = 413
    V5_3_1: Final = 475
    V5_3_3: Final = 479
    V5_4_0: Final = 493
    V5_5_0: Final = 513


def _names_by_code(codes: type) -> dict[int, str]:
    return {code: name for name, code in vars(codes).items() if name.isupper() and isinstance(code, int)}


REQUEST_NAMES: Final[dict[int, str]] = _names_by_code(Request)
RESPONSE_NAMES: Final[dict[int, str]] = _names_by_code(Response)
LANGUAGE_NAMES: Final[dict[int, str]] = _names_by_code(Language)
LANGUAGE_CODES: Final[dict[str, int]] = {name: code for code, name in LANGUAGE_NAMES.items()}

# fmt: off
_TIER_A: Final = (
    10, 11, 12, 14, 15, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 46, 103, 104, 105, 220,
    221, 307, 309, 310, 320, 322, 324, 325, 326, 361, 370, 400, 904, 200050, 200051, 200053, 200054,
    200151,
)
_TIER_B: Final = (
    17, 18, 21, 25, 26, 28, 100, 101, 102, 106, 200, 201, 202, 203, 204, 205, 206, 207, 208, 215, 216,
    217, 219, 222, 223, 224, 225, 300, 303, 304, 305, 306, 308, 311, 312, 313, 314, 315, 316, 317, 318,
    319, 321, 323, 327, 328, 329, 343, 345, 351, 352, 353, 401, 513, 907, 3001, 3002, 3003, 3004, 3005,
    3006, 3007, 3008, 3009, 3010, 200052, 200055,
)
_TIER_C: Final = (
    43, 45, 60, 61, 354, 355, 402, 901, 902, 903, 905, 906, 908, 1001, 1002, 1003, 1004, 1005, 1006,
    1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 1015, 1016, 1017, 1018, 2001, 2002, 2003, 2004,
    30101, 200056,
)
# fmt: on

TIER: Final[dict[int, str]] = {
    **dict.fromkeys(REQUEST_NAMES, "-"),
    **dict.fromkeys(_TIER_A, "A"),
    **dict.fromkeys(_TIER_B, "B"),
    **dict.fromkeys(_TIER_C, "C"),
}

_POP_FAMILY: Final = (
    Request.POP_MESSAGE,
    Request.ACK_MESSAGE,
    Request.PEEK_MESSAGE,
    Request.CHANGE_MESSAGE_INVISIBLETIME,
    Request.NOTIFICATION,
    Request.POLLING_INFO,
    Request.POP_ROLLBACK,
    Request.BATCH_ACK_MESSAGE,
)
POP_CODE_BY_LOW_16_BITS: Final[dict[int, int]] = {code & 0xFFFF: code for code in _POP_FAMILY}
