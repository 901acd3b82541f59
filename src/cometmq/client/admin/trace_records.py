"""Reading message traces: the text that producers and consumers leave in the trace topic.

Records are fields joined by 0x01 and closed by 0x02; `client/traces.py` shows which. Older clients leave out trailing
fields, newer ones add some; what is missing has a default here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from cometmq.client.traces import FIELD_END, RECORD_END

# A name at the front of a record -> the places of its fields.
PLACES: Final[dict[str, tuple[str, ...]]] = {
    "Pub": (
        "time", "region", "group", "topic", "id", "tags", "keys", "address", "body_bytes", "cost", "message_type",
        "offset_id", "success", "client",
    ),
    "SubBefore": ("time", "region", "group", "request", "id", "retries", "keys", "client"),
    "SubAfter": ("request", "id", "cost", "success", "keys", "code", "time", "group"),
    "EndTransaction": (
        "time", "region", "group", "topic", "id", "tags", "keys", "address", "message_type", "transaction", "state",
        "from_check",
    ),
    "Recall": ("time", "region", "group", "topic", "id", "success"),
}  # fmt: skip
FEWEST: Final = {"Pub": 12, "SubBefore": 7, "SubAfter": 5, "EndTransaction": 12, "Recall": 6}
OUTCOMES: Final = ("success", "timeout", "exception", "no result", "failed")
MESSAGE_TYPES: Final = ("normal", "half", "commit", "delay", "order")


@dataclass(frozen=True, slots=True)
class TraceRecord:
    """`kind` is Pub, SubBefore, SubAfter, EndTransaction or Recall. A consumption is two records with one `request`."""

    kind: str
    id: str
    time_ms: int = 0
    group: str = ""
    topic: str = ""
    keys: tuple[str, ...] = ()
    tag: str | None = None
    success: bool = True
    cost_ms: int = 0
    address: str = ""
    request: str = ""
    retries: int = 0
    outcome: str = ""
    message_type: str = ""
    offset_id: str = ""
    state: str = ""


def read_records(body: bytes) -> Iterator[TraceRecord]:
    """Every record that can be understood; others, also of kinds to come, are passed over."""
    for line in body.decode("utf-8", "replace").split(RECORD_END):
        kind, *fields = line.split(FIELD_END)
        if kind in PLACES and len(fields) >= FEWEST[kind]:
            yield _record(kind, dict(zip(PLACES[kind], fields, strict=False)))


def _record(kind: str, given: dict[str, str]) -> TraceRecord:
    return TraceRecord(
        kind,
        given["id"],
        _number(given.get("time")),
        _word(given.get("group")),
        _word(given.get("topic")),
        tuple(_word(given.get("keys")).split()),
        _word(given.get("tags")) or None,
        given.get("success", "true") == "true",
        _number(given.get("cost")),
        _word(given.get("address")),
        given.get("request", ""),
        _number(given.get("retries")),
        _name(OUTCOMES, given.get("code")),
        _name(MESSAGE_TYPES, given.get("message_type")),
        _word(given.get("offset_id")),
        given.get("state", ""),
    )


def _word(text: str | None) -> str:
    return "" if text is None or text == "null" else text


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() else 0


def _name(names: tuple[str, ...], number: str | None) -> str:
    if number is None or not number.isdecimal():
        return ""
    return names[int(number)] if int(number) < len(names) else number
