"""The settings of a broker process, with RocketMQ's key names and defaults. How they are read: settings.py

The store has its own: store/options.py. A RocketMQ `broker.conf` fills both. What becomes of RocketMQ's other keys is
in settings_table.py.
"""

from dataclasses import dataclass
from typing import Final

from cometmq.config import ServerConfig
from cometmq.settings import Live, setting
from cometmq.wire.codes import MASTER_ID

NOW: Final = Live.NOW
NEVER: Final = Live.NEVER
I64_MAX: Final = 2**63 - 1



@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig(ServerConfig):
    """One broker process. Defaults are RocketMQ 5.5's unless a comment says otherwise."""

    # Identity and network
    cluster_name: str = setting("brokerClusterName", "DefaultCluster", NEVER)
    broker_name: str = setting("brokerName", "broker-a", NEVER)  # RocketMQ: the host name
    broker_id: int = setting("brokerId", MASTER_ID, NEVER, most=I64_MAX)
    listen_port: int = setting("listenPort", 10911, NEVER, most=65535)
    # RocketMQ listens on 0.0.0.0; a server without access control is only local until told otherwise.
    bind_address: str = setting("bindAddress", "127.0.0.1", NEVER)
    broker_ip1: str = setting("brokerIP1", "", NEVER)
    broker_ip2: str = setting("brokerIP2", "", NEVER)
    namesrv_addresses: str = setting("namesrvAddr", "", NEVER)
    broker_permission: int = setting("brokerPermission", 6, NOW, most=7)
    region_id: str = setting("regionId", "DefaultRegion", NEVER)
    idle_timeout_s: int = setting("serverChannelMaxIdleTimeSeconds", 120, least=1)
    backlog: int = setting("serverSocketBacklog", 1024, least=1)
    shut_down_gracefully: bool = setting("enableShutdownGracefully", False)
    shut_down_wait_s: int = setting("shutdownWaitTimeSeconds", 30)
    config_path: str = setting("brokerConfigPath", "", NEVER)
    config_black_list: str = setting("configBlackList", "configBlackList;brokerConfigPath", NEVER)

    # Topics, groups, clients
    auto_create_topic: bool = setting("autoCreateTopicEnable", True, NOW)
    default_topic_queues: int = setting("defaultTopicQueueNums", 8, NOW, least=1, most=65536)
    auto_create_group: bool = setting("autoCreateSubscriptionGroup", True, NOW)
    cluster_topic_enabled: bool = setting("clusterTopicEnable", True)
    broker_topic_enabled: bool = setting("brokerTopicEnable", True)
    trace_topic_enabled: bool = setting("traceTopicEnable", False)
    trace_topic: str = setting("msgTraceTopicName", "RMQ_SYS_TRACE_TOPIC", NEVER)
    trace_on: bool = setting("traceOn", True, NOW)
    property_filter_enabled: bool = setting("enablePropertyFilter", False, NOW)
    filter_retry_messages: bool = setting("filterSupportRetry", False, NOW)
    filter_kept_ms: int = setting("filterDataCleanTimeSpan", 86_400_000, NOW, most=I64_MAX)
    reject_pull_consumers: bool = setting("rejectPullConsumerEnable", False, NOW)
    lite_pull_enabled: bool = setting("litePullMessageEnable", True, NOW)
    notify_consumer_changes: bool = setting("notifyConsumerIdsChangedEnable", True, NOW)
    notify_consumer_changes_at_once: bool = setting("realTimeNotifyConsumerChange", True, NOW)
    channel_expired_ms: int = setting("channelExpiredTimeout", 120_000, NOW)
    subscription_expired_ms: int = setting("subscriptionExpiredTimeout", 600_000, NOW)
    register_producers: bool = setting("enableRegisterProducer", True, NOW)
    protect_system_topics: bool = setting("validateSystemTopicWhenUpdateTopic", True, NOW)
    mixed_message_type_enabled: bool = setting("enableMixedMessageType", False, NOW)
    create_system_groups: bool = setting("enableCreateSysGroup", True, NOW)
    clear_retry_topic_with_topic: bool = setting("clearRetryTopicWhenDeleteTopic", True, NOW)

    # Send
    start_accept_send_ms: int = setting("startAcceptSendRequestTimeStamp", 0, NOW, most=I64_MAX)
    store_reply_messages: bool = setting("storeReplyMessageEnable", True, NOW)

    # Timers
    timer_wheel_enabled: bool = setting("timerWheelEnable", True)
    recall_enabled: bool = setting("recallMessageEnable", False, NOW)
    recall_when_not_writable: bool = setting("allowRecallWhenBrokerNotWriteable", True, NOW)

    # Transactions
    reject_transactions: bool = setting("rejectTransactionMessage", False, NOW)
    transaction_timeout_ms: int = setting("transactionTimeOut", 6_000, NOW)
    transaction_checks_max: int = setting("transactionCheckMax", 15, NOW)
    transaction_check_interval_ms: int = setting("transactionCheckInterval", 30_000, NOW, least=1)
    op_bytes_max: int = setting("transactionOpMsgMaxSize", 4_096, NOW, least=1)
    op_interval_ms: int = setting("transactionOpBatchInterval", 3_000, NOW, least=1)

    # Pull and consume
    long_polling: bool = setting("longPollingEnable", True, NOW)
    short_polling_ms: int = setting("shortPollingTimeMills", 1_000, NOW)
    slave_read_enabled: bool = setting("slaveReadEnable", False, NOW)
    flush_offsets_interval_ms: int = setting("flushConsumerOffsetInterval", 5_000, least=1)
    flush_delays_interval_ms: int = setting("flushDelayOffsetInterval", 10_000, least=1)
    offset_version_step: int = setting("consumerOffsetUpdateVersionStep", 500, NOW, least=1)
    reset_offsets_on_server: bool = setting("useServerSideResetOffset", True, NOW)
    lock_max_live_ms: int = setting("rocketmq.broker.rebalance.lockMaxLiveTime", 60_000, least=1)

    # Who pulls, who pops
    request_mode: str = setting("defaultMessageRequestMode", "PULL", NOW, choices=("PULL", "POP"))
    pop_shared_by: int = setting("defaultPopShareQueueNum", -1, NOW, least=-1)
    shares_queues: bool = setting("serverLoadBalancerEnable", True, NOW)
    pop_retries_first_percent: int = setting("popFromRetryProbability", 20, NOW, most=100)
    pop_in_flight_bounded: bool = setting("enablePopMessageThreshold", False, NOW)
    pop_in_flight_max: int = setting("popInflightMessageThreshold", 10_000, NOW, least=1, most=1_000_000)
    pop_waiting_of_row_max: int = setting("popPollingSize", 1_024, NOW, least=1, most=100_000)
    pop_waiting_max: int = setting("maxPopPollingSize", 100_000, NOW, least=1, most=1_000_000)

    # Protection
    fast_failure: bool = setting("brokerFastFailureEnable", True, NOW)
    send_wait_ms_max: int = setting("waitTimeMillsInSendQueue", 200, NOW)
    pull_wait_ms_max: int = setting("waitTimeMillsInPullQueue", 5_000, NOW)
    lite_pull_wait_ms_max: int = setting("waitTimeMillsInLitePullQueue", 5_000, NOW)
    heartbeat_wait_ms_max: int = setting("waitTimeMillsInHeartbeatQueue", 31_000, NOW)
    transaction_wait_ms_max: int = setting("waitTimeMillsInTransactionQueue", 3_000, NOW)
    ack_wait_ms_max: int = setting("waitTimeMillsInAckQueue", 3_000, NOW)
    admin_wait_ms_max: int = setting("waitTimeMillsInAdminBrokerQueue", 5_000, NOW)
    send_waiting_max: int = setting("sendThreadPoolQueueCapacity", 10_000, least=1)
    pull_waiting_max: int = setting("pullThreadPoolQueueCapacity", 100_000, least=1)
    lite_pull_waiting_max: int = setting("litePullThreadPoolQueueCapacity", 100_000, least=1)
    ack_waiting_max: int = setting("ackThreadPoolQueueCapacity", 100_000, least=1)
    reply_waiting_max: int = setting("replyThreadPoolQueueCapacity", 10_000, least=1)
    query_waiting_max: int = setting("queryThreadPoolQueueCapacity", 20_000, least=1)
    heartbeat_waiting_max: int = setting("heartbeatThreadPoolQueueCapacity", 50_000, least=1)
    client_waiting_max: int = setting("clientManagerThreadPoolQueueCapacity", 1_000_000, least=1)
    consumer_waiting_max: int = setting("consumerManagerThreadPoolQueueCapacity", 1_000_000, least=1)
    balance_waiting_max: int = setting("loadBalanceThreadPoolQueueCapacity", 100_000, least=1)
    transaction_waiting_max: int = setting("endTransactionPoolQueueCapacity", 100_000, least=1)
    admin_waiting_max: int = setting("adminBrokerThreadPoolQueueCapacity", 10_000, least=1)
    disable_slow_groups: bool = setting("disableConsumeIfConsumerReadSlowly", False, NOW)
    slow_group_bytes: int = setting("consumerFallbehindThreshold", 16 << 30, NOW, most=I64_MAX)
    debug_locks: bool = setting("debugLockEnable", False)

    # Registration
    register_period_ms: int = setting("registerNameServerPeriod", 30_000)
    register_timeout_ms: int = setting("registerBrokerTimeoutMills", 24_000, least=1)
    force_register: bool = setting("forceRegister", True, NOW)
    disappear_after_start_ms: int = setting("disappearTimeAfterStart", -1, least=-1)

    # Replicas
    acting_master_enabled: bool = setting("enableSlaveActingMaster", False, NEVER)
    remote_escape_enabled: bool = setting("enableRemoteEscape", False)
    skip_pre_online: bool = setting("skipPreOnline", False, NEVER)
    heartbeat_interval_ms: int = setting("brokerHeartbeatInterval", 1_000, least=1)
    not_active_timeout_ms: int = setting("brokerNotActiveTimeoutMillis", 10_000, NOW, least=1)
    member_sync_interval_ms: int = setting("syncBrokerMemberGroupPeriod", 1_000, least=1)
    total_replicas: int = setting("totalReplicas", 1, NEVER, least=1)

    # A set that elects its master
    controller_store: str = setting("controllerStore", "", NEVER)
    controller_silence_ms: int = setting("controllerSilenceMs", 1_500, NEVER, least=100, most=600_000)
    controller_session_ms: int = setting("controllerSessionMs", 5_000, NEVER, least=2_000, most=600_000)
    handover_forward_ms: int = setting("handoverForwardMs", 60_000, NEVER, least=0, most=600_000)
    async_learner: bool = setting("asyncLearner", False, NEVER)

    # Access control, besides what every server has
    authorization_enabled: bool = setting("authorizationEnabled", False, NEVER)
    authorization_provider: str = setting("authorizationProvider", "", NEVER)
    authorization_metadata_provider: str = setting("authorizationMetadataProvider", "", NEVER)
    authorization_strategy: str = setting("authorizationStrategy", "", NEVER)
    authorization_whitelist: str = setting("authorizationWhitelist", "", NEVER)
    ha_allowed_addresses: str = setting("haAllowedAddresses", "", NEVER)
    tls_ha_mode: str = setting("tls.ha.mode", "permissive", NEVER, choices=("disabled", "permissive", "enforcing"))
    # Of RocketMQ 4: refused unless its files are taken over
    acl_enabled: bool = setting("aclEnable", False, NEVER)
    migrate_acl: bool = setting("migrateAuthFromV1Enabled", False, NEVER)
    rocketmq_home: str = setting("rocketmqHome", "", NEVER)

    # gRPC clients. RocketMQ's proxy has these in rmq-proxy.json
    grpc_port: int = setting("grpcServerPort", -1, NEVER, least=-1, most=65535)  # RocketMQ: 8081
    tls_test_mode: bool = setting("tlsTestModeEnable", True, NEVER)
    grpc_message_bytes_max: int = setting("grpcMaxInboundMessageSize", 16 << 20, least=65_536)  # RocketMQ: 130 MiB
    grpc_idle_ms: int = setting("grpcClientIdleTimeMills", 120_000, least=1_000)
    check_message_types: bool = setting("enableTopicMessageTypeCheck", True, NOW)
    delay_ms_max: int = setting("maxDelayTimeMills", 86_400_000, NOW, most=I64_MAX)

    # A mode that is refused: not built
    dledger_enabled: bool = setting("enableDLegerCommitLog", False, NEVER)

    # Groups of metrics
    stats_metrics: bool = setting("enableStatsMetrics", True, NEVER)
    message_metrics: bool = setting("enableRequestMetrics", True, NEVER)
    connection_metrics: bool = setting("enableConnectionMetrics", True, NEVER)
    lag_metrics: bool = setting("enableLagAndDlqMetrics", True, NEVER)
    transaction_metrics: bool = setting("enableTransactionMetrics", True, NEVER)
    request_metrics: bool = setting("enableRemotingMetrics", True, NEVER)
    store_metrics: bool = setting("enableMessageStoreMetrics", True, NEVER)
    pop_metrics: bool = setting("enablePopMetrics", True, NEVER)
    queue_lag_metrics: bool = setting("cometmqQueueLagMetrics", False, NEVER)

    # Figures
    commercial_bytes_per_message: int = setting("commercialSizePerMsg", 4_096, NOW, least=1)
    commercial_base_count: int = setting("commercialBaseCount", 1, NOW)
    detail_stats: bool = setting("enableDetailStat", True, NOW)

    @property
    def readable(self) -> bool:
        return self.broker_permission & 4 != 0

    @property
    def writable(self) -> bool:
        return self.broker_permission & 2 != 0

    @property
    def advertised_host(self) -> str:
        """What clients are told: brokerIP1, else the address we listen on."""
        if self.broker_ip1:
            return self.broker_ip1
        return "127.0.0.1" if self.bind_address in ("", "0.0.0.0", "localhost") else self.bind_address  # noqa: S104
