"""Attacks on a name server's port."""

from __future__ import annotations

import zlib

from cometmq.wire.codes import Request
from cometmq.wire.command import request
from tests.attack.broker_attacks import colliding_keys
from tests.attack.corpus import Target, attack
from tests.nameserver.support import registration


@attack("nameserver")
def registration_with_colliding_integer_keys(target: Target) -> None:
    body = b'{"topicConfigSerializeWrapper":{"a":{' + colliding_keys(target.size(80_000)) + b"}}}"
    target.link().call(registration(body=body))


TOPIC = (
    b'"attack-%d":{"attributes":{},"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG",'
    b'"topicName":"attack-%d","topicSysFlag":0,"writeQueueNums":4}'
)


def plain_registration(table: bytes) -> bytes:
    return b'{"topicConfigSerializeWrapper":{"topicConfigTable":{' + table + b"}}}"


@attack("nameserver", growth_mib=260)
def registrations_of_very_many_topics(target: Target) -> None:
    count = target.size(80_000)
    body = plain_registration(b",".join(TOPIC % (number, number) for number in range(min(count, 65_000))))
    link = target.link()
    for number in range(3):
        link.call(registration(body=body, broker_name=f"attack-{number}", broker_addr=f"10.0.0.{number}:1"))
    link.close()


@attack("nameserver", growth_mib=160)
def a_registration_of_empty_objects(target: Target) -> None:
    link = target.link()
    for unit, after in ((b'"a":{},', b'"b":{}'), (b'"a":0,', b'"b":0')):
        link.call(registration(body=plain_registration(unit * target.size(2_000_000) + after)))
    body = b'{"filterServerList":[' + b"[]," * target.size(4_000_000) + b"[]]}"
    link.call(registration(body=body))


@attack("nameserver", growth_mib=160)
def registrations_that_inflate_like_bombs(target: Target) -> None:
    version = b'{"counter":1}'
    head = len(version).to_bytes(4, "big") + version
    bombs = [bytes(target.size(512 << 20))]
    topic = b"t 4 4 6 SINGLE_TAG {}"
    bombs.append(head + (1 << 20).to_bytes(4, "big") + (len(topic).to_bytes(4, "big") + topic) * (1 << 20))
    servers = b"[" + b"[]," * target.size(16 << 20) + b"[]]"
    bombs.append(head + bytes(4) + len(servers).to_bytes(4, "big") + servers)
    link = target.link()
    for bomb in bombs:
        link.call(registration(body=zlib.compress(bomb, 9), compressed=True))


@attack("nameserver")
def key_values_by_the_hundred_thousand(target: Target) -> None:
    links = [target.link() for _ in range(8)]
    number = 0
    for _ in range(target.size(2_400) // 8):
        for link in links:
            number += 1
            link.send(request(Request.PUT_KV_CONFIG, {"namespace": f"n{number}", "key": "k", "value": "v" * 3000}))
        for link in links:
            link.answer()


@attack("nameserver")
def settings_of_a_megabyte(target: Target) -> None:
    link = target.link()
    for text in (b"a=1\n", b"a\\\n", b"\\u0041=", b"k%d=v\n"):
        link.call(request(Request.UPDATE_NAMESRV_CONFIG, {}, text * (target.size(8 << 20) // len(text))))
