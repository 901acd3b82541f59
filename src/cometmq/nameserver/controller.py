"""RocketMQ's controller protocol before the documents of sets, for mqadmin: `cometmq nameserver --controller etcd://...`.

    1005 who leads the controllers     this one: none leads, all read and write the same documents
    1004, 1006 who leads a set         the document; alive is who has a session with the store
    1002 elect                         only with designateElect: a planned switch; 2012 says why not
    1011 clean                         members that do not run, are not in sync and do not lead
    1010, 1009 settings                those of this name server

Brokers of RocketMQ cannot register here: what they ask a controller for (1001, 1003, 1012, 1013, 904) is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from cometmq.clock import Clock
from cometmq.errors import ConfigError, RequestError
from cometmq.failover import document as documents
from cometmq.failover.document import Document, Refused
from cometmq.failover.operators import Sets, SetView
from cometmq.failover.stores import StoreUnknown, open_store
from cometmq.nameserver.settings import LiveSettings
from cometmq.net.connection import Connection
from cometmq.wire import java_properties
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import Command, reply

log = logging.getLogger(__name__)

GROUP: Final = "cometmq"
CONTROLLERS: Final = "/cometmq-controllers/"
SESSION_MS: Final = 5_000
ELECT_S: Final = 5.0
NAMES_MAX: Final = 1_000
BODY_BYTES_MAX: Final = 64 << 10


class Replica(msgspec.Struct, rename="camel"):
    broker_name: str
    broker_id: int
    broker_address: str
    alive: bool


class Replicas(msgspec.Struct, rename="camel"):
    master_broker_id: int
    master_address: str
    master_epoch: int
    sync_state_set_epoch: int
    in_sync_replicas: list[Replica]
    not_in_sync_replicas: list[Replica]


class Controller:
    """ConfigError: the address of the store is none."""

    def __init__(self, settings: LiveSettings, clock: Clock) -> None:
        self.settings = settings
        self.store = open_store(settings.config.controller_store, clock)
        self.sets = Sets(self.store, clock)
        self.address = ""

    async def start(self, address: str) -> None:
        self.address = address
        try:
            await self.store.announce(f"{CONTROLLERS}{address}", b"controller", SESSION_MS)
        except StoreUnknown as error:
            log.warning("go on without the store of sets cause=%s", error)

    async def stop(self) -> None:
        await self.store.stop()

    async def find(self, name: str, cluster: str | None = None) -> SetView:
        """RequestError 2008: there is no such set."""
        try:
            return await self.sets.find(name, cluster or None)
        except Refused as error:
            raise RequestError(Response.CONTROLLER_BROKER_METADATA_NOT_EXIST, str(error)) from None


def make(settings: LiveSettings, clock: Clock) -> Controller | None:
    return Controller(settings, clock) if settings.config.controller_store else None


# Requests


async def metadata(controller: Controller, request: Command) -> Command:
    found = await controller.store.list(CONTROLLERS)
    addresses = sorted({key.removeprefix(CONTROLLERS) for key in found} | {controller.address})
    own = addresses.index(controller.address)
    ext = {
        "group": GROUP,
        "controllerLeaderId": f"n{own}",
        "controllerLeaderAddress": controller.address,
        "isLeader": "true",
        "peers": "".join(f"n{number}:{address};" for number, address in enumerate(addresses)),
    }
    return reply(request, ext=ext)


async def sync_state(controller: Controller, request: Command) -> Command:
    if len(request.body) > BODY_BYTES_MAX:
        raise RequestError(Response.CONTROLLER_INVALID_REQUEST, f"a body of {len(request.body)} bytes is too large")
    try:
        names = msgspec.json.decode(request.body, type=list[str])
    except msgspec.MsgspecError as error:
        raise RequestError(Response.CONTROLLER_INVALID_REQUEST, f"the body is no list of names: {error}") from None
    if len(names) > NAMES_MAX:
        raise RequestError(Response.CONTROLLER_INVALID_REQUEST, f"{len(names)} names, at most {NAMES_MAX}")
    wanted = set(names)
    table = {
        view.name: _replicas(view, view.document)
        for view in await controller.sets.all()
        if view.name in wanted and view.document is not None
    }
    return reply(request, body=msgspec.json.encode({"replicasInfoTable": table}))


def _replicas(view: SetView, document: Document) -> Replicas:
    rows = {
        number: Replica(view.name, number, member.address, number in view.alive)
        for number, member in sorted(document.members.items())
    }
    return Replicas(
        document.master,
        document.members[document.master].address,
        document.epoch,
        _set_epoch(view),
        [row for number, row in rows.items() if number in document.in_sync],
        [row for number, row in rows.items() if number not in document.in_sync],
    )


def _set_epoch(view: SetView) -> int:
    """It rises with each change of the document; clients read 32 bits."""
    return view.version & 0x7FFF_FFFF


async def replica_info(controller: Controller, request: Command) -> Command:
    view = await controller.find(request.ext.get("brokerName", ""))
    document = _document(view)
    return reply(request, ext=_master_ext(view, document), body=_sync_set(view, document))


def _master_ext(view: SetView, document: Document) -> dict[str, str]:
    return {
        "masterBrokerId": str(document.master),
        "masterAddress": document.members[document.master].address,
        "masterEpoch": str(document.epoch),
        "syncStateSetEpoch": str(_set_epoch(view)),
    }


def _sync_set(view: SetView, document: Document) -> bytes:
    return msgspec.json.encode({"syncStateSet": document.in_sync, "syncStateSetEpoch": _set_epoch(view)})


async def elect(controller: Controller, request: Command) -> Command:
    """mqadmin's JSON reader needs the keys of `brokerAddrs` as texts: with numbers it fails, also at RocketMQ's own."""
    name, number = request.ext.get("brokerName", ""), _number(request, "brokerId")
    if request.ext.get("designateElect", "false").lower() != "true":
        raise RequestError(
            Response.CONTROLLER_ELECT_MASTER_FAILED,
            "members of a set elect by themselves; a planned switch has designateElect=true",
        )
    view = await controller.find(name, request.ext.get("clusterName"))
    try:
        after = await controller.sets.elect(view, number, ELECT_S)
    except Refused as error:
        raise RequestError(Response.CONTROLLER_ELECT_MASTER_FAILED, str(error)) from None
    log.warning("elected master set=%s member=%d epoch=%d by=request", name, after.master, after.epoch)
    view = await controller.find(name, view.cluster)
    group = {
        "brokerAddrs": {str(each): member.address for each, member in after.members.items()},
        "brokerName": name,
        "cluster": view.cluster,
    }
    return reply(request, ext=_master_ext(view, after), body=msgspec.json.encode(group))


async def clean(controller: Controller, request: Command) -> Command:
    view = await controller.find(request.ext.get("brokerName", ""), request.ext.get("clusterName"))
    document = _document(view)
    given = request.ext.get("brokerControllerIdsToClean") or ""
    if given and not all(text.isdecimal() for text in given.split(";")):
        raise RequestError(Response.CONTROLLER_INVALID_CLEAN_BROKER_METADATA, f"{given[:80]!r} are no ids: 1;2")
    numbers = [int(text) for text in given.split(";")] if given else _all_gone(view, document)
    running = sorted(set(numbers) & view.alive.keys())
    if running:
        remark = f"members {running} of {view.name} run: stop them first (isCleanLivingBroker is not supported)"
        raise RequestError(Response.CONTROLLER_INVALID_CLEAN_BROKER_METADATA, remark)
    try:
        for number in numbers:
            await controller.sets.change(view, lambda now, number=number: documents.forgotten(now, number))  # type: ignore[misc]
    except Refused as error:
        raise RequestError(Response.CONTROLLER_INVALID_CLEAN_BROKER_METADATA, str(error)) from None
    return reply(request)


def _all_gone(view: SetView, document: Document) -> list[int]:
    return [number for number in document.members if number not in view.alive and number not in document.in_sync]


async def get_config(controller: Controller, request: Command) -> Command:
    return reply(request, body=java_properties.write(controller.settings.texts()).encode())


async def update_config(controller: Controller, request: Command) -> Command:
    await controller.settings.change(request.body)
    return reply(request)


def _document(view: SetView) -> Document:
    assert view.document is not None, "find gives sets with a document"
    return view.document


def _number(request: Command, name: str) -> int:
    text = request.ext.get(name, "")
    if not text.isdecimal():
        raise RequestError(Response.CONTROLLER_INVALID_REQUEST, f"{name}={text[:40]!r} is no id of a member")
    return int(text)


Answer = Callable[[Controller, Command], Awaitable[Command]]
ANSWERS: Final[dict[int, Answer]] = {
    Request.CONTROLLER_GET_METADATA_INFO: metadata,
    Request.CONTROLLER_GET_SYNC_STATE_DATA: sync_state,
    Request.CONTROLLER_GET_REPLICA_INFO: replica_info,
    Request.CONTROLLER_ELECT_MASTER: elect,
    Request.CLEAN_BROKER_DATA: clean,
    Request.GET_CONTROLLER_CONFIG: get_config,
    Request.UPDATE_CONTROLLER_CONFIG: update_config,
}


@dataclass(frozen=True, slots=True)
class Asked:
    """A handler: what the store does not answer is an error of this request."""

    controller: Controller
    answer: Answer

    async def __call__(self, _: Connection, request: Command) -> Command:
        try:
            return await self.answer(self.controller, request)
        except StoreUnknown as error:
            raise RequestError(Response.SYSTEM_ERROR, str(error)) from None
        except ConfigError as error:
            raise RequestError(Response.CONTROLLER_INVALID_REQUEST, str(error)) from None
