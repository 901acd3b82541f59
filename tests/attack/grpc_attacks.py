"""Attacks on the port of gRPC clients: HTTP/2 floods, streams and windows. What a call says is in tests/front."""

from __future__ import annotations

from cometmq.wire.grpc import messages_pb2 as pb
from cometmq.wire.http2 import frames as h2
from tests.attack.corpus import GRPC_TOPIC, Link, Target, attack
from tests.support.grpc import receive_request, send_request
from tests.support.http2 import GREETING, Frames, call, call_headers, frame, header_block, prefixed

MIB = 1 << 20
FIRST_WINDOW = 65_535
BEGUN_BYTES = 20_000
# uvloop accepts one connection a turn: what more of them cost a newcomer is not about windows.
READERS = 100
STREAMS_A_LINK = 1_000
LARGE = 4 * MIB - 1_024


def greeted(target: Target, receive_bytes: int = 0) -> Link:
    link = target.link(receive_bytes)
    link.write(GREETING)
    return link


def opened(number: int, rpc: str, **more: str) -> bytes:
    """A call that has begun and not ended."""
    return frame(h2.HEADERS, h2.END_HEADERS, 2 * number + 1, header_block(call_headers(rpc, **more)))


def settled(target: Target, number: int, receive_bytes: int = 0) -> Link:
    """A consumer of a group of its own; its telemetry stream is the first."""
    link = greeted(target, receive_bytes)
    client = f"attacker-{number}"
    link.write(opened(0, "Telemetry", x_mq_client_id=client))
    settings = pb.Settings(client_type=pb.SIMPLE_CONSUMER)
    settings.subscription.group.name = f"attack-{number}"
    link.write(frame(h2.DATA, 0, 1, prefixed(pb.TelemetryCommand(settings=settings).SerializeToString())))
    return link


def receive(number: int, client: int, topic: str = GRPC_TOPIC, poll_ms: int = 20_000) -> bytes:
    request = receive_request(topic, f"attack-{client}", poll_ms=poll_ms)
    return call(2 * number + 1, "ReceiveMessage", request.SerializeToString(), x_mq_client_id=f"attacker-{client}")


@attack("grpc", growth_mib=96)
def streams_that_never_end(target: Target) -> None:
    """10,000 calls begun on ten connections: half of them never say anything, half send a part of a message."""
    for _ in range(target.size(80)):
        link = greeted(target)
        for number in range(STREAMS_A_LINK):
            link.write(opened(number, "SendMessage"))
            if number % 2:
                link.write(frame(h2.DATA, 0, 2 * number + 1, b"\0\0\x10\0\0" + bytes(100)))


@attack("grpc", growth_mib=128)
def receives_by_the_ten_thousand(target: Target) -> None:
    """Long polls that find nothing; then their connections are closed."""
    links = [settled(target, number) for number in range(target.size(80))]
    for client, link in enumerate(links):
        for number in range(1, STREAMS_A_LINK):
            link.write(receive(number, client, "Quiet"))
    for link in links:
        link.close()


@attack("grpc", growth_mib=420, mappedFileSizeCommitLog=32 * MIB)
def large_messages_in_small_windows(target: Target) -> None:
    """Every reader has a group of its own, asks for 4 MiB again and again, and never opens its window of 64 KiB."""
    _store(greeted(target), [send_request("Large", bytes(LARGE)).SerializeToString() for _ in range(4)])
    links = []
    for client in range(READERS):
        link = settled(target, client, receive_bytes=4096)
        link.write(b"".join(receive(number, client, "Large", 5_000) for number in range(1, 9)))
        links.append(link)
    for link in links:
        _take_some(link)


def _take_some(link: Link) -> None:
    """Until a message has begun to come, or the server has cut us."""
    taken = 0
    while taken < BEGUN_BYTES:
        try:
            data = link.socket.recv(1 << 16)
        except ConnectionError:
            return
        if not data:
            return
        taken += len(data)


def _store(link: Link, requests: list[bytes]) -> None:
    """Send them as fast as the server's windows allow."""
    frames, credit = Frames(), FIRST_WINDOW
    for number, body in enumerate(requests):
        stream_id = 2 * number + 1
        pieces = call(stream_id, "SendMessage", body)
        place = 0
        while place < len(pieces):
            size = 9 + int.from_bytes(pieces[place : place + 3], "big")
            while credit < size:
                credit += _credit(frames.feed(link.socket.recv(1 << 16)))
            credit -= size
            link.write(pieces[place : place + size])
            place += size
        while frames.trailers(stream_id) is None:
            credit += _credit(frames.feed(link.socket.recv(1 << 16)))
        (answer,) = frames.messages(stream_id)
        assert pb.SendMessageResponse.FromString(answer).status.code == pb.OK


def _credit(found: list[tuple[int, int, int, bytes]]) -> int:
    """What the connection's window was opened by. That of a stream is the same here."""
    updates = [payload for kind, _, stream_id, payload in found if kind == h2.WINDOW_UPDATE and stream_id == 0]
    return sum(int.from_bytes(payload, "big") for payload in updates)


@attack("grpc")
def rapid_resets(target: Target) -> None:
    for _ in range(target.size(80)):
        link = greeted(target)
        for start in range(0, 10_000, 500):
            link.write(
                b"".join(
                    opened(number, "SendMessage") + frame(h2.RST_STREAM, 0, 2 * number + 1, b"\0\0\0\x08")
                    for number in range(start, start + 500)
                )
            )


