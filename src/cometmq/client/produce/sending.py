"""From a message to its receipt: attempts, within one time budget.

    one attempt    queue -> master address (route asked again once if unknown) -> checks, hooks -> request -> answer

    what came                          send()                           send_soon(), send_many()
    stored, confirmed                  receipt                          receipt
    stored, not confirmed (10, 11, 12) receipt, or with `retry_unconfirmed` another broker, the last such receipt
    transport or client error          another broker                   another broker
    refused with a code of the set     another broker                   error
    refused with another code          error                            error
    no time left before an attempt     OutOfTime                        OutOfTime

A message whose queue was given or chosen by key or selector makes one attempt; sent soon it is tried again in the same
queue. The final error has the type and code of its cause and names attempts, time and all brokers tried.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from cometmq.client.cluster.refusals import refused
from cometmq.client.cluster.routes import vip_address
from cometmq.client.messages import SendReceipt, SendStatus
from cometmq.client.options import ProducerOptions
from cometmq.client.produce.broker_faults import Faults
from cometmq.client.produce.hooks import SendContext, SendHooks
from cometmq.client.produce.outgoing import Composer, Outgoing
from cometmq.client.produce.selectors import RoundRobin
from cometmq.client.produce.targets import Lane, Target
from cometmq.client.produce.window import Window
from cometmq.errors import (
    BrokerError,
    BrokerUnknown,
    CallError,
    CallTimeout,
    CometError,
    NoRoute,
    OutOfTime,
    SendTimeout,
    TooManyCalls,
)
from cometmq.wire.codes import Language, Request
from cometmq.wire.command import JSON, OUR_VERSION, ROCKETMQ, Command
from cometmq.wire.headers import SendMessageResponse

if TYPE_CHECKING:
    from cometmq.client.cluster.instance import Instance

logger = logging.getLogger(__name__)

Pick: TypeAlias = Callable[[Target], Lane]

STATUSES: Final = {
    0: SendStatus.OK,
    10: SendStatus.FLUSH_DISK_TIMEOUT,
    11: SendStatus.SLAVE_NOT_AVAILABLE,
    12: SendStatus.FLUSH_SLAVE_TIMEOUT,
}
DEFAULT_REGION: Final = "DefaultRegion"


class Sender:
    """Sends what a `Composer` made, for one producer group."""

    def __init__(self, instance: "Instance", group: str, options: ProducerOptions, composer: Composer) -> None:
        self.instance = instance
        self.group = group
        self.options = options
        self.faults = Faults()
        self.window = Window(options.max_in_flight, options.max_in_flight_bytes, instance.clock)
        self.hooks = SendHooks()
        self._composer = composer
        self._monotonic = instance.clock.monotonic
        self._net = instance.net
        self._brokers = instance.brokers
        self._form = ROCKETMQ if instance.options.binary_headers else JSON
        self._is_watched = options.latency_faults or instance.options.vip_channel
        self._targets: dict[str, Target] = {}

    async def send(
        self, outgoing: Outgoing, pick: Pick | None, timeout_s: float, retries: int, *, soon: bool = False
    ) -> SendReceipt:
        """`pick` chooses the queue of every attempt; without one they go in turn."""
        began_s = self._monotonic()
        if self._composer.needs_packing(outgoing):
            await self._composer.compress(outgoing)
        size_bytes = outgoing.size_bytes
        if not self.window.enter(size_bytes):
            await self.window.wait(size_bytes, timeout_s - (self._monotonic() - began_s))
        try:
            return await self._try(outgoing, pick, began_s, timeout_s, retries, soon)
        finally:
            self.window.leave(size_bytes)

    async def _try(
        self, outgoing: Outgoing, pick: Pick | None, began_s: float, timeout_s: float, retries: int, soon: bool
    ) -> SendReceipt:
        tried: list[str] = []
        unconfirmed: SendReceipt | None = None
        failure: CometError | None = None
        attempts_max = 1 + retries
        options = self.options
        while len(tried) < attempts_max:
            left_s = timeout_s - (self._monotonic() - began_s)
            if left_s <= 0:
                failure = OutOfTime(_story(outgoing, tried, timeout_s - left_s, f"its time was {timeout_s} s"))
                break
            target = self._targets.get(outgoing.topic)
            if target is None or target.route is not self.instance.known_route(outgoing.topic):
                target = await self._find_target(outgoing.topic)
            lane = pick(target) if pick is not None else self._next(target, tried)
            tried.append(lane.broker)
            if options.attempt_timeout is not None and len(tried) < attempts_max:
                left_s = min(left_s, options.attempt_timeout)
            try:
                address = self._brokers.master(lane.broker)
                if address is None or self._is_watched or self.hooks:
                    receipt = await self._attempt(outgoing, lane, left_s)
                else:  # the usual case, 1 us faster than with nothing to do around it
                    response = await self._net.call(address, self._request(outgoing, lane), left_s)
                    receipt = read_receipt(response, outgoing, lane)
            except (CallError, BrokerError, BrokerUnknown) as error:
                failure = error
                if not self._may_retry(error, soon):
                    break
                continue
            if receipt.status is SendStatus.OK or not options.retry_unconfirmed:
                return receipt
            unconfirmed = receipt
        if unconfirmed is not None:
            return unconfirmed
        assert failure is not None
        raise final_error(failure, outgoing, tried, self._monotonic() - began_s) from failure

    async def _attempt(self, outgoing: Outgoing, lane: Lane, timeout_s: float) -> SendReceipt:
        broker = lane.broker
        address = self._brokers.master(broker)
        if address is None:
            address = await self._find_master(broker, outgoing.topic)
        if self.instance.options.vip_channel:
            address = vip_address(address)
        context = self.hooks.begin(self.group, outgoing, lane, address) if self.hooks else None
        command = self._request(outgoing, lane)
        began_s = self._monotonic()
        try:
            response = await self._net.call(address, command, timeout_s)
            receipt = read_receipt(response, outgoing, lane)
        except CometError as error:
            self._note_failure(error, broker, began_s)
            self._end(context, None, error)
            raise
        except BaseException as error:
            self._end(context, None, error)
            raise
        if self.options.latency_faults:
            now_s = self._monotonic()
            self.faults.note(broker, now_s - began_s, now_s)
        if context is not None:
            self._end(context, receipt, None)
        return receipt

    def _request(self, outgoing: Outgoing, lane: Lane) -> Command:
        """`Instance.request`, without the way there: every message passes here."""
        return Command(
            outgoing.code, Language.PYTHON, OUR_VERSION, 0, 0, None, lane.ext(outgoing), outgoing.packed, self._form
        )

    def write_oneway(self, outgoing: Outgoing, pick: Pick | None) -> bool:
        """Hand a message to its connection, now. False if route or connection are not there or the peer is slow."""
        route = self.instance.known_route(outgoing.topic)
        target = self._targets.get(outgoing.topic)
        if target is None or target.route is not route:
            return False
        lane = pick(target) if pick is not None else target.next()
        address = self._brokers.master(lane.broker)
        if address is None or self._composer.needs_packing(outgoing):
            return False
        if self.instance.options.vip_channel:
            address = vip_address(address)
        connection = self._net.connection(address)
        if connection is None or not connection.is_writable:
            return False
        context = self.hooks.begin(self.group, outgoing, lane, address) if self.hooks else None
        connection.send_oneway(self._request(outgoing, lane))
        self._end(context, None, None)
        return True

    async def send_oneway(self, outgoing: Outgoing, pick: Pick | None, timeout_s: float) -> None:
        """`write_oneway` with whatever is missing found first."""
        if self._composer.needs_packing(outgoing):
            await self._composer.compress(outgoing)
        target = await self._find_target(outgoing.topic)
        lane = pick(target) if pick is not None else target.next()
        address = self._brokers.master(lane.broker) or await self._find_master(lane.broker, outgoing.topic)
        if self.instance.options.vip_channel:
            address = vip_address(address)
        context = self.hooks.begin(self.group, outgoing, lane, address) if self.hooks else None
        await self._net.send_oneway(address, self._request(outgoing, lane), timeout_s)
        self._end(context, None, None)

    # Queues

    async def find_target(self, topic: str) -> Target:
        """Where a topic's messages go, from the route in use."""
        target = self._targets.get(topic)
        if target is None or target.route is not self.instance.known_route(topic):
            target = await self._find_target(topic)
        return target

    def known_target(self, topic: str) -> Target | None:
        return self._targets.get(topic)

    def some_topic(self, broker: str) -> str | None:
        """A topic that a broker has."""
        for topic, target in self._targets.items():
            if any(lane.broker == broker for lane in target.lanes):
                return topic
        return None

    async def _find_target(self, topic: str) -> Target:
        options = self.options
        try:
            route = await self.instance.route(topic)
        except NoRoute:
            if not options.allow_auto_create:
                raise
            route = await self.instance.borrow_route(topic, options.template_topic, options.template_topic_queues)
        known = self._targets.get(topic)
        target = Target(
            route,
            self.group,
            self.instance.namespace,
            # A broker makes missing topics after an existing one: it finds none by this name.
            options.template_topic if options.allow_auto_create else topic,
            options.template_topic_queues,
            self.instance.options.unit_mode,
            known.robin if known is not None else RoundRobin(),
        )
        self._targets[topic] = target
        return target

    def _next(self, target: Target, tried: list[str]) -> Lane:
        last_broker = tried[-1] if tried else None
        if self.options.latency_faults:
            return target.next_healthy(self.faults, self._monotonic(), last_broker)
        return target.next(last_broker)

    async def _find_master(self, broker: str, topic: str) -> str:
        try:
            return await self.instance.master(broker, topic)
        except NoRoute as error:
            raise BrokerUnknown(f"no address of broker {broker}: {error}") from error

    # Failures

    def _may_retry(self, error: CometError, soon: bool) -> bool:
        if isinstance(error, BrokerError):
            return not soon and error.code in self.options.retry_codes
        return not (soon and isinstance(error, TooManyCalls))

    def _note_failure(self, error: CometError, broker: str, began_s: float) -> None:
        if self.options.latency_faults:
            now_s = self._monotonic()
            is_refused = isinstance(error, BrokerError)
            reachable = not is_refused and not self.options.probe_faulty
            self.faults.note(broker, now_s - began_s, now_s, failed=True, reachable=reachable)

    def _end(self, context: SendContext | None, receipt: SendReceipt | None, error: BaseException | None) -> None:
        if context is not None:
            self.hooks.end(context, receipt, error)


