"""Checks HTTP/2 as values: calls in, answers out, windows, and what a peer may not do."""

import os
import random

import pytest

from cometmq.errors import WireError
from cometmq.wire.http2 import frames as h2
from cometmq.wire.http2 import session as bounds
from cometmq.wire.http2.frames import Http2Error
from cometmq.wire.http2.hpack import HeaderDecoder
from cometmq.wire.http2.huffman import decode as decode_huffman
from cometmq.wire.http2.session import Session
from tests.support.http2 import GREETING, Frames, call, call_headers, frame, header_block, new_session, prefixed
from tests.support.length import count

INPUTS = count("COMETMQ_FUZZ_HTTP2", 4_000, 100_000, 5_000_000)
SEED = int(os.environ.get("COMETMQ_FUZZ_SEED", "20261119"))


def greeted() -> tuple[Session, Frames]:
    session, frames = new_session(), Frames()
    assert session.feed(GREETING) == []
    frames.feed(session.take())
    return session, frames


# Header blocks (the examples of RFC 7541, appendix C)


def test_huffman_texts_of_the_standard_are_read() -> None:
    for text, code in (
        (b"www.example.com", "f1e3c2e5f23a6ba0ab90f4ff"),
        (b"no-cache", "a8eb10649cbf"),
        (b"Mon, 21 Oct 2013 20:13:21 GMT", "d07abe941054d444a8200595040b8166e082a62d1bff"),
        (b"foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
         "94e7821dd7f2e6c7b335dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007"),
    ):  # fmt: skip
        assert decode_huffman(bytes.fromhex(code)) == text


@pytest.mark.parametrize("code", ["ff", "ffffffff", "f1e3c2e5f23a6ba0ab90f4"])
def test_a_huffman_text_that_ends_within_a_symbol_is_an_error(code: str) -> None:
    with pytest.raises(WireError):
        decode_huffman(bytes.fromhex(code))


def test_fields_that_were_added_are_found_again_until_there_is_no_table() -> None:
    decoder = HeaderDecoder(frozenset((b":authority", b"cache-control", b"custom-key", b":path")))
    first = decoder.decode(bytes.fromhex("828684418cf1e3c2e5f23a6ba0ab90f4ff"))
    assert first == {":path": "/", ":authority": "www.example.com"}
    second = decoder.decode(bytes.fromhex("828684be5886a8eb10649cbf"))
    assert second == {":path": "/", ":authority": "www.example.com", "cache-control": "no-cache"}
    third = decoder.decode(bytes.fromhex("828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf"))
    assert third == {":path": "/index.html", ":authority": "www.example.com", "custom-key": "custom-value"}
    decoder.drop_table()
    with pytest.raises(WireError):
        decoder.decode(b"\xbe")


def test_a_table_keeps_no_more_than_it_may() -> None:
    decoder = HeaderDecoder(frozenset((b"x",)))
    entry = b"\x40\x01x\x7f\xe1\x07" + b"v" * 1120  # 1,153 bytes with name and overhead: three fit
    for _ in range(5):
        decoder.decode(entry)
    assert decoder.decode(b"\xc0") == {"x": "v" * 1120}
    with pytest.raises(WireError):
        decoder.decode(b"\xc1")


@pytest.mark.parametrize(
    "block",
    [b"\x00", b"\x00\x05ab", b"\x00\x01a", b"\x00\x01a\x05b", b"\x7f\xff\xff\xff\xff\x7f", b"\x80", b"\xff\xff",
     b"\x3f\xe2\x1f", b"\x82" * 300],
)  # fmt: skip
def test_a_broken_header_block_is_an_error(block: bytes) -> None:
    with pytest.raises(WireError):
        HeaderDecoder(frozenset()).decode(block)


# Calls and answers


def test_a_call_is_one_message_and_its_end_and_its_answer_one_piece() -> None:
    session, frames = greeted()
    events = session.feed(call(1, "SendMessage", b"hello", grpc_timeout="3S"))
    (kind, stream, message), (ended, _, _) = events
    assert (kind, message, ended) == (h2.MESSAGE, b"hello", h2.ENDED)
    assert stream.headers[":path"].endswith("/SendMessage")
    assert stream.headers["grpc-timeout"] == "3S"
    session.answer(stream, b"world")
    assert len(session.out) == 1
    frames.feed(session.take())
    assert frames.messages(1) == [b"world"]
    assert frames.trailers(1) == b"\x00\x0bgrpc-status\x010"
    assert session.streams == {}