@attack("grpc")
def rapid_resets_of_receives(target: Target) -> None:
    """Each is given up as soon as it waits."""
    for client in range(target.size(16)):
        link = settled(target, client)
        for number in range(1, 2_000):
            link.write(receive(number, client, "Quiet"))
            link.write(frame(h2.RST_STREAM, 0, 2 * number + 1, b"\0\0\0\x08"))


@attack("grpc")
def continuations_without_end(target: Target) -> None:
    for _ in range(target.size(80)):
        link = greeted(target)
        link.write(frame(h2.HEADERS, 0, 1, header_block(call_headers("SendMessage"))))
        for _ in range(200):
            link.write(frame(h2.CONTINUATION, 0, 1, header_block({"x": "y" * 1_000}) * 16))
            link.write(frame(h2.CONTINUATION, 0, 1, b"") * 100)


@attack("grpc")
def floods_of_small_frames(target: Target) -> None:
    """Pings, settings, empty data, windows: each asks for an answer or for nothing at all."""
    window = frame(h2.WINDOW_UPDATE, 0, 0, b"\0\0\0\x01")
    floods = (
        frame(h2.PING, 0, 0, bytes(8)),
        frame(h2.SETTINGS, 0, 0),
        frame(h2.SETTINGS, 0, 0, b"\0\x04\0\0\xff\xff"),
        frame(h2.DATA, 0, 1, b""),
        window,
        frame(h2.PRIORITY, 0, 1, bytes(5)),
    )
    for _ in range(target.size(16)):
        for flood in floods:
            link = greeted(target)
            link.write(opened(0, "Telemetry"))
            link.write(flood * 60_000)


@attack("grpc")
def windows_of_a_thousand_streams_moved(target: Target) -> None:
    """A setting that has to be applied to each open stream, as often as it may be sent."""
    for _ in range(target.size(16)):
        link = greeted(target)
        link.write(b"".join(opened(number, "Telemetry") for number in range(STREAMS_A_LINK)))
        for size in range(18):
            link.write(frame(h2.SETTINGS, 0, 0, b"\0\x04\0\0\xff" + bytes((size,))))


@attack("grpc")
def header_lists_that_unfold(target: Target) -> None:
    """A field put into the table once, then named again and again; and blocks as large as they may be."""
    indexed = b"\x40" + header_block({"x": "v" * 3_900})[1:]
    for _ in range(target.size(80)):
        link = target.link()
        link.write(h2.PREFACE + frame(h2.SETTINGS, 0, 0))  # the table is there until our ACK
        for number in range(200):
            block = header_block(call_headers("SendMessage")) + indexed + b"\xbe" * 8_000
            link.write(frame(h2.HEADERS, h2.END_HEADERS, 2 * number + 1, block))
        link = greeted(target)
        for number in range(200):
            fields = {f"x-{index}": "v" * 60 for index in range(200)}
            block = header_block(call_headers("SendMessage") | fields)[:16_000]
            link.write(frame(h2.HEADERS, h2.END_HEADERS, 2 * number + 1, block))


@attack("grpc", growth_mib=320)
def requests_announced_and_dripped(target: Target) -> None:
    links = [greeted(target) for _ in range(target.size(480))]
    for link in links:
        link.write(opened(0, "SendMessage"))
        link.write(
            frame(h2.DATA, 0, 1, b"\0\x00\xff\xff\xff" + bytes(16_000)) + frame(h2.DATA, 0, 1, bytes(16_000)) * 30
        )
    for _ in range(20):
        for link in links:
            link.write(frame(h2.DATA, 0, 1, b"x"))


@attack("grpc")
def requests_that_mean_nothing(target: Target) -> None:
    """Protobuf nested without end, maps of one key, repeated fields by the hundred thousand; and plain garbage."""
    nested = b""
    for _ in range(5_000):
        nested = b"\x0a" + _varint(len(nested)) + nested
        if len(nested) > 60_000:
            break
    properties = b"\x12\x04\x0a\x01k\x12" * 10_000
    many = b"\x0a\x00" * 200_000
    for body in (nested, b"\x0a" + _varint(len(properties)) + properties, many, bytes(range(256)) * 400):
        for _ in range(target.size(24)):
            link = greeted(target)
            for number, rpc in enumerate(("SendMessage", "AckMessage", "ReceiveMessage", "QueryRoute", "Heartbeat")):
                link.write(call(2 * number + 1, rpc, body))


def _varint(number: int) -> bytes:
    found = bytearray()
    while number >= 128:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)


@attack("grpc", growth_mib=240)
def clients_by_the_ten_thousand(target: Target) -> None:
    """Settings of ever new clients, many on each connection."""
    for turn in range(target.size(1_280)):
        link = greeted(target)
        for number in range(64):
            client = f"c-{turn}-{number}"
            settings = pb.Settings(client_type=pb.PUSH_CONSUMER)
            settings.subscription.group.name = f"attack-{turn}"
            command = pb.TelemetryCommand(settings=settings).SerializeToString()
            link.write(opened(number, "Telemetry", x_mq_client_id=client))
            link.write(frame(h2.DATA, 0, 2 * number + 1, prefixed(command)))
        frames = Frames()
        while frames.trailers(2 * 63 + 1) is None and not frames.messages(2 * 63 + 1):
            frames.feed(link.socket.recv(1 << 16))
