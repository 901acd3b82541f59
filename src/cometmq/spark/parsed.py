"""JSON bodies as columns: a frame of messages becomes one of fields, and of messages whose bodies do not fit.

    message: topic, ..., body              fields: id BIGINT, price DOUBLE, _message STRUCT<topic, keys, ...>
                          --schema DDL-->
                                           unfit:  body, tags, keys, properties + CMQ_ERROR, CMQ_SOURCE

Works on batches and streams alike. A body fits if it is a JSON object and every field that the schema names is missing,
null, or of its type; fields that the schema does not name are passed over.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from cometmq.spark.bodies import kind_of, quoted

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

ERROR: Final = "CMQ_ERROR"
SOURCE: Final = "CMQ_SOURCE"
ERROR_LETTERS_MAX: Final = 500
MESSAGE: Final = "_message"
# What is kept of a message beside its body.
KEPT: Final = (
    "topic", "brokerName", "queueId", "queueOffset", "msgId", "tags", "keys", "properties", "bornTimestamp",
    "storeTimestamp",
)  # fmt: skip
COLUMNS: Final = ",".join((*KEPT, "body"))
UNFIT_DDL: Final = "body BINARY, tags STRING, keys STRING, properties MAP<STRING,STRING>"
_CORRUPT: Final = "_corrupt"
_PARSED: Final = "_parsed"
_WHOLE: Final = {"bigint": {"bigint"}, "double": {"bigint", "double"}, "boolean": {"boolean"}}


def fields_of(frame: DataFrame, ddl: str | None, *, strict: bool = False) -> DataFrame:
    """One column for each field, and `_message`. Without a schema: the body as text.

    Messages whose bodies do not fit are left out; with `strict` the first of them ends the query.
    """
    from pyspark.sql import functions as f

    kept = f.struct(*KEPT).alias(MESSAGE)
    if ddl is None:
        return frame.select(f.col("body").cast("string").alias("body"), kept)
    names = [field.name for field in struct_of(ddl).fields]
    fit = frame.withColumn(_PARSED, _parsed(ddl)).filter(_fits_or_fails() if strict else _fits())
    return fit.select(*[f.col(f"{_PARSED}.{quoted(name)}").alias(name) for name in names], kept)


def unfit_of(frame: DataFrame, ddl: str | None) -> DataFrame | None:
    """Messages whose bodies do not fit, with the reason, as rows for the sink. None if every body does."""
    if ddl is None:
        return None
    wrong = frame.withColumn(_PARSED, _parsed(ddl)).filter(~_fits()).drop(_PARSED)
    return wrong.mapInArrow(_Explain(struct_of(ddl).json()), UNFIT_DDL)


def struct_of(ddl: str) -> StructType:
    from pyspark.sql.types import StructType

    found = StructType.fromDDL(ddl)
    assert isinstance(found, StructType), f"{ddl} is no list of columns"
    return found


def _parsed(ddl: str) -> Column:
    from pyspark.sql import functions as f

    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    return f.from_json(f.col("body").cast("string"), f"{ddl}, {_CORRUPT} STRING", options)


def _fits() -> Column:
    from pyspark.sql import functions as f

    parsed = f.col(_PARSED)
    is_object = f.ltrim(f.col("body").cast("string")).startswith("{")
    return f.coalesce(is_object & parsed.isNotNull() & parsed[_CORRUPT].isNull(), f.lit(False))


def _fits_or_fails() -> Column:
    from pyspark.sql import functions as f

    place = f.concat_ws(
        "/", "topic", "brokerName", f.col("queueId").cast("string"), f.col("queueOffset").cast("string")
    )
    stated = f.concat(place, f.lit(": the body does not fit the schema; bad_to=TOPIC sends such messages there"))
    return f.when(_fits(), f.lit(True)).otherwise(f.raise_error(stated).cast("boolean"))


class _Explain:
    """Adds why a body does not fit, and where the message is."""

    def __init__(self, schema: str) -> None:
        self.schema = schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark.sql.types import StructType

        struct = StructType.fromJson(json.loads(self.schema))
        types = {"body": pa.binary(), "tags": pa.string(), "keys": pa.string()}
        schema = pa.schema([*types.items(), ("properties", pa.map_(pa.string(), pa.string()))])
        for batch in batches:
            rows = []
            for row in batch.to_pylist():
                place = f"{row['topic']}/{row['brokerName']}/{row['queueId']}/{row['queueOffset']}"
                stated = {ERROR: why_unfit(row["body"], struct)[:ERROR_LETTERS_MAX], SOURCE: place}
                properties = dict(row["properties"] or ()) | stated
                rows.append({**{name: row[name] for name in types}, "properties": list(properties.items())})
            yield pa.RecordBatch.from_pylist(rows, schema=schema)


def why_unfit(body: bytes, struct: StructType) -> str:
    try:
        tree = json.loads(body)
    except (ValueError, RecursionError) as error:
        return f"the body is no JSON: {error}"
    if not isinstance(tree, dict):
        return f"the body is no JSON object but a {kind_of(tree)}"
    return _wrong_field(tree, struct, "") or "Spark cannot read the body by the schema"


def _wrong_field(value: Any, kind: DataType, path: str) -> str | None:
    from pyspark.sql.types import ArrayType, StructType

    if value is None or kind.simpleString() == "string":
        return None
    if isinstance(kind, StructType) and isinstance(value, dict):
        inside = ((value.get(field.name), field.dataType, f"{path}.{field.name}") for field in kind.fields)
        return next((wrong for one in inside if (wrong := _wrong_field(*one))), None)
    if isinstance(kind, ArrayType) and isinstance(value, list):
        elements = ((one, kind.elementType, f"{path}[]") for one in value)
        return next((wrong for one in elements if (wrong := _wrong_field(*one))), None)
    found = kind_of(value)
    if found in _WHOLE.get(kind.simpleString(), ()):
        return None
    return f"field {path.removeprefix('.')} is a {found}, the schema says {kind.simpleString()}: {value!r}"
