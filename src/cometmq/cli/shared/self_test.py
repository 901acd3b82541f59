"""The first message of a new queue: asked for a route, sent, pulled back, and its way timed.

`make run` shows it so that a newcomer sees the whole path work before writing a line of code.
"""

import time
from typing import Final

from cometmq.auth.signer import Signer
from cometmq.client.cluster.credentials import configured
from cometmq.errors import CometError
from cometmq.memory import resident_bytes
from cometmq.net.client import Client
from cometmq.net.tls import ClientTls
from cometmq.wire.bodies import TopicRoute
from cometmq.wire.codes import PullFlag, Request, Response
from cometmq.wire.command import Command, request
from cometmq.wire.headers import GetRoute, PullMessage, SendMessage, SendMessageResponse
from cometmq.wire.record.message import decode_records

TOPIC: Final = "Hello"
GROUP: Final = "hello"
DEFAULT_TOPIC: Final = "TBW102"
# A disk may stall for seconds; a first message that is late has still arrived.
LIMIT_S: Final = 15.0


async def say_hello(
    name_server: str, access_key: str = "", secret_key: str = "", *, tls: ClientTls | None = None
) -> str:
    """Send and receive one message by way of the name server; says how long it took. CometError if it failed.

    Without keys those of the environment are taken, if there are any."""
    keys = configured(access_key or None, secret_key or None)
    hooks = [Signer(keys.access_key, keys.secret_key, keys.security_token)] if keys is not None else []
    client = Client(tls=tls, hooks=hooks)
    try:
        began_s = time.perf_counter()
        broker = await _find_broker(client, name_server)
        body = f"hello at {time.time():.3f}".encode()
        stored = await _send(client, broker, body)
        received = await _receive(client, broker, stored)
        took_ms = (time.perf_counter() - began_s) * 1000
    finally:
        await client.stop()
    if received != body:
        raise CometError(f"sent {body!r} to {TOPIC}, received {received!r}")
    return f"one message to topic {TOPIC} and back in {took_ms:.1f} ms (id {stored.msg_id})"


async def _ask(client: Client, address: str, command: Command) -> Command:
    answer = await client.call(address, command, LIMIT_S)
    if answer.code != Response.SUCCESS:
        raise CometError(f"request {command.code} was answered with code {answer.code}: {answer.remark}")
    return answer


async def _find_broker(client: Client, name_server: str) -> str:
    header = GetRoute(topic=DEFAULT_TOPIC, accept_standard_json_only=True)
    answer = await _ask(client, name_server, request(Request.GET_ROUTEINFO_BY_TOPIC, header.encode()))
    route = TopicRoute.decode_answer(answer.body)
    return route.broker_datas[0].broker_addrs[0]


async def _send(client: Client, broker: str, body: bytes) -> SendMessageResponse:
    header = SendMessage(GROUP, TOPIC, DEFAULT_TOPIC, 4, 0, 0, int(time.time() * 1000), 0, "TAGS\x01first\x02")
    answer = await _ask(client, broker, request(Request.SEND_MESSAGE_V2, header.encode_v2(), body))
    return SendMessageResponse.decode(answer.ext)


async def _receive(client: Client, broker: str, stored: SendMessageResponse) -> bytes:
    header = PullMessage(
        GROUP, TOPIC, stored.queue_id, stored.queue_offset, 1, PullFlag.SUBSCRIPTION, 0, 0, 0, "*", "TAG"
    )
    answer = await _ask(client, broker, request(Request.PULL_MESSAGE, header.encode()))
    return decode_records(answer.body)[0].body


def memory_text() -> str:
    """Resident memory of this process, where the system tells."""
    resident = resident_bytes()
    return f"{resident / (1 << 20):.0f} MiB" if resident is not None else "unknown"
