"""What a server asks of a client, over its telemetry stream.

    CHECK_TRANSACTION_STATE      recover_orphaned_transaction_command; the answer is an EndTransaction, some time
    CONSUME_MESSAGE_DIRECTLY     verify_message_command; the answer has the same nonce
    GET_CONSUMER_RUNNING_INFO    print_thread_stack_trace_command, if stacks are asked for; the same

An answer that comes after its time is dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from cometmq.errors import CallTimeout, WireError
from cometmq.front import deliver
from cometmq.wire.bodies import ConsumeMessageDirectlyResult, ConsumerRunningInfo, SubscriptionData
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import Command, reply
from cometmq.wire.grpc import messages_pb2 as pb
from cometmq.wire.headers import CheckTransactionState, GetConsumerRunningInfo
from cometmq.wire.record.message import decode_record

if TYPE_CHECKING:
    from cometmq.front.client import Client

logger = logging.getLogger(__name__)

RELAY_LIMIT_S: Final = 5.0
# What came of a message that a client was made to handle.
RESULTS: Final = {
    pb.OK: "CR_SUCCESS",
    pb.FAILED_TO_CONSUME_MESSAGE: "CR_LATER",
    pb.MESSAGE_CORRUPTED: "CR_RETURN_NULL",
}


def check_transaction(client: Client, command: Command) -> None:
    """The question of the broker, and where its answer must go to."""
    header = CheckTransactionState.decode(command.ext)
    message = decode_record(command.body, check_crc=False)
    transaction_id = header.transaction_id or ""
    client.desk.halves.note(message.topic, transaction_id, header)
    found = deliver.message_of(message, message.topic, "", attempt=1)
    question = pb.RecoverOrphanedTransactionCommand(message=found, transaction_id=transaction_id)
    client.write(pb.TelemetryCommand(recover_orphaned_transaction_command=question))


async def relay(client: Client, command: Command, timeout_s: float) -> Command:
    if command.code == Request.CONSUME_MESSAGE_DIRECTLY:
        return await _consume_directly(client, command, min(timeout_s, RELAY_LIMIT_S))
    if command.code == Request.GET_CONSUMER_RUNNING_INFO:
        return await _running_info(client, command, min(timeout_s, RELAY_LIMIT_S))
    return reply(command, Response.REQUEST_CODE_NOT_SUPPORTED, "a client that speaks gRPC cannot be asked for that")


async def _consume_directly(client: Client, command: Command, timeout_s: float) -> Command:
    try:
        message = decode_record(command.body, check_crc=False)
    except WireError as error:
        return reply(command, Response.SYSTEM_ERROR, f"the message cannot be read: {error}")
    began_ms = client.desk.backend.now_ms()
    found = deliver.message_of(message, message.topic, "", attempt=message.reconsume_times + 1)
    answer = await ask(client, lambda nonce: pb.TelemetryCommand(
        verify_message_command=pb.VerifyMessageCommand(nonce=nonce, message=found)), timeout_s)  # fmt: skip
    result = ConsumeMessageDirectlyResult(
        consume_result=RESULTS.get(answer.status.code, "CR_THROW_EXCEPTION"),
        remark=answer.status.message or "from a gRPC client",
        spent_time_ms=client.desk.backend.now_ms() - began_ms,
    )
    return reply(command, body=result.encode())


async def _running_info(client: Client, command: Command, timeout_s: float) -> Command:
    stacks = ""
    if GetConsumerRunningInfo.decode(command.ext).jstack_enable:
        answer = await ask(client, lambda nonce: pb.TelemetryCommand(
            print_thread_stack_trace_command=pb.PrintThreadStackTraceCommand(nonce=nonce)), timeout_s)  # fmt: skip
        stacks = answer.thread_stack_trace.thread_stack_trace
    info = ConsumerRunningInfo(
        jstack=stacks or None,
        properties={"PROP_CLIENT_VERSION": client.settings.user_agent.version, "PROP_CONSUME_TYPE": "gRPC"},
        subscription_set=[
            SubscriptionData(topic=it.topic.name, sub_string=it.expression.expression)
            for it in client.settings.subscription.subscriptions
        ],
    )
    return reply(command, body=info.encode())


async def ask(client: Client, command: Callable[[str], pb.TelemetryCommand], timeout_s: float) -> pb.TelemetryCommand:
    """Raises CallError."""
    questions = client.desk.questions
    nonce, future = questions.open()
    try:
        client.write(command(nonce))
        return await asyncio.wait_for(future, timeout_s)
    except TimeoutError:
        raise CallTimeout(f"client {client.id} has not answered within {timeout_s:.0f} s") from None
    finally:
        questions.waiting.pop(nonce, None)
