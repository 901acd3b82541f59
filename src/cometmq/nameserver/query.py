"""Request 105, the question that every client of a cluster asks every 30 seconds for each of its topics.

An answer's body depends on the topic and on one of two forms, so it is encoded once and kept until the route changes:

    standard    broker ids quoted, {"0":"10.0.0.1:10911"}    callers of version 401 on, or that ask for it
    bare        broker ids bare, {0:"10.0.0.1:10911"}        older ones, which cannot read the other

What is kept is bounded in bytes; when the bound is reached everything is dropped and built up again. Answers for one
zone are not kept. While the server warms up (`needWaitForService`) nothing is answered from here.
"""

from collections.abc import Callable
from typing import Final

from cometmq.clock import Clock
from cometmq.nameserver.kv import ORDER_TOPIC_CONFIG, KeyValues
from cometmq.nameserver.routes import Routes, only_zone
from cometmq.nameserver.settings import LiveSettings
from cometmq.net.connection import Connection
from cometmq.wire.bodies import TopicRoute
from cometmq.wire.codes import Response, Version
from cometmq.wire.command import Command, reply

STANDARD_VERSION: Final = Version.V4_9_4

TOPIC: Final = "topic"
ACCEPT_STANDARD: Final = "acceptStandardJsonOnly"
ZONE_MODE: Final = "__ZONE_MODE"
ZONE_NAME: Final = "__ZONE_NAME"


class RouteQueries:
    def __init__(
        self, settings: LiveSettings, key_values: KeyValues, clock: Clock, unfinished: Callable[[], object]
    ) -> None:
        self.routes = Routes(self.forget, unfinished)
        self._settings = settings
        self._key_values = key_values
        self._clock = clock
        self._started_s = clock.monotonic()
        self._standard: dict[str, bytes] = {}
        self._bare: dict[str, bytes] = {}
        self._kept_bytes = 0
        self._warming = settings.config.need_wait_for_service

    def answer(self, _: Connection, request: Command) -> Command:
        ext = request.ext
        topic = ext.get(TOPIC, "")
        standard = request.version >= STANDARD_VERSION or _is_true(ext.get(ACCEPT_STANDARD))
        body = self._standard.get(topic) if standard else self._bare.get(topic)
        if body is not None and not self._warming and ZONE_MODE not in ext:
            return reply(request, 0, None, None, body)
        if self._warming and self._still_warming():
            return reply(request, Response.SYSTEM_ERROR, "the name server has just started and waits for brokers")
        route = self._find(topic)
        if route is None:
            remark = f"no route for topic {topic}: no live broker has registered it"
            return reply(request, Response.TOPIC_NOT_EXIST, remark)
        return reply(request, 0, None, None, self._encode(topic, route, standard, ext))

    def _find(self, topic: str) -> TopicRoute | None:
        """The route with its order setting, if that is switched on."""
        config = self._settings.config
        route = self.routes.pick_up(topic, acting_masters=config.support_acting_master)
        if route is not None and config.order_message_enable:
            route.order_topic_conf = self._key_values.get(ORDER_TOPIC_CONFIG, topic)
        return route

    def _encode(self, topic: str, route: TopicRoute, standard: bool, ext: dict[str, str]) -> bytes:
        zone = ext.get(ZONE_NAME)
        if zone and _is_true(ext.get(ZONE_MODE)):
            # Bare for every caller, as in RocketMQ: its clients take either form.
            return only_zone(route, zone).encode()
        self.forget(topic)
        body = route.encode(standard=standard)
        if self._kept_bytes + len(body) > self._settings.config.route_answer_bytes_max:
            self.forget_all()
        (self._standard if standard else self._bare)[topic] = body
        self._kept_bytes += len(body)
        return body

    def forget(self, topic: str) -> None:
        """The route of a topic changed."""
        for kept in (self._standard, self._bare):
            body = kept.pop(topic, None)
            if body is not None:
                self._kept_bytes -= len(body)

    def forget_all(self) -> None:
        """A setting changed that is part of every answer, or there is no more room."""
        self._standard.clear()
        self._bare.clear()
        self._kept_bytes = 0
        self._warming = self._settings.config.need_wait_for_service

    def _still_warming(self) -> bool:
        config = self._settings.config
        self._warming = self._clock.monotonic() - self._started_s < config.wait_for_service_s
        return self._warming


def _is_true(text: str | None) -> bool:
    return text is not None and text.lower() == "true"
