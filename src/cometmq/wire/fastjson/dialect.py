"""fastjson's dialect of JSON: what it is, and the names to use it by.

RocketMQ's bodies and config files are written by fastjson, which departs from standard JSON in three ways: numbers and
objects may stand in key position, and an object that was written before may be replaced by a reference to it.
`json_reader` accepts all of these besides standard JSON, `json_writer` writes the first two and never a reference.
"""

from cometmq.wire.fastjson.reader import DEPTH_MAX, ObjectKey, loads, loads_finite
from cometmq.wire.fastjson.writer import dumps, dumps_pretty

__all__ = ["DEPTH_MAX", "ObjectKey", "dumps", "dumps_pretty", "loads", "loads_finite"]
