"""What follows when settings change in a running broker: those who keep something that is made of them make it anew."""

import asyncio
from collections.abc import Callable

from cometmq.broker import sql
from cometmq.broker.admin.settings import LiveSettings
from cometmq.broker.tables.topics import Topics
from cometmq.store.store import Store


class SettingChanges:
    """`follow`: called after each change."""

    def __init__(
        self, settings: LiveSettings, store: Store, topics: Topics, follow: Callable[[], object]
    ) -> None:
        self._settings = settings
        self._store = store
        self._topics = topics
        self._follow = follow

    async def change(self, body: bytes) -> None:
        """Request 25: what a properties text says."""
        permission = self._settings.config.broker_permission
        await self._settings.change(body)
        config = self._settings.config
        if config.property_filter_enabled:
            await asyncio.to_thread(sql.load)
        self._store.change(self._settings.store_options)
        self._follow()
        self._topics.follow_settings()
        if config.broker_permission != permission:
            self._topics.touch()
