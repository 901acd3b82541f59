"""RocketMQ 5.5.0's settings that no class of this build reads: what becomes of each, and why.

    honoured         a field of BrokerConfig, StoreOptions, NameServerConfig; not here
    without meaning  it sizes or tunes a part of the Java program that is not needed here: accepted, kept, shown
    not built        accepted with a warning; not shown as if it were there
    refused          a server that is asked for it does not start: it would be trusted for something it does not do

With the honoured ones these are all keys of RocketMQ's configuration classes; tests/compat/test_settings_table.py
compares them with the real classes. The page docs/settings.md, the start of broker and name server, changes of a
running one and `cometmq doctor` all go by this table.

A row is `key=default`, with RocketMQ's default: whoever sets just that asks for nothing. The exceptions, where RocketMQ
has something switched on that is not built, are in `_SWITCHED_ON`.
"""

import enum
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cometmq.settings import SettingError

logger = logging.getLogger(__name__)


class State(enum.Enum):
    WITHOUT_MEANING = "without meaning"
    NOT_BUILT = "not built"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Row:
    """`why` it does nothing, and the `cure`: what to do instead."""

    key: str
    default: str
    state: State
    why: str
    cure: str

    def asks(self, text: str) -> bool:
        """Whether `text` asks for anything."""
        quiet = _SWITCHED_ON.get(self.key, self.default)
        return text.strip().lower() != quiet.lower()

    def says(self) -> str:
        return f"{self.why}; {self.cure}" if self.cure else self.why


Rows = dict[str, Row]

REMOVE: Final = "remove the line"


def _rows(state: State, *groups: tuple[str, str, str]) -> Rows:
    """Each group: why, cure, rows."""
    return {
        key: Row(key, default, state, why, cure)
        for why, cure, rows in groups
        for key, _, default in (row.partition("=") for row in rows.split())
    }


def _meaningless(*groups: tuple[str, str]) -> Rows:
    return _rows(State.WITHOUT_MEANING, *((why, "", rows) for why, rows in groups))


def _not_built(*groups: tuple[str, str]) -> Rows:
    return _rows(State.NOT_BUILT, *((why, REMOVE, rows) for why, rows in groups))


def _refused(*groups: tuple[str, str, str]) -> Rows:
    return _rows(State.REFUSED, *groups)


_TLS: Final = _meaningless(
    ("a certificate that a client shows is always verified", "tls.server.authClient=false"),
    ("no certificate is made up; `cometmq tls init` makes some for a first try", "tls.test.mode.enable=true"),
)
_NETTY_SERVER: Final = _meaningless(
    (
        "sockets are served by one event loop: Java's network threads and buffers do not exist here",
        """serverAsyncSemaphoreValue=64 serverCallbackExecutorThreads=0 serverNettyWorkerGroupEnable=true
        serverOnewaySemaphoreValue=256 serverPooledByteBufAllocatorEnable=true serverSelectorThreads=3
        serverSocketRcvBufSize=0 serverSocketSndBufSize=0 serverWorkerThreads=8 useEpollNativeSelector=false
        writeBufferHighWaterMark=0 writeBufferLowWaterMark=0""",
    ),
)
_NETTY_CLIENT: Final = _meaningless(
    (
        "connections to other servers share the event loop: Java's client threads and buffers do not exist here",
        """clientAsyncSemaphoreValue=65535 clientCallbackExecutorThreads=4 clientOnewaySemaphoreValue=65535
        clientPooledByteBufAllocatorEnable=false clientSocketRcvBufSize=0 clientSocketSndBufSize=0 clientWorkerThreads=4
        disableCallbackExecutor=false disableNettyWorkerGroup=false""",
    ),
    (
        "each kind of call to another server has a time limit of its own",
        "channelNotActiveInterval=60000 clientChannelMaxIdleTimeSeconds=120 clientCloseSocketIfTimeout=true "
        "connectTimeoutMillis=3000",
    ),
    ("RocketMQ 5.5.0 does not use it either", "maxReconnectIntervalTimeSeconds=60"),
    ("every name server in namesrvAddr is registered with on its own", "isScanAvailableNameSrv=true"),
    ("a connection that a peer closes is opened again at the next call", "enableReconnectForGoAway=true"),
)
_NETTY_REFUSED: Final = _refused(
    ("here another key switches on TLS for connections to other servers", "set tls.enable=true", "useTLS=false"),
    (
        "connections to other servers do not go through a proxy",
        f"make them reachable and {REMOVE}",
        "socksProxyConfig={}",
    ),
)
_CONTROLLER: Final = (
    "RocketMQ's controller is not built: sets elect their master with etcd",
    "set enableControllerMode=true and controllerStore (docs/failover.md)",
)
_ROCKSDB: Final = (
    "stores in RocksDB are not built: this broker would not find what such a store holds",
    "export a RocksDB broker's metadata with RocketMQ first, and remove the line",
)
_OF_ROCKSDB: Final = "tunes stores in RocksDB, which are not built"
_OF_CONTROLLER: Final = "belongs to RocketMQ's controller, which is not built (docs/failover.md)"
_OF_LITE: Final = "belongs to lite topics, which are not built"
_OF_COLD: Final = "belongs to limits on reading cold data, which are not built"
_OF_DLEDGER: Final = "belongs to DLedger, which is not built: use failover (docs/failover.md)"
_OF_COMPACTION: Final = "belongs to compaction topics, which are not built"
_ONE_LOOP: Final = "appends run one after the other on the event loop, there is no lock to choose"
_ONE_DISPATCH: Final = "dispatch follows the append on the event loop; the files are the same"
_TIMER_TURNS: Final = "timer messages are taken in and delivered on the event loop, a few in each turn"
_NO_POOL: Final = "there is no transient pool to commit from"
_UNUSED: Final = "RocketMQ 5.5.0 does not use it either"

