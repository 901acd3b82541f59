"""Java properties text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.errors import WireError
from cometmq.wire.java_properties import line_of, parse, write


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("a=1\nb=2\n", {"a": "1", "b": "2"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a : 1\nb\t2\nc   =   3  ", {"a": "1", "b": "2", "c": "3  "}),
        ("# no\n! no\n\n   # no\na=#yes", {"a": "#yes"}),
        ("a=1\na=2", {"a": "2"}),
        ("a\nb=\n=c", {"a": "", "b": "", "": "c"}),
        ("a=b=c:d", {"a": "b=c:d"}),
        ("a\\=b\\:c\\ d=e", {"a=b:c d": "e"}),
        ("list=one,\\\n     two,\\\r\n\tthree\nx=y", {"list": "one,two,three", "x": "y"}),
        ("a=b\\\n# not a comment", {"a": "b# not a comment"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\", {"a": "b"}),
        ("a=\\t\\n\\r\\f\\q\\\\", {"a": "\t\n\r\fq\\"}),
        ("a=\\u4f60\\u597D", {"a": "你好"}),
        ("a=\\uD83D\\uDE00", {"a": "😀"}),
        ("a=\\uD83D!", {"a": "\ufffd!"}),
        ("  a  =  \\  b", {"a": "  b"}),
        ("", {}),
    ],
)
def test_what_java_reads(text: str, entries: dict[str, str]) -> None:
    assert parse(text) == entries
    assert parse(text.encode()) == entries


def test_bytes_are_utf_8_or_else_latin_1() -> None:
    assert parse("a=é".encode()) == {"a": "é"}
    assert parse(b"a=\xe9") == {"a": "é"}


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\u12g4", "\\u=1", "a=\\u"])
def test_an_incomplete_escape_is_refused(text: str) -> None:
    with pytest.raises(WireError, match=r"\\u needs four hex digits"):
        parse(text)


def test_lines_are_sorted_and_ascii() -> None:
    written = write({"storePath": "C:\\data", "brokerName": "b-a", "名": " 好\n", "a b=": ""})
    assert written == "a\\ b\\==\nbrokerName=b-a\nstorePath=C:\\\\data\n\\u540D=\\ \\u597D\\n\n"


TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.dictionaries(TEXT, TEXT))
def test_what_is_written_reads_back(entries: dict[str, str]) -> None:
    written = write(entries)
    assert written.isascii()
    assert parse(written) == entries
    assert parse(written.encode()) == entries


@given(st.binary(max_size=60) | st.text(st.sampled_from("ab=: \t\f\\u0\r\n#!é"), max_size=30))
def test_noise_reads_or_is_refused(text: bytes | str) -> None:
    try:
        parse(text)
    except WireError:
        return


def test_the_line_of_a_key_is_the_one_that_counts() -> None:
    text = b"# a=1\na=1\n\nb = 2 \\\n  more\r\na: 3\n"
    assert [line_of(text, key) for key in ("a", "b", "c")] == [6, 4, 0]
