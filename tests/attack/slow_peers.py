"""Attacks on either server that need no knowledge of requests: peers that announce, drip, flood and do not read."""

from __future__ import annotations

import contextlib
import os

from cometmq.wire.codes import Request
from cometmq.wire.command import encode, request
from tests.attack.corpus import Target, attack
from tests.support.brokers import pull_request, send_request

MIB = 1 << 20


@attack("broker")
def frames_announced_and_dripped(target: Target) -> None:
    _drip(target)


@attack("nameserver")
def frames_announced_and_dripped_at_a_name_server(target: Target) -> None:
    _drip(target)


def _drip(target: Target) -> None:
    links = [target.link() for _ in range(target.size(480))]
    for link in links:
        link.write((16 * MIB - 4).to_bytes(4, "big") + b"\0\0\0\x20{" + bytes(100))
    for _ in range(20):
        for link in links:
            link.write(b"x")


@attack("broker")
def bytes_without_meaning(target: Target) -> None:
    for _ in range(target.size(400)):
        link = target.link()
        link.write(os.urandom(4096))
        link.close()


@attack("broker", growth_mib=160)
def readers_that_stop_reading(target: Target) -> None:
    """Large answers by the thousand, none of them read."""
    filler = target.link()
    for _ in range(8):
        filler.call(send_request("Large", bytes(200_000)))
    for _ in range(target.size(480)):
        link = target.link(receive_bytes=4096)
        link.socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            link.write(encode(pull_request("Large", 0, 0, group="g")) * 50)


@attack("broker", growth_mib=96)
def connections_by_the_thousand(target: Target) -> None:
    """Opened and left; opened, half a request, and closed again."""
    _flood(target)


@attack("nameserver", growth_mib=96)
def connections_by_the_thousand_to_a_name_server(target: Target) -> None:
    _flood(target)


def _flood(target: Target) -> None:
    for number in range(target.size(6_400)):
        link = target.link()
        link.write(b"\0\0\1\0")
        if number % 2:
            link.close()


@attack("broker")
def deep_json(target: Target) -> None:
    _deep(target, Request.HEART_BEAT, Request.LOCK_BATCH_MQ, Request.BATCH_ACK_MESSAGE)


@attack("nameserver")
def deep_json_to_a_name_server(target: Target) -> None:
    _deep(target, Request.REGISTER_BROKER, Request.REGISTER_TOPIC_IN_NAMESRV, Request.QUERY_DATA_VERSION)


def _deep(target: Target, *codes: int) -> None:
    depth = target.size(400_000)
    link = target.link()
    ext = {
        "topic": "t", "brokerName": "b", "brokerAddr": "a:1", "clusterName": "c", "haServerAddr": "", "brokerId": "0",
    }  # fmt: skip
    for code in codes:
        for left, right in ((b"[", b"]"), (b'{"a":', b"}"), (b"{{", b"}:1}"), (b'[{"$ref":"$"},', b"]")):
            for count in (depth, 60):
                link.call(request(code, ext, left * count + b"1" + right * count))
                link.call(request(code, ext, b'{"acks":' + left * count + b"1" + right * count + b"}"))
    other = target.link()
    header = b'{"code":34,"extFields":' + b"[" * target.size(800_000) + b"}"
    other.write((len(header) + 4).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header)
    other.answer()