_BROKER_MEANINGLESS: Final = _meaningless(
    (
        "requests are served on the event loop: there are no thread pools to size",
        """ackMessageThreadPoolNums=16 adminBrokerThreadPoolNums=16 clientManageThreadPoolNums=32
        consumerManageThreadPoolNums=32 endTransactionThreadPoolNums=16 heartbeatThreadPoolNums=2
        litePullMessageThreadPoolNums=20 loadBalanceProcessorThreadPoolNums=32 processReplyMessageThreadPoolNums=20
        pullMessageThreadPoolNums=20 putMessageFutureThreadPoolNums=2 queryMessageThreadPoolNums=10
        sendMessageThreadPoolNums=2 putThreadPoolQueueCapacity=10000 recoverConcurrently=false recoverThreadPoolNums=32
        enableFastChannelEventProcess=false""",
    ),
    ("no request waits for a disk or a replica on a thread", "asyncSendEnable=true"),
    (
        "users and rules are looked up in memory at every request: nothing is cached",
        """aclCacheExpiredSecond=600 aclCacheMaxNum=1000 aclCacheRefreshSecond=60 userCacheExpiredSecond=600
        userCacheMaxNum=1000 userCacheRefreshSecond=60 statefulAuthenticationCacheExpiredSecond=60
        statefulAuthenticationCacheMaxNum=10000 statefulAuthorizationCacheExpiredSecond=60
        statefulAuthorizationCacheMaxNum=10000""",
    ),
    ("set by RocketMQ itself: brokerClusterName and brokerName say it", "clusterName= configName="),
    (
        "counters are kept in memory; requests and metrics show them, the log does not",
        """accountStatsEnable=true accountStatsPrintZeroValues=true autoDeleteUnusedStats=true
        maxStatsIdleTimeInMinutes=-1""",
    ),
    (
        "SQL92 filters are evaluated for each message, without bloom filters",
        """enableCalcFilterBitMap=false expectConsumerNumUseFilter=32 maxErrorRateOfBloomFilter=20
        bitMapLengthConsumeQueueExt=64""",
    ),
    ("how an answer is copied to its socket is not a choice here", "transferMsgByHeap=true"),
    (
        "topics are read, registered and copied to replicas as a whole",
        """enableSingleTopicRegister=false enableSplitMetadata=true splitMetadataSize=2000 enableSplitRegistration=false
        splitRegistrationSize=800 compatibleWithOldNameSrv=true""",
    ),
    (
        "the list of groups by connection is not printed: `mqadmin consumerConnection` shows it",
        "printChannelGroups=false printChannelGroupsMinNum=5",
    ),
    (
        "pop records are written with the message that needs them, and state in flight is in memory",
        """appendAckAsync=false appendCkAsync=false enablePopBatchAck=false enablePopBufferMerge=false
        initPopOffsetByCheckMsgInMem=true popCkMaxBufferSize=200000 popCkOffsetMaxQueueSize=20000
        popCkStayBufferTime=10000 popCkStayBufferTimeOut=3000""",
    ),
    (
        "waiting pops are looked at every 20 ms while there are any, with their filter",
        """popLongPollingForceNotifyInterval=800 popPollingMapExpireTimeSeconds=600 popPollingMapSize=100000
        enableNotifyAfterPopOrderLockRelease=true enableNotifyBeforePopCalculateLag=true
        useMessageFilterForNotification=true maxMessageFilterNumForNotification=64""",
    ),
    (
        "a message whose time is over goes to its retry topic from memory, tried again until it is there",
        """popReviveConcurrency=32 popReviveMaxAttemptTimes=16 popReviveMaxReturnSizePerRead=16384
        popReviveSkipIfGroupAbsent=true skipWhenCKRePutReachMaxTimes=false reviveInterval=1000 reviveMaxSlow=3
        reviveScanTime=10000 reviveAckWaitMs=180000 enableSkipLongAwaitingAck=false reviveQueueNum=8
        popConsumerFSServiceInit=true""",
    ),
    ("pop retry topics have the names of the first version", "retrieveMessageFromPopRetryTopicV1=true"),
    (
        "RocketMQ 5.5.0 does not use it either",
        """cleanOfflineBrokerInterval=30000 flushConsumerOffsetHistoryInterval=60000 highSpeedMode=false
        dispatchCqCacheNum=4096 dispatchCqThreads=10 dispatchFromSenderThread=false enableAsyncReput=true
        enableCleanExpiredOffset=false maxBatchDeleteFilesNum=50 maxRecoveryCommitlogFiles=30 maxTopicLength=127
        pullBatchMaxMessageCount=160 putMessageTimeout=8000 putMsgIndexHightWater=600000""",
    ),
    ("there are no groups of containers whose logs would be apart", "isolateLogEnable=false"),
    (
        "name servers are those of namesrvAddr, read at the start",
        "fetchNamesrvAddrInterval=10000 updateNameServerAddrPeriod=120000",
    ),
    ("brokers of one name are asked at syncBrokerMemberGroupPeriod", "syncBrokerMetadataPeriod=5000"),
    (
        "heartbeats to name servers and forwarded requests have limits of their own",
        "sendHeartbeatTimeoutMillis=1000 forwardTimeout=3000",
    ),
    ("routes that load balancing needs are asked at most every 30 s", "loadBalancePollNameServerInterval=30000"),
    ("counts of open transactions are kept in memory", "transactionMetricFlushInterval=10000"),
    ("delay levels' progress is saved at flushDelayOffsetInterval", "delayOffsetUpdateVersionStep=200"),
)

