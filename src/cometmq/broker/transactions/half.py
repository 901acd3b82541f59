"""Half messages: the forms that a message takes from its send to the end of its transaction.

    sent         TRAN_MSG=true      the producer's message
    half         half topic         REAL_TOPIC, REAL_QID, __transactionId__; no transaction bits, so it is in a queue
    copy         half topic         the half once more, at the end of its queue: TRANSACTION_CHECK_TIMES counts the
                                    rounds in which its producers were asked; TRAN_PREPARED_QUEUE_OFFSET is the queue
                                    offset of the first one, set while the message's own time to decide lasts
    committed    real topic         REAL_TOPIC and REAL_QID are gone, TRAN_MSG stays; commit bit; the log offset of
                                    the half that was committed
    given up     TRANS_CHECK_...    the half as it was, for an operator

All keep body, flag, born time and born host. Half and copies of one message are told by `Half.key`.

Everything here makes values of values; who puts them is in transactions.py.
"""

from __future__ import annotations

from typing import Final

from cometmq.names import GIVEN_UP_TOPIC, HALF_TOPIC, topic_fault
from cometmq.store.log.append import AppendRequest, copy_to
from cometmq.wire.codes import Request
from cometmq.wire.command import Command
from cometmq.wire.command import request as new_request
from cometmq.wire.headers import CheckTransactionState
from cometmq.wire.record.message import StoredMessage
from cometmq.wire.record.properties import Property, find, with_property, without
from cometmq.wire.record.sysflag import TRANSACTION_COMMIT, TRANSACTION_NONE, TRANSACTION_PREPARED, with_transaction

HALF_QUEUE: Final = 0
_OF_COPIES: Final = (Property.TRANSACTION_CHECK_TIMES, Property.TRAN_PREPARED_QUEUE_OFFSET)


def prepare(request: AppendRequest) -> None:
    """Turn a sent message into a half. It has a unique id by now."""
    unique_id = find(request.properties, Property.UNIQ_KEY)
    text = without(request.properties, Property.TRANSACTION_ID)
    if unique_id is not None:
        text = with_property(text, Property.TRANSACTION_ID, unique_id)
    text = with_property(text, Property.REAL_TOPIC, request.topic)
    request.properties = with_property(text, Property.REAL_QID, str(request.queue_id))
    request.sys_flag = with_transaction(request.sys_flag, TRANSACTION_NONE)
    request.topic = HALF_TOPIC
    request.queue_id = HALF_QUEUE