def read_receipt(response: Command, outgoing: Outgoing, lane: Lane) -> SendReceipt:
    """What a broker's answer says; BrokerError if it refused. WireError if it says nothing."""
    status = STATUSES.get(response.code)
    if status is None:
        raise refused(response, lane.broker, Request.SEND_MESSAGE_V2)
    header = SendMessageResponse.decode(response.ext)
    queue = lane.queue
    if header.queue_id != queue.queue_id:  # a negative queue id lets the broker choose
        queue = type(queue)(queue.broker_name, header.queue_id, queue.topic)
    return SendReceipt(
        outgoing.id,
        header.msg_id,
        queue,
        header.queue_offset,
        status,
        header.transaction_id,
        header.recall_handle,
        header.msg_region or DEFAULT_REGION,
        header.trace_on is not False,
    )


def final_error(cause: CometError, outgoing: Outgoing, tried: list[str], took_s: float) -> CometError:
    """The cause with its story: same type, same code."""
    if isinstance(cause, OutOfTime):
        return cause
    if isinstance(cause, BrokerError):
        return cause.within(_story(outgoing, tried, took_s, ""))
    text = _story(outgoing, tried, took_s, str(cause))
    return SendTimeout(text) if isinstance(cause, CallTimeout) else type(cause)(text)


def _story(outgoing: Outgoing, tried: list[str], took_s: float, cause: str) -> str:
    brokers = ", ".join(dict.fromkeys(tried)) or "none"
    return (
        f"sending to topic {outgoing.shown_topic} failed after {len(tried)} attempts in {took_s:.3f} s, "
        f"brokers tried: {brokers}: {cause}"
    )