_STORE_MEANINGLESS: Final = _meaningless(
    (
        _ONE_LOOP,
        """useReentrantLockWhenPutMessage=true useABSLock=false spinLockCollisionRetreatOptimalDegree=1000
        topicQueueLockNum=32""",
    ),
    ("not needed: segments are allocated ahead, what is acked is in the kernel", "transientStorePoolEnable=false"),
    ("there is no transient pool", "transientStorePoolSize=5 fastFailIfNoBufferInStorePool=false"),
    ("appends go to allocated maps, which cannot fail half-way", "writeWithoutMmap=false"),
    ("warming changes no byte, so there is nothing to force meanwhile", "flushLeastPagesWhenWarmMapedFile=4096"),
    (
        _NO_POOL,
        """commitIntervalCommitLog=200 commitCommitLogLeastPages=4 commitCommitLogThoroughInterval=200
        wakeCommitWhenPutMessage=true sharedByteBufferNum=16""",
    ),
    ("always on: the first failed flush makes the store read-only", "enableRunningFlagsInFlush=false"),
    ("consume queues are always written in batches with pwrite", "putConsumeQueueDataByFileChannel=true"),
    (_ONE_DISPATCH, "enableBuildConsumeQueueConcurrently=false batchDispatchRequestThreadPoolNums=16"),
    ("a deleted file stays readable for who holds it; nothing is forced", "destroyMapedFileIntervalForcibly=120000"),
    ("a deleted file stays readable for who holds it; nothing hangs", "redeleteHangedFileInterval=120000"),
    (
        "an empty replica gets the log from the first file on: it has to have all of it before it counts",
        "syncFromLastFile=false",
    ),
    (
        _TIMER_TURNS,
        "timerGetMessageThreadNum=3 timerPutMessageThreadNum=3 timerEnableDisruptor=false "
        "enableScheduleAsyncDeliver=false scheduleAsyncDeliverMaxPendingLimit=2000 "
        "scheduleAsyncDeliverMaxResendNum2Blocked=3",
    ),
    ("always on: a message that cannot be delivered now is delivered later", "timerEnableRetryUntilSuccess=false"),
    ("what can never be delivered is skipped, anything else is tried again", "timerSkipUnknownError=false"),
    ("every topic is counted again", "timerMetricSmallThreshold=1000000"),
    ("see timerReadBehind and timerOffsetBehind in the broker's figures", "timerProgressLogIntervalMs=10000"),
    (
        "the wheel is flushed in place at timerFlushIntervalMs",
        "timerWheelSnapshotFlush=false timerWheelSnapshotIntervalMs=10000",
    ),
    (_UNUSED, "maxSlaveResendLength=268435456 timerInterceptDelayLevel=false timerWarmEnable=false"),
    (
        "mapped files are not swapped; RocketMQ 5.5 does not use it either",
        """mappedFileSwapEnable=true commitLogForceSwapMapInterval=43200000 commitLogSwapMapInterval=3600000
        commitLogSwapMapReserveFileNum=100 logicQueueForceSwapMapInterval=43200000 logicQueueSwapMapInterval=3600000
        logicQueueSwapMapReserveFileNum=20 cleanSwapedMapInterval=300000""",
    ),
    ("a start always compares queues with the log", "recheckReputOffsetFromCq=false"),
    ("a start checks records by length, magic number and checksum", "checkCommitLogOffsetOnRecover=false"),
    ("a start begins at the checkpoint as it is", "enableAcceleratedRecovery=false"),
    ("what a start builds again is not logged line by line", "enableLogConsumeQueueRepeatedlyBuildWhenRecover=false"),
    ("files go without a pause between two", "deleteCommitLogFilesInterval=100 deleteConsumeQueueFilesInterval=100"),
    (
        "beginnings of queues follow whenever segments were deleted",
        "correctLogicMinOffsetForceInterval=300000 correctLogicMinOffsetSleepInterval=1",
    ),
    ("always on: how far behind each group is costs nothing to note", "diskFallRecorded=true"),
    ("there is no checksum over a range of the log", "maxChecksumRange=1073741824"),
    ("appends that wait are bounded by sendThreadPoolQueueCapacity", "maxAsyncPutMessageRequests=5000"),
    ("units of batch queues are searched in mapped files", "searchBcqByCacheEnable=true"),
)

