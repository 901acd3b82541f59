"""Topics that a broker has from its first start, and whose names are its own.

perm 7   inherit + read + write: may serve as the template of a topic that a message creates
perm 6   read + write
perm 1   inherit only: exists to be found, carries nothing
"""

from typing import Final

from cometmq import names
from cometmq.broker.config import BrokerConfig
from cometmq.wire.bodies import TopicConfig

PERM_READ: Final = 4
PERM_WRITE: Final = 2
PERM_INHERIT: Final = 1
PERM_READ_WRITE: Final = PERM_READ | PERM_WRITE
PERM_ALL: Final = PERM_READ | PERM_WRITE | PERM_INHERIT

CLUSTER_TOPIC_QUEUES: Final = 16
BENCHMARK_QUEUES: Final = 1024
# One per delay level, whatever `messageDelayLevel` says.
SCHEDULE_QUEUES: Final = 18
REVIVE_QUEUES: Final = 8


def system_topics(config: BrokerConfig) -> dict[str, TopicConfig]:
    """What a fresh broker has, by name."""
    cluster, broker = config.cluster_name, config.broker_name
    made = [
        _topic("SELF_TEST_TOPIC", 1),
        _topic("BenchmarkTest", BENCHMARK_QUEUES),
        _topic(cluster, CLUSTER_TOPIC_QUEUES, PERM_ALL if config.cluster_topic_enabled else PERM_INHERIT),
        _topic(broker, 1, PERM_ALL if config.broker_topic_enabled else PERM_INHERIT),
        _topic("OFFSET_MOVED_EVENT", 1),
        _topic(names.SCHEDULE_TOPIC, SCHEDULE_QUEUES),
        _topic(f"{cluster}_REPLY_TOPIC", 1),
        _topic(f"rmq_sys_REVIVE_LOG_{cluster}", REVIVE_QUEUES),
        _topic(f"rmq_sys_SYNC_BROKER_MEMBER_{broker}", 1, PERM_INHERIT),
        _topic(names.HALF_TOPIC, 1),
        _topic(names.OP_TOPIC, 1),
        _topic("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", 1),
        _topic("RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC", 1),
    ]
    if config.timer_wheel_enabled:
        made.append(_topic(names.TIMER_TOPIC, 1))
    if config.auto_create_topic:
        made.append(_topic(names.AUTO_CREATE_TOPIC, config.default_topic_queues, PERM_ALL))
    if config.trace_topic_enabled:
        made.append(_topic(config.trace_topic, 1))
    return {topic.topic_name: topic for topic in made}


def _topic(name: str, queues: int, perm: int = PERM_READ_WRITE) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)
