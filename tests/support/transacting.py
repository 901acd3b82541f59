"""The words of a transactional producer, for tests: send halves, end them, be asked."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cometmq.broker.server import Broker
from cometmq.clock import ManualClock
from cometmq.names import HALF_TOPIC
from cometmq.wire.codes import Request
from cometmq.wire.command import Command, request
from cometmq.wire.headers import CheckTransactionState, EndTransaction
from cometmq.wire.record import properties as wire_properties
from cometmq.wire.record.message import StoredMessage
from cometmq.wire.record.message_id import decode_offset_id
from tests.support.brokers import Peer, stored

UNKNOWN, COMMIT, ROLLBACK = 0, 8, 12
GROUP = "producers"
ROUND_S = 30.0


@dataclass(frozen=True, slots=True)
class HalfSent:
    """What a producer knows about a half of its own, or about one that it was asked for."""

    queue_offset: int
    physical_offset: int
    unique_id: str


async def send_half(
    peer: Peer, clock: ManualClock, *, body: bytes = b"money", queue_id: int = 0, **properties: Any
) -> HalfSent:
    names = {"TRAN_MSG": "true", "PGROUP": GROUP, "WAIT": "true", **properties}
    answer = await peer.send(
        "Pay", body, properties=names, queue_id=queue_id, born_timestamp=clock.now_ms(), sys_flag=4
    )
    assert answer.code == 0, answer.remark
    return HalfSent(
        int(answer.ext["queueOffset"]),
        decode_offset_id(answer.ext["msgId"]).physical_offset,
        answer.ext["transactionId"],
    )


def end_request(half: HalfSent, state: int, *, from_check: bool = False, **changed: Any) -> Command:
    fields: dict[str, Any] = {
        "producer_group": GROUP,
        "tran_state_table_offset": half.queue_offset,
        "commit_log_offset": half.physical_offset,
        "commit_or_rollback": state,
        "msg_id": half.unique_id,
        "transaction_id": half.unique_id,
        "from_transaction_check": from_check,
        **changed,
    }
    return request(Request.END_TRANSACTION, EndTransaction(**fields).encode())


async def end(peer: Peer, half: HalfSent, state: int, **changed: Any) -> int:
    """The code of the answer."""
    return (await peer.ask(end_request(half, state, **changed))).code


def questions(peer: Peer) -> list[HalfSent]:
    """What the peer was asked since the last time."""
    asked = [CheckTransactionState.decode(it.ext) for it in peer.asked if it.code == Request.CHECK_TRANSACTION_STATE]
    peer.asked.clear()
    return [HalfSent(it.tran_state_table_offset, it.commit_log_offset, it.msg_id or "") for it in asked]


async def be_asked(peer: Peer) -> list[HalfSent]:
    """Questions that are on their way have arrived: they were sent before the answer to this."""
    await peer.heartbeat()
    return questions(peer)


async def round_of(peer: Peer, clock: ManualClock, seconds: float = ROUND_S) -> list[HalfSent]:
    """Let time pass until a round was made, and see what was asked in it."""
    clock.advance(seconds)
    return await be_asked(peer)


def properties_of(message: StoredMessage) -> dict[str, str]:
    return wire_properties.decode(message.properties)


def unique_ids(broker: Broker, topic: str, queues: int = 1) -> list[str]:
    """Of all messages of a topic, in order."""
    return [properties_of(it)["UNIQ_KEY"] for queue_id in range(queues) for it in stored(broker, topic, queue_id)]


def halves(broker: Broker) -> list[StoredMessage]:
    return stored(broker, HALF_TOPIC)


async def killed(broker: Broker, directory: Path, target: Path) -> Path:
    """What `kill -9` would leave of a broker's directory now, but for files that were just being replaced."""
    await broker.tables.files.settle_all()
    shutil.copytree(directory, target)
    return target
