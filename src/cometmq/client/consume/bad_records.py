"""Records that cannot be read: a CRC that does not fit, or bytes that are no record. They must not block their queue.

    an answer cannot be read       the queue is pulled message by message, so that those in front of it are handled
    it is the next message         pulled again, `bad_record_tries` times in all: perhaps the way damaged it
    still                          set aside, an ERROR in the log with the place, and the queue goes on behind it

Set aside means: the bytes as they came, in a file

    <directory>/GROUP/TOPIC-BROKER-QUEUE-OFFSET.record       directory: COMETMQ_BAD_RECORDS, or ~/.cometmq/bad-records

at most `KEPT_MAX` for a group; the broker's log has the record anyway. `bad_records="block"` keeps the queue where it
is, with one ERROR when the tries are over, until somebody mends the log or moves the group.
"""

import logging
import os
from pathlib import Path
from typing import Final

from cometmq.client.consume.pull_request import Unreadable
from cometmq.names import path_part, readable_part
from cometmq.wire.bodies import MessageQueue

logger = logging.getLogger(__name__)

BLOCK: Final = "block"
KEPT_MAX: Final = 1000
DIRECTORY_VARIABLE: Final = "COMETMQ_BAD_RECORDS"


class BadRecords:
    """Of one queue."""

    __slots__ = ("_choice", "_group", "_queue", "_tries", "_tries_max", "at")

    def __init__(self, group: str, queue: MessageQueue, tries_max: int, choice: str) -> None:
        self._group = group
        self._queue = queue
        self._tries_max = tries_max
        self._choice = choice
        self._tries = 0
        # Where messages are pulled one by one; -1: everything can be read.
        self.at = -1

    def count_max(self, usual: int) -> int:
        """How many messages the next pull may bring."""
        return usual if self.at < 0 else 1

    def passed(self, next_offset: int) -> None:
        """An answer could be read. Those behind it have been in the answer that could not."""
        self._tries = 0
        if next_offset > self.at:
            self.at = -1

    def failed(self, error: Unreadable, offset: int, asked: int) -> int | None:
        """The pull of `asked` messages from `offset` on cannot be read. Where to go on, None: there, again."""
        if asked > 1:
            # All that was asked for may come before the bad one.
            self.at, self._tries = offset + asked - 1, 0
            return None
        self._tries += 1
        self.at = max(self.at, offset)
        if self._tries < self._tries_max:
            return None
        if self._choice == BLOCK:
            if self._tries == self._tries_max:
                logger.error(
                    "block queue group=%s topic=%s broker=%s queue=%d offset=%d cause=%r: its record cannot be read; "
                    "move the group behind it (cometmq group seek), or set bad_records=skip",
                    self._group, self._queue.topic, self._queue.broker_name, self._queue.queue_id, offset, str(error),
                )  # fmt: skip
            return None
        following = max(error.next_offset, offset + 1)
        logger.error(
            "pass over record group=%s topic=%s broker=%s queue=%d offset=%d next=%d tries=%d file=%s cause=%r",
            self._group, self._queue.topic, self._queue.broker_name, self._queue.queue_id, offset, following,
            self._tries, self._set_aside(offset, error.body), str(error),
        )  # fmt: skip
        self._tries = 0
        return following

    def _set_aside(self, offset: int, body: bytes) -> Path | str:
        """The file, or why there is none: that must not block the queue, too."""
        queue = self._queue
        try:
            folder = directory() / path_part(self._group)
            folder.mkdir(parents=True, exist_ok=True)
            if len(os.listdir(folder)) >= KEPT_MAX:
                return f"none, {folder} has {KEPT_MAX} already"
            name = f"{readable_part(queue.topic)}-{readable_part(queue.broker_name)}-{queue.queue_id}-{offset}.record"
            (folder / name).write_bytes(body)
            return folder / name
        except OSError as error:
            return f"none, {error}"


def directory() -> Path:
    given = os.environ.get(DIRECTORY_VARIABLE)
    return Path(given) if given else Path.home() / ".cometmq" / "bad-records"
