"""Bodies made readable. The first of these that fits, or the one that is asked for:

    empty, JSON, UTF-8 text, MessagePack, Avro container, Java serialisation (named, never decoded), else hex

With a schema for the topic (`--schemas DIR`: TOPIC.avsc, or TOPIC.desc with TOPIC.message) Avro or Protobuf are tried
before. A body that an application compressed (gzip, zstd, LZ4 frames) is opened first. What goes wrong is a line beside
the bytes: there is always something to see.
"""

import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from cometmq.console.answers import Problem
from cometmq.errors import WireError
from cometmq.wire.compression import decompress
from cometmq.wire.record.sysflag import COMPRESSED, COMPRESSION_LZ4, COMPRESSION_ZSTD

SHOWN_BYTES_MAX: Final = 1 << 20
OPENED_BYTES_MAX: Final = 16 << 20
HEX_BYTES_MAX: Final = 4096
SCHEMA_BYTES_MAX: Final = 1 << 20
DEPTH_MAX: Final = 40
JAVA_MAGIC: Final = b"\xac\xed\x00\x05"
AVRO_MAGIC: Final = b"Obj\x01"
KINDS: Final = ("json", "text", "msgpack", "avro", "protobuf", "hex")


@dataclass(frozen=True)
class Decoded:
    """`value` is what JSON tests and masks look into; None for text and bytes."""

    kind: str
    text: str
    value: Any = None
    opened: str = ""
    faults: tuple[str, ...] = ()
    is_cut: bool = False


@dataclass
class Schemas:
    """Files of `--schemas`, read when they are first asked for."""

    directory: Path | None = None
    known: dict[str, Callable[[bytes], tuple[str, Any]] | None] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)

    def of(self, topic: str) -> Callable[[bytes], tuple[str, Any]] | None:
        if self.directory is None:
            return None
        if topic not in self.known:
            try:
                self.known[topic] = self._load(topic)
            except Exception as error:  # a library's own, of any kind
                self.known[topic] = None
                self.faults[topic] = f"the schema of {topic} cannot be used: {error}"
        return self.known[topic]

    def _load(self, topic: str) -> Callable[[bytes], tuple[str, Any]] | None:
        assert self.directory is not None
        avro, descriptors = self.directory / f"{topic}.avsc", self.directory / f"{topic}.desc"
        if avro.is_file():
            return avro_reader(avro.read_bytes()[:SCHEMA_BYTES_MAX])
        if descriptors.is_file():
            name = (self.directory / f"{topic}.message").read_text(encoding="utf-8").strip()
            return protobuf_reader(descriptors.read_bytes()[:SCHEMA_BYTES_MAX], name)
        return None


def avro_reader(schema: bytes) -> Callable[[bytes], tuple[str, Any]]:
    try:
        import fastavro
    except ImportError:
        raise ValueError("Avro needs fastavro: pip install 'cometmq[console-schemas]'") from None
    import io

    parsed = fastavro.parse_schema(json.loads(schema))
    return lambda body: ("avro", fastavro.schemaless_reader(io.BytesIO(body), parsed, None))


def protobuf_reader(descriptors: bytes, name: str) -> Callable[[bytes], tuple[str, Any]]:
    from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors).file:
        pool.Add(file)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    return lambda body: (
        "protobuf",
        json_format.MessageToDict(kind.FromString(body), preserving_proto_field_name=True),
    )


def decode(body: bytes, topic: str = "", schemas: Schemas | None = None, forced: str | None = None) -> Decoded:
    if forced is not None and forced not in KINDS:
        raise Problem(400, f"as is {forced[:40]!r}: known are {', '.join(KINDS)}")
    opened, faults = "", []
    if forced != "hex":
        body, opened, fault = opened_body(body)
        faults += [fault] if fault else []
    is_cut = len(body) > SHOWN_BYTES_MAX
    if not body:
        return Decoded("empty", "", opened=opened, faults=tuple(faults))
    reader = schemas.of(topic) if schemas is not None and forced in (None, "avro", "protobuf") else None
    if schemas is not None and topic in schemas.faults:
        faults.append(schemas.faults[topic])
    if reader is not None and not is_cut:
        try:
            kind, value = reader(body)
            return Decoded(kind, pretty(value), value, opened, tuple(faults))
        except Exception as error:  # a library's own, of any kind
            faults.append(f"it does not fit the schema of {topic}: {str(error)[:200]}")
    for kind in (forced,) if forced is not None else ("json", "text", "msgpack", "avro", "java"):
        found = _attempt(kind, body, faults if forced is not None else None)
        if found is not None:
            text, value = found
            return Decoded(kind, text, value, opened, tuple(faults), is_cut)
    return Decoded("hex", hexed(body), None, opened, tuple(faults), len(body) > HEX_BYTES_MAX)


