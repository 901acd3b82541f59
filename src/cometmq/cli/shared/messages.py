"""Messages as the commands show and read them: one JSON object each, or text by a format of the user's.

    {"topic": "orders", "broker": "broker-a", "queue": 0, "offset": 7, "id": "7F0000...", "offset_id": "7F00...",
     "tag": "created", "keys": ["7"], "properties": {"region": "eu"}, "born_ms": 1763209800000, "stored_ms": ...,
     "delivery_count": 1, "body": "hello"}

A body that is not text is in `body_base64` instead of `body`; `send --jsonl` and `import` read both. `properties` are
the application's; RocketMQ's own are in `system_properties`.
"""

import base64
import binascii
import gzip
import json
import zlib
from typing import TYPE_CHECKING, Any, Final

from cometmq.cli.shared.times import time_text
from cometmq.errors import ConfigError

if TYPE_CHECKING:
    from cometmq.client.messages import Message

DECODERS: Final = ("auto", "text", "json", "hex", "base64")
UNPACKED_BYTES_MAX: Final = 64 << 20
FORMAT_HELP: Final = (
    "%%t topic, %%b broker, %%q queue, %%o offset, %%i id, %%k keys, %%g tag, %%d stored at, %%D born at, "
    "%%p properties, %%s size, %%v body, %%P{NAME} a property, %%%% a percent sign, \\n, \\t"
)
_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_ZLIB: Final = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")


def fields(message: "Message[bytes]", decoder: str = "auto", unpack: bool = False) -> dict[str, Any]:
    own = message.user_properties
    queue = message.queue
    return {
        "topic": message.topic,
        "broker": queue.broker_name if queue is not None else None,
        "queue": queue.queue_id if queue is not None else None,
        "offset": message.offset,
        "id": message.id,
        "offset_id": message.offset_id,
        "tag": message.tag,
        "keys": list(message.keys),
        "properties": own,
        "system_properties": {name: text for name, text in message.properties.items() if name not in own},
        "born_ms": message.born_ms,
        "stored_ms": message.stored_ms,
        "delivery_count": message.delivery_count,
        **failure_fields(message),
        **body_fields(unpacked(message.body) if unpack else message.body, decoder),
    }


def failure_fields(message: "Message[bytes]") -> dict[str, Any]:
    """Why its last try failed, if that is known."""
    failure = message.failure
    if failure is None:
        return {}
    shown = failure._asdict()
    shown["type"] = shown.pop("kind")
    return {"failure": shown}


def body_fields(body: bytes, decoder: str) -> dict[str, Any]:
    """Of JSON output: exactly one of `body` and `body_base64`."""
    if decoder == "hex":
        return {"body": body.hex()}
    if decoder == "base64":
        return {"body_base64": base64.b64encode(body).decode()}
    if decoder == "json":
        try:
            return {"body": json.loads(body)}
        except ValueError:
            return body_fields(body, "auto")
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body": body.decode(errors="replace")} if decoder == "text" else body_fields(body, "base64")


def body_text(body: bytes, decoder: str) -> str:
    """For a person: never fails, says when it is not text."""
    shown = body_fields(body, decoder)
    if "body_base64" in shown:
        return str(shown["body_base64"])
    return shown["body"] if isinstance(shown["body"], str) else json.dumps(shown["body"], ensure_ascii=False)


def unpacked(body: bytes) -> bytes:
    """What an application compressed itself: gzip, zlib or zstd; anything else as it is."""
    try:
        if body[:2] == _GZIP:
            return gzip.decompress(body)[:UNPACKED_BYTES_MAX]
        if body[:2] in _ZLIB:
            return zlib.decompressobj().decompress(body, UNPACKED_BYTES_MAX)
        if body[:4] == _ZSTD:
            from cometmq.wire.compression import decompress
            from cometmq.wire.record.sysflag import COMPRESSED, COMPRESSION_ZSTD

            return decompress(body, COMPRESSED | COMPRESSION_ZSTD)
    except (OSError, zlib.error, EOFError):
        return body
    return body


def formatted(text: str, message: "Message[bytes]", decoder: str = "auto", unpack: bool = False) -> str:
    """The user's format, filled. ConfigError names a letter that means nothing."""
    result: list[str] = []
    place = 0
    while place < len(text):
        one = text[place]
        if one == "\\" and place + 1 < len(text):
            result.append({"n": "\n", "t": "\t", "0": "\0", "\\": "\\"}.get(text[place + 1], text[place : place + 2]))
            place += 2
        elif one == "%":
            piece, place = _field(text, place + 1, message, decoder, unpack)
            result.append(piece)
        else:
            result.append(one)
            place += 1
    return "".join(result)


def _field(text: str, place: int, message: "Message[bytes]", decoder: str, unpack: bool) -> tuple[str, int]:
    letter = text[place : place + 1]
    if letter == "P" and text[place + 1 : place + 2] == "{":
        name, closed, _ = text[place + 2 :].partition("}")
        if closed:
            return message.properties.get(name, ""), place + 3 + len(name)
    queue = message.queue
    body = unpacked(message.body) if unpack else message.body
    known = {
        "t": message.topic,
        "b": queue.broker_name if queue is not None else "",
        "q": str(queue.queue_id) if queue is not None else "",
        "o": str(message.offset),
        "i": message.id,
        "k": " ".join(message.keys),
        "g": message.tag or "",
        "d": time_text(message.stored_ms) or "",
        "D": time_text(message.born_ms) or "",
        "p": json.dumps(message.user_properties, ensure_ascii=False),
        "s": str(len(message.body)),
        "%": "%",
    }
    if letter == "v":
        return body_text(body, decoder), place + 1
    if letter not in known:
        raise ConfigError(f"%{letter} means nothing in a format; known: {FORMAT_HELP.replace('%%', '%')}")
    return known[letter], place + 1


def read_fields(text: str | bytes) -> dict[str, Any]:
    """One object of JSONL. ConfigError says what is wrong with it."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"not JSON: {error}: {text[:60]!r}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"a message is a JSON object, not {type(found).__name__}: {text[:60]!r}")
    return found


def body_of(found: dict[str, Any]) -> bytes:
    """The body that an object means; a body that is JSON itself stays JSON."""
    if "body_base64" in found:
        try:
            return base64.b64decode(found["body_base64"], validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            raise ConfigError(f"body_base64 is not base64: {error}") from None
    if "body" not in found:
        raise ConfigError("a message needs a body or a body_base64")
    body = found["body"]
    return body.encode() if isinstance(body, str) else json.dumps(body, ensure_ascii=False).encode()


def what_of(found: dict[str, Any]) -> dict[str, Any]:
    """tag, keys and properties as a producer takes them."""
    keys, properties = found.get("keys") or (), found.get("properties") or {}
    if isinstance(keys, str):
        keys = keys.split()
    if not isinstance(properties, dict) or not isinstance(keys, list | tuple):
        raise ConfigError("keys is a list, and properties an object, of texts")
    return {
        "tag": found.get("tag"),
        "keys": [str(key) for key in keys],
        "properties": {str(name): str(text) for name, text in properties.items()},
    }
