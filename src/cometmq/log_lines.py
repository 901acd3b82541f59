"""One event is one line of the log, whatever a peer has put into its values.

Names, addresses and remarks come from the wire. A line break in one of them would begin a line that looks like the
broker's own, an escape sequence would act on the terminal that shows it, and a long one fills the disk. So a server
writes its log through `OneLine`: what is not printable is escaped (a line break becomes a backslash and an n), and a
message ends after `CHARS_MAX` characters. Tracebacks keep their lines, each of them indented and escaped: no line of
them can be taken for an event.
"""

import logging
import re
from typing import Final

CHARS_MAX: Final = 2_000
TRACEBACK_CHARS_MAX: Final = 20_000
# Control characters, line and paragraph separators, what changes the direction of text, surrogates.
_UNPRINTABLE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)


def one_line(text: str, chars_max: int = CHARS_MAX) -> str:
    """`text` without anything that is not printable, and cut."""
    if len(text) > chars_max:
        text = f"{text[:chars_max]}... ({len(text)} characters)"
    return text if text.isascii() and text.isprintable() else _UNPRINTABLE.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    return found.group().encode("unicode_escape").decode()


class OneLine(logging.Formatter):
    """Wraps the formatter that a handler has."""

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        safe = logging.makeLogRecord(record.__dict__)
        try:
            safe.msg = one_line(record.getMessage())
        except Exception as error:
            safe.msg = one_line(f"cannot write a line of the log: {record.msg!r}: {error}")
        safe.args = None
        record.message = safe.msg  # as every formatter leaves it there, for handlers that look
        trace = ""
        if record.exc_info and record.exc_info[0] is not None:
            trace = self._inner.formatException(record.exc_info)
        elif record.exc_text:
            trace = record.exc_text
        safe.exc_info = safe.exc_text = None
        line = self._inner.format(safe)
        if trace:
            lines = trace[-TRACEBACK_CHARS_MAX:].splitlines()
            line += "".join(f"\n    {one_line(each)}" for each in lines)
        return line


def write_one_line_an_event() -> None:
    """Have all handlers of the root logger do so."""
    for handler in logging.getLogger().handlers:
        if not isinstance(handler.formatter, OneLine):
            handler.setFormatter(OneLine(handler.formatter or logging.Formatter()))
