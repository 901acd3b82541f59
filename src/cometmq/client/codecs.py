"""Codecs: how the values that a program handles become message bodies, and bodies values.

    bytes_codec       bodies as they are (the default)
    text_codec        str, UTF-8
    json_codec        anything that JSON can say
    typed_codec(T)    JSON of one type: a dataclass, a msgspec Struct, a TypedDict, list[int], ...; checked when decoded

Anything with `encode` and `decode` is a codec. Whatever they raise reaches the caller as CodecError.
"""

from typing import Any, Generic, Protocol, TypeVar

import msgspec

from cometmq.errors import CodecError

T = TypeVar("T")


class Codec(Protocol[T]):
    def encode(self, value: T, /) -> bytes: ...

    def decode(self, body: bytes, /) -> T: ...


class BytesCodec:
    def encode(self, value: bytes, /) -> bytes:
        if type(value) is bytes:
            return value
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value)
        raise CodecError(f"a body is bytes, not {type(value).__name__}: encode it, or give the producer a codec")

    def decode(self, body: bytes, /) -> bytes:
        return body


class TextCodec:
    def encode(self, value: str, /) -> bytes:
        return value.encode()

    def decode(self, body: bytes, /) -> str:
        return body.decode()


class JsonCodec:
    def encode(self, value: Any, /) -> bytes:
        return msgspec.json.encode(value)

    def decode(self, body: bytes, /) -> Any:
        return msgspec.json.decode(body)


class TypedCodec(Generic[T]):
    def __init__(self, kind: type[T]) -> None:
        self._decoder = msgspec.json.Decoder(kind)
        self._encoder = msgspec.json.Encoder()

    def encode(self, value: T, /) -> bytes:
        return self._encoder.encode(value)

    def decode(self, body: bytes, /) -> T:
        return self._decoder.decode(body)


def typed_codec(kind: type[T]) -> TypedCodec[T]:
    return TypedCodec(kind)


bytes_codec = BytesCodec()
text_codec = TextCodec()
json_codec = JsonCodec()


def encode_value(codec: Codec[T], value: T) -> bytes:
    try:
        body = codec.encode(value)
    except CodecError:
        raise
    except Exception as error:
        raise CodecError(f"cannot encode a {type(value).__name__}: {error}") from error
    if type(body) is not bytes:
        raise CodecError(f"{type(codec).__name__}.encode gave {type(body).__name__}, a body is bytes")
    return body


def decode_body(codec: Codec[T], body: bytes) -> T:
    try:
        return codec.decode(body)
    except CodecError:
        raise
    except Exception as error:
        raise CodecError(f"cannot decode a body of {len(body)} bytes: {error}") from error
