"""The columns of a message in Spark, in their order, which is part of the contract.

    (topic, brokerName, queueId, queueOffset)  identifies a row
    msgId         the id that the producer gave, else offsetMsgId
    properties    all of them, RocketMQ's own too; a map costs about a third of the read rate, so bulk jobs
                  ask for fewer columns: .option("columns", "queueOffset,body") or .schema("queueOffset BIGINT, ...")

A reader makes only the columns that it was asked for, in the order in which they were asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from cometmq.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa


class Column(NamedTuple):
    name: str
    # As Spark's DDL has it.
    sql_type: str
    meaning: str


COLUMNS: Final = (
    Column("topic", "STRING", "topic"),
    Column("brokerName", "STRING", "name of the broker, or of the store directory's broker"),
    Column("queueId", "INT", "queue in the topic at this broker"),
    Column("queueOffset", "BIGINT", "place in the queue"),
    Column("msgId", "STRING", "id given by the producer, else offsetMsgId"),
    Column("offsetMsgId", "STRING", "store host and log offset, in hex"),
    Column("tags", "STRING", "tag, or null"),
    Column("keys", "STRING", "keys as sent, separated by spaces, or null"),
    Column("body", "BINARY", "what was sent; decompressed unless decompress=false"),
    Column("properties", "MAP<STRING,STRING>", "all properties"),
    Column("flag", "INT", "the application's flag"),
    Column("sysFlag", "INT", "RocketMQ's flag bits"),
    Column("bornTimestamp", "TIMESTAMP", "when it was sent"),
    Column("storeTimestamp", "TIMESTAMP", "when the broker stored it"),
    Column("bornHost", "STRING", "address of the producer"),
    Column("storeHost", "STRING", "address of the broker"),
    Column("reconsumeTimes", "INT", "deliveries that failed before this one"),
    Column("preparedTransactionOffset", "BIGINT", "log offset of the half message, or 0"),
    Column("commitLogOffset", "BIGINT", "log offset"),
    Column("storeSize", "INT", "bytes of the record"),
    Column("bodyCRC", "INT", "CRC of the body as stored"),
)
# In place of BINARY, in Arrow only: Spark has no name for it.
VIEWED: Final = "VIEWED BINARY"
NAMES: Final = tuple(column.name for column in COLUMNS)
_BY_LOWER: Final = {column.name.lower(): column for column in COLUMNS}


def chosen(names: Iterable[str]) -> list[Column]:
    """The columns of these names, which may be written in any case. ConfigError names what there is not."""
    wanted = [name.strip() for name in names]
    unknown = [name for name in wanted if name.lower() not in _BY_LOWER]
    if unknown or not wanted:
        raise ConfigError(f"there are no columns {', '.join(unknown) or '(none given)'}; there are {', '.join(NAMES)}")
    return [_BY_LOWER[name.lower()] for name in wanted]


def viewed(columns: Iterable[Column]) -> tuple[Column, ...]:
    """The same with bodies that refer to the bytes that were read (`views`): for who writes them at once."""
    return tuple(column._replace(sql_type=VIEWED) if column.sql_type == "BINARY" else column for column in columns)


def ddl(columns: Iterable[Column] = COLUMNS) -> str:
    return ", ".join(f"{column.name} {column.sql_type}" for column in columns)


def arrow_schema(columns: Iterable[Column]) -> pa.Schema:
    import pyarrow as pa

    types = {
        "STRING": pa.string(),
        "BINARY": pa.binary(),
        VIEWED: pa.binary_view(),
        "INT": pa.int32(),
        "BIGINT": pa.int64(),
        "TIMESTAMP": pa.timestamp("us", tz="UTC"),
        "MAP<STRING,STRING>": pa.map_(pa.string(), pa.string()),
    }
    return pa.schema([(column.name, types[column.sql_type]) for column in columns])
