"""CometMQ as a transport of Kombu, and so the broker of Celery: `Celery("shop", broker="cometmq://127.0.0.1:9876")`.

    AMQP's word         here
    exchange            topic                            kombu-celery, kombu-celery%2Epidbox, ...
    routing key         tag of the message
    queue               consumer group                   kombu-celery
    binding             subscription of that group: the exchange's topic, with the routing key as tag
    fanout              what several groups of one topic do anyway
    acknowledgement     the message's own; what a lost worker had is delivered again

So producers need not know queues: a message is stored once for each exchange, and each queue is a position in it. A
message that is rejected with requeue comes again after the broker's delay; one that is rejected without becomes a dead
letter of the queue's group (`cometmq dlq list kombu-celery`). Messages are not kept in order, as in other transports
whose workers run side by side.

`transport_options`:

    namesrv              several name servers; default: host and port of the URL
    prefix               "kombu-": of the names of topics and groups
    topic_queues         8: of topics that are made
    visibility_timeout   3600: seconds after which a message that a living worker neither acknowledged nor rejected is
                         delivered again; must be longer than the longest eta
    polling_interval     0.02

User and password of the URL sign the requests. Queues with priorities, lengths or expiry are refused.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from queue import Empty
from typing import Any, Final

from kombu.transport import virtual

from cometmq import __version__
from cometmq.errors import BrokerError, CallError, CometError, ConfigError, NoNameServer, NoRoute, SendFailed
from cometmq.kombu.messages import Messages
from cometmq.sync import Client
from cometmq.sync.consumer import Consumer, Delivered

DEFAULT_PORT: Final = 9876
# The exchange without a name: every queue is bound to it by its own name.
ANONYMOUS: Final = ""
REFUSED_ARGUMENTS: Final = ("x-max-priority", "x-expires", "x-message-ttl", "x-max-length", "x-max-length-bytes")


class QoS(virtual.QoS):
    """Messages are settled at the broker, each by itself."""

    def ack(self, delivery_tag: str) -> None:
        self.channel.settle(delivery_tag, Delivered.ack)
        super().ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        if requeue:
            self.channel.settle(delivery_tag, Delivered.retry)
        else:
            self.channel.settle(delivery_tag, lambda message: message.dead_letter("rejected by its worker"))
        self._quick_ack(delivery_tag)

    def restore_unacked(self) -> list[Any]:
        self._flush()
        for delivery_tag in list(self._delivered):
            self.reject(delivery_tag, requeue=True)
        self._flush()
        return []


class Channel(virtual.Channel):
    QoS = QoS
    supports_fanout = True
    # What was not acknowledged is delivered again by the broker; nobody sends it a second time.
    do_restore = False

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._unsettled: dict[str, Delivered[bytes]] = {}
        self._no_ack: set[str] = set()

    @property
    def messages(self) -> Messages:
        transport: Transport = self.connection
        return transport.messages

    # Exchanges and queues

    def exchange_declare(self, exchange: str | None = None, type: str = "direct", **keywords: Any) -> None:
        super().exchange_declare(exchange, type, **keywords)
        if not keywords.get("passive"):
            self.messages.topic(exchange or f"amq.{type or 'direct'}")

    def exchange_delete(self, exchange: str, if_unused: bool = False, nowait: bool = False) -> None:
        super().exchange_delete(exchange, if_unused, nowait)
        self.messages.delete_topic(exchange)

    def _new_queue(self, queue: str, **keywords: Any) -> None:
        arguments = keywords.get("arguments") or {}
        refused = sorted(name for name in REFUSED_ARGUMENTS if arguments.get(name) is not None)
        if refused and not (keywords.get("auto_delete") or keywords.get("exclusive")):
            raise ConfigError(f"queue {queue} wants {', '.join(refused)}: CometMQ does not do that, leave it out")
        self.messages.group(queue)
        if keywords.get("auto_delete") or keywords.get("exclusive"):
            since = datetime.now(UTC) - timedelta(seconds=1)
            self.connection.temporary.setdefault(queue, since)

    def _has_queue(self, queue: str, **keywords: Any) -> bool:
        return queue in self.connection.temporary or bool(list(self.state.queue_bindings(queue)))

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str, queue: str) -> None:
        """A binding that comes after its queue is read: the group subscribes anew."""
        self.messages.leave(queue)

    def queue_delete(
        self, queue: str, if_unused: bool = False, if_empty: bool = False, **keywords: Any
    ) -> None:
        if if_empty and self._size(queue):
            return
        self.connection.temporary.pop(queue, None)
        self.state.queue_bindings_delete(queue)
        self.messages.forget(queue)

    def _size(self, queue: str) -> int:
        return self.messages.size(queue)

    def _purge(self, queue: str) -> int:
        return self.messages.purge(queue, set(self._bindings(queue)))

    # Messages

    def basic_publish(self, message: dict[str, Any], exchange: str, routing_key: str, **keywords: Any) -> None:
        self._inplace_augment_message(message, exchange, routing_key)
        self.messages.send(exchange or ANONYMOUS, routing_key, json.dumps(message).encode())

    def _put(self, queue: str, message: dict[str, Any], **keywords: Any) -> None:
        self.messages.send(ANONYMOUS, queue, json.dumps(message).encode())

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Callable[[Any], Any], consumer_tag: str, **keywords: Any
    ) -> None:
        if no_ack:
            self._no_ack.add(queue)
        self._consumer(queue)  # from now on the group has a position
        super().basic_consume(queue, no_ack, callback, consumer_tag, **keywords)

    def basic_cancel(self, consumer_tag: str) -> None:
        queue = self._tag_to_queue.get(consumer_tag)
        super().basic_cancel(consumer_tag)
        if queue is not None and queue not in self._active_queues:
            self._no_ack.discard(queue)

    def basic_get(self, queue: str, no_ack: bool = False, **keywords: Any) -> Any:
        found = super().basic_get(queue, no_ack, **keywords)
        if found is not None and no_ack:
            self.settle(found.delivery_tag, Delivered.ack)
        return found

    def _get(self, queue: str, timeout: float | None = None) -> dict[str, Any]:
        while True:
            delivered = self._consumer(queue).receive(0)
            if delivered is None:
                raise Empty
            payload = self._payload(queue, delivered)
            if payload is not None:
                return payload

    def _payload(self, queue: str, delivered: Delivered[bytes]) -> dict[str, Any] | None:
        """None for what the queue is not bound to, and for what no Kombu has sent."""
        try:
            payload = json.loads(delivered.body)
            info = payload["properties"]["delivery_info"]
            exchange, routing_key = info["exchange"], info["routing_key"]
        except (ValueError, KeyError, TypeError):
            delivered.dead_letter("not a message of Kombu")
            return None
        if not self._is_bound(queue, exchange, routing_key):
            delivered.ack()
            return None
        tag = payload["properties"]["delivery_tag"] = self._next_delivery_tag()
        info["redelivered"] = delivered.delivery_count > 1
        if queue in self._no_ack:
            delivered.ack()
        else:
            self._unsettled[tag] = delivered
        return dict(payload)

    def settle(self, delivery_tag: str, how: Callable[[Delivered[bytes]], None]) -> None:
        delivered = self._unsettled.pop(delivery_tag, None)
        if delivered is not None:
            how(delivered)

    def _consumer(self, queue: str) -> Consumer[bytes]:
        return self.messages.consume(queue, self._bindings(queue), self.connection.temporary.get(queue))

    def _bindings(self, queue: str) -> dict[str, set[str] | None]:
        """By exchange: the routing keys, None where any may match."""
        found: dict[str, set[str] | None] = {ANONYMOUS: {queue}}
        for binding in self.state.queue_bindings(queue):
            if self.typeof(binding.exchange).type == "direct" and found.get(binding.exchange, set()) is not None:
                keys = found.setdefault(binding.exchange, set())
                assert keys is not None
                keys.add(binding.routing_key or queue)
            else:
                found[binding.exchange] = None
        return found

    def _is_bound(self, queue: str, exchange: str, routing_key: str) -> bool:
        if not exchange:
            return routing_key == queue
        kind = self.typeof(exchange)
        if kind.type == "topic":
            return queue in kind.lookup(self.get_table(exchange), exchange, routing_key, None)
        return True

    def close(self) -> None:
        self._unsettled.clear()
        super().close()


class Transport(virtual.Transport):
    Channel = Channel

    driver_type = "cometmq"
    driver_name = "cometmq"
    default_port = DEFAULT_PORT
    polling_interval = 0.02
    connection_errors = (*virtual.Transport.connection_errors, CallError, NoNameServer, SendFailed, OSError)
    channel_errors = (*virtual.Transport.channel_errors, BrokerError, CometError)
    implements = virtual.Transport.implements.extend(exchange_type=frozenset(["direct", "topic", "fanout"]))

    def __init__(self, client: Any, **keywords: Any) -> None:
        super().__init__(client, **keywords)
        # Queues that go with their connection, and when they were declared.
        self.temporary: dict[str, datetime] = {}
        self._messages: Messages | None = None

    def driver_version(self) -> str:
        return __version__

    @property
    def messages(self) -> Messages:
        if self._messages is None:
            given = self.client
            options = given.transport_options
            place = options.get("namesrv") or f"{given.hostname or '127.0.0.1'}:{given.port or DEFAULT_PORT}"
            keys = {"access_key": given.userid, "secret_key": given.password} if given.userid else {}
            self._messages = Messages(
                Client(place, **keys),
                options.get("prefix", "kombu-"),
                int(options.get("topic_queues", 8)),
                float(options.get("visibility_timeout", 3600)),
            )
        return self._messages

    def establish_connection(self) -> Any:
        started = self.messages
        try:
            started.topic(ANONYMOUS)
        except NoRoute as error:
            self.close_connection(self)
            raise ConnectionRefusedError(str(error)) from error
        return super().establish_connection()

    def close_connection(self, connection: Any) -> None:
        super().close_connection(connection)
        messages, self._messages = self._messages, None
        temporary, self.temporary = self.temporary, {}
        if messages is not None:
            for queue in temporary:
                with suppress(CometError):
                    messages.forget(queue)
            messages.stop()
