"""The system flag of a message: one 32-bit number that says how to read the rest of the record.

    bit 0        body is compressed
    bit 1        topic filters by several tags
    bits 2-3     transaction: 0 none, 1 prepared, 2 commit, 3 rollback
    bit 4, 5     born host, store host is IPv6
    bit 6        inner batch that the client must split
    bit 7        inner batch
    bits 8-10    compression type: 0 and 3 zlib, 1 LZ4, 2 ZSTD

The producer sets 0 to 3 and 8 to 10; the record encoder sets 4 and 5 from the hosts it is given.
"""

from typing import Final

COMPRESSED: Final = 0x1
MULTI_TAGS: Final = 0x2

TRANSACTION_MASK: Final = 0xC
TRANSACTION_NONE: Final = 0x0
TRANSACTION_PREPARED: Final = 0x4
TRANSACTION_COMMIT: Final = 0x8
TRANSACTION_ROLLBACK: Final = 0xC

BORN_HOST_V6: Final = 0x10
STORE_HOST_V6: Final = 0x20
HOSTS_V6: Final = BORN_HOST_V6 | STORE_HOST_V6

NEEDS_UNWRAP: Final = 0x40
INNER_BATCH: Final = 0x80

COMPRESSION_MASK: Final = 0x700
COMPRESSION_LZ4: Final = 0x100
COMPRESSION_ZSTD: Final = 0x200
COMPRESSION_ZLIB: Final = 0x300


def with_transaction(sys_flag: int, transaction: int) -> int:
    return sys_flag & ~TRANSACTION_MASK | transaction


def enters_consume_queue(sys_flag: int) -> bool:
    """Prepared and rolled back records are in the commit log only."""
    return (sys_flag & TRANSACTION_MASK) in (TRANSACTION_NONE, TRANSACTION_COMMIT)