class Half:
    """A stored half or copy, read."""

    __slots__ = ("message", "properties")

    def __init__(self, message: StoredMessage) -> None:
        self.message = message
        self.properties = message.properties.decode("utf-8", "replace")

    # Reading

    @property
    def key(self) -> str:
        """The same for a half and its copies. A message that is sent twice has one unique id, but is born twice."""
        message = self.message
        unique_id = self.unique_id
        return f"{unique_id} {message.born_timestamp_ms}" if unique_id else f"at {message.physical_offset}"

    @property
    def unique_id(self) -> str:
        return find(self.properties, Property.UNIQ_KEY) or ""

    @property
    def group(self) -> str | None:
        return find(self.properties, Property.PGROUP)

    @property
    def real_topic(self) -> str:
        return find(self.properties, Property.REAL_TOPIC) or ""

    @property
    def real_queue_id(self) -> int:
        return _number(find(self.properties, Property.REAL_QID), -1)

    @property
    def is_whole(self) -> bool:
        """Whether it says where it should go."""
        return topic_fault(self.real_topic) is None and self.real_queue_id >= 0

    @property
    def is_copy(self) -> bool:
        """Whether a broker has put it, not its producer."""
        return any(find(self.properties, name) is not None for name in _OF_COPIES)

    @property
    def checks(self) -> int:
        """In how many rounds its producers were asked."""
        return _number(find(self.properties, Property.TRANSACTION_CHECK_TIMES), 0)

    @property
    def first_offset(self) -> int:
        """The queue offset that its producer knows as long as it was not asked."""
        return _number(find(self.properties, Property.TRAN_PREPARED_QUEUE_OFFSET), self.message.queue_offset)

    @property
    def own_time_ms(self) -> int | None:
        """How long its producer wants not to be asked; None if the broker's time holds, which -1 says as well."""
        seconds = _number(find(self.properties, Property.CHECK_IMMUNITY_TIME_IN_SECONDS), -1)
        return None if seconds < 0 else seconds * 1000

    def is_too_late(self, now_ms: int, timeout_ms: int) -> bool:
        """Whether its producer may no longer end it without being asked: it has set a time itself, and that is over."""
        if find(self.properties, Property.CHECK_IMMUNITY_TIME_IN_SECONDS) is None:
            return False
        return now_ms - self.message.born_timestamp_ms > max(self.own_time_ms or 0, timeout_ms)

    # The next form

    def committed(self) -> AppendRequest:
        """What consumers get. It waits for disk and replicas as its sender wished."""
        text = self.properties
        for name in (Property.REAL_TOPIC, Property.REAL_QID):
            text = without(text, name)
        request = copy_to(self.message, self.real_topic, self.real_queue_id, text)
        request.sys_flag = with_transaction(request.sys_flag, TRANSACTION_COMMIT)
        request.prepared_offset = self.message.physical_offset
        request.wait = find(text, Property.WAIT) != "false"
        return request

    def copy(self, checks: int) -> AppendRequest:
        text = with_property(self.properties, Property.TRANSACTION_CHECK_TIMES, str(checks))
        return copy_to(self.message, HALF_TOPIC, self.message.queue_id, text)

    def immune_copy(self) -> AppendRequest:
        """RocketMQ raises the number of checks here too, and so gives up a message with a long time of its own
        without having asked for it once."""
        text = with_property(self.properties, Property.TRAN_PREPARED_QUEUE_OFFSET, str(self.first_offset))
        return copy_to(self.message, HALF_TOPIC, self.message.queue_id, text)

    def as_sent(self) -> AppendRequest:
        """As its producer sent it, for another broker, which asks from now on."""
        request = self.committed()
        for name in _OF_COPIES:
            request.properties = without(request.properties, name)
        request.sys_flag = with_transaction(request.sys_flag, TRANSACTION_PREPARED)
        return request

    def given_up(self) -> AppendRequest:
        return copy_to(self.message, GIVEN_UP_TOPIC, 0, self.properties)

    def resumed(self) -> AppendRequest:
        """From the given up ones back to the halves, as if never asked for."""
        request = self.copy(0)
        request.queue_id = HALF_QUEUE
        return request


def question(half: Half, copy: AppendRequest, queue_offset: int, physical_offset: int, offset_id: str,
             broker_name: str) -> Command:  # fmt: skip
    """What a producer of the group is asked: the message as it sent it, and the place of the newest copy, which its
    answer must name."""
    old = half.message
    body = StoredMessage(
        0,
        0,
        old.body_crc,
        half.real_queue_id,
        old.flag,
        queue_offset,
        physical_offset,
        old.sys_flag,
        old.born_timestamp_ms,
        old.born_host,
        old.store_timestamp_ms,
        old.store_host,
        old.reconsume_times,
        old.prepared_transaction_offset,
        old.body,
        half.real_topic,
        copy.properties.encode(),
    )
    header = CheckTransactionState(
        tran_state_table_offset=queue_offset,
        commit_log_offset=physical_offset,
        topic=HALF_TOPIC,
        msg_id=half.unique_id,
        transaction_id=half.unique_id,
        offset_msg_id=offset_id,
        broker_name=broker_name,
    )
    return new_request(Request.CHECK_TRANSACTION_STATE, header.encode(), body.encode())


def _number(text: str | None, default: int) -> int:
    """A property of a message may be anything; what is no number of a record's size counts as absent."""
    if text is None or len(text) > 19 or not text.isascii() or not text.isdigit():
        return default
    return int(text)