def test_it_makes_no_difference_how_the_bytes_are_cut() -> None:
    data = GREETING + call(1, "A", b"x" * 40_000) + call(3, "B", b"") + call(5, "C", b"y")
    whole, single = new_session(), new_session()
    expected = [(kind, stream.id, message) for kind, stream, message in whole.feed(data)]
    found = []
    for byte in data:
        found += [(kind, stream.id, message) for kind, stream, message in single.feed(bytes((byte,)))]
    assert found == expected
    assert whole.take() == single.take()
    assert whole.partial_bytes == single.partial_bytes == 0


def test_a_frame_may_have_several_messages_and_a_message_several_frames() -> None:
    session, _ = greeted()
    session.feed(frame(h2.HEADERS, h2.END_HEADERS, 1, header_block(call_headers("Telemetry"))))
    three = prefixed(b"one") + prefixed(b"") + prefixed(b"three")
    found = [
        message for _, _, message in session.feed(frame(h2.DATA, 0, 1, three[:10]) + frame(h2.DATA, 0, 1, three[10:]))
    ]
    assert found == [b"one", b"", b"three"]


def test_headers_may_go_on_in_continuations_with_padding_and_priority() -> None:
    session, _ = greeted()
    block = header_block(call_headers("A"))
    payload = b"\x03" + b"\x00\x00\x00\x00\x10" + block[:20] + b"\x00" * 3
    events = session.feed(
        frame(h2.HEADERS, h2.PADDED | h2.HAS_PRIORITY | h2.END_STREAM, 1, payload)
        + frame(h2.CONTINUATION, 0, 1, block[20:40])
        + frame(h2.CONTINUATION, h2.END_HEADERS, 1, block[40:])
    )
    assert [(kind, stream.headers[":path"][-1]) for kind, stream, _ in events] == [(h2.ENDED, "A")]


def test_large_messages_come_in_and_credit_goes_back() -> None:
    session, frames = greeted()
    body = os.urandom(3 << 20)
    events: list[bounds.Event] = []
    data = prefixed(body)
    session.feed(frame(h2.HEADERS, h2.END_HEADERS, 1, header_block(call_headers("SendMessage"))))
    credit = 0
    for start in range(0, len(data), h2.FRAME_BYTES_MAX):
        piece = data[start : start + h2.FRAME_BYTES_MAX]
        events += session.feed(frame(h2.DATA, 0, 1, piece))
        for kind, _, of, payload in frames.feed(session.take()):
            if kind == h2.WINDOW_UPDATE and of == 1:
                credit += int.from_bytes(payload, "big")
    assert [message for _, _, message in events] == [body]
    assert credit > (3 << 20) - bounds.RECEIVE_WINDOW
    assert session.partial_bytes == 0


def test_an_answer_waits_for_the_windows_of_stream_and_connection() -> None:
    session, frames = greeted()
    (_, stream, _), _ = session.feed(call(1, "ReceiveMessage"))
    body = os.urandom(200_000)
    session.send(stream, body)
    session.finish(stream)
    frames.feed(session.take())
    assert len(frames.data(1)) == bounds.FIRST_WINDOW
    assert frames.trailers(1) is None
    assert session.pending_bytes == 200_005 - bounds.FIRST_WINDOW
    session.feed(frame(h2.WINDOW_UPDATE, 0, 1, (1 << 20).to_bytes(4, "big")))
    frames.feed(session.take())
    assert len(frames.data(1)) == bounds.FIRST_WINDOW
    session.feed(frame(h2.WINDOW_UPDATE, 0, 0, (1 << 20).to_bytes(4, "big")))
    frames.feed(session.take())
    assert frames.messages(1) == [body]
    assert frames.trailers(1) is not None
    assert all(len(payload) <= 16_384 for _, _, _, payload in frames.all)
    assert session.pending_bytes == 0


def test_a_call_that_is_given_up_takes_its_answer_with_it() -> None:
    session, _ = greeted()
    (_, stream, _), _ = session.feed(call(1, "ReceiveMessage"))
    session.send(stream, b"x" * 100_000)
    events = session.feed(frame(h2.RST_STREAM, 0, 1, b"\x00\x00\x00\x08"))
    assert [(kind, it.id) for kind, it, _ in events] == [(h2.RESET, 1)]
    assert (session.pending_bytes, session.streams) == (0, {})
    session.take()
    session.send(stream, b"more")
    session.finish(stream)
    assert session.take() == b""