_BROKER_REFUSED: Final = _refused(
    (*_CONTROLLER, "controllerAddr= fetchControllerAddrByDnsLookup=false"),
    (
        *_ROCKSDB,
        """storeType=default rocksdbCQDoubleWriteEnable=false indexRocksDBEnable=false timerRocksDBEnable=false
        transRocksDBEnable=false combineCQUseRocksdbForLmq=false configManagerVersion=v1
        useSingleRocksDBForAllConfigs=false persistConsumerOffsetIncrementally=false popConsumerKVServiceEnable=false
        popConsumerKVServiceInit=false""",
    ),
    (
        "store plug-ins and RocketMQ's tiered store are not built",
        f"{REMOVE}; docs/spark.md archives topics",
        "messageStorePlugIn=",
    ),
    (
        "broker containers are not built",
        "run one process for each broker",
        "isBrokerContainer=false isInBrokerContainer=false",
    ),
    (
        "name servers are not looked up",
        "list all of them in namesrvAddr",
        "fetchNamesrvAddrByAddressServer=false fetchNameSrvAddrByDnsLookup=false",
    ),
    ("limits on reading cold data are not built", REMOVE, "coldDataFlowControlEnable=false coldDataScanEnable=false"),
    ("limits on network traffic are not built", REMOVE, "enableNetWorkFlowControl=false"),
    ("subscriptions come from consumers, not from topics' static ones", REMOVE, "useStaticSubscription=false"),
    ("locks of queues hold at one broker, not in a strict mode", REMOVE, "lockInStrictMode=false"),
    (
        "pop retry topics have the names of the first version, which RocketMQ reads too",
        REMOVE,
        "enableRetryTopicV2=false",
    ),
    ("retries of a group share the queues of its retry topic", REMOVE, "useSeparateRetryQueue=false"),
    (
        "how far a replica has flushed is its own, not taken from the master at a start",
        REMOVE,
        "syncMasterFlushOffsetWhenStartup=false",
    ),
    ("where users.json is cannot be chosen: it is in config/ below storePathRootDir", REMOVE, "authConfigPath="),
)

