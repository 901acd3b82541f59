# ruff: noqa: RUF012 - msgspec gives every struct its own copy of an empty default
"""Topic configurations, alone and in the tables that brokers send to name servers, slaves and admin tools."""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import field, structs

from cometmq.wire.bodies.base import I32, I64, Body, EnumName, enum_name
from cometmq.wire.bodies.common import DataVersion
from cometmq.wire.fastjson.writer import dumps

TOPIC_FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG")


class TopicConfig(Body):
    """`perm` bits: 4 read, 2 write, 1 inherit. `topic_sys_flag` bits: 1 unit, 2 has unit subscription."""

    STANDARD_FORM: ClassVar[bool] = True

    attributes: dict[str, str] = {}
    order: bool = False
    perm: I32 = 6
    read_queue_nums: I32 = 16
    topic_filter_type: EnumName = "SINGLE_TAG"
    topic_name: str = ""
    topic_sys_flag: I32 = 0
    write_queue_nums: I32 = 16

    def __post_init__(self) -> None:
        self.topic_filter_type = enum_name(self.topic_filter_type, TOPIC_FILTER_TYPES) or "SINGLE_TAG"


class TopicConfigList(Body):
    """Keys of `attributes` carry a sign here: `+` to set, `-` to delete."""

    OBJECTS_MAX: ClassVar[int] = 2_000

    topic_config_list: list[TopicConfig] = []


class QueueMappingItem(Body):
    """Where one stretch of a logical queue lives."""

    bname: str | None = None
    end_offset: I64 = -1
    gen: I32 = 0
    logic_offset: I64 = 0
    queue_id: I32 = 0
    start_offset: I64 = 0
    time_of_end: I64 = -1
    time_of_start: I64 = -1


class QueueMapping(Body):
    """How the queues of a static topic are spread over brokers; without `hosted_queues` it is the summary."""

    bname: str | None = None
    curr_id_map: dict[I32, I32] = {}
    dirty: bool = False
    epoch: I64 = 0
    hosted_queues: dict[I32, list[QueueMappingItem]] | None = None
    scope: str | None = "__global__"
    topic: str | None = None
    total_queues: I32 = 0


class TopicConfigAndMapping(Body):
    """A topic's configuration with the mapping of a static topic beside its members."""

    SEVERAL_FORMS: ClassVar[bool] = True

    config: TopicConfig
    mapping_detail: QueueMapping | None = None

    @classmethod
    def _prepare(cls, tree: dict[Any, Any]) -> dict[Any, Any]:
        return {"config": tree, "mappingDetail": tree.get("mappingDetail")}

    def encode(self) -> bytes:
        members = dict(zip(self.config.__struct_encode_fields__, structs.astuple(self.config), strict=True))
        members["mappingDetail"] = self.mapping_detail
        return dumps(dict(sorted(members.items())))


class TopicConfigTable(Body):
    """What a broker registers and what GET_ALL_TOPIC_CONFIG answers. Brokers before 5.0 send the first two."""

    data_version: DataVersion = field(default_factory=DataVersion)
    topic_config_table: dict[str, TopicConfig] = {}
    mapping_data_version: DataVersion = field(default_factory=DataVersion)
    topic_queue_mapping_detail_map: dict[str, QueueMapping] = {}
    topic_queue_mapping_info_map: dict[str, QueueMapping] = {}
