"""Tag codes by columns are those that the store finds one by one."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from cometmq.spark.stores.tags import tag_codes
from cometmq.wire.hashing import java_string_hash
from cometmq.wire.record.properties import find


def one_by_one(text: bytes) -> int:
    tag = find(text.decode("utf-8", "replace"), "TAGS")
    return java_string_hash(tag) if tag else 0


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"TAGS",
        b"TAGS\x01",
        b"TAGS\x01\x02",
        b"TAGS\x01a",
        b"TAGS\x01a\x02",
        b"KEYS\x01k\x02TAGS\x01a b\x02WAIT\x01true\x02",
        b"MYTAGS\x01no\x02",
        b"KEYS\x01TAGS\x01no\x02",
        b"TAGS\x01first\x02TAGS\x01last\x02",
        b"TAGS\x01first\x02TAGS\x01\x02",
        b"TAGS\x01with\x01one\x02",
        "TAGS\x01grüße 🌍\x02".encode(),
        b"TAGS\x01\xff\xfe\x02",
    ],
)
def test_a_tag_is_found_wherever_it_stands(text: bytes) -> None:
    rows = [b"WAIT\x01x\x02", text, b"\x01TAGS", b"\x01", b"TAGS\x01behind\x02"]
    for kept in (rows, [text], rows[:2], rows[1:]):
        assert tag_codes(pa.array(kept, pa.binary())).tolist() == [one_by_one(row) for row in kept]


def test_any_bytes_have_the_code_that_one_by_one_has() -> None:
    seed = random.randrange(1 << 32)
    dice = random.Random(seed)
    parts = [b"TAGS", b"TAG", b"S", b"\x01", b"\x02", b"a", b"\xc3\xa9"]
    rows = [b"".join(dice.choices(parts, k=dice.randrange(12))) for _ in range(3000)]
    for _ in range(20):
        first = dice.randrange(len(rows))
        texts = pa.array(rows, pa.binary()).slice(first, dice.randrange(200))
        assert tag_codes(texts).tolist() == [one_by_one(row) for row in texts.to_pylist()], f"seed {seed}"
    assert tag_codes(pa.array([], pa.binary())).tolist() == []
