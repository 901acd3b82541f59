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
MIXED: Final = "MIXED"


@dataclass(frozen=True, slots=True)
class Attribute:
    changeable: bool
    values: tuple[str, ...]


TOPIC_ATTRIBUTES: Final[dict[str, Attribute]] = {
    QUEUE_TYPE: Attribute(False, ("BatchCQ", "SimpleCQ")),
    CLEANUP_POLICY: Attribute(False, ("COMPACTION", "DELETE")),
    MESSAGE_TYPE: Attribute(True, ("DELAY", "FIFO", MIXED, "NORMAL", "TRANSACTION", "UNSPECIFIED")),
}
# RocketMQ has none that work without lite topics.
GROUP_ATTRIBUTES: Final[dict[str, Attribute]] = {}

# Attributes of RocketMQ that this broker knows and cannot keep, with the reason.
_NOT_KEPT: Final = {"reserve.time": "it needs tiered storage"}


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
    if value not in attribute.values:
        raise _refusal(f"attribute {name!r} is {value[:80]!r}, allowed are {', '.join(attribute.values)}")


def _check_deletion(name: str, current: Mapping[str, str], known: Mapping[str, Attribute]) -> None:
    if name not in current:
        raise _refusal(f"attribute {name[:80]!r} is not set, so it cannot be deleted")
    if not _attribute(name, known).changeable:
        raise _refusal(f"attribute {name!r} is set at creation and cannot be deleted")


def _attribute(name: str, known: Mapping[str, Attribute]) -> Attribute:
    if name in _NOT_KEPT:
        raise _refusal(f"attribute {name!r} is not supported: {_NOT_KEPT[name]}")
    if name not in known:
        raise _refusal(f"attribute {name[:80]!r} is not known, known are: {', '.join(sorted(known)) or 'none'}")
    return known[name]


def _refusal(remark: str) -> RequestError:
    return RequestError(Response.SYSTEM_ERROR, remark)
