"""The body of a batch send."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.errors import WireError
from cometmq.wire.record.batch import BatchMember, encode_batch, split_batch
from cometmq.wire.record.properties import decode
from tests.support.golden import golden_frames

# Topic T, tag TagA, key k1, body "hi", as the Java client packs it.
JAVA = bytes.fromhex(
    "00000034 00000000 00000000 00000000 00000002 6869 001C"
    "4B45595301 6B3102 5741495401 7472756502 5441475301 5461674102"
)
MEMBERS = st.tuples(st.integers(-(2**31), 2**31 - 1), st.binary(), st.binary(max_size=200))


def test_member_is_packed_like_the_java_client_packs_it() -> None:
    ((flag, body, properties),) = split_batch(JAVA)
    assert (flag, body) == (0, b"hi")
    assert decode(properties) == {"KEYS": "k1", "WAIT": "true", "TAGS": "TagA"}
    assert encode_batch([(flag, body, properties)]) == JAVA


def test_batches_seen_on_the_wire_are_split_and_packed_again() -> None:
    frames = [row for row in golden_frames() if row["request_code"] == 320 and row["kind"] == "request"]
    assert {row["serialize"] for row in frames} == {"JSON", "ROCKETMQ"}
    for row in frames:
        body = bytes.fromhex(row["frame_hex"])[-row["body_len"] :]
        members = split_batch(body)
        assert len(members) > 1
        assert all(body and decode(properties) for _, body, properties in members)
        assert encode_batch(members) == body


@given(st.lists(MEMBERS))
def test_splitting_gives_back_the_members(members: list[BatchMember]) -> None:
    assert split_batch(encode_batch(members)) == members


def test_number_of_members_is_limited() -> None:
    assert len(split_batch(JAVA * 3, count_max=3)) == 3
    with pytest.raises(WireError, match="over 2 messages"):
        split_batch(JAVA * 3, count_max=2)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (JAVA[:21], "21 bytes are left, at least 22 are needed"),
        (JAVA[:-1], "properties of 28 bytes, 51 bytes are left"),
        (JAVA + b"\0", "member 1 at byte 52"),
        (struct.pack(">i", 51) + JAVA[4:], "total size is 51, the fields make 52"),
        (JAVA[:16] + struct.pack(">i", -1) + JAVA[20:], "body of -1 bytes"),
        (JAVA[:16] + struct.pack(">i", 31) + JAVA[20:], "body of 31 bytes, 52 bytes are left"),
        (JAVA[:22] + b"\xff\xff" + JAVA[24:], "properties of -1 bytes"),
    ],
)
def test_malformed_batch_is_refused_with_the_reason(data: bytes, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        split_batch(data)


def test_member_that_does_not_fit_its_fields_is_refused() -> None:
    with pytest.raises(WireError, match="32768 bytes of properties"):
        encode_batch([(0, b"", bytes(32768))])
    with pytest.raises(WireError, match="flag 2147483648"):
        encode_batch([(2**31, b"", b"")])
