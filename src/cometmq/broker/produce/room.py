"""The room of sends: made of what it needs, and asked for the requests that it serves."""

from collections.abc import Callable

from cometmq.broker.entry import bound, merged
from cometmq.broker.produce import fence_requests, reply, send
from cometmq.broker.produce.context import ProduceContext, Put
from cometmq.broker.produce.fences import Fences
from cometmq.broker.produce.hooks import SendHooks
from cometmq.broker.produce.marks import Marks
from cometmq.broker.shared import Shared
from cometmq.store.log.append import AppendRequest


class ProduceRoom:
    """See `ProduceContext` for what other rooms give."""

    def __init__(
        self,
        shared: Shared,
        *,
        put: Put,
        put_half: Put,
        delay_level_of: Callable[[str], int],
        recall_handle: Callable[[AppendRequest, str, str], str | None],
        holds_locks: Callable[[str], bool],
    ) -> None:
        self.fences = Fences()
        self.hooks = SendHooks(shared.config)
        self.marks = Marks(shared.config)
        self.context = context = ProduceContext(
            config=shared.config,
            clock=shared.clock,
            own=shared.own,
            born=shared.born,
            store=shared.store,
            topics=shared.tables.topics,
            groups=shared.tables.groups,
            producers=shared.tables.producers,
            settling=shared.settling,
            stats=shared.stats,
            fences=self.fences,
            hooks=self.hooks,
            marks=self.marks,
            put=put,
            put_half=put_half,
            delay_level_of=delay_level_of,
            recall_handle=recall_handle,
            holds_locks=holds_locks,
        )
        self.handlers = merged(
            bound(send.HANDLERS, context), bound(reply.HANDLERS, context), bound(fence_requests.HANDLERS, context)
        )
