"""Rows of a DataFrame as messages to send.

    body             BINARY or STRING, required
    topic            or the option `topic`, which wins
    tags, keys       text; several keys separated by spaces
    properties       MAP<STRING,STRING>; RocketMQ's own names among them are left out, they are made anew
    shardingKey      rows of one key go to one queue, in order; with partitioner=hash `keys` where there is none
    brokerName, queueId
                     an explicit queue, with partitioner=column or preserve
    delayLevel, deliverTimestamp
                     when it becomes visible
    flag             a number of the application's

and the column that the option `rowId` names, which is not sent.

Columns that are none of these: `extraColumns=error` (default), ignore, or properties.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cometmq.errors import ConfigError
from cometmq.names import RETRY_PREFIX
from cometmq.spark.columns import NAMES
from cometmq.spark.live.ledger import MARK
from cometmq.spark.options import Options
from cometmq.wire.record.properties import Property

if TYPE_CHECKING:
    import pyarrow as pa

SINK_COLUMNS: Final = (
    "body", "topic", "tags", "keys", "properties", "shardingKey", "brokerName", "queueId", "delayLevel",
    "deliverTimestamp", "flag",
)  # fmt: skip
ROW_ID: Final = " id"  # no column has that name
PARTITIONERS: Final = ("round-robin", "hash", "column", "preserve")
# Names that RocketMQ gives a meaning to; a copy of a message gets them anew.
SYSTEM: Final = frozenset(value for name, value in vars(Property).items() if name.isupper() and isinstance(value, str))


# A message for a group's retry topic is another try of one that was there before: its group sees that by these.
OF_RETRIES: Final = frozenset({Property.RETRY_TOPIC, Property.ORIGIN_MESSAGE_ID, Property.UNIQ_KEY})


class Row(NamedTuple):
    topic: str
    body: bytes
    tag: str | None
    keys: tuple[str, ...]
    properties: dict[str, str]
    sharding_key: str | None
    queue: tuple[str, int] | None
    delay_level: int | None
    deliver_at: datetime | None
    flag: int
    id: str | None = None

    def marked(self, mark: str) -> Row:
        return self._replace(properties={**self.properties, MARK: mark})


class RowReader:
    def __init__(self, names: tuple[str, ...], options: Options) -> None:
        known = {name.lower(): name for name in SINK_COLUMNS}
        self.id = options.get("rowId")
        self.topic = options.get("topic")
        self.partitioner = options.choice("partitioner", PARTITIONERS)
        extra = options.choice("extraColumns", ("error", "ignore", "properties"))
        self.columns: dict[str, str] = {}
        self.extras: list[str] = []
        for name in names:
            if name == self.id:
                self.columns[ROW_ID] = name
                if name in SINK_COLUMNS:
                    self.columns[name] = name
            elif name.lower() in known:
                self.columns[known[name.lower()]] = name
            elif extra == "properties":
                self.extras.append(name)
            elif extra == "error" and name not in NAMES:
                raise ConfigError(
                    f"column {name} has no meaning for the sink: drop it, or set extraColumns=ignore or properties; "
                    f"the sink knows {', '.join(SINK_COLUMNS)}"
                )
        if "body" not in self.columns:
            raise ConfigError(f"the sink needs a column body; there are {', '.join(names)}")
        if self.id is not None and ROW_ID not in self.columns:
            raise ConfigError(f"rowId={self.id} is no column; there are {', '.join(names)}")
        if self.topic is None and "topic" not in self.columns:
            raise ConfigError("say where to: the option topic, or a column topic")
        if self.partitioner in ("column", "preserve") and not {"brokerName", "queueId"} <= set(self.columns):
            raise ConfigError(f"partitioner={self.partitioner} needs the columns brokerName and queueId")
        if self.partitioner == "hash" and not {"shardingKey", "keys"} & set(self.columns):
            raise ConfigError("partitioner=hash needs a column shardingKey or keys")

    def rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Row]:
        for batch in batches:
            values = {
                name: batch.column(batch.schema.get_field_index(column)).to_pylist()
                for name, column in self.columns.items()
            }
            extras = {name: batch.column(batch.schema.get_field_index(name)).to_pylist() for name in self.extras}
            for number in range(batch.num_rows):
                yield self._row({name: column[number] for name, column in values.items()}, extras, number)

    def _row(self, value: Mapping[str, Any], extras: Mapping[str, list[Any]], number: int) -> Row:
        body = value["body"]
        if body is None:
            raise ConfigError(f"row {number} has no body")
        topic = self.topic or value["topic"]
        if not topic:
            raise ConfigError(f"row {number} has no topic")
        dropped = SYSTEM - OF_RETRIES if topic.startswith(RETRY_PREFIX) else SYSTEM
        properties = {key: text for key, text in dict(value.get("properties") or ()).items() if key not in dropped}
        for name, column in extras.items():
            if column[number] is not None:
                properties[name] = str(column[number])
        queue = None
        if self.partitioner in ("column", "preserve") and value["queueId"] is not None:
            queue = (str(value["brokerName"]), int(value["queueId"]))
        key = value.get("shardingKey")
        if key is None and self.partitioner == "hash":
            key = value.get("keys")
        return Row(
            topic,
            body.encode() if isinstance(body, str) else bytes(body),
            value.get("tags"),
            tuple((value.get("keys") or "").split()),
            properties,
            str(key) if key is not None else None,
            queue,
            value.get("delayLevel"),
            value.get("deliverTimestamp"),
            int(value.get("flag") or 0),
            str(value[ROW_ID]) if self.id is not None else None,
        )
