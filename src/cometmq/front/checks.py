"""What a request may say: names of topics and groups, and the parts of a message, with RocketMQ's codes."""

from __future__ import annotations

import unicodedata
from typing import Final

from cometmq import names
from cometmq.front.refusals import Refused
from cometmq.wire.grpc import messages_pb2 as pb
from cometmq.wire.record.properties import RESERVED_NAMES

GROUP_CHARS_MAX: Final = 255
USER_PROPERTIES_MAX: Final = 128
PROPERTIES_BYTES_MAX: Final = 16_384
MESSAGE_GROUP_BYTES_MAX: Final = 64
RECOVERY_S_MAX: Final = 3_600
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
# Names that are a message's own in this protocol; on delivery they are not among its user properties, either.
RESERVED: Final = RESERVED_NAMES | {"_SYS_MSG_PRIORITY_", "__LITE_TOPIC"}


def topic_of(resource: pb.Resource) -> str:
    name = resource.name
    fault = names.topic_fault(name)
    if fault is not None:
        raise Refused(pb.ILLEGAL_TOPIC, fault)
    if names.is_system_topic(name):
        raise Refused(pb.ILLEGAL_TOPIC, f"{name} is a system topic")
    return name


def group_of(resource: pb.Resource) -> str:
    name = resource.name
    fault = names.group_fault(name) if len(name) <= names.GROUP_CHARS_MAX else _long_group_fault(name)
    if fault is not None:
        raise Refused(pb.ILLEGAL_CONSUMER_GROUP, fault)
    if name.startswith(SYSTEM_GROUP_PREFIX):
        raise Refused(pb.ILLEGAL_CONSUMER_GROUP, f"{name} is a system group")
    return name


def _long_group_fault(name: str) -> str | None:
    if len(name) > GROUP_CHARS_MAX:
        return f"the group name has {len(name)} characters, at most {GROUP_CHARS_MAX} are allowed"
    return names.group_fault(name)


def has_control(text: str) -> bool:
    return not text.isprintable() and any(unicodedata.category(character) == "Cc" for character in text)


def check_tag(tag: str) -> None:
    if not tag.strip():
        raise Refused(pb.ILLEGAL_MESSAGE_TAG, "the tag is blank")
    if "|" in tag or has_control(tag):
        raise Refused(pb.ILLEGAL_MESSAGE_TAG, "the tag has a | or a control character in it")


def check_key(key: str) -> None:
    if not key.strip() or has_control(key):
        raise Refused(pb.ILLEGAL_MESSAGE_KEY, "a key is blank or has a control character in it")


def check_message_group(group: str) -> None:
    if not group.strip() or has_control(group):
        raise Refused(pb.ILLEGAL_MESSAGE_GROUP, "the message group is blank or has a control character in it")
    if len(group.encode()) >= MESSAGE_GROUP_BYTES_MAX:
        text = f"the message group has {len(group.encode())} bytes, below {MESSAGE_GROUP_BYTES_MAX} are allowed"
        raise Refused(pb.ILLEGAL_MESSAGE_GROUP, text)


def check_user_property(name: str, value: str) -> None:
    if name in RESERVED:
        raise Refused(pb.ILLEGAL_MESSAGE_PROPERTY_KEY, f"the name {name} is the system's own")
    if has_control(name) or has_control(value) or not name or not value:
        raise Refused(
            pb.ILLEGAL_MESSAGE_PROPERTY_KEY, f"property {name[:80]!r} is empty or has a control character in it"
        )