def _attempt(kind: str, body: bytes, faults: list[str] | None) -> tuple[str, Any] | None:
    try:
        if kind == "json":
            if body.lstrip()[:1] not in (b"{", b"[", b'"') and faults is None and len(body) > 40:
                return None
            value = msgspec.json.decode(body)
            return (pretty(value) if len(body) <= SHOWN_BYTES_MAX else _cut(body)), value
        if kind == "text":
            text = _cut(body)
            return None if faults is None and _is_binary(text) else (text, None)
        if kind == "msgpack":
            if faults is None and not _may_be_msgpack(body):
                return None
            value = msgspec.msgpack.decode(body, strict=False)
            return pretty(value), value
        if kind == "avro" and (body[:4] == AVRO_MAGIC or faults is not None):
            return _avro_container(body, faults)
        if kind == "java" and body[:4] == JAVA_MAGIC:
            return (
                f"Java serialisation ({java_class(body) or 'unknown class'}); it is never decoded\n\n{hexed(body)}",
                None,
            )
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError) as error:
        if faults is not None:
            faults.append(f"not {kind}: {str(error)[:200]}")
    return None


def _avro_container(body: bytes, faults: list[str] | None) -> tuple[str, Any] | None:
    try:
        import fastavro
    except ImportError:
        text = f"Avro container; pip install 'cometmq[console-schemas]' decodes it\n\n{hexed(body)}"
        return text, None
    import io
    import itertools

    try:
        reader = fastavro.reader(io.BytesIO(body))
        if reader.codec != "null":  # its blocks may stand for any number of bytes
            return f"Avro container, compressed with {reader.codec}: download it\n\n{hexed(body)}", None
        records = list(itertools.islice(reader, 1000))
    except Exception as error:  # a library's own, of any kind
        if faults is not None:
            faults.append(f"not avro: {str(error)[:200]}")
        return None
    return pretty(records), records


def opened_body(body: bytes) -> tuple[bytes, str, str]:
    """What an application compressed: content, how it was, what went wrong."""
    try:
        if body[:2] == b"\x1f\x8b":
            opener = zlib.decompressobj(31)
            content = opener.decompress(body, OPENED_BYTES_MAX)
            if not opener.eof:
                return body, "", "it begins as gzip, but is cut off or larger than 16 MiB"
            return content, "gzip", ""
        if body[:4] == b"\x28\xb5\x2f\xfd":
            return decompress(body, COMPRESSED | COMPRESSION_ZSTD), "zstd", ""
        if body[:4] == b"\x04\x22\x4d\x18":
            return decompress(body, COMPRESSED | COMPRESSION_LZ4), "lz4", ""
    except (zlib.error, WireError) as error:
        return body, "", f"it begins as compressed data, but cannot be opened: {str(error)[:200]}"
    return body, "", ""


def pretty(value: Any) -> str:
    try:
        indent = 2 if _is_flat(value) else None
        text = json.dumps(value, indent=indent, ensure_ascii=False, default=_other)
    except (ValueError, TypeError, RecursionError):
        text = str(value)
    return text if len(text) <= SHOWN_BYTES_MAX else text[:SHOWN_BYTES_MAX]


def _is_flat(value: Any) -> bool:
    """Not so deep that blanks in front of lines would take more than the value: a line has at most 80 of them."""
    level = [value]
    for _ in range(DEPTH_MAX):
        inner: list[Any] = []
        for it in level:
            if isinstance(it, dict):
                inner += it.values()
            elif isinstance(it, list | tuple):
                inner += it
        if not inner:
            return True
        level = [it for it in inner if isinstance(it, dict | list | tuple)]
    return not level


def _other(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def _cut(body: bytes) -> str:
    """The first MiB as text; a character that is cut in two is left out."""
    if len(body) <= SHOWN_BYTES_MAX:
        return body.decode()
    return body[:SHOWN_BYTES_MAX].decode("utf-8", "ignore")


def _is_binary(text: str) -> bool:
    sample = text[:2000]
    strange = sum(char < " " and char not in "\t\n\r" for char in sample)
    return strange > len(sample) / 50


def _may_be_msgpack(body: bytes) -> bool:
    """A map or an array: single numbers would make MessagePack of any byte."""
    return body[0] in range(0x80, 0xA0) or body[0] in (0xDC, 0xDD, 0xDE, 0xDF)


def java_class(body: bytes) -> str:
    """The class that a stream of Java serialisation begins with."""
    if len(body) > 8 and body[4:6] == b"\x73\x72":
        size = int.from_bytes(body[6:8], "big")
        return body[8 : 8 + min(size, 200)].decode("ascii", "replace")
    return ""


def hexed(body: bytes) -> str:
    """16 bytes a line, with the characters beside them; the first 4 KiB."""
    lines = []
    for at in range(0, min(len(body), HEX_BYTES_MAX), 16):
        part = body[at : at + 16]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{at:08x}  {part[:8].hex(' '):<23}  {part[8:].hex(' '):<23}  {shown}")
    if len(body) > HEX_BYTES_MAX:
        lines.append(f"... and {len(body) - HEX_BYTES_MAX:,} bytes more: download it")
    return "\n".join(lines)
