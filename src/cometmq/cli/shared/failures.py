"""Exit codes of the commands, and the one line that a user sees when something did not work.

    0    done
    1    the answer is "no": something is wrong with what was looked at, or part of the work failed
    2    the command line is wrong
    3    a file, a setting or a store directory cannot be used
    4    a server cannot be reached, no broker is registered, or an address cannot be listened on
    5    a disk failed or is full
    6    there is no such topic, group, message, broker or context
    7    the server does not permit it
    8    stored, but not as safely as the broker promises: no replica had it, or the disk did not confirm it
    130  stopped by Ctrl-C

The line names the command, the cause and what to do about it. A traceback is a bug of ours, never a user's mistake.
"""

import errno
import sys
from typing import Final

from cometmq.errors import (
    AccessDenied,
    BrokerError,
    BrokerUnknown,
    CallTimeout,
    CodecError,
    CometError,
    ConfigError,
    ConnectFailed,
    NoNameServer,
    NoRoute,
    NotFound,
    SendFailed,
    StoreError,
)
from cometmq.wire.codes import Response

EXIT_NO: Final = 1
EXIT_USAGE: Final = 2
EXIT_FILE: Final = 3
EXIT_UNREACHABLE: Final = 4
EXIT_DISK: Final = 5
EXIT_MISSING: Final = 6
EXIT_REFUSED: Final = 7
EXIT_UNCONFIRMED: Final = 8
EXIT_INTERRUPTED: Final = 130

EPILOG: Final = (
    "exit codes: 0 done, 1 no or in part, 2 wrong arguments, 3 bad file or setting, 4 cannot reach or listen, "
    "5 disk, 6 not found, 7 not permitted, 8 stored but not confirmed, 130 Ctrl-C"
)

# What to do about an answer, by its code; `cometmq explain CODE` says more.
_FIXES: Final = {
    1: "see the broker's log",
    2: "the broker is busy: try again, or send less at once",
    3: "this server does not know the request: it is older, or a Java broker without that feature",
    13: "the message or one of its fields is not acceptable",
    14: "the broker takes no writes: look at its disk and log (cometmq cluster health)",
    17: "create it first: cometmq topic create NAME",
    26: "create it first: cometmq group create NAME",
    206: "no consumer of the group is connected: start one",
}
_EXITS: Final = {14: EXIT_DISK, 17: EXIT_MISSING, 22: EXIT_MISSING, 26: EXIT_MISSING}


class Failure(CometError):
    """What a command itself finds out: its exit code and its line."""

    def __init__(self, exit_code: int, text: str) -> None:
        super().__init__(text)
        self.exit_code = exit_code


def fail(command: str, error: Exception) -> int:
    """One line on stderr; the exit code."""
    code, text = judge(error)
    print(f"cometmq {command}: {text}".replace("\n", " "), file=sys.stderr)
    return code


def judge(error: Exception) -> tuple[int, str]:
    if isinstance(error, Failure):
        return error.exit_code, str(error)
    if isinstance(error, AccessDenied):
        return EXIT_REFUSED, str(error)
    if isinstance(error, BrokerError):
        if error.code == Response.NO_PERMISSION:
            return EXIT_REFUSED, _judge_refusal(error)
        fix = _FIXES.get(error.code, f"see cometmq explain {error.code}")
        return _EXITS.get(error.code, EXIT_NO), f"{error}; {fix}"
    if isinstance(error, NoRoute):
        if isinstance(error.__cause__, ConnectFailed | CallTimeout | SendFailed):
            return EXIT_UNREACHABLE, f"{error}; {_WHERE}"
        return EXIT_MISSING, str(error)
    if isinstance(error, NotFound):
        return EXIT_MISSING, str(error)
    if isinstance(error, BrokerUnknown):
        return EXIT_MISSING, f"{error}; cometmq cluster list shows the brokers that are registered"
    if isinstance(error, ConnectFailed | NoNameServer):
        return EXIT_UNREACHABLE, f"{error}; {_WHERE}"
    if isinstance(error, CallTimeout | SendFailed):
        return EXIT_UNREACHABLE, f"{error}; {_SLOW}"
    if isinstance(error, ConfigError | CodecError):
        return EXIT_USAGE, str(error)
    if isinstance(error, StoreError):
        return EXIT_FILE, str(error)
    if isinstance(error, OSError):
        return _judge_system(error)
    return EXIT_NO, str(error)


def _judge_refusal(error: BrokerError) -> str:
    """One code has several causes: a user without a right, a topic or broker that is closed, a setting that stays."""
    said = error.remark.lower()
    if "cannot be changed" in said or "black list" in said or "blacklist" in said:
        return f"{error}; change it in the broker's settings file, then restart it"
    if "permission to access" in said or "acl" in said or "signature" in said:
        return f"{error}; give other keys (--access-key, --secret-key), or see cometmq acl explain"
    return f"{error}; see cometmq explain {error.code}, and cometmq topic describe if it is about a topic"


_WHERE: Final = "is it running (cometmq up), and is that its address (--namesrv HOST:PORT, cometmq context list)?"
_SLOW: Final = "the server may be stopped or overloaded: see cometmq cluster health, or give it more --timeout"


def _judge_system(error: OSError) -> tuple[int, str]:
    if error.errno == errno.ENOSPC:
        return EXIT_DISK, f"{error.strerror}: {error.filename or 'the disk'} is full; free some room, then try again"
    if error.errno == errno.EIO:
        return EXIT_DISK, f"{error.strerror}: {error.filename or 'the disk'} failed; check the device"
    if error.filename is not None:
        return EXIT_FILE, f"{error.filename}: {error.strerror or error}"
    return EXIT_FILE, str(error)
