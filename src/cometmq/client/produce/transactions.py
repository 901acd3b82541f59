"""Transactions: a message that becomes visible exactly if the program's own work succeeded.

    begin    the message is stored as a half, which nobody sees
    body     the program's own work
    end      commit or roll back, one-way; if that is lost, the broker asks later and `check` decides

    async with producer.begin("orders", order, keys=["7"]) as transaction:
        await save(order)                     leaving commits, raising rolls back
        transaction.unknown()                 leaves it to `check`

A half that is stored but not confirmed (flush or replica trouble) is rolled back, and begin raises: the work must not
be done. `check` may be asked by any broker about a half of any producer of the group, at any time, more than once.
"""

import asyncio
import enum
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final, Generic, TypeAlias, TypeVar, Unpack

from cometmq.client.cluster.instance import Instance
from cometmq.client.cluster.namespaces import strip
from cometmq.client.codecs import Codec, encode_value
from cometmq.client.messages import Message, SendReceipt, received
from cometmq.client.options import ProducerOptions
from cometmq.client.produce.outgoing import MessageKeywords
from cometmq.client.produce.producer import Producer
from cometmq.client.traces import add_transaction_end
from cometmq.errors import BrokerError, CometError, ConfigError
from cometmq.wire.codes import Request
from cometmq.wire.headers import CheckTransactionState, EndTransaction
from cometmq.wire.record import properties as wire_properties
from cometmq.wire.record.message import StoredMessage
from cometmq.wire.record.message_id import decode_offset_id
from cometmq.wire.record.properties import Property
from cometmq.wire.record.sysflag import TRANSACTION_COMMIT, TRANSACTION_NONE, TRANSACTION_ROLLBACK

logger = logging.getLogger(__name__)

T = TypeVar("T")

CHECK_LIMIT_S: Final = 3.0


class Tx(enum.Enum):
    """What becomes of a half message. UNKNOWN: the broker asks again later."""

    COMMIT = TRANSACTION_COMMIT
    ROLLBACK = TRANSACTION_ROLLBACK
    UNKNOWN = TRANSACTION_NONE


Check: TypeAlias = Callable[[Message[T]], "Tx | Awaitable[Tx]"]


class Transaction(Generic[T]):
    """A half message while its program's work is done."""

    def __init__(self, message: Message[T], receipt: SendReceipt) -> None:
        self.message = message
        self.receipt = receipt
        self.state = Tx.COMMIT

    def rollback(self) -> None:
        """Roll back on leaving, without an exception."""
        self.state = Tx.ROLLBACK

    def unknown(self) -> None:
        """Decide nothing on leaving: `check` will be asked."""
        self.state = Tx.UNKNOWN


