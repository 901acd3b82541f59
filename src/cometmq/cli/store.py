"""`cometmq store`: look into a store directory without a broker; nothing in it is changed.

    cometmq store dump DIR [-o json] [--topic T]      every message, one line each
    cometmq store check DIR [-o json]                 log, queues and index against each other

    0   all is well
    1   something is wrong with the directory; the lines on stderr (dump) or in the report (check) say what
    2   the command line is wrong
    3   it is no store directory

The directory may belong to a broker that is running, or that crashed.
"""

import argparse
import json
import os
import sys
from typing import Final

from cometmq.errors import StoreError
from cometmq.store.check import PROBLEMS_MAX, Report, check
from cometmq.store.damage import Damage
from cometmq.store.disk import OsDisk
from cometmq.store.dump import dump
from cometmq.store.logfiles import LogFiles, commitlog_directories

EXIT_WRONG: Final = 1
EXIT_NO_STORE: Final = 3


def main(argv: list[str]) -> int:
    try:
        options = _parser().parse_args(argv)
    except SystemExit as leaving:  # argparse has said what is wrong, or printed its help
        return int(leaving.code or 0)
    disk = OsDisk()
    try:
        log = LogFiles(disk, options.commitlog or commitlog_directories(disk, options.directory))
        if options.verb == "dump":
            return _dump(log, options.output, options.topic)
        return _check(check(disk, options.directory, log, options.index_slots), options.output)
    except (StoreError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            # Whoever read our output has seen enough; keep the interpreter from complaining at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        print(f"cometmq store: {error}", file=sys.stderr)
        return EXIT_NO_STORE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cometmq store",
        description="Look into a store directory. Nothing in it is changed; a broker may be using it.",
        epilog="exit codes: 0 all is well, 1 something is wrong, 2 wrong arguments, 3 no store directory",
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    dumping = verbs.add_parser("dump", help="print every message")
    dumping.add_argument("--topic", help="only messages of this topic")
    checking = verbs.add_parser("check", help="verify log, queues and index")
    checking.add_argument(
        "--index-slots", type=int, default=0, metavar="N", help="maxHashSlotNum, if it is not a quarter of maxIndexNum"
    )
    for verb in (dumping, checking):
        verb.add_argument("directory", metavar="DIR", help="storePathRootDir of the broker")
        verb.add_argument("-o", "--output", choices=("text", "json"), default="text")
        verb.add_argument(
            "--commitlog", action="append", metavar="DIR", help="where the log is, if not in DIR/commitlog; repeatable"
        )
    return parser


def _dump(log: LogFiles, output: str, topic: str | None) -> int:
    wrong = 0
    for message in dump(log):
        if isinstance(message, Damage):
            wrong = EXIT_WRONG
            print(f"no record from {message.start} to {message.end}: {message.reason}", file=sys.stderr)
        elif topic is None or message["topic"] == topic:
            if output == "json":
                print(json.dumps(message, ensure_ascii=False, separators=(",", ":")))
            else:
                place = f"{message['commitLogOffset']:>14} {message['storeSize']:>8}"
                queue = f"{message['topic']} {message['queueId']} {message['queueOffset']}"
                print(f"{place} {message['storeTimestamp']} {queue} {message['msgId']}")
    sys.stdout.flush()
    return wrong


def _check(report: Report, output: str) -> int:
    if output == "json":
        print(json.dumps(vars(report), ensure_ascii=False))
    else:
        print(f"commitlog     {report.records} records, {report.bytes} bytes")
        print(f"consumequeue  {report.queues} queues, {report.units} units")
        print(f"index         {report.index_files} files, {report.index_entries} entries")
        for line in report.notes:
            print(f"note: {line}")
        for line in report.problems:
            print(f"wrong: {line}")
        if report.problem_count > PROBLEMS_MAX:
            print(f"wrong: and {report.problem_count - PROBLEMS_MAX} more")
        print("all is well" if not report.problem_count else f"{report.problem_count} problems")
    return EXIT_WRONG if report.problem_count else 0
