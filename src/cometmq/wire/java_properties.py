"""Java properties text: broker.conf, and the bodies that read and change configuration.

    # comment            ! comment
    key=value            key: value            key value
    path=C:\\\\data        a backslash takes the next character as it is; \\t \\n \\r \\f and \\u4f60 are escapes
    list=one,\\
         two             a backslash at the end of a line joins the next one, without its leading blanks

Java parses these bytes as Latin-1 and writes them as UTF-8. `parse` therefore reads UTF-8 and falls back on Latin-1,
and `write` writes nothing but ASCII, which both sides read alike. The last of several equal keys counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from cometmq.errors import WireError

_LINE_END: Final = re.compile(r"\r\n|\n|\r")
_AFTER_LINE_END: Final = re.compile(r"(?<=\n)|(?<=\r)(?!\n)")
_BLANKS: Final = " \t\f"
# The key runs to the first blank, = or : that no backslash protects.
_KEY: Final = re.compile(r"(?:[^\\ \t\f=:]|\\.)*+", re.DOTALL)
_SEPARATOR: Final = re.compile(r"[ \t\f]*+[=:]?[ \t\f]*+")
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WRITTEN: Final = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}
_NEEDS_ESCAPE: Final = re.compile(r"[^\x20-\x5b\x5d-\x7e]")
_KEY_MARKS: Final = re.compile(r"[ =:#!]")


# What a peer may send to change settings; all that there are make a third of it.
REQUEST_BYTES_MAX: Final = 64 << 10


def parse_request(text: bytes) -> dict[str, str]:
    """The same for what a peer has sent."""
    if len(text) > REQUEST_BYTES_MAX:
        raise WireError(f"{len(text)} bytes of settings, at most {REQUEST_BYTES_MAX} are allowed in one request")
    return parse(text)


def parse(text: bytes | str) -> dict[str, str]:
    """Raises WireError for an escape \\u without four hex digits, the only text that Java refuses."""
    if isinstance(text, bytes):
        text = _decode(text)
    entries: dict[str, str] = {}
    for line in _logical_lines(text):
        key = _KEY.match(line)
        assert key is not None
        separator = _SEPARATOR.match(line, key.end())
        assert separator is not None
        entries[_unescape(key.group())] = _unescape(line[separator.end() :])
    return entries


def write(entries: Mapping[str, str]) -> str:
    """One `key=value` line per entry, sorted by key."""
    return "".join(f"{_write_key(key)}={_write_value(entries[key])}\n" for key in sorted(entries))


def edited(text: bytes, changes: Mapping[str, str]) -> bytes:
    """The same file with other values: comments, order, blanks and all other lines stay as they are.

    The last line of a key is changed, since it is the one that counts; keys without a line are added at the end.
    """
    try:
        encoding, content = "utf-8", text.decode()
    except UnicodeDecodeError:
        encoding, content = "latin-1", text.decode("latin-1")
    lines = [line for line in _AFTER_LINE_END.split(content) if line]
    newline = "\r\n" if "\r\n" in content else "\n"
    left = dict(changes)
    for first, count, key in reversed(list(_entries(lines))):
        if key not in left:
            continue
        value = _write_value(left.pop(key))
        end = lines[first + count - 1][len(lines[first + count - 1].rstrip("\r\n")) :]
        lines[first : first + count] = [f"{_before_value(lines[first])}{value}{end}"]
    if left and lines and not lines[-1].endswith(("\n", "\r")):
        lines[-1] += newline
    lines += [f"{_write_key(key)}={_write_value(left[key])}{newline}" for key in sorted(left)]
    return "".join(lines).encode(encoding)


def line_of(text: bytes, key: str) -> int:
    """The number of the line whose value counts for `key`, from 1; 0 if there is none."""
    lines = [line for line in _AFTER_LINE_END.split(_decode(text)) if line]
    return max((first + 1 for first, _, found in _entries(lines) if found == key), default=0)


def _entries(lines: list[str]) -> Iterator[tuple[int, int, str]]:
    """Of each entry: its first line, how many lines it has, its key."""
    at = 0
    while at < len(lines):
        stripped = lines[at].strip(_BLANKS + "\r\n")
        if not stripped or stripped[0] in "#!":
            at += 1
            continue
        count = 1
        while _ends_with_open_backslash(lines[at + count - 1].rstrip("\r\n")) and at + count < len(lines):
            count += 1
        found = list(parse("".join(lines[at : at + count])))
        if found:
            yield at, count, found[0]
        at += count


def _before_value(line: str) -> str:
    """Blanks, key and separator as they were written."""
    blanks = len(line) - len(line.lstrip(_BLANKS))
    key = _KEY.match(line, blanks)
    assert key is not None
    separator = _SEPARATOR.match(line, key.end())
    assert separator is not None
    before = line[: separator.end()]
    return before if separator.group() else f"{key.string[:key.end()].rstrip()}="


def _decode(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments and blank ones, continuation lines joined."""
    joined = ""
    for raw in _LINE_END.split(text):
        line = raw.lstrip(_BLANKS)
        if not joined and (not line or line[0] in "#!"):
            continue
        if _ends_with_open_backslash(line):
            joined += line[:-1]
            continue
        if joined or line:
            yield joined + line
        joined = ""
    if joined:
        yield joined


def _ends_with_open_backslash(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    # Java keeps UTF-16 units: two escapes may make one character, and a lone half makes none.
    units = _ESCAPE.sub(_escaped, text).encode("utf-16-be", "surrogatepass")
    return units.decode("utf-16-be", "replace")


def _escaped(escape: re.Match[str]) -> str:
    mark = escape.group(1)
    if len(mark) == 5:
        return chr(int(mark[1:], 16))
    if mark == "u":
        raise WireError(f"properties text: \\u needs four hex digits: {escape.string[escape.start() :][:12]!r}")
    return _ESCAPED.get(mark, mark)


def _write_key(key: str) -> str:
    return _KEY_MARKS.sub(r"\\\g<0>", _NEEDS_ESCAPE.sub(_escape, key))


def _write_value(value: str) -> str:
    written = _NEEDS_ESCAPE.sub(_escape, value)
    return f"\\{written}" if written.startswith(" ") else written


def _escape(character: re.Match[str]) -> str:
    plain = _WRITTEN.get(character.group())
    if plain is not None:
        return plain
    units = character.group().encode("utf-16-be", "surrogatepass").hex().upper()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
