"""The JSON form of a command header: strict and fast first, lenient second.

Java writes `extFields` as strings and everything else with its own type; one msgspec decoder reads that in a
single pass. Node and C++ peers put numbers and booleans into `extFields` and numbers into strings, and Java
accepts both, so what the strict decoder refuses is read once more as plain JSON and converted by hand.
Anything else is a `WireError`.
"""

from typing import Annotated, Any, Final

import msgspec

from cometmq.errors import WireError
from cometmq.wire.codes import LANGUAGE_NAMES

EXT_FIELDS_MAX: Final = 512
I32_MIN: Final = -(2**31)
I32_MAX: Final = 2**31 - 1
I32 = Annotated[int, msgspec.Meta(ge=I32_MIN, le=I32_MAX)]

LANGUAGE_UNKNOWN: Final = -1


class JsonHeader(msgspec.Struct):
    """The members of a JSON header, with the values Java assumes for absent ones."""

    code: I32 = 0
    language: str = "JAVA"
    version: I32 = 0
    opaque: I32 = 0
    flag: I32 = 0
    remark: str | None = None
    extFields: dict[str, str] | None = None  # noqa: N815 - the wire's own name


_strict = msgspec.json.Decoder(JsonHeader)
_plain = msgspec.json.Decoder()


def read_json_header(header: bytes) -> JsonHeader:
    """Decode the header bytes of a type 0 frame."""
    try:
        parsed = _strict.decode(header)
    except msgspec.ValidationError:
        parsed = _read_leniently(header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"JSON header does not parse: {error}") from None
    if parsed.extFields is not None and len(parsed.extFields) > EXT_FIELDS_MAX:
        raise WireError(f"header has {len(parsed.extFields)} ext fields, the limit is {EXT_FIELDS_MAX}")
    return parsed


def _read_leniently(header: bytes) -> JsonHeader:
    try:
        members = _plain.decode(header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"JSON header does not parse: {error}") from None
    if not isinstance(members, dict):
        raise WireError(f"JSON header is {type(members).__name__}, not an object")
    return JsonHeader(
        code=_integer(members, "code"),
        language=_language(members.get("language", "JAVA")),
        version=_integer(members, "version"),
        opaque=_integer(members, "opaque"),
        flag=_integer(members, "flag"),
        remark=_text("remark", members.get("remark")),
        extFields=_ext_fields(members.get("extFields")),
    )


def _integer(members: dict[str, Any], name: str) -> int:
    value = members.get(name)
    if value is None:
        return 0
    if isinstance(value, str) and len(value) <= 11 and value.isascii() and value.removeprefix("-").isdigit():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise WireError(f"header member {name!r} is {str(value)[:40]!r}, not an integer")
    if not I32_MIN <= value <= I32_MAX:
        raise WireError(f"header member {name!r} is {value}, outside a 32-bit integer")
    return value


def _language(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return LANGUAGE_NAMES.get(value, "")
    return ""


def _ext_fields(value: object) -> dict[str, str] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise WireError(f"extFields is {type(value).__name__}, not an object")
    texts = ((name, _text(f"extFields.{name}", member)) for name, member in value.items())
    return {name: text for name, text in texts if text is not None}


def _text(name: str, value: object) -> str | None:
    """The text Java would see: numbers in decimal, booleans in lower case, null absent."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    raise WireError(f"header member {name!r} is {type(value).__name__}, not a scalar")
