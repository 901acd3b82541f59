"""What must be on disk before a message may be acked: the topic and the group without which nobody could read it.

    handler    topic (or group) is in `unsaved`?   no, as nearly always: one look at an empty table, put, answer
                                                   yes: park what is left to do
    saver      has written the table               parked work is done, in the order in which it came
               cannot write it                     parked work is refused, and nothing was stored

So a message for a topic that comes into being is not stored before the file has the topic, and what follows it to the
same topic waits behind it. Topics that are in the file already never wait. One write serves all that came meanwhile.

A topic whose table cannot be saved stays in memory, and so does the refusal: each message for it makes another try, as
does the saver every few seconds, and the first that succeeds lets all of them pass.

What the broker itself moves to a new topic (revived pops, halves that it gives up) does not wait: no ack rests on it,
and a topic that a crash took is made again at the next start, see rebuild.py.

What is parked has bounds, because one-way requests are counted nowhere else. Much parked work is done in turns, so that
others are served in between.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from cometmq.broker.tables.files import GROUPS, TOPICS, TableFiles
from cometmq.broker.tables.groups import Groups
from cometmq.broker.tables.topics import Topics
from cometmq.errors import RequestError, StoreError
from cometmq.wire.codes import Response

logger = logging.getLogger(__name__)

PARKED_MAX: Final = 10_000
PARKED_BYTES_MAX: Final = 64 << 20
PER_TURN: Final = 200

# Given "" when the tables are saved, else why they cannot be.
Act = Callable[[str], object]


class Parked:
    __slots__ = ("act", "size_bytes", "topics_needed", "groups_needed")

    def __init__(self, act: Act, size_bytes: int, topics_needed: int, groups_needed: int) -> None:
        self.act = act
        self.size_bytes = size_bytes
        self.topics_needed = topics_needed
        self.groups_needed = groups_needed


class Settling:
    """`soon` schedules a callback after the current one; `disk_use` says how full the disk is, for refusals."""

    def __init__(
        self,
        topics: Topics,
        groups: Groups,
        files: TableFiles,
        soon: Callable[[Callable[[], None]], object],
        disk_use: Callable[[], str],
    ) -> None:
        self.parked_bytes: int = 0
        self._topics = topics
        self._groups = groups
        self._files = files
        self._soon = soon
        self._disk_use = disk_use
        self._parked: deque[Parked] = deque()
        self._refused: deque[tuple[Parked, str]] = deque()
        self._is_draining: bool = False
        # How many changes of the tables are in their files.
        self._topics_saved: int = 0
        self._groups_saved: int = 0
        files.subscribe(TOPICS, self._saved_topics, self._failed)
        files.subscribe(GROUPS, self._saved_groups, self._failed)

    @property
    def parked(self) -> int:
        return len(self._parked)

    def holds(self, topic: str, group: str = "") -> bool:
        """Whether a message for this topic, or by this group, has to wait."""
        return topic in self._topics.unsaved or group in self._groups.unsaved

    def park(self, act: Act, size_bytes: int) -> None:
        """Do this once what has changed so far is saved. RequestError if too much waits."""
        if len(self._parked) >= PARKED_MAX or self.parked_bytes + size_bytes > PARKED_BYTES_MAX:
            raise RequestError(
                Response.SYSTEM_BUSY,
                f"[OVERLOAD]{len(self._parked)} messages of {self.parked_bytes} bytes wait until new topics are saved, "
                f"the bounds are {PARKED_MAX} and {PARKED_BYTES_MAX}",
            )
        topics_needed = max(self._topics.unsaved.values(), default=0)
        groups_needed = max(self._groups.unsaved.values(), default=0)
        self._parked.append(Parked(act, size_bytes, topics_needed, groups_needed))
        self.parked_bytes += size_bytes
        if self._is_ready(self._parked[0]):
            self._drain_soon()
        else:
            self._save()

    async def settle(self, topic: str, group: str = "") -> str:
        """For those who may wait: "" as soon as `holds` says no, else why the tables cannot be saved."""
        if not self.holds(topic, group):
            return ""
        done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.park(partial(_resolve, done), 0)
        return await done

    def check(self, topic: str, failure: str) -> None:
        """For those who have waited: RequestError if the tables cannot be saved, or the topic was deleted meanwhile."""
        if failure:
            raise RequestError(
                Response.SERVICE_NOT_AVAILABLE,
                f"nothing was stored: topic {topic} or its group is new or has changed, which cannot be saved: "
                f"{failure}",
            )
        if self._topics.get(topic) is None:
            raise RequestError(Response.TOPIC_NOT_EXIST, f"topic {topic} was deleted while the message waited")

    def _save(self) -> None:
        if self._topics.unsaved:
            self._files.save_soon(TOPICS)
        if self._groups.unsaved:
            self._files.save_soon(GROUPS)

    # Said by the savers

    def _saved_topics(self, changes: int) -> None:
        self._topics_saved = changes
        self._go_on()

    def _saved_groups(self, changes: int) -> None:
        self._groups_saved = changes
        self._go_on()

    def _failed(self, error: StoreError) -> None:
        remark = f"{error}; {self._disk_use()}"
        self._refused.extend((parked, remark) for parked in self._parked)
        self._parked.clear()
        self.parked_bytes = 0
        self._go_on()

    # Doing what was parked

    def _go_on(self) -> None:
        if not self._is_draining:
            self._drain()

    def _drain_soon(self) -> None:
        if not self._is_draining:
            self._is_draining = True
            self._soon(self._drain)

    def _drain(self) -> None:
        """A turn. While anything is left topics stay unsaved: what arrives now queues up behind it."""
        self._is_draining = True
        for _ in range(PER_TURN):
            if self._refused:
                parked, remark = self._refused.popleft()
            elif self._parked and self._is_ready(self._parked[0]):
                parked, remark = self._parked.popleft(), ""
                self.parked_bytes -= parked.size_bytes
            else:
                break
            try:
                parked.act(remark)
            except Exception:
                logger.exception("fail parked request")
        self._is_draining = False
        if self._refused or (self._parked and self._is_ready(self._parked[0])):
            self._drain_soon()
        elif not self._parked:
            self._topics.saved(self._topics_saved)
            self._groups.saved(self._groups_saved)

    def _is_ready(self, parked: Parked) -> bool:
        return parked.topics_needed <= self._topics_saved and parked.groups_needed <= self._groups_saved


def _resolve(done: asyncio.Future[str], remark: str) -> None:
    if not done.done():
        done.set_result(remark)
