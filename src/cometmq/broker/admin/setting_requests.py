"""Settings of the running broker, as a properties text: shown and changed.

What may be changed is decided in settings.py, what follows from a change in setting_changes.py. The text is ASCII and
sorted; secrets are left out.
"""

from __future__ import annotations

from typing import Final

from cometmq.broker.admin.context import SettingsContext
from cometmq.broker.entry import Entry
from cometmq.broker.hosts import ha_port_of
from cometmq.net.connection import Connection
from cometmq.wire import java_properties
from cometmq.wire.bodies import DataVersion
from cometmq.wire.codes import Request
from cometmq.wire.command import Command, reply
from cometmq.wire.headers import GetBrokerConfigResponse


async def update(context: SettingsContext, connection: Connection, request: Command) -> Command:
    """All keys or none. A key that would do nothing is refused; RocketMQ answers that it was changed."""
    if request.body:
        await context.changes.change(request.body)
    return reply(request)


def get(context: SettingsContext, connection: Connection, request: Command) -> Command:
    options = context.store.options
    texts = {
        **context.settings.texts(),
        # What is used where nothing was set.
        "brokerIP1": context.settings.config.advertised_host,
        "storePathRootDir": options.root_dir,
        "storePathCommitLog": ",".join(options.commitlog_dirs()),
        "listenPort": str(context.port),
        "haListenPort": str(ha_port_of(options, context.port)),
    }
    version = DataVersion(counter=context.settings.changes, timestamp=context.stats.started_ms)
    ext = GetBrokerConfigResponse(version=version.encode().decode()).encode()
    return reply(request, ext=ext, body=java_properties.write(texts).encode())


HANDLERS: Final = {
    Request.UPDATE_BROKER_CONFIG: Entry(update, "admin"),
    Request.GET_BROKER_CONFIG: Entry(get, "admin"),
}
