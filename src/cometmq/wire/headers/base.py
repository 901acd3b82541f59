"""A typed header: a struct whose fields are the ext fields of one request or response.

    class QueryConsumerOffset(Header):
        consumer_group: str                       required
        queue_id: I32                             required, wire name queueId
        set_zero_if_not_found: bool | None = None optional

The wire name is the attribute's name in camel case unless `field(name=...)` says otherwise. `decode` ignores ext
fields it does not know. A required field that is missing or does not parse raises `HeaderError`; an optional one that
does not parse counts as absent, as in Java. `encode` leaves out None.

What a class needs for decoding is worked out when it first decodes, so that importing a hundred of them stays cheap.
The two headers that every message passes through, send and pull, are written by hand in `hot.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Protocol, Self, TypeAlias, Union, get_args, get_origin

import msgspec

from cometmq.wire.codes import Response
from cometmq.wire.headers.error import HeaderError
from cometmq.wire.headers.parse import parse_bool, parse_boundary, parse_i32, parse_i64, parse_text

I32: TypeAlias = Annotated[int, parse_i32]
I64: TypeAlias = Annotated[int, parse_i64]
Boundary: TypeAlias = Annotated[str, parse_boundary]

Parser: TypeAlias = Callable[[str], Any]
# attribute, wire name, parser, required
Slot: TypeAlias = tuple[str, str, Parser, bool]

_PLAIN_PARSERS: dict[Any, Parser] = {str: parse_text, bool: parse_bool}
_slots_by_class: dict[type, tuple[Slot, ...]] = {}


class HeaderCodec(Protocol):
    """What a table entry can do. The entries are the header classes themselves, and `SendMessageV2`."""

    def decode(self, ext: dict[str, str], /) -> Any: ...

    def encode(self, header: Any, /) -> dict[str, str]: ...


class Header(msgspec.Struct, rename="camel"):
    """Base of all headers but the hot ones."""

    # The code that answers a request whose required fields cannot be read.
    REFUSAL_CODE: ClassVar[int] = Response.SYSTEM_ERROR

    @classmethod
    def decode(cls, ext: dict[str, str]) -> Self:
        values: dict[str, Any] = {}
        for attribute, wire_name, parse, required in _slots_by_class.get(cls) or _work_out_slots(cls):
            text = ext.get(wire_name)
            if text is None:
                if required:
                    raise HeaderError(cls.__name__, wire_name, "is missing", cls.REFUSAL_CODE)
                continue
            try:
                values[attribute] = parse(text)
            except ValueError as error:
                if required:
                    raise HeaderError(cls.__name__, wire_name, str(error), cls.REFUSAL_CODE) from None
        return cls(**values)

    def encode(self) -> dict[str, str]:
        ext: dict[str, str] = {}
        for attribute, wire_name in zip(self.__struct_fields__, self.__struct_encode_fields__, strict=True):
            value = getattr(self, attribute)
            if value is None:
                continue
            ext[wire_name] = ("true" if value else "false") if isinstance(value, bool) else str(value)
        return ext


def _work_out_slots(cls: type[Header]) -> tuple[Slot, ...]:
    slots = tuple(
        (field.name, field.encode_name, _parser_of(field.type), field.required) for field in msgspec.structs.fields(cls)
    )
    _slots_by_class[cls] = slots
    return slots


def _parser_of(annotation: Any) -> Parser:
    if get_origin(annotation) is Annotated:
        parser: Parser = annotation.__metadata__[0]
        return parser
    if annotation in _PLAIN_PARSERS:
        return _PLAIN_PARSERS[annotation]
    assert get_origin(annotation) in _UNIONS, f"no parser for {annotation}"
    (inner,) = (part for part in get_args(annotation) if part is not type(None))
    return _parser_of(inner)


_UNIONS = (Union, type(int | None))
