"""Compressed bodies: bytes that Java wrote, limits, and damage."""

import contextlib
import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.errors import WireError
from cometmq.wire.compression import FRAMES_MAX, compress, decompress
from cometmq.wire.record.sysflag import COMPRESSED, COMPRESSION_LZ4, COMPRESSION_ZLIB, COMPRESSION_ZSTD

TYPES = [COMPRESSION_ZLIB, COMPRESSION_LZ4, COMPRESSION_ZSTD]
FRAMED = [COMPRESSION_LZ4, COMPRESSION_ZSTD]
BODY = b"CometMQ carries messages. " * 40
# BODY as RocketMQ 5.5.0 compresses it at level 5.
JAVA = {
    COMPRESSION_LZ4: (
        "04224d1860707328000000ff0b436f6d65744d512063617272696573206d657373616765732e201a00ffffffe1506765732e2000000000"
    ),
    COMPRESSION_ZSTD: ("28b52ffd0058140100d0436f6d65744d512063617272696573206d657373616765732e200100ceef6a8e01010000"),
    COMPRESSION_ZLIB: ("785e73cecf4d2df10d54484e2c2aca4c2d56c84d2d2e4e4c4f2dd653701e951995199519613200926477d8"),
}


@pytest.mark.parametrize("compression", TYPES)
def test_body_compressed_by_java_is_read(compression: int) -> None:
    assert decompress(bytes.fromhex(JAVA[compression]), COMPRESSED | compression) == BODY


def test_type_zero_is_zlib() -> None:
    assert decompress(bytes.fromhex(JAVA[COMPRESSION_ZLIB]), COMPRESSED) == BODY


def test_other_bits_of_the_flag_do_not_matter() -> None:
    data = bytes.fromhex(JAVA[COMPRESSION_LZ4])
    assert decompress(data, COMPRESSED | COMPRESSION_LZ4 | 0x8 | 0x30) == BODY


def test_body_without_the_flag_is_returned_as_it_is() -> None:
    assert decompress(b"plain", COMPRESSION_ZSTD) == b"plain"


def test_lz4_blocks_are_independent_because_java_reads_no_others() -> None:
    assert compress(b"x" * 300_000, COMPRESSION_LZ4)[4] & 0x20


@pytest.mark.parametrize("compression", TYPES)
@pytest.mark.parametrize("size", [0, 1, 4096, 1024 * 1024, 1024 * 1024 + 1, 3_000_000])
def test_body_of_any_size_comes_back(compression: int, size: int) -> None:
    for body in (bytes(size), random.Random(size).randbytes(size)):
        data = compress(body, compression)
        assert decompress(data, COMPRESSED | compression) == body
        assert decompress(data, COMPRESSED | compression, bytes_max=size) == body


@given(st.binary(), st.sampled_from(TYPES), st.integers(1, 9))
def test_what_is_compressed_decompresses_to_the_same(body: bytes, compression: int, level: int) -> None:
    assert decompress(compress(body, compression, level), COMPRESSED | compression) == body


@pytest.mark.parametrize("compression", TYPES)
def test_output_beyond_the_limit_is_refused(compression: int) -> None:
    data = compress(bytes(3_000_000), compression)
    with pytest.raises(WireError, match="limit of 2999999 bytes"):
        decompress(data, COMPRESSED | compression, bytes_max=2_999_999)
    with pytest.raises(WireError, match="limit of 0 bytes"):
        decompress(data, COMPRESSED | compression, bytes_max=0)


@pytest.mark.parametrize("compression", FRAMED)
def test_limit_holds_for_all_frames_together(compression: int) -> None:
    data = compress(bytes(2_000_000), compression)
    assert decompress(data * 2, COMPRESSED | compression, bytes_max=4_000_000) == bytes(4_000_000)
    with pytest.raises(WireError, match="limit of 3999999 bytes"):
        decompress(data * 2, COMPRESSED | compression, bytes_max=3_999_999)


@pytest.mark.parametrize("compression", FRAMED)
def test_number_of_frames_is_limited(compression: int) -> None:
    empty = compress(b"", compression)
    assert decompress(empty * FRAMES_MAX, COMPRESSED | compression) == b""
    with pytest.raises(WireError, match="over 16 frames"):
        decompress(empty * (FRAMES_MAX + 1), COMPRESSED | compression)


def test_zlib_body_is_one_stream() -> None:
    data = compress(b"abc", COMPRESSION_ZLIB)
    with pytest.raises(WireError, match=f"{len(data)} bytes after its end"):
        decompress(data * 2, COMPRESSED | COMPRESSION_ZLIB)


@pytest.mark.parametrize("compression", TYPES)
def test_body_cut_at_any_byte_is_refused(compression: int) -> None:
    data = bytes.fromhex(JAVA[compression])
    for end in range(len(data)):
        with pytest.raises(WireError):
            decompress(data[:end], COMPRESSED | compression)


@pytest.mark.parametrize("compression", TYPES)
def test_second_frame_cut_at_any_byte_is_refused(compression: int) -> None:
    data = bytes.fromhex(JAVA[compression])
    for end in range(1, len(data)):
        with pytest.raises(WireError):
            decompress(data + data[:end], COMPRESSED | compression)


@given(st.sampled_from(TYPES), st.integers(0, 44), st.integers(0, 255))
def test_changed_byte_gives_a_body_or_the_peers_error(compression: int, at: int, value: int) -> None:
    data = bytearray.fromhex(JAVA[compression])
    data[at % len(data)] = value
    with contextlib.suppress(WireError):
        assert len(decompress(bytes(data), COMPRESSED | compression, bytes_max=100_000)) <= 100_000


@given(st.binary(), st.sampled_from(TYPES))
def test_garbage_gives_only_the_peers_error(data: bytes, compression: int) -> None:
    with contextlib.suppress(WireError):
        decompress(data, COMPRESSED | compression, bytes_max=100_000)


@pytest.mark.parametrize("number", [4, 5, 6, 7])
def test_unknown_type_is_refused(number: int) -> None:
    with pytest.raises(WireError, match=f"type {number} is none of"):
        decompress(zlib.compress(b"x"), COMPRESSED | number << 8)
