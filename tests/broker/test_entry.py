"""Tables of handlers: joined with a context, merged without a code that two serve."""

from pathlib import Path

import pytest

from cometmq.broker.entry import Entry, bound, merged
from cometmq.wire.codes import Request
from cometmq.wire.command import Command, reply, request
from tests.broker.running import running_broker
from tests.support.served import CODES, MODULES


def name_of(context: str, _connection: object, command: Command) -> Command:
    return reply(command, remark=context)


def test_a_handler_is_given_the_context_of_its_room() -> None:
    served = bound({10: Entry(name_of, "send")}, "produce")[10]
    answer = served.handler(object(), request(10, opaque=1))  # type: ignore[arg-type]
    assert isinstance(answer, Command)
    assert (answer.remark, served.family) == ("produce", "send")


def test_a_code_is_served_once() -> None:
    table = bound({10: Entry(name_of, "send")}, "produce")
    with pytest.raises(AssertionError, match=r"served twice: \[10\]"):
        merged(table, table)


async def test_a_broker_serves_the_tables_of_all_rooms_and_pulls_at_one_port(tmp_path: Path) -> None:
    assert sum(len(module.HANDLERS) for module in MODULES) == len(CODES)
    async with running_broker(tmp_path) as running:
        assert running.broker.rooms.handlers.keys() == CODES
        assert Request.PULL_MESSAGE in running.broker.server.dispatcher.routes
        assert Request.PULL_MESSAGE not in running.broker.fast_server.dispatcher.routes
