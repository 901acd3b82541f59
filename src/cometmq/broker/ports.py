"""The two ports of a broker, and the page of metrics and health. The second port, two below the first, serves the same
requests but no pulls."""

from typing import Final

from cometmq.broker.access.control import AccessControl
from cometmq.broker.config import BrokerConfig
from cometmq.broker.rooms import Rooms
from cometmq.clock import Clock
from cometmq.net.dispatch import Dispatcher
from cometmq.net.limits import Limits
from cometmq.net.seen import Seen
from cometmq.net.server import Server
from cometmq.net.tls import TlsSettings
from cometmq.wire.codes import Request

# Pulls and their kin are for the main port only.
MAIN_PORT_ONLY: Final = frozenset(
    (
        Request.PULL_MESSAGE,
        Request.LITE_PULL_MESSAGE,
        Request.PEEK_MESSAGE,
        Request.POP_MESSAGE,
        Request.NOTIFICATION,
        Request.POLLING_INFO,
    )
)


def make_seen(config: BrokerConfig, clock: Clock) -> Seen:
    """Where RocketMQ's exporter listens: at brokerIP1, else where the ports are."""
    return Seen(config, clock, config.broker_ip1 or config.bind_address)


def make_servers(config: BrokerConfig, clock: Clock, rooms: Rooms, access: AccessControl) -> tuple[Server, Server]:
    """For the main port, and for the other one."""
    return (
        _make_server(config, clock, rooms, access, frozenset()),
        _make_server(config, clock, rooms, access, MAIN_PORT_ONLY),
    )


def _make_server(
    config: BrokerConfig, clock: Clock, rooms: Rooms, access: AccessControl, leave_out: frozenset[int]
) -> Server:
    dispatcher = Dispatcher()
    for code, served in rooms.handlers.items():
        if code not in leave_out:
            dispatcher.add(code, served.handler, rooms.families[served.family])
    return Server(
        dispatcher,
        limits=Limits(idle_s=config.idle_timeout_s),
        clock=clock,
        tls=TlsSettings.of(config),
        events=rooms,
        go_away=config.shut_down_gracefully,
        guard=access.guard,
        is_trusted_proxy=access.trusts_proxy,
    )