def test_settings_move_the_windows_of_open_streams() -> None:
    session, frames = greeted()
    (_, stream, _), _ = session.feed(call(1, "ReceiveMessage"))
    session.feed(frame(h2.SETTINGS, 0, 0, b"\x00\x04\x00\x00\x00\x00"))
    session.send(stream, b"x" * 100)
    frames.feed(session.take())
    assert frames.data(1) == b""
    session.feed(frame(h2.SETTINGS, 0, 0, b"\x00\x04\x00\x01\x00\x00"))
    frames.feed(session.take())
    assert frames.messages(1) == [b"x" * 100]


def test_what_is_wrong_with_one_call_is_told_by_its_trailers() -> None:
    session, frames = greeted()
    session.message_bytes_max = 1000
    session.feed(call(1, "A", b"x" * 1001))
    compressed = frame(h2.HEADERS, h2.END_HEADERS, 3, header_block(call_headers("A"))) + frame(
        h2.DATA, h2.END_STREAM, 3, b"\x01\x00\x00\x00\x01x"
    )
    session.feed(compressed)
    cut = frame(h2.HEADERS, h2.END_HEADERS, 5, header_block(call_headers("A"))) + frame(
        h2.DATA, h2.END_STREAM, 5, b"\x00\x00\x00\x00\x09x"
    )
    session.feed(cut)
    session.feed(frame(h2.HEADERS, h2.END_HEADERS, 7, header_block({":path": "/", "content-type": "text/html"})))
    frames.feed(session.take())
    for stream_id, status in ((1, b"8"), (3, b"12"), (5, b"13"), (7, b"12")):
        trailers = frames.trailers(stream_id)
        assert trailers is not None
        assert b"grpc-status" + bytes((len(status),)) + status in trailers, stream_id
    assert (session.streams, session.partial_bytes) == ({}, 0)
    assert session.feed(call(9, "A", b"good"))[0][2] == b"good"


# What a peer may not do


def _ping(number: int) -> bytes:
    return frame(h2.PING, 0, 0, number.to_bytes(8, "big"))


FLOODS = {
    "pings": b"".join(_ping(number) for number in range(bounds.PINGS_MAX + 1)),
    "settings": frame(h2.SETTINGS, 0, 0) * (bounds.SETTINGS_MAX + 1),
    "resets": b"".join(
        call(1 + 2 * number, "A") + frame(h2.RST_STREAM, 0, 1 + 2 * number, bytes(4))
        for number in range(bounds.RESETS_MAX + 1)
    ),
    "empty data": frame(h2.HEADERS, h2.END_HEADERS, 1, header_block(call_headers("A")))
    + frame(h2.DATA, 0, 1) * (bounds.EMPTY_MAX + 1),
    "continuations": frame(h2.HEADERS, 0, 1, b"") + frame(h2.CONTINUATION, 0, 1, b"") * (bounds.CONTINUATIONS_MAX + 1),
    "a header block": frame(h2.HEADERS, 0, 1, b"\x00" * 9000) + frame(h2.CONTINUATION, 0, 1, b"\x00" * 9000),
    "priorities": frame(h2.PRIORITY, 0, 1, bytes(5)) * (bounds.CONTROL_MAX + 1),
    "streams": b"".join(
        frame(h2.HEADERS, h2.END_HEADERS, 1 + 2 * number, header_block(call_headers("A")))
        for number in range(bounds.STREAMS_MAX + bounds.RESETS_MAX + 1)
    ),
}


@pytest.mark.parametrize("name", list(FLOODS))
def test_a_flood_ends_its_connection(name: str) -> None:
    session, _ = greeted()
    with pytest.raises(Http2Error) as raised:
        session.feed(FLOODS[name])
    assert raised.value.code == h2.ENHANCE_YOUR_CALM, raised.value
    assert len(session.streams) <= bounds.STREAMS_MAX


def test_a_client_may_measure_its_path_by_a_ping_for_each_answer() -> None:
    """grpc-go does, a thousand times a second and more where there is no network between."""
    session = new_session()
    session.feed(GREETING)
    session.take()
    for number in range(2_000):
        session.feed(_ping(number))
    assert session.take().count(b"\x00\x00\x08\x06\x01") == 2_000


