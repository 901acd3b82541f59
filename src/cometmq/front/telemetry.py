"""The stream on which a client says what it is, and the server asks it.

    client: settings                  answered with the same, completed; again every five minutes
            thread_stack_trace, verify_message_result    answers, see commands.py
    server: commands.py

Settings that cannot be end the stream with a status of gRPC. A client that may not do what its settings say is told so
on the stream, which then ends as it should.
"""

from __future__ import annotations

from typing import Final

from cometmq.errors import CometError
from cometmq.front import clients
from cometmq.front.backend import Wanted
from cometmq.front.call import BAD_MAX, Call
from cometmq.front.refusals import refused, status
from cometmq.wire.grpc import messages_pb2 as pb
from cometmq.wire.http2.frames import INTERNAL, INVALID_ARGUMENT

COMMAND_BYTES_MAX: Final = 1 << 20


def take(call: Call, data: bytes) -> None:
    """One command of a client."""
    if len(data) > COMMAND_BYTES_MAX:
        end(call, INVALID_ARGUMENT, f"a command of {len(data)} bytes, at most {COMMAND_BYTES_MAX} are allowed")
        return
    command = pb.TelemetryCommand.FromString(data)
    if not call.client_id.strip():
        _say(call, pb.TelemetryCommand(status=status(pb.CLIENT_ID_REQUIRED)))
        end(call)
        return
    kind = command.WhichOneof("command")
    if kind == "settings":
        call.request = command
        settle(call)
    elif kind == "thread_stack_trace":
        call.desk.questions.answered(command.thread_stack_trace.nonce, command)
    elif kind == "verify_message_result":
        call.desk.questions.answered(command.verify_message_result.nonce, command)


def settle(call: Call) -> None:
    given: pb.Settings = call.request.settings
    if not given.HasField("publishing") and not given.HasField("subscription"):
        end(call, INVALID_ARGUMENT, "settings have neither publishing nor subscription")
        return
    try:
        clients.check_settings(call, given)
        kept = clients.settle(call, given)
    except Wanted as wanted:
        call.load(wanted)
        return
    except CometError as error:
        why = refused(error)
        if why.code == pb.UNAUTHORIZED:
            _say(call, pb.TelemetryCommand(status=status(why.code, str(why))))
            end(call)
            return
        end(call, INVALID_ARGUMENT if why.code < BAD_MAX else INTERNAL, f"settings are refused: {why}")
        return
    _say(call, pb.TelemetryCommand(status=status(pb.OK), settings=kept))


def _say(call: Call, command: pb.TelemetryCommand) -> None:
    call.connection.session.send(call.stream, command.SerializeToString())
    call.connection.flush_soon()


def end(call: Call, code: int = 0, text: str = "") -> None:
    call.connection.session.finish(call.stream, code, text)
    call.connection.flush_soon()
