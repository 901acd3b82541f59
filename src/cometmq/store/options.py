"""Settings of the store: our names and units, Java's key names and defaults.

How texts become settings: settings.py. Keys that RocketMQ has and this store has no use for: settings_table.py.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from cometmq.settings import Live, setting

GIB: Final = 1 << 30
I64_MAX: Final = (1 << 63) - 1
SYNC_MASTER: Final = "SYNC_MASTER"

NOW: Final = Live.NOW
NEVER: Final = Live.NEVER


@dataclass(slots=True)
class StoreOptions:
    # Paths and sizes
    root_dir: str = setting("storePathRootDir", os.path.join(os.path.expanduser("~"), "store"), NEVER)
    commitlog_paths: str = setting("storePathCommitLog", "", NEVER)
    commitlog_read_only_paths: str = setting("readOnlyCommitLogStorePaths", "", NEVER)
    segment_bytes: int = setting("mappedFileSizeCommitLog", GIB, NEVER, least=1024, most=I64_MAX)
    queue_file_bytes: int = setting("mappedFileSizeConsumeQueue", 6_000_000, NEVER, least=20)
    batch_queue_file_bytes: int = setting("mapperFileSizeBatchConsumeQueue", 13_800_000, NEVER, least=46)
    queue_ext_enabled: bool = setting("enableConsumeQueueExt", False)
    queue_ext_file_bytes: int = setting("mappedFileSizeConsumeQueueExt", 50_331_648, NEVER, least=64)
    message_bytes_max: int = setting("maxMessageSize", 4_194_304, NOW)
    version_by_topic_length: bool = setting("autoMessageVersionOnTopicLen", True)
    property_crc_append: bool = setting("enabledAppendPropCRC", False, NEVER)
    property_crc_verify: bool = setting("forceVerifyPropCRC", False)

    # Index
    index_enabled: bool = setting("messageIndexEnable", True)
    index_safe: bool = setting("messageIndexSafe", False)
    index_slots: int = setting("maxHashSlotNum", 5_000_000, NEVER, least=1)
    index_entries: int = setting("maxIndexNum", 20_000_000, NEVER, least=2)
    query_messages_max: int = setting("maxMsgsNumBatch", 64, NOW)
    query_messages_default: int = setting("defaultQueryMaxNum", 32, NOW)

    # Put
    page_cache_busy_ms: int = setting("osPageCacheBusyTimeOutMills", 1000, NOW)
    warm_segments: bool = setting("warmMapedFileEnable", False)
    read_ahead: bool = setting("dataReadAheadEnable", True)

    # Flush
    flush_disk_type: str = setting("flushDiskType", "ASYNC_FLUSH", choices=("ASYNC_FLUSH", "SYNC_FLUSH"))
    flush_interval_ms: int = setting("flushIntervalCommitLog", 500, NOW, least=1)
    flush_timed: bool = setting("flushCommitLogTimed", True)
    flush_pages_min: int = setting("flushCommitLogLeastPages", 4, NOW)
    flush_thorough_interval_ms: int = setting("flushCommitLogThoroughInterval", 10_000, NOW)
    flush_wake_on_put: bool = setting("wakeFlushWhenPutMessage", False)
    queue_flush_interval_ms: int = setting("flushIntervalConsumeQueue", 1000, NOW, least=1)
    queue_flush_pages_min: int = setting("flushConsumeQueueLeastPages", 2, NOW)
    queue_flush_thorough_interval_ms: int = setting("flushConsumeQueueThoroughInterval", 60_000, NOW)
    sync_flush_timeout_ms: int = setting("syncFlushTimeout", 5000, NOW)

    # Dispatch and read
    read_uncommitted: bool = setting("readUnCommitted", False)
    memory_percent_max: int = setting("accessMessageInMemoryMaxRatio", 40, NOW, most=100)
    get_bytes_max_in_memory: int = setting("maxTransferBytesOnMessageInMemory", 262_144, NOW)
    get_count_max_in_memory: int = setting("maxTransferCountOnMessageInMemory", 32, NOW)
    get_bytes_max_on_disk: int = setting("maxTransferBytesOnMessageInDisk", 65_536, NOW)
    get_count_max_on_disk: int = setting("maxTransferCountOnMessageInDisk", 8, NOW)
    filter_scan_bytes_max: int = setting("maxFilterMessageSize", 16_000, NOW)
    queue_files_per_get: int = setting("travelCqFileNumWhenGetMessage", 1, NOW)
    offset_check_on_slave: bool = setting("offsetCheckInSlave", False, NOW)

    # Recovery and expiry
    crc_check_on_recover: bool = setting("checkCRCOnRecover", True)
    recover_segments_max: int = setting("commitLogRecoverMaxNum", 10)
    clean_interval_ms: int = setting("cleanResourceInterval", 10_000, NOW, least=1)
    delete_when: str = setting("deleteWhen", "04", NOW)
    file_reserved_hours: int = setting("fileReservedTime", 72, NOW)
    delete_files_max: int = setting("deleteFileBatchMax", 10, NOW)
    disk_used_percent_max: int = setting("diskMaxUsedSpaceRatio", 75, NOW)
    disk_clean_forcibly_percent: int = setting("diskSpaceCleanForciblyRatio", 85, NOW)
    disk_warning_percent: int = setting("diskSpaceWarningLevelRatio", 90, NOW)
    clean_forcibly: bool = setting("cleanFileForciblyEnable", True, NOW)
    replicas_per_disk: int = setting("replicasPerDiskPartition", 1)
    logical_disk_clean_forcibly_text: str = setting("logicalDiskSpaceCleanForciblyThreshold", "0.8")

    # Replication
    broker_role: str = setting("brokerRole", "ASYNC_MASTER", NEVER, choices=("ASYNC_MASTER", SYNC_MASTER, "SLAVE"))
    duplication_enabled: bool = setting("duplicationEnable", False, NEVER)
    # 0: not set; then SYNC_MASTER waits for one replica besides the master.
    in_sync_replicas: int = setting("inSyncReplicas", 0, NOW)
    in_sync_replicas_min: int = setting("minInSyncReplicas", 1, NOW, least=1)
    in_sync_replicas_auto: bool = setting("enableAutoInSyncReplicas", False, NOW)
    all_in_sync_replicas: bool = setting("allAckInSyncStateSet", False, NOW)
    slave_timeout_ms: int = setting("slaveTimeout", 3000, NOW)
    # 0: the port above the broker's own.
    ha_listen_port: int = setting("haListenPort", 0, NEVER, most=65535)
    ha_master_address: str = setting("haMasterAddress", "", NEVER)
    ha_heartbeat_ms: int = setting("haSendHeartbeatInterval", 5000, NOW, least=1)
    ha_silence_ms: int = setting("haHousekeepingInterval", 20_000, NOW, least=1)
    # A RocketMQ replica has 4 MiB for a frame with its header.
    ha_frame_bytes: int = setting("haTransferBatchSize", 32_768, NOW, least=1, most=(4 << 20) - 12)
    ha_gap_bytes_max: int = setting("haMaxGapNotInSync", 256 << 20, NOW, least=1, most=I64_MAX)
    ha_pace_enabled: bool = setting("haFlowControlEnable", False, NOW)
    ha_pace_bytes: int = setting("maxHaTransferByteInSecond", 100 << 20, NOW, least=1, most=I64_MAX)

    # A set that elects its master
    controller_mode: bool = setting("enableControllerMode", False, NEVER)
    ha_not_caught_up_ms: int = setting("haMaxTimeSlaveNotCatchup", 3_000, NOW, least=500)  # RocketMQ: 15,000

    # Light queues, delay levels
    lmq_enabled: bool = setting("enableLmq", False)
    multi_dispatch_enabled: bool = setting("enableMultiDispatch", False)
    lmq_quota_enabled: bool = setting("enableLmqQuota", False)
    lmq_queues_max: int = setting("maxLmqConsumeQueueNum", 20_000)
    delay_levels: str = setting("messageDelayLevel", "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h")

    # Timers
    timer_log_file_bytes: int = setting("mappedFileSizeTimerLog", 104_857_600, NEVER, least=68)
    # Timers that wait are lost when it changes, as in RocketMQ: let them be delivered first.
    timer_precision_ms: int = setting("timerPrecisionMs", 1000, NEVER, least=1)
    timer_roll_slots: int = setting("timerRollWindowSlot", 172_800)
    timer_delay_s_max: int = setting("timerMaxDelaySec", 259_200, NOW)
    timer_flush_interval_ms: int = setting("timerFlushIntervalMs", 1000, NOW, least=1)
    timer_slot_count_max: int = setting("timerCongestNumEachSlot", 2_147_483_647, NOW)
    timer_intake_stopped: bool = setting("timerStopEnqueue", False, NOW)
    timer_delivery_stopped: bool = setting("timerStopDequeue", False, NOW)
    timer_recount: bool = setting("timerEnableCheckMetrics", True, NOW)
    timer_recount_hours: str = setting("timerCheckMetricsWhen", "05", NOW)
    timer_delete_key_has_topic: bool = setting("appendTopicForTimerDeleteKey", False)

    @property
    def sync_flush(self) -> bool:
        return self.flush_disk_type == "SYNC_FLUSH"

    @property
    def loss_window_ms(self) -> int:
        """How old an acked message can be that a power cut still takes; 0: none can."""
        return 0 if self.sync_flush else self.flush_thorough_interval_ms + self.flush_interval_ms

    @property
    def is_slave(self) -> bool:
        return self.broker_role == "SLAVE"

    def commitlog_dirs(self) -> list[str]:
        """Where new segments may go, sorted."""
        return _split(self.commitlog_paths) or [os.path.join(self.root_dir, "commitlog")]

    def commitlog_read_only_dirs(self) -> list[str]:
        return _split(self.commitlog_read_only_paths)

    @property
    def logical_disk_clean_forcibly_ratio(self) -> float:
        return float(self.logical_disk_clean_forcibly_text)

    def path(self, *names: str) -> str:
        return os.path.join(self.root_dir, *names)


def _split(paths: str) -> list[str]:
    return sorted(path.strip() for path in paths.split(",") if path.strip())


# What releases before 5.0 called it -> what it is called now.
OLD_KEYS: Final = {
    "haSlaveFallbehindMax": "haMaxGapNotInSync",
    "mapedFileSizeCommitLog": "mappedFileSizeCommitLog",
    "mapedFileSizeConsumeQueue": "mappedFileSizeConsumeQueue",
}
