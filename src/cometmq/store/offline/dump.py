"""Every message of a store directory as plain values, without a broker.

The names of the fields are those of RocketMQ's message class. Bodies are decompressed and the flag for it is cleared,
as a consumer sees them. The message id is the unique key that the producer made, or where there is none the id made
of host and offset.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Any

from cometmq.errors import WireError
from cometmq.store.log.resync import Damage
from cometmq.store.offline.log_files import FoundRecord, LogFiles
from cometmq.wire.compression import decompress
from cometmq.wire.record.message import Host, StoredMessage, decode_record
from cometmq.wire.record.message_id import encode_offset_id, offset_id_prefix
from cometmq.wire.record.properties import Property, decode
from cometmq.wire.record.sysflag import COMPRESSED

# Added by consumers while reading; a message that was forwarded may carry them.
_CLIENT_PROPERTIES = ("MIN_OFFSET", "MAX_OFFSET")


def dump(log: LogFiles) -> Iterator[dict[str, Any] | Damage]:
    """Every message, and the damaged places between them."""
    for found in log.walk():
        if isinstance(found, Damage):
            yield found
            continue
        try:
            yield message_fields(_decode(found))
        except WireError as error:
            size = found.scan.size
            yield Damage(found.physical_offset, found.physical_offset + size, str(error))


def _decode(found: FoundRecord) -> StoredMessage:
    return decode_record(found.segment.view(), found.position, found.position + found.scan.size)


def message_fields(message: StoredMessage) -> dict[str, Any]:
    """WireError if the body cannot be decompressed."""
    properties = decode(message.properties)
    for name in _CLIENT_PROPERTIES:
        properties.pop(name, None)
    body = message.body
    sys_flag = message.sys_flag
    if sys_flag & COMPRESSED:
        body = decompress(body, sys_flag)
        sys_flag &= ~COMPRESSED
    store_address, store_port = message.store_host
    offset_id = encode_offset_id(offset_id_prefix(store_address, store_port), message.physical_offset)
    return {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "commitLogOffset": message.physical_offset,
        "storeSize": message.record_bytes,
        "bodyCRC": message.body_crc,
        "flag": message.flag,
        "sysFlag": sys_flag,
        "bornTimestamp": message.born_timestamp_ms,
        "bornHost": host_text(message.born_host),
        "storeTimestamp": message.store_timestamp_ms,
        "storeHost": host_text(message.store_host),
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "msgId": properties.get(Property.UNIQ_KEY, offset_id),
        "bodyHex": body.hex(),
        "properties": properties,
    }


def host_text(host: Host) -> str:
    """As Java writes a socket address."""
    address, port = host
    if len(address) == 4:
        return f"/{ipaddress.IPv4Address(address)}:{port}"
    groups = [f"{address[at] << 8 | address[at + 1]:x}" for at in range(0, 16, 2)]
    return f"/[{':'.join(groups)}]:{port}"
