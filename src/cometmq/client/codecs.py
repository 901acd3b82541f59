"""Codecs: how the values that a program handles become message bodies, and bodies values.

    bytes_codec       bodies as they are (the default)
    text_codec        str, UTF-8
    json_codec        anything that JSON can say
    typed_codec(T)    JSON of one type, checked when decoded: a dataclass, an attrs class, a msgspec Struct, a
                      TypedDict, list[int], ...; pydantic models, also inside of these, are read and written by pydantic

A type that JSON cannot be read as is refused when the codec is made, not when the first message comes.

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
        return msgspec.json.encode(value, enc_hook=_plain)

    def decode(self, body: bytes, /) -> Any:
        return msgspec.json.decode(body)


class TypedCodec(Generic[T]):
    def __init__(self, kind: type[T]) -> None:
        self._decoder = msgspec.json.Decoder(kind)
        self._encoder = msgspec.json.Encoder(enc_hook=_plain)

    def encode(self, value: T, /) -> bytes:
        return self._encoder.encode(value)

    def decode(self, body: bytes, /) -> T:
        return self._decoder.decode(body)


class PydanticCodec(Generic[T]):
    """pydantic is imported by whoever has such a model, so it is there."""

    def __init__(self, kind: type[T]) -> None:
        from pydantic import TypeAdapter

        self._adapter: TypeAdapter[T] = TypeAdapter(kind)

    def encode(self, value: T, /) -> bytes:
        return self._adapter.dump_json(value)

    def decode(self, body: bytes, /) -> T:
        return self._adapter.validate_json(body)


def typed_codec(kind: type[T]) -> Codec[T]:
    """TypeError for a type that JSON cannot be read as."""
    whole: Any = Any if kind is object else kind
    strangers = _strangers(whole)
    if not strangers:
        return TypedCodec(whole)
    if any(_is_pydantic(one) for one in strangers):
        return PydanticCodec(kind)
    names = ", ".join(sorted(getattr(one, "__qualname__", str(one)) for one in strangers))
    raise TypeError(f"{names}: not a dataclass, an attrs class, a msgspec Struct, a pydantic model or a type of JSON")


def _strangers(kind: Any) -> set[Any]:
    """Classes in a type that msgspec does not know: it would take them, and fail at each message."""
    found: set[Any] = set()
    seen: set[int] = set()
    waiting: list[Any] = [msgspec.inspect.type_info(kind)]
    while waiting:
        info = waiting.pop()
        if isinstance(info, list | tuple):
            waiting += info
        elif isinstance(info, msgspec.inspect.CustomType):
            found.add(info.cls)
        elif isinstance(info, msgspec.inspect.Type | msgspec.inspect.Field) and id(info) not in seen:
            seen.add(id(info))
            waiting += [getattr(info, name) for name in info.__struct_fields__]
    return found


def _is_pydantic(kind: Any) -> bool:
    return hasattr(kind, "__pydantic_validator__")


def _plain(value: Any) -> Any:
    """For what msgspec cannot write: pydantic models say themselves what they are in JSON."""
    if _is_pydantic(type(value)):
        return value.model_dump(mode="json")
    raise TypeError(f"a {type(value).__qualname__} has no form in JSON")


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
