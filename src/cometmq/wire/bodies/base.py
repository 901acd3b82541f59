"""A typed body: a struct whose fields are the members of one JSON body.

    class GroupList(Body):
        group_list: list[str] = []        wire name groupList

Reading is as lenient as Java's: a missing or null member has the default that the field has in Java, members nobody
knows are ignored, numbers may come as text, an enum as its ordinal, and an enum text nobody knows is None. What is
still not of the field's type is a `WireError`.

Most bodies are standard JSON without nulls and are decoded by msgspec in one pass. What that pass refuses, and
bodies that have `SEVERAL_FORMS`, go through `json_reader.loads_finite` and are converted from the tree.

What a peer may send to a server is bounded before it is decoded (`check_size`): by bytes, and by the marks that
begin objects, lists and entries, since thirty bytes of text can make a hundred times as much work. What needs the
second way, which is fifty times slower, may be small only.

Writing is Java's form: members in alphabetical order, compact, no nulls, never a reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Self, TypeAlias, TypeVar

import msgspec

from cometmq.errors import WireError
from cometmq.wire.fastjson.reader import BYTES_MAX, ObjectKey, check_values, loads_finite
from cometmq.wire.fastjson.writer import dumps

I32: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
I64: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

# A peer may write an enum as its ordinal. `__post_init__` turns that into the name before anybody sees it.
if TYPE_CHECKING:
    EnumName: TypeAlias = str | None
else:
    EnumName = str | int | None

# What a server takes in one body, in 50 ms at most on the machines that it is made for.
REQUEST_BYTES_MAX: Final = 1 << 20
REQUEST_OTHER_FORMS_BYTES_MAX: Final = 32 << 10
REQUEST_LISTS_MAX: Final = 10_000
REQUEST_ENTRIES_MAX: Final = 100_000

B = TypeVar("B", bound="Body")

_decoders: Final[dict[type, msgspec.json.Decoder[Any]]] = {}


class Body(msgspec.Struct, rename="camel"):
    """Base of all bodies."""

    # True where msgspec's own output is Java's: fields in alphabetical order of their wire names, none of them
    # null, no float, no map but of text to text. The writer then hands the whole struct to msgspec.
    STANDARD_FORM: ClassVar[bool] = False
    # True where `_prepare` must see the tree before it is converted.
    SEVERAL_FORMS: ClassVar[bool] = False
    # How many objects a server takes in one such body; fewer where one costs more than a microsecond or two.
    OBJECTS_MAX: ClassVar[int] = 10_000

    @classmethod
    def decode(cls, data: bytes) -> Self:
        return cls._decode(data, BYTES_MAX)

    @classmethod
    def decode_request(cls, data: bytes) -> Self:
        """What a peer sent to a server: within the bounds of `check_size`."""
        check_size(cls.__name__, data, cls.OBJECTS_MAX)
        return cls._decode(data, REQUEST_OTHER_FORMS_BYTES_MAX)

    @classmethod
    def _decode(cls, data: bytes, other_forms_bytes_max: int) -> Self:
        check_values(data)
        if not cls.SEVERAL_FORMS and b'"$ref"' not in data:
            try:
                body: Self = (_decoders.get(cls) or _make_decoder(cls)).decode(data)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                pass
            else:
                return body
        return cls.from_tree(loads_finite(data, other_forms_bytes_max))

    @classmethod
    def from_tree(cls, tree: Any) -> Self:
        """From a value without nulls that `loads_finite` gave; it may be changed on the way."""
        if not isinstance(tree, dict):
            raise WireError(f"{cls.__name__}: the body is not a JSON object")
        return convert(cls._prepare(tree), cls)

    @classmethod
    def _prepare(cls, tree: dict[Any, Any]) -> dict[Any, Any]:
        """Overridden where the wire has more than one form, or one that no type describes, for the same content."""
        return tree

    def encode(self) -> bytes:
        return dumps(self)


def decode_list(cls: type[B], data: bytes) -> list[B]:
    """A body that is an array."""
    return convert(loads_finite(data), list[cls])  # type: ignore[valid-type]


def encode_list(bodies: Sequence[Body]) -> bytes:
    return dumps(list(bodies))


def check_size(name: str, data: bytes, objects_max: int) -> None:
    """WireError for a body that would keep a server from others for too long. Marks inside of strings count too."""
    if len(data) > REQUEST_BYTES_MAX:
        raise WireError(f"{name}: {len(data)} bytes, at most {REQUEST_BYTES_MAX} are allowed in one request")
    for mark, what, most in (
        (b"{", "objects", objects_max),
        (b"[", "lists", REQUEST_LISTS_MAX),
        (b",", "entries", REQUEST_ENTRIES_MAX),
    ):
        if len(data) > most and (count := data.count(mark)) > most:
            raise WireError(f"{name}: {count} {what}, at most {most} are allowed in one request: send it in parts")


T = TypeVar("T")


def convert(tree: Any, kind: type[T]) -> T:
    try:
        return msgspec.convert(tree, kind, strict=False)
    except msgspec.ValidationError as error:
        raise WireError(f"{getattr(kind, '__name__', kind)}: {error}") from None
    except RecursionError:
        raise WireError(f"{getattr(kind, '__name__', kind)}: the body is nested too deep") from None


def enum_name(value: str | int | None, names: tuple[str, ...]) -> str | None:
    """The name of an enum constant from its name or ordinal; None for one that nobody knows."""
    if isinstance(value, int):
        return names[value] if 0 <= value < len(names) else None
    return value if value in names else None


def keyed_by(struct: type[B], table: Any) -> Any:
    """A map with object keys, raw or as text, with `struct` for keys instead."""
    if not isinstance(table, dict):
        return table
    return {_object_key(struct, key): value for key, value in table.items()}


def _object_key(struct: type[B], key: Any) -> B:
    if isinstance(key, ObjectKey):
        return convert(key.members(), struct)
    if isinstance(key, str):
        return struct.decode(key.encode())
    raise WireError(f"{struct.__name__}: {key!r} in key position is not an object")


def _make_decoder(cls: type[Body]) -> msgspec.json.Decoder[Any]:
    decoder = msgspec.json.Decoder(cls, strict=False)
    _decoders[cls] = decoder
    return decoder
