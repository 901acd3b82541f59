"""Settings of a broker as RocketMQ's admin tool shows and changes them: the same keys, the same defaults."""

from __future__ import annotations

import pytest

from tests.compat.harness.scene import Scene, Scenes

pytestmark = pytest.mark.interop

# A broker that nobody has set anything for has these.
DEFAULTS = {
    "autoCreateTopicEnable": "true",
    "defaultTopicQueueNums": "8",
    "longPollingEnable": "true",
    "shortPollingTimeMills": "1000",
    "brokerFastFailureEnable": "true",
    "waitTimeMillsInSendQueue": "200",
    "waitTimeMillsInPullQueue": "5000",
    "waitTimeMillsInHeartbeatQueue": "31000",
    "waitTimeMillsInTransactionQueue": "3000",
    "osPageCacheBusyTimeOutMills": "1000",
    "accessMessageInMemoryMaxRatio": "40",
    "diskFallRecorded": "true",
    "disableConsumeIfConsumerReadSlowly": "false",
    "consumerFallbehindThreshold": str(16 << 30),
    "offsetCheckInSlave": "false",
    "cleanResourceInterval": "10000",
    "flushDelayOffsetInterval": "10000",
    "transactionTimeOut": "6000",
    "transactionCheckMax": "15",
    "transactionCheckInterval": "30000",
    "rejectTransactionMessage": "false",
    "startAcceptSendRequestTimeStamp": "0",
    "regionId": "DefaultRegion",
    "traceOn": "true",
}
# Of the process, not of the protocol; and what RocketMQ computes, from the number of cores or other settings.
OWN = {"listenPort", "haListenPort", "namesrvAddr", "storePathCommitLog", "storePathRootDir"}
COMPUTED = {"endTransactionThreadPoolNums", "clientCallbackExecutorThreads", "bitMapLengthConsumeQueueExt"}
# RocketMQ: 1, the master alone, whatever the role. Ours: not set, and then a SYNC_MASTER waits for one replica.
# A set of ours notices within 3 s that a replica does not follow; RocketMQ's waits 15.
STRICTER = {"inSyncReplicas", "haMaxTimeSlaveNotCatchup"}


def shown(scene: Scene) -> dict[str, str]:
    # A setting is called timerSkipUnknownError: not a failure of the tool.
    lines = scene.run("getBrokerConfig", "-b", scene.broker.address, check=False).lines
    pairs = (line.partition("=") for line in lines if not line.startswith("==="))
    return {key.strip(): value.strip() for key, _, value in pairs}


@pytest.mark.mission("SK-04")
def test_settings_have_the_defaults_of_rocketmq(scenes: Scenes) -> None:
    theirs, ours = (shown(scene) for scene in scenes.both)
    assert {key: theirs.get(key) for key in DEFAULTS} == DEFAULTS
    assert {key: ours.get(key) for key in DEFAULTS} == DEFAULTS
    assert ours["messageDelayLevel"] == theirs["messageDelayLevel"]
    common = theirs.keys() & ours.keys() - OWN - COMPUTED - STRICTER - {"timerFlushIntervalMs"}  # set by the harness
    assert len(common) > 200
    assert {key: ours[key] for key in common} == {key: theirs[key] for key in common}


CHANGES = {
    "autoCreateTopicEnable": "false",
    "defaultTopicQueueNums": "5",
    "longPollingEnable": "false",
    "shortPollingTimeMills": "500",
    "brokerFastFailureEnable": "false",
    "waitTimeMillsInSendQueue": "300",
    "osPageCacheBusyTimeOutMills": "2000",
    "accessMessageInMemoryMaxRatio": "30",
    "disableConsumeIfConsumerReadSlowly": "true",
    "consumerFallbehindThreshold": str(1 << 30),
    "cleanResourceInterval": "5000",
    "transactionTimeOut": "7000",
    "transactionCheckMax": "3",
    "rejectTransactionMessage": "true",
    "traceOn": "false",
}


@pytest.mark.mission("SK-04")
def test_settings_are_changed_while_the_broker_runs(scenes: Scenes) -> None:
    scene = scenes.comet
    before = shown(scene)
    try:
        for key, value in CHANGES.items():
            scene.run("updateBrokerConfig", "-b", scene.broker.address, "-k", key, "-v", value)
        after = shown(scene)
        assert after == before | CHANGES
    finally:
        for key in CHANGES:
            scene.run("updateBrokerConfig", "-b", scene.broker.address, "-k", key, "-v", before[key])
    assert shown(scene) == before