class TransactionProducer(Producer[T]):
    """`check` says what became of a transaction; a plain function runs in a thread. At most `check_concurrency` of
    them run at a time, and `check_waiting_max` wait; what comes then is dropped, because the broker asks again."""

    def __init__(
        self,
        group: str,
        codec: Codec[T],
        check: Check[T],
        options: ProducerOptions | None = None,
        *,
        instance: Instance | None = None,
        namesrv: str | None = None,
        check_concurrency: int = 1,
        check_waiting_max: int = 2000,
    ) -> None:
        if not callable(check):
            raise ConfigError("a transaction producer needs check=: a function from a message to Tx")
        super().__init__(group, codec, options, instance=instance, namesrv=namesrv)
        self._check = check
        self._check_slots = asyncio.Semaphore(check_concurrency)
        self._check_waiting_max = check_waiting_max
        self._checks = 0

    @asynccontextmanager
    async def begin(
        self,
        topic: str,
        value: T,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - one budget for all attempts, and its own error
        **message: Unpack[MessageKeywords],
    ) -> AsyncIterator[Transaction[T]]:
        """Store a half message; end it with whatever happens inside."""
        transaction = await self._begin(topic, value, timeout, message)
        try:
            yield transaction
        except BaseException:
            # Also when cancelled: whoever did not come to the end did not do the work.
            await self._end_quietly(transaction, Tx.UNKNOWN if transaction.state is Tx.UNKNOWN else Tx.ROLLBACK)
            raise
        await self._end_quietly(transaction, transaction.state)

    async def _begin(
        self, topic: str, value: T, timeout: float | None, message: MessageKeywords  # noqa: ASYNC109
    ) -> Transaction[T]:
        self._need_running()
        if any(message.get(name) is not None for name in ("delay", "delay_level", "deliver_at")):
            raise ConfigError("a transaction cannot be delayed: send a delayed message after it")
        system = {Property.TRAN_MSG: "true", Property.PGROUP: self.group}
        outgoing = self._composer.compose(topic, encode_value(self.codec, value), system=system, **message)
        limit_s = self.options.timeout if timeout is None else timeout
        receipt = await self._sender.send(outgoing, None, limit_s, self.options.retries)
        properties = wire_properties.decode_text(outgoing.properties)
        if receipt.transaction_id:
            properties[Property.TRANSACTION_ID] = receipt.transaction_id
        half = Message(
            topic,
            outgoing.body,
            value,
            properties,
            outgoing.id,
            receipt.offset_id,
            receipt.queue,
            receipt.offset,
            born_ms=outgoing.born_ms,
        )
        transaction = Transaction(half, receipt)
        if not receipt.is_confirmed:
            await self._end_quietly(transaction, Tx.ROLLBACK)
            raise BrokerError(
                _CODES[receipt.status.value],
                f"the half message is stored but not confirmed ({receipt.status.value}); it is rolled back",
                receipt.queue.broker_name,
            )
        return transaction

    async def _end_quietly(self, transaction: Transaction[T], state: Tx) -> None:
        """One-way to the broker that has the half. A failure is repaired by its check."""
        receipt = transaction.receipt
        header = EndTransaction(
            producer_group=self.group,
            tran_state_table_offset=receipt.offset,
            commit_log_offset=decode_offset_id(receipt.offset_id).physical_offset,
            commit_or_rollback=state.value,
            msg_id=receipt.id,
            transaction_id=receipt.transaction_id,
            from_transaction_check=False,
            topic=self._composer.wire_topic(receipt.topic),
            broker_name=receipt.queue.broker_name,
        )
        try:
            address = await self.instance.master(receipt.queue.broker_name, header.topic)
            self._trace_end(receipt.topic, transaction.message.properties, address, header)
            await self._tell(address, header, self.options.timeout)
        except CometError as error:
            logger.warning("fail end of transaction message=%s state=%s cause=%s", receipt.id, state.name, error)

    async def _tell(self, address: str, header: EndTransaction, limit_s: float) -> None:
        command = self.instance.request(Request.END_TRANSACTION, header.encode())
        await self.instance.net.send_oneway(address, command, limit_s)

    def _trace_end(self, topic: str, properties: Mapping[str, str], address: str, header: EndTransaction) -> None:
        if self._tracer is not None:
            add_transaction_end(self._tracer, topic, properties, address, header)

    # Asked by a broker

    def on_check(self, address: str, header: CheckTransactionState, message: StoredMessage) -> None:
        if self._checks >= self._check_waiting_max:
            logger.warning("drop check message=%s: %d wait, the bound", header.msg_id, self._checks)
            return
        self._checks += 1
        self.instance.spawn(self._answer_check(address, header, message))

    async def _answer_check(self, address: str, header: CheckTransactionState, stored: StoredMessage) -> None:
        try:
            async with self._check_slots:
                state = await self._decide(header, stored)
            properties = wire_properties.decode(stored.properties)
            answer = EndTransaction(
                producer_group=self.group,
                tran_state_table_offset=header.tran_state_table_offset,
                commit_log_offset=header.commit_log_offset,
                commit_or_rollback=state.value,
                msg_id=properties.get(Property.UNIQ_KEY) or header.msg_id or "",
                transaction_id=header.transaction_id,
                from_transaction_check=True,
                topic=properties.get(Property.REAL_TOPIC) or stored.topic,
                broker_name=header.broker_name,
            )
            self._trace_end(strip(self.instance.namespace, answer.topic or ""), properties, address, answer)
            await self._tell(address, answer, CHECK_LIMIT_S)
        except CometError as error:
            logger.warning("fail answer to check message=%s cause=%s", header.msg_id, error)
        finally:
            self._checks -= 1

    async def _decide(self, header: CheckTransactionState, stored: StoredMessage) -> Tx:
        """What `check` says; whatever goes wrong means UNKNOWN."""
        try:
            message = received(stored, header.broker_name or "", self.codec, self.instance.namespace)
            if inspect.iscoroutinefunction(self._check):
                decided: object = await self._check(message)
            else:
                decided = await asyncio.to_thread(self._check, message)
                if inspect.isawaitable(decided):
                    decided = await decided
        except Exception:
            logger.exception("fail check message=%s", header.msg_id)
            return Tx.UNKNOWN
        if not isinstance(decided, Tx):
            logger.error("fail check message=%s: it returned %r, not a Tx", header.msg_id, decided)
            return Tx.UNKNOWN
        return decided


_CODES: Final = {"FLUSH_DISK_TIMEOUT": 10, "SLAVE_NOT_AVAILABLE": 11, "FLUSH_SLAVE_TIMEOUT": 12}