_OTLP: Final = (
    "metrics are not pushed by OTLP: metricsExporterType=PROM serves them",
    """metricGrpcExporterIntervalInMills=60000 metricGrpcExporterTimeOutInMills=3000 metricsGrpcExporterHeader=
    metricsGrpcExporterTarget= metricsInDelta=false""",
)
_BROKER_NOT_BUILT: Final = _not_built(
    (_OF_DLEDGER, "dLegerGroup= dLegerPeers= dLegerSelfId= preferredLeaderId= storePathDLedgerCommitLog="),
    (
        _OF_CONTROLLER,
        """brokerElectionPriority=2147483647 checkSyncStateSetPeriod=5000 controllerHeartBeatTimeoutMills=10000
        syncControllerMetadataPeriod=10000 storePathBrokerIdentity= storePathEpochFile=""",
    ),
    (
        _OF_ROCKSDB,
        """bottomMostCompressionTypeForConsumeQueueStore=zstd cleanRocksDBDirtyCQIntervalMin=60
        combineAssignOffsetCQType=default combineCQEnableCheckSelf=false combineCQLoadingCQTypes=default;defaultRocksDB
        combineCQMaxExtraSearchCommitLogFiles=3 combineCQPreferCQType=default enableRocksDBLog=false
        iteratorWhenUseRocksdbConsumeQueue=true maxRocksDBIndexQueryDays=7 memTableFlushIntervalMs=3600000
        popConsumerKVServiceLog=false realTimePersistRocksDBConfig=true rocksdbCompressionType=lz4
        rocksdbFlushWalFrequency=1024 rocksdbWalFileRollingThreshold=1073741824 statRocksDBCQIntervalSec=10
        timerRecallToTimeWheelEnable=true timerRecallToTimelineEnable=true timerReputServiceCorePoolSize=6
        timerReputServiceMaxPoolSize=6 timerReputServiceQueueCapacity=10000 timerRocksDBPrecisionMs=1000
        timerRocksDBRollIntervalHours=1 timerRocksDBRollMaxTps=8000.0 timerRocksDBRollRangeHours=2
        timerRocksDBStopScan=false timerRocksDBTimeExpiredMaxTps=200000.0 transWriteOriginTransHalfEnable=true
        transactionCheckRocksdbCoreThreads=2 transactionCheckRocksdbMaxThreads=5
        transactionCheckRocksdbQueueCapacity=2000 useSeparateStorePathForRocksdbCQ=false""",
    ),
    (
        _OF_LITE,
        """enableLiteEventMode=true enableLitePopLog=false enableLmqStats=false liteEventCheckInterval=10000
        liteEventFullDispatchDelayTime=10000 liteEventFullDispatchDelayTimeForWildcardGroup=10000
        liteLagCountMetricsEnable=false liteLagLatencyCollectEnable=false liteLagLatencyMetricsEnable=false
        liteLagLatencyTopK=50 liteSubscriptionCheckInterval=120000 liteSubscriptionCheckTimeoutMills=180000
        liteTtlCheckInterval=120000 maxClientEventCount=100 maxLiteSubscriptionCount=100000 minLiteTTl=900000""",
    ),
    (
        _OF_COLD,
        """accessMessageInMemoryHotRatio=26 cgColdReadThreshold=3145728 coldCtrStrategyEnable=false
        globalColdReadThreshold=104857600 timerColdDataCheckIntervalMs=60000 usePIDColdCtrStrategy=true""",
    ),
    (
        _OF_COMPACTION,
        """compactionCqMappedFileSize=10485760 compactionMappedFileSize=104857600 compactionScheduleInternal=900000
        compactionThreadNum=6 enableCompaction=true maxOffsetMapSize=104857600""",
    ),
    (
        "how far a group is behind is counted without its filter",
        "estimateAccumulation=true maxConsumeQueueScan=20000 sampleCountThreshold=5000 sampleSteps=32",
    ),
    (
        "progress of broadcasting consumers stays with them",
        "enableBroadcastOffsetStore=true broadcastOffsetExpireSecond=120 broadcastOffsetExpireMaxSecond=300",
    ),
    _OTLP,
    (_OTLP[0], "metricsExportBatchMaxDataPoints=1000"),
    ("registrations are not compressed", "compressedRegister=false"),
    ("single pops are not logged", "enablePopLog=false"),
    ("consumers get retries by the name of their own topic", "popResponseReturnActualRetryTopic=false"),
    ("topics of type PRIORITY are popped in one order, retries by popFromRetryProbability",
     "popFromRetryProbabilityForPriority=0 priorityOrderAsc=true"),
    ("delay levels have no counters of their own", "enableScheduleMessageStats=true"),
    ("index files are written and read wherever messageIndexEnable=true",
     "indexFileReadEnable=true indexFileWriteEnable=true"),
    ("a long poll wakes by message, not by batch", "enableBatchPush=false"),
)  # fmt: skip

