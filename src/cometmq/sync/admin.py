"""The sync twin of the administration: topics, groups, offsets, messages, brokers, settings, users."""

from cometmq.client.admin import Admin as AsyncAdmin
from cometmq.client.loop_thread import LoopThread
from cometmq.sync.access_admin import AccessAdmin
from cometmq.sync.browsing_admin import BrowsingAdmin
from cometmq.sync.cluster_admin import ClusterAdmin
from cometmq.sync.dead_letter_admin import DeadLetterAdmin
from cometmq.sync.group_admin import GroupAdmin
from cometmq.sync.life import Life
from cometmq.sync.message_admin import MessageAdmin
from cometmq.sync.narrowing_admin import NarrowingAdmin
from cometmq.sync.offset_admin import OffsetAdmin
from cometmq.sync.topic_admin import TopicAdmin
from cometmq.sync.user_admin import UserAdmin
from cometmq.sync.waiting_admin import WaitingAdmin


class Admin(
    Life,
    TopicAdmin,
    GroupAdmin,
    OffsetAdmin,
    NarrowingAdmin,
    MessageAdmin,
    DeadLetterAdmin,
    BrowsingAdmin,
    WaitingAdmin,
    ClusterAdmin,
    UserAdmin,
    AccessAdmin,
):
    """Made by `Client.admin()`."""

    _inner: AsyncAdmin
    _thread: LoopThread

    def __init__(self, inner: AsyncAdmin, thread: LoopThread) -> None:
        self._inner = inner
        self._thread = thread

    @property
    def is_running(self) -> bool:
        return self._inner.is_running

    def start(self) -> None:
        self._thread.run(self._inner.start())

    def stop(self) -> None:
        self._thread.run(self._inner.stop())
