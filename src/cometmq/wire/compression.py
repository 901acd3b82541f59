"""Compressed message bodies: zlib streams (RFC 1950), LZ4 frames and ZSTD frames, chosen by the system flag.

The type is in bits 8 to 10 of the system flag and counts only if bit 0 says that the body is compressed; old
producers leave it 0, which means zlib. A reader clears bit 0 when it has decompressed.

Decompression is bounded: a few bytes can stand for gigabytes, so output beyond the limit is refused before it is
made. LZ4 and ZSTD may be several frames one after the other, as in Java; zlib is exactly one stream.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable
from typing import Final, Protocol

import lz4.frame

from cometmq.errors import WireError
from cometmq.wire.record.sysflag import (
    COMPRESSED,
    COMPRESSION_LZ4,
    COMPRESSION_MASK,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
)

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

LEVEL_DEFAULT: Final = 5
# As much as a frame could carry without compression.
DECOMPRESSED_BYTES_MAX: Final = 16 * 1024 * 1024

# Each frame costs a copy of what comes after it; a producer writes one.
FRAMES_MAX: Final = 16

# LZ4 allocates as much as a call may return, so the output is asked for in pieces.
_PIECE_BYTES: Final = 1024 * 1024


class _FrameDecompressor(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes | None: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


def compress(data: bytes, compression: int, level: int = LEVEL_DEFAULT) -> bytes:
    """Compress with one of the COMPRESSION types of `sysflag`. LZ4 has no level, as in Java."""
    if compression == COMPRESSION_ZLIB:
        return zlib.compress(data, level)
    if compression == COMPRESSION_LZ4:
        # Blocks that refer to the block before are refused by Java's reader.
        return bytes(lz4.frame.compress(data, block_linked=False))
    if compression == COMPRESSION_ZSTD:
        return bytes(zstd.compress(data, level))
    raise AssertionError(f"no such compression type: {compression:#x}")


def decompress(data: bytes, sys_flag: int, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """The body as its producer gave it; WireError if it is broken, cut short or larger than `bytes_max`."""
    if not sys_flag & COMPRESSED:
        return data
    compression = sys_flag & COMPRESSION_MASK
    if compression in (0, COMPRESSION_ZLIB):
        return _decompress_zlib(data, bytes_max)
    if compression == COMPRESSION_LZ4:
        return _decompress_lz4(data, bytes_max)
    if compression == COMPRESSION_ZSTD:
        return _decompress_zstd(data, bytes_max)
    raise WireError(f"compression type {compression >> 8} is none of 0 and 3 (zlib), 1 (LZ4), 2 (ZSTD)")


def _decompress_zlib(data: bytes, bytes_max: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        body = stream.decompress(data, bytes_max + 1)
    except zlib.error as error:
        raise WireError(f"zlib body of {len(data)} bytes is malformed: {error}") from None
    if len(body) > bytes_max:
        raise _too_large("zlib", data, bytes_max)
    if not stream.eof:
        raise _cut_short("zlib", data)
    if stream.unused_data:
        raise WireError(f"zlib body has {len(stream.unused_data)} bytes after its end")
    return body


def _decompress_lz4(data: bytes, bytes_max: int) -> bytes:
    try:
        return _decompress_frames("LZ4", lz4.frame.LZ4FrameDecompressor, data, bytes_max)
    except (RuntimeError, ValueError) as error:
        raise WireError(f"LZ4 body of {len(data)} bytes is malformed: {error}") from None


def _decompress_zstd(data: bytes, bytes_max: int) -> bytes:
    try:
        return _decompress_frames("ZSTD", zstd.ZstdDecompressor, data, bytes_max)
    except zstd.ZstdError as error:
        raise WireError(f"ZSTD body of {len(data)} bytes is malformed: {error}") from None


def _decompress_frames(name: str, new_frame: Callable[[], _FrameDecompressor], data: bytes, bytes_max: int) -> bytes:
    pieces: list[bytes] = []
    rest = data
    for _ in range(FRAMES_MAX):
        rest = _read_frame(name, new_frame(), data, rest, pieces, bytes_max)
        if not rest:
            return b"".join(pieces)
    raise WireError(f"{name} body of {len(data)} bytes has over {FRAMES_MAX} frames")


def _read_frame(
    name: str, frame: _FrameDecompressor, data: bytes, rest: bytes, pieces: list[bytes], bytes_max: int
) -> bytes:
    """Append the output of one frame to `pieces`; returns what comes after the frame."""
    produced = sum(map(len, pieces))
    source = rest
    while not frame.eof:
        piece = frame.decompress(source, min(_PIECE_BYTES, bytes_max + 1 - produced))
        pieces.append(piece)
        produced += len(piece)
        if produced > bytes_max:
            raise _too_large(name, data, bytes_max)
        if not piece and frame.needs_input and not frame.eof:
            raise _cut_short(name, data)
        source = b""
    return frame.unused_data or b""


def _too_large(name: str, data: bytes, bytes_max: int) -> WireError:
    return WireError(f"{name} body of {len(data)} bytes decompresses to more than the limit of {bytes_max} bytes")


def _cut_short(name: str, data: bytes) -> WireError:
    return WireError(f"{name} body of {len(data)} bytes ends before its data does")
