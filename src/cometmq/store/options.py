"""Settings of the store: our names and units, Java's key names and defaults.

`KEYS` maps the keys of a RocketMQ configuration file to fields. Keys that RocketMQ has and this store has no use for
are accepted: `EXPLAINED_KEYS` says why, for one line in the log when such a key is set.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields
from typing import Any, Final

GIB: Final = 1 << 30


def _key(name: str, default: Any) -> Any:
    return field(default=default, metadata={"key": name})


@dataclass(slots=True)
class StoreOptions:
    # Paths and sizes
    root_dir: str = _key("storePathRootDir", os.path.join(os.path.expanduser("~"), "store"))
    commitlog_paths: str | None = _key("storePathCommitLog", None)
    commitlog_read_only_paths: str | None = _key("readOnlyCommitLogStorePaths", None)
    segment_bytes: int = _key("mappedFileSizeCommitLog", GIB)
    queue_file_bytes: int = _key("mappedFileSizeConsumeQueue", 6_000_000)
    batch_queue_file_bytes: int = _key("mapperFileSizeBatchConsumeQueue", 13_800_000)
    queue_ext_enabled: bool = _key("enableConsumeQueueExt", False)
    queue_ext_file_bytes: int = _key("mappedFileSizeConsumeQueueExt", 50_331_648)
    message_bytes_max: int = _key("maxMessageSize", 4_194_304)
    version_by_topic_length: bool = _key("autoMessageVersionOnTopicLen", True)
    property_crc_append: bool = _key("enabledAppendPropCRC", False)
    property_crc_verify: bool = _key("forceVerifyPropCRC", False)

    # Index
    index_enabled: bool = _key("messageIndexEnable", True)
    index_safe: bool = _key("messageIndexSafe", False)
    index_slots: int = _key("maxHashSlotNum", 5_000_000)
    index_entries: int = _key("maxIndexNum", 20_000_000)
    query_messages_max: int = _key("maxMsgsNumBatch", 64)
    query_messages_default: int = _key("defaultQueryMaxNum", 32)

    # Put
    page_cache_busy_ms: int = _key("osPageCacheBusyTimeOutMills", 1000)
    warm_segments: bool = _key("warmMapedFileEnable", False)
    read_ahead: bool = _key("dataReadAheadEnable", True)

    # Flush
    flush_disk_type: str = _key("flushDiskType", "ASYNC_FLUSH")
    flush_interval_ms: int = _key("flushIntervalCommitLog", 500)
    flush_timed: bool = _key("flushCommitLogTimed", True)
    flush_pages_min: int = _key("flushCommitLogLeastPages", 4)
    flush_thorough_interval_ms: int = _key("flushCommitLogThoroughInterval", 10_000)
    flush_wake_on_put: bool = _key("wakeFlushWhenPutMessage", False)
    queue_flush_interval_ms: int = _key("flushIntervalConsumeQueue", 1000)
    queue_flush_pages_min: int = _key("flushConsumeQueueLeastPages", 2)
    queue_flush_thorough_interval_ms: int = _key("flushConsumeQueueThoroughInterval", 60_000)
    sync_flush_timeout_ms: int = _key("syncFlushTimeout", 5000)

    # Dispatch and read
    read_uncommitted: bool = _key("readUnCommitted", False)
    recheck_dispatch_from_queues: bool = _key("recheckReputOffsetFromCq", False)
    memory_percent_max: int = _key("accessMessageInMemoryMaxRatio", 40)
    get_bytes_max_in_memory: int = _key("maxTransferBytesOnMessageInMemory", 262_144)
    get_count_max_in_memory: int = _key("maxTransferCountOnMessageInMemory", 32)
    get_bytes_max_on_disk: int = _key("maxTransferBytesOnMessageInDisk", 65_536)
    get_count_max_on_disk: int = _key("maxTransferCountOnMessageInDisk", 8)
    filter_scan_bytes_max: int = _key("maxFilterMessageSize", 16_000)
    queue_files_per_get: int = _key("travelCqFileNumWhenGetMessage", 1)
    offset_check_on_slave: bool = _key("offsetCheckInSlave", False)
    disk_fall_recorded: bool = _key("diskFallRecorded", True)
    queue_scan_max: int = _key("maxConsumeQueueScan", 20_000)
    sample_count_threshold: int = _key("sampleCountThreshold", 5000)
    checksum_range_bytes_max: int = _key("maxChecksumRange", GIB)

    # Recovery and expiry
    crc_check_on_recover: bool = _key("checkCRCOnRecover", True)
    recover_segments_max: int = _key("commitLogRecoverMaxNum", 10)
    offset_check_on_recover: bool = _key("checkCommitLogOffsetOnRecover", False)
    accelerated_recovery: bool = _key("enableAcceleratedRecovery", False)
    clean_interval_ms: int = _key("cleanResourceInterval", 10_000)
    delete_when: str = _key("deleteWhen", "04")
    file_reserved_hours: int = _key("fileReservedTime", 72)
    delete_segments_interval_ms: int = _key("deleteCommitLogFilesInterval", 100)
    delete_queue_files_interval_ms: int = _key("deleteConsumeQueueFilesInterval", 100)
    delete_files_max: int = _key("deleteFileBatchMax", 10)
    disk_used_percent_max: int = _key("diskMaxUsedSpaceRatio", 75)
    disk_clean_forcibly_percent: int = _key("diskSpaceCleanForciblyRatio", 85)
    disk_warning_percent: int = _key("diskSpaceWarningLevelRatio", 90)
    clean_forcibly: bool = _key("cleanFileForciblyEnable", True)
    replicas_per_disk: int = _key("replicasPerDiskPartition", 1)
    logical_disk_clean_forcibly_ratio: float = _key("logicalDiskSpaceCleanForciblyThreshold", 0.8)
    correct_min_offset_force_interval_ms: int = _key("correctLogicMinOffsetForceInterval", 300_000)

    # Replication
    broker_role: str = _key("brokerRole", "ASYNC_MASTER")
    duplication_enabled: bool = _key("duplicationEnable", False)
    in_sync_replicas: int | None = _key("inSyncReplicas", None)
    slave_timeout_ms: int = _key("slaveTimeout", 3000)

    # Light queues, delay levels
    lmq_enabled: bool = _key("enableLmq", False)
    multi_dispatch_enabled: bool = _key("enableMultiDispatch", False)
    lmq_quota_enabled: bool = _key("enableLmqQuota", False)
    lmq_queues_max: int = _key("maxLmqConsumeQueueNum", 20_000)
    delay_levels: str = _key("messageDelayLevel", "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h")

    @property
    def sync_flush(self) -> bool:
        return self.flush_disk_type == "SYNC_FLUSH"

    @property
    def is_slave(self) -> bool:
        return self.broker_role == "SLAVE"

    def commitlog_dirs(self) -> list[str]:
        """Where new segments may go, sorted."""
        return _split(self.commitlog_paths) or [os.path.join(self.root_dir, "commitlog")]

    def commitlog_read_only_dirs(self) -> list[str]:
        return _split(self.commitlog_read_only_paths)

    def path(self, *names: str) -> str:
        return os.path.join(self.root_dir, *names)


def _split(paths: str | None) -> list[str]:
    return sorted(path.strip() for path in (paths or "").split(",") if path.strip())


KEYS: Final[dict[str, str]] = {item.metadata["key"]: item.name for item in fields(StoreOptions)}

_ONE_LOOP = "appends run one after the other on the event loop, there is no lock to choose"
_NO_SWAP = "mapped files are not swapped; RocketMQ 5.5 does not use it either"
EXPLAINED_KEYS: Final[dict[str, str]] = {
    "useReentrantLockWhenPutMessage": _ONE_LOOP,
    "useABSLock": _ONE_LOOP,
    "spinLockCollisionRetreatOptimalDegree": _ONE_LOOP,
    "topicQueueLockNum": _ONE_LOOP,
    "debugLockEnable": _ONE_LOOP,
    "transientStorePoolEnable": "not needed: segments are allocated ahead, and what is acked is in the kernel",
    "transientStorePoolSize": "there is no transient pool",
    "fastFailIfNoBufferInStorePool": "there is no transient pool",
    "writeWithoutMmap": "appends go to allocated maps, which cannot fail half-way",
    "flushLeastPagesWhenWarmMapedFile": "warming changes no byte, so there is nothing to force meanwhile",
    "commitIntervalCommitLog": "there is no transient pool to commit from",
    "commitCommitLogLeastPages": "there is no transient pool to commit from",
    "commitCommitLogThoroughInterval": "there is no transient pool to commit from",
    "wakeCommitWhenPutMessage": "there is no transient pool to commit from",
    "enableRunningFlagsInFlush": "always on: the first failed flush makes the store read-only",
    "putConsumeQueueDataByFileChannel": "consume queues are always written in batches with pwrite",
    "enableBuildConsumeQueueConcurrently": "dispatch follows the append on the event loop; the files are the same",
    "batchDispatchRequestThreadPoolNums": "dispatch follows the append on the event loop; the files are the same",
    "destroyMapedFileIntervalForcibly": "a deleted file stays readable for who holds it, so nothing is forced",
    "redeleteHangedFileInterval": "a deleted file stays readable for who holds it, so nothing hangs",
    "mappedFileSwapEnable": _NO_SWAP,
    "commitLogForceSwapMapInterval": _NO_SWAP,
    "commitLogSwapMapInterval": _NO_SWAP,
    "commitLogSwapMapReserveFileNum": _NO_SWAP,
    "logicQueueForceSwapMapInterval": _NO_SWAP,
    "logicQueueSwapMapInterval": _NO_SWAP,
    "logicQueueSwapMapReserveFileNum": _NO_SWAP,
    "cleanSwapedMapInterval": _NO_SWAP,
}
