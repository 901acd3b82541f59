"""Attributes of topics and groups: which there are, and what a request may change.

A request carries changes, not values. In a header they are one text, in a JSON body the keys of a map:

    +message.type=FIFO,-reserve.time        {"+message.type": "FIFO", "-reserve.time": ""}

`+` sets, `-` deletes. A new topic can only set. Some attributes decide how files are laid out, so they are set at
creation and never again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cometmq.errors import RequestError
from cometmq.wire.codes import Response

MESSAGE_TYPE: Final = "message.type"
QUEUE_TYPE: Final = "queue.type"
CLEANUP_POLICY: Final = "cleanup.policy"
LAKE: Final = "cometmq.lake"
MIXED: Final = "MIXED"

I64_MAX: Final = 2**63 - 1
DIGITS_MAX: Final = 19


@dataclass(frozen=True, slots=True)
class Attribute:
    """Its value is one of `values` if there are any, else a number in `bounds` if there are some, else any text.

    `not_built` are values of RocketMQ that would be believed and do nothing here: they are refused."""

    values: tuple[str, ...] = ()
    bounds: tuple[int, int] | None = None
    changeable: bool = True
    not_built: tuple[str, ...] = ()

    def allows(self, value: str) -> bool:
        if self.values:
            return value in self.values
        if self.bounds is None:
            return bool(value.strip())
        digits = value.removeprefix("-")
        is_number = digits.isascii() and digits.isdigit() and len(digits) <= DIGITS_MAX
        return is_number and self.bounds[0] <= int(value) <= self.bounds[1]

    def allowed_text(self) -> str:
        if self.values:
            return ", ".join(self.values)
        return f"{self.bounds[0]} to {self.bounds[1]}" if self.bounds is not None else "any text that is not blank"


_BOOLEAN: Final = Attribute(("true", "false"))

# All of RocketMQ 5.5, and one of ours. Bounds of tiered storage and lite topics are kept and shown, and do nothing
# here.
TOPIC_ATTRIBUTES: Final[dict[str, Attribute]] = {
    QUEUE_TYPE: Attribute(("BatchCQ", "SimpleCQ"), changeable=False),
    CLEANUP_POLICY: Attribute(("DELETE",), changeable=False, not_built=("COMPACTION",)),
    MESSAGE_TYPE: Attribute(
        ("DELAY", "FIFO", MIXED, "NORMAL", "PRIORITY", "TRANSACTION", "UNSPECIFIED"),
        not_built=("LITE",),
    ),
    "reserve.time": Attribute(bounds=(-1, I64_MAX)),
    "lite.topic.expiration": Attribute(bounds=(-1, 43_200)),
    # Ours: a table of the topic exists, which `cometmq lake` writes. The broker only keeps and shows it.
    LAKE: Attribute(("iceberg",)),
}
GROUP_ATTRIBUTES: Final[dict[str, Attribute]] = {
    "priority.factor": Attribute(bounds=(0, 100)),
    "lite.bind.topic": Attribute(),
    "lite.sub.client.max.event.cnt": Attribute(bounds=(10, I64_MAX)),
    "lite.sub.client.quota": Attribute(bounds=(-1, I64_MAX)),
    "lite.sub.model": Attribute(("Shared", "Exclusive")),
    "lite.sub.reset.offset.exclusive": _BOOLEAN,
    "lite.sub.reset.offset.unsubscribe": _BOOLEAN,
    "lite.sub.wildcard": Attribute(),
}


def parse_changes(text: str | None) -> dict[str, str]:
    """The change list of a header."""
    changes: dict[str, str] = {}
    for change in (text or "").split(","):
        if not change:
            continue
        key, _, value = change.partition("=")
        sets = key.startswith("+") and value
        deletes = key.startswith("-") and "=" not in change
        if not (sets or deletes):
            raise _refusal(f"attribute change {change[:80]!r} is neither +key=value nor -key")
        if key in changes:
            raise _refusal(f"attribute change {key[:80]!r} is there twice")
        changes[key] = value
    return changes


def change_attributes(
    current: Mapping[str, str] | None, changes: Mapping[str, str], known: Mapping[str, Attribute]
) -> dict[str, str]:
    """The attributes after `changes`; `current` is None for something that is being created."""
    changed = dict(current or {})
    names: set[str] = set()
    for key, value in changes.items():
        sign, name = key[:1], key[1:]
        if name in names:
            raise _refusal(f"attribute {name[:80]!r} is changed twice in one request")
        names.add(name)
        if sign == "-" and current is not None:
            _check_deletion(name, changed, known)
            del changed[name]
        elif sign == "+":
            _check_value(name, value, known, creating=current is None)
            changed[name] = value
        elif sign == "-":
            raise _refusal(f"attribute {name[:80]!r} cannot be deleted from what is being created")
        else:
            raise _refusal(f"attribute change {key[:80]!r} begins with neither + nor -")
    return changed


def _check_value(name: str, value: str, known: Mapping[str, Attribute], creating: bool) -> None:
    attribute = _attribute(name, known)
    if not (creating or attribute.changeable):
        raise _refusal(f"attribute {name!r} is set at creation and cannot be changed")
    if value in attribute.not_built:
        raise _refusal(f"{name}={value} is not built, allowed are {attribute.allowed_text()}")
    if not attribute.allows(value):
        raise _refusal(f"attribute {name!r} is {value[:80]!r}, allowed are {attribute.allowed_text()}")


def _check_deletion(name: str, current: Mapping[str, str], known: Mapping[str, Attribute]) -> None:
    if name not in current:
        raise _refusal(f"attribute {name[:80]!r} is not set, so it cannot be deleted")
    if not _attribute(name, known).changeable:
        raise _refusal(f"attribute {name!r} is set at creation and cannot be deleted")


def _attribute(name: str, known: Mapping[str, Attribute]) -> Attribute:
    if name not in known:
        raise _refusal(f"attribute {name[:80]!r} is not known, known are: {', '.join(sorted(known))}")
    return known[name]


def _refusal(remark: str) -> RequestError:
    return RequestError(Response.SYSTEM_ERROR, remark)