# RocketMQ has these on by itself, and they are not built: to say so in a file asks for them; this value does not.
_SWITCHED_ON: Final = {
    "enableCompaction": "false",
    "enableBroadcastOffsetStore": "false",
    "enableLiteEventMode": "false",
    "estimateAccumulation": "false",
    "enableScheduleMessageStats": "false",
}

BROKER: Final[Rows] = {
    **_TLS,
    **_NETTY_SERVER,
    **_NETTY_CLIENT,
    **_NETTY_REFUSED,
    **_BROKER_MEANINGLESS,
    **_STORE_MEANINGLESS,
    **_BROKER_REFUSED,
    **_BROKER_NOT_BUILT,
}
NAME_SERVER: Final[Rows] = {
    **_TLS,
    **_NETTY_SERVER,
    **_NETTY_CLIENT,
    **_NETTY_REFUSED,
    **_meaningless(
        ("requests are served on the event loop: there are no thread pools to size",
         "clientRequestThreadPoolNums=8 defaultThreadPoolNums=16 unRegisterBrokerQueueCapacity=3000"),
        ("connections are accepted as they come, the system's own bound holds", "serverSocketBacklog=1024"),
        ("it names an environment, and nothing asks for its name", "productEnvName=center"),
    ),
    **_refused((*_CONTROLLER, "enableControllerInNamesrv=false")),
    **_not_built(
        _OTLP,
        (_OF_CONTROLLER,
         """controllerDLegerGroup= controllerDLegerPeers= controllerDLegerSelfId= controllerStorePath=
         controllerRequestThreadPoolQueueCapacity=50000 controllerThreadPoolNums=16 controllerType=DLedger
         enableElectUncleanMaster=false electMasterMaxRetryCount=3
         isProcessReadEvent=false jraftConfig= mappedFileSize=1073741824 notifyBrokerRoleChanged=true
         scanInactiveMasterInterval=5000"""),
    ),
}  # fmt: skip


def shown(rows: Rows) -> dict[str, str]:
    """What is shown by itself: RocketMQ's defaults of what means nothing here, and what is refused, which is off."""
    return {key: row.default for key, row in rows.items() if row.state is not State.NOT_BUILT}


def complaints(rows: Rows, texts: Mapping[str, str]) -> list[Row]:
    """The rows that `texts` ask something of which is not built, refused ones first."""
    asked = [rows[key] for key in sorted(texts) if key in rows and rows[key].asks(texts[key])]
    asked = [row for row in asked if row.state is not State.WITHOUT_MEANING]
    return sorted(asked, key=lambda row: row.state is not State.REFUSED)


def refuse(rows: Rows, texts: Mapping[str, str]) -> None:
    """Raises SettingError for the first key that asks for something that a server must not pretend to do."""
    for row in complaints(rows, texts):
        if row.state is State.REFUSED:
            raise SettingError(f"{row.key}={texts[row.key].strip()[:80]} is refused: {row.says()}", row.key)


def judge(rows: Rows, texts: Mapping[str, str]) -> None:
    """At a start: refuse, or say in the log what `texts`, keys that no class reads, do not do."""
    refuse(rows, texts)
    for row in complaints(rows, texts):
        logger.warning("no effect of setting key=%s value=%s: %s", row.key, texts[row.key], row.says())
    for key in sorted(texts.keys() & rows.keys()):
        row = rows[key]
        if row.state is State.WITHOUT_MEANING and row.asks(texts[key]):
            logger.info("ignored setting key=%s value=%s: %s", key, texts[key], row.why)
    strangers = sorted(texts.keys() - rows.keys())
    if strangers:
        logger.warning("unknown settings, kept without effect: %s", ", ".join(strangers))


def without_effect(rows: Rows, current: Mapping[str, str], wanted: Mapping[str, str]) -> str:
    """Why a change of `wanted`, keys that no class reads, would do nothing; empty if it says what holds anyway."""
    said: list[str] = []
    for key, text in sorted(wanted.items()):
        row = rows.get(key)
        if text.strip() != current.get(key):
            said.append(f"{key} has no effect: {row.says() if row is not None else 'no such setting is known'}")
    return "; ".join(said)