def test_what_is_spread_over_seconds_is_no_flood() -> None:
    session, _ = greeted()
    for _ in range(5):
        session.feed(b"".join(_ping(number) for number in range(bounds.PINGS_MAX)))
        session.calm()


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", h2.PROTOCOL_ERROR),
        (GREETING + b"\x00\x40\x01" + bytes(6), h2.FRAME_SIZE_ERROR),
        (GREETING + frame(h2.DATA, 0, 1, b"x"), h2.PROTOCOL_ERROR),
        (GREETING + frame(h2.HEADERS, h2.END_HEADERS, 2, b""), h2.PROTOCOL_ERROR),
        (GREETING + frame(h2.HEADERS, h2.END_HEADERS, 1, b"\xff"), h2.COMPRESSION_ERROR),
        (GREETING + frame(h2.HEADERS, 0, 1, b"") + frame(h2.PING, 0, 0, bytes(8)), h2.PROTOCOL_ERROR),
        (GREETING + frame(h2.CONTINUATION, 0, 1), h2.PROTOCOL_ERROR),
        (GREETING + frame(h2.PUSH_PROMISE, 0, 1, bytes(4)), h2.PROTOCOL_ERROR),
        (GREETING + frame(h2.SETTINGS, 0, 0, bytes(5)), h2.FRAME_SIZE_ERROR),
        (GREETING + frame(h2.SETTINGS, 0, 0, b"\x00\x04\xff\xff\xff\xff"), h2.FLOW_CONTROL_ERROR),
        (GREETING + frame(h2.WINDOW_UPDATE, 0, 0, bytes(4)), h2.PROTOCOL_ERROR),
        (GREETING + frame(h2.WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff"), h2.FLOW_CONTROL_ERROR),
        (GREETING + frame(h2.PING, 0, 0, bytes(7)), h2.FRAME_SIZE_ERROR),
        (GREETING + frame(h2.RST_STREAM, 0, 9, bytes(4)), h2.PROTOCOL_ERROR),
        (GREETING + frame(h2.HEADERS, h2.PADDED | h2.END_HEADERS, 1, b"\x09x"), h2.PROTOCOL_ERROR),
    ],
)
def test_a_bad_frame_ends_its_connection_with_the_code_for_it(data: bytes, code: int) -> None:
    with pytest.raises(Http2Error) as raised:
        new_session().feed(data)
    assert raised.value.code == code


def test_data_beyond_the_window_ends_the_connection() -> None:
    session, _ = greeted()
    session.feed(frame(h2.HEADERS, h2.END_HEADERS, 1, header_block(call_headers("A"))))
    session.feed(frame(h2.DATA, h2.END_STREAM, 1, b"\x00\x00\x00\x00\x00"))
    session._received = 100
    with pytest.raises(Http2Error) as raised:
        session.feed(frame(h2.DATA, 0, 1, bytes(101)))
    assert raised.value.code == h2.FLOW_CONTROL_ERROR


@pytest.mark.repeated
@pytest.mark.mission("GR-01")
def test_garbage_is_read_or_is_the_peers_fault_and_holds_nothing() -> None:
    """Replay: COMETMQ_FUZZ_SEED=... COMETMQ_FUZZ_HTTP2=... pytest tests/wire/http2"""
    draw = random.Random(SEED)
    good = [
        call(1, "SendMessage", b"hello"), call(3, "A", b"x" * 20_000), frame(h2.PING, 0, 0, bytes(8)),
        frame(h2.WINDOW_UPDATE, 0, 0, b"\x00\x00\x10\x00"), frame(h2.RST_STREAM, 0, 1, bytes(4)),
        frame(h2.SETTINGS, 0, 0, b"\x00\x04\x00\x10\x00\x00"), frame(h2.GOAWAY, 0, 0, bytes(8)),
        frame(h2.HEADERS, h2.END_HEADERS, 5, bytes.fromhex("828684418cf1e3c2e5f23a6ba0ab90f4ff")),
    ]  # fmt: skip
    for number in range(INPUTS):
        session = new_session(100_000)
        data = bytearray(b"".join(draw.choices(good, k=draw.randrange(1, 5))))
        for _ in range(draw.randrange(4)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        if draw.random() < 0.3:
            del data[draw.randrange(len(data)) :]
        try:
            session.feed(GREETING)
            step = draw.choice([max(1, len(data)), 1, 7, 1000])
            for start in range(0, len(data), step):
                for kind, stream, _ in session.feed(bytes(data[start : start + step])):
                    if kind == h2.ENDED:
                        session.answer(stream, b"done")
        except WireError:
            continue
        except Exception as error:
            raise AssertionError(f"seed={SEED} number={number}: {error!r} for {bytes(data).hex()}") from error
        held = sum(len(stream._part) for stream in session.streams.values() if stream._part is not None)
        assert session.partial_bytes == held, f"seed={SEED} number={number}"
