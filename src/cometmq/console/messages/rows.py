"""A stored message as the page gets it: a line of a list, or everything. Masked, and never with a body where none may
be shown."""

import base64
from typing import Any, Final

from cometmq.client.admin import StoredCopy
from cometmq.console.context import Context
from cometmq.console.messages.decode import Decoded, Schemas, decode, hexed
from cometmq.console.messages.mask import Masks, hidden
from cometmq.console.messages.query import Found

SAMPLE_CHARS: Final = 200
LISTED_BYTES_MAX: Final = 64 << 10


class Reader:
    """How this console shows messages: its masks, schemas, and whether bodies may be seen."""

    def __init__(self, context: Context) -> None:
        self.masks = Masks.of(context.options.masks)
        self.schemas = Schemas(context.options.schemas)
        self.bodies = context.options.bodies

    def decoded(self, copy: StoredCopy, forced: str | None = None, *, in_list: bool = False) -> Decoded:
        body = copy.message.body
        if in_list and len(body) > LISTED_BYTES_MAX and not self.masks.touch_bodies:
            body = body[:LISTED_BYTES_MAX]
            return Decoded("large", body[: SAMPLE_CHARS * 4].decode("utf-8", "replace"), is_cut=True)
        found = decode(body, copy.message.topic, self.schemas, forced)
        return self.masks.decoded(found, body)

    def found(self, copy: StoredCopy) -> Found:
        """What a search sees: what the reader may see, so it cannot be used to guess."""
        message = copy.message
        properties = self.masks.all_properties(message.properties)
        own = self.masks.all_properties(message.user_properties)
        keys = self.masks.keys(message.keys)
        if not self.bodies:
            return Found("", None, keys, properties, own)
        decoded = decode(message.body, message.topic, self.schemas)
        decoded = self.masks.decoded(decoded, message.body)
        return Found(decoded.text, decoded.value, keys, properties, own)

    def row(self, copy: StoredCopy) -> dict[str, Any]:
        message = copy.message
        queue = message.queue
        row: dict[str, Any] = {
            "id": message.id,
            "offset_id": message.offset_id,
            "topic": message.topic,
            "stored_in": queue.topic if queue is not None else message.topic,
            "broker": copy.broker,
            "queue": queue.queue_id if queue is not None else -1,
            "offset": message.offset,
            "born_ms": message.born_ms,
            "stored_ms": message.stored_ms,
            "tag": message.tag,
            "keys": list(self.masks.keys(message.keys)),
            "size": len(message.body),
            "tries": message.delivery_count,
        }
        if not self.bodies:
            return row | {"kind": "hidden", "text": ""}
        decoded = self.decoded(copy, in_list=True)
        text = " ".join(decoded.text[: SAMPLE_CHARS * 8].split())[:SAMPLE_CHARS]
        return row | {"kind": decoded.kind, "text": text}

    def whole(self, copy: StoredCopy, forced: str | None = None) -> dict[str, Any]:
        message = copy.message
        row = self.row(copy) | {
            "properties": self.masks.all_properties(message.properties),
            "user_properties": self.masks.all_properties(message.user_properties),
            "born_host": copy.born_host,
            "store_host": copy.store_host,
            "record_bytes": copy.record_bytes,
            "stored_body_bytes": copy.stored_body_bytes,
            "compression": copy.compression,
            "transaction": copy.transaction,
            "flag": message.flag,
            "physical_offset": message.physical_offset,
        }
        if not self.bodies:
            return row | {
                "body": {"kind": "hidden", "text": "", "faults": ["this console shows no bodies (--no-bodies)"]}
            }
        decoded = self.decoded(copy, forced)
        faults = list(decoded.faults)
        if copy.body_fault:
            faults.insert(0, f"the body is marked as {copy.compression}, but: {copy.body_fault}")
        raw = self.masks.bytes_of(decoded, message.body)
        return row | {
            "body": {
                "kind": decoded.kind,
                "text": decoded.text,
                "opened": decoded.opened,
                "faults": faults,
                "is_cut": decoded.is_cut,
                "hex": hexed(raw),
            }
        }

    def download(self, copy: StoredCopy) -> bytes:
        if not self.bodies:
            return b""
        return self.masks.bytes_of(self.decoded(copy), copy.message.body)

    def exported(self, copy: StoredCopy) -> dict[str, Any]:
        """A line of an export."""
        row = self.row(copy)
        row.pop("text")
        raw = self.download(copy)
        try:
            return row | {"properties": self.masks.all_properties(copy.message.properties), "body": raw.decode()}
        except UnicodeDecodeError:
            coded = base64.b64encode(raw).decode()
            return row | {"properties": self.masks.all_properties(copy.message.properties), "body_base64": coded}


__all__ = ["Reader", "hidden"]
