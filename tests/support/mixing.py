"""A load of all kinds of messages, and what became of each: for tests that kill the broker under it.

A message is known by its body, which is also its unique key: `<kind>-<number>`. What happens to it is decided before it
is sent, so a broker that asks about a transaction after its sender was cut off gets the same answer.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field

from cometmq.errors import CometError
from cometmq.wire.codes import Request
from cometmq.wire.headers import CheckTransactionState
from cometmq.wire.record.message import StoredMessage
from cometmq.wire.record.message_id import decode_offset_id
from tests.support.brokers import Peer
from tests.support.transacting import COMMIT, GROUP, ROLLBACK, HalfSent, end_request

TOPIC = "Mixed"
LEVELS_S = (1, 2, 3)
TIMER_MS_MAX = 4_000
SENDERS = 4
# Of a call to a broker that is about to be killed.
CALL_S = 20.0
KINDS = ("plain", "level", "timer", "committed", "removed")


@dataclass(slots=True)
class Fate:
    """`due_ms`: not before. `is_acked`: the broker has promised it."""

    body: str
    kind: str
    due_ms: int
    is_acked: bool = False


@dataclass(slots=True)
class Mix:
    chance: random.Random
    fates: dict[str, Fate] = field(default_factory=dict)
    asked: int = 0

    # Sending

    async def load(self, peer: Peer) -> None:
        """Until it is cancelled, or the broker is gone."""
        await peer.heartbeat()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._answer(peer))
                for _ in range(SENDERS):
                    group.create_task(self._send_all(peer))
        except* (CometError, OSError):
            pass

    async def _send_all(self, peer: Peer) -> None:
        while True:
            await self._send(peer, self.chance.choice(KINDS))
            await asyncio.sleep(self.chance.random() * 0.02)

    async def _send(self, peer: Peer, kind: str) -> None:
        body = f"{kind}-{len(self.fates)}"
        delay_ms, extra = self._plan(kind)
        fate = self.fates[body] = Fate(body, kind, now_ms() + delay_ms)
        is_half = kind in ("committed", "removed")
        extra |= {"UNIQ_KEY": body, "PGROUP": GROUP}
        answer = await peer.send(
            TOPIC, body.encode(), properties=extra, born_timestamp=now_ms(), sys_flag=4 if is_half else 0
        )
        assert answer.code == 0, f"{answer.code}: {answer.remark}"
        fate.is_acked = True
        if is_half and self.chance.random() < 0.7:
            place = decode_offset_id(answer.ext["msgId"]).physical_offset
            half = HalfSent(int(answer.ext["queueOffset"]), place, body)
            await self._end(peer, half, from_check=False)

    def _plan(self, kind: str) -> tuple[int, dict[str, str]]:
        """By how much it is delayed at least, and what has to be said for that."""
        if kind == "level":
            level = self.chance.randint(1, len(LEVELS_S))
            return LEVELS_S[level - 1] * 1000, {"DELAY": str(level)}
        if kind == "timer":
            delay_ms = self.chance.randint(1, TIMER_MS_MAX)
            return delay_ms, {"TIMER_DELAY_MS": str(delay_ms)}
        return 0, {} if kind == "plain" else {"TRAN_MSG": "true"}

    # Deciding

    async def answer_questions(self, peer: Peer) -> int:
        """How many there were."""
        checks = [it for it in peer.asked if it.code == Request.CHECK_TRANSACTION_STATE]
        peer.asked.clear()
        for check in checks:
            it = CheckTransactionState.decode(check.ext)
            half = HalfSent(it.tran_state_table_offset, it.commit_log_offset, it.msg_id or "")
            await self._end(peer, half, from_check=True)
        self.asked += len(checks)
        return len(checks)

    async def _answer(self, peer: Peer) -> None:
        while True:
            await self.answer_questions(peer)
            await asyncio.sleep(0.02)

    async def _end(self, peer: Peer, half: HalfSent, from_check: bool) -> None:
        state = COMMIT if self.fates[half.unique_id].kind == "committed" else ROLLBACK
        await peer.ask(end_request(half, state, from_check=from_check), CALL_S)

    # Judging

    def missing(self, found: dict[str, list[int]]) -> list[str]:
        """What was promised and is not there."""
        wanted = (fate.body for fate in self.fates.values() if fate.is_acked and fate.kind != "removed")
        return [body for body in wanted if body not in found]

    def faults(self, found: dict[str, list[int]]) -> list[str]:
        """What is there and should not be, or not yet."""
        faults = []
        for body, times_ms in found.items():
            fate = self.fates.get(body)
            if fate is None:
                faults.append(f"{body} was never sent")
            elif fate.kind == "removed":
                faults.append(f"{body} was rolled back")
            elif min(times_ms) < fate.due_ms:
                faults.append(f"{body} is {fate.due_ms - min(times_ms)} ms early")
            elif fate.kind == "plain" and len(times_ms) > 1:
                faults.append(f"{body} is there {len(times_ms)} times")
        return faults


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def read_queue(peer: Peer) -> dict[str, list[int]]:
    """When each message was stored in the topic, by body; more than one time for one that is there twice."""
    found: dict[str, list[int]] = {}
    offset = 0
    while messages := await peer.pull_messages(TOPIC, offset=offset, group="judges"):
        offset += len(messages)
        for message in messages:
            found.setdefault(message.body.decode(), []).append(_stored_ms(message))
    return found


def _stored_ms(message: StoredMessage) -> int:
    return message.store_timestamp_ms
