"""The settings of a running name server: read by request 319, changed by request 318.

What may change is `settings.Live`, the allow-list. RocketMQ refuses four fixed keys and those in `configBlackList`;
here every setting that names a file or guards the process is refused as well. A refusal changes nothing, not even the
other keys of the same request.

    known key, Live.NOW      acts at once             answer 0
    known key, Live.START    acts after a restart     answer 0, shown and saved
    known key, Live.NEVER    or in configBlackList    answer 16
    value of the wrong type or range                  answer 1      (RocketMQ: 0, skipped)
    key without effect, of RocketMQ or unknown        answer 1      (RocketMQ: 0); 0 for the value that is shown
"""

import asyncio
import logging
from datetime import UTC, datetime
from functools import partial

from cometmq import settings_file, settings_table
from cometmq.config import NameServerConfig
from cometmq.errors import RequestError, WireError
from cometmq.net.tls import with_file
from cometmq.settings import Live, SettingError, read, read_inert, settings_of, texts_of
from cometmq.wire import java_properties
from cometmq.wire.codes import Response

log = logging.getLogger(__name__)

BLACK_LIST_SEPARATOR = ";"
WITHOUT_EFFECT = settings_table.shown(settings_table.NAME_SERVER)


def load(texts: dict[str, str]) -> "LiveSettings":
    """From the texts of a settings file and a command line; SettingError names what is wrong."""
    config, others = read(NameServerConfig(), with_file(texts))
    settings_table.judge(settings_table.NAME_SERVER, others)
    return LiveSettings(config, read_inert(WITHOUT_EFFECT, others))


class LiveSettings:
    """`config` is the current one: read it anew at every use. `others` are keys without effect."""

    def __init__(self, config: NameServerConfig, others: dict[str, str]) -> None:
        self.config = config
        self._others = others
        self._changing = asyncio.Lock()
        never = {key for key, (_, rule) in settings_of(NameServerConfig).items() if rule.live is Live.NEVER}
        self._refused = never | set(config.config_black_list.split(BLACK_LIST_SEPARATOR))

    def texts(self, *, secrets: bool = False) -> dict[str, str]:
        paths = {"kvConfigPath": str(self.config.kv_file), "configStorePath": str(self.config.config_file)}
        return self._others | texts_of(self.config, secrets=secrets) | paths

    async def change(self, body: bytes) -> None:
        """Change what `body`, a properties text, says."""
        await asyncio.shield(self._change(body))

    async def _change(self, body: bytes) -> None:
        async with self._changing:
            wanted = _parse(body)
            refused = sorted(self._refused & wanted.keys())
            if refused:
                raise RequestError(
                    Response.NO_PERMISSION,
                    f"{', '.join(refused)} cannot be changed in a running name server: edit its settings file",
                )
            try:
                config, unknown = read(self.config, wanted)
            except SettingError as error:
                raise RequestError(Response.SYSTEM_ERROR, f"nothing was changed: {error}") from None
            cause = settings_table.without_effect(settings_table.NAME_SERVER, self._others, unknown)
            if cause:
                raise RequestError(Response.SYSTEM_ERROR, f"nothing was changed: {cause}")
            await self._save(config, {key: wanted[key] for key in wanted if key not in unknown})
            for key in wanted.keys() - unknown.keys():
                log.info("changed setting key=%s value=%r", key, wanted[key][:200])

    async def _save(self, config: NameServerConfig, changed: dict[str, str]) -> None:
        after = LiveSettings(config, self._others)
        path = config.config_file
        private = after.texts(secrets=True) != after.texts()
        edit = partial(java_properties.edited, changes=changed)
        try:
            await asyncio.to_thread(settings_file.change, path, edit, datetime.now(UTC), private=private)
        except OSError as error:
            raise RequestError(
                Response.SYSTEM_ERROR, f"nothing was changed: cannot save {path.name}: {error.strerror or error}"
            ) from error
        self.config = config


def _parse(body: bytes) -> dict[str, str]:
    try:
        return java_properties.parse_request(body)
    except WireError as error:
        raise RequestError(Response.SYSTEM_ERROR, str(error)) from None
