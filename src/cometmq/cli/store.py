"""`cometmq store`: look into a store directory without a broker. Only `rebuild` changes anything.

    cometmq store dump DIR [-o json] [--topic T]      every message, one line each
    cometmq store check DIR                           log, queues and index against each other
    cometmq store stats DIR                           topics with their messages, bytes and times
    cometmq store rebuild DIR [--yes]                 queues and index anew, from the log

    1   something is wrong with the directory; the lines on stderr (dump, stats) or in the report (check) say what
    3   it is no store directory, or a broker is using it (rebuild)

For the first three the directory may belong to a broker that is running, or that crashed.
"""

import argparse
from collections.abc import Iterator
from typing import Any, Final

from cometmq.cli.shared import output
from cometmq.cli.shared.arguments import Verb, run_noun
from cometmq.cli.shared.failures import EXIT_NO
from cometmq.cli.shared.progress import WatchedLog
from cometmq.cli.shared.times import time_text
from cometmq.store.disk import OsDisk
from cometmq.store.log.resync import Damage
from cometmq.store.offline.check import PROBLEMS_MAX, check
from cometmq.store.offline.dump import dump
from cometmq.store.offline.log_files import LogFiles, commitlog_directories


def main(argv: list[str]) -> int:
    return run_noun("store", "Look into a store directory; a broker may be using it.", VERBS, argv)


def _open(options: argparse.Namespace) -> LogFiles:
    disk = OsDisk()
    return WatchedLog(disk, options.commitlog or commitlog_directories(disk, options.directory))


def _dump(options: argparse.Namespace) -> int:
    walk = _Walk(_open(options))
    for message in walk:
        if options.topic is None or message["topic"] == options.topic:
            if options.output == "json":
                output.line(message)
            elif options.output == "yaml":
                print(f"---\n{output.yaml(message)}")
            else:
                place = f"{message['commitLogOffset']:>14} {message['storeSize']:>8}"
                queue = f"{message['topic']} {message['queueId']} {message['queueOffset']}"
                print(f"{place} {message['storeTimestamp']} {queue} {message['msgId']}")
    return walk.exit_code


class _Walk:
    """Messages of a log; damage between them is told to the person and to the exit code."""

    def __init__(self, log: LogFiles) -> None:
        self._log = log
        self.exit_code = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for message in dump(self._log):
            if isinstance(message, Damage):
                self.exit_code = EXIT_NO
                output.note(f"no record from {message.start} to {message.end}: {message.reason}")
            else:
                yield message


def _check(options: argparse.Namespace) -> int:
    report = check(OsDisk(), options.directory, _open(options), options.index_slots)
    if options.output == "json":
        output.line(vars(report))
    elif options.output == "yaml":
        print(output.yaml(vars(report)))
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
    if report.problem_count and options.output in ("table", "wide"):
        output.note(f"wrong queues or index: stop the broker, then cometmq store rebuild {options.directory}")
    return EXIT_NO if report.problem_count else 0


def _stats(options: argparse.Namespace) -> int:
    log = _open(options)
    walk = _Walk(log)
    topics: dict[str, dict[str, Any]] = {}
    for message in walk:
        topic = topics.setdefault(message["topic"], _nothing(message))
        topic["messages"] += 1
        topic["bytes"] += message["storeSize"]
        topic["body_bytes"] += len(message["bodyHex"]) // 2
        topic["queue_ids"].add(message["queueId"])
        topic["last_ms"] = max(topic["last_ms"], message["storeTimestamp"])
    found = sorted(topics.values(), key=lambda topic: -int(topic["bytes"]))
    for topic in found:
        topic["queues"] = len(topic.pop("queue_ids"))
        topic["first"], topic["last"] = time_text(topic["first_ms"]), time_text(topic["last_ms"])
    output.rows(options.output, found, ("topic", "queues", "messages", "bytes", "last"), ("body_bytes", "first"))
    output.note(f"{len(log.segments)} log files of {log.segments[0].size if log.segments else 0} bytes")
    return walk.exit_code


def _nothing(message: dict[str, Any]) -> dict[str, Any]:
    stored_ms = message["storeTimestamp"]
    return {
        "topic": message["topic"],
        "messages": 0,
        "bytes": 0,
        "body_bytes": 0,
        "queue_ids": set(),
        "first_ms": stored_ms,
        "last_ms": stored_ms,
    }


def _rebuild(options: argparse.Namespace) -> int:
    from cometmq.cli.shared.rebuild import rebuild

    return rebuild(options)


def _directory(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", help="storePathRootDir of the broker")
    parser.add_argument(
        "--commitlog", action="append", metavar="DIR", help="where the log is, if not in DIR/commitlog; repeatable"
    )


def _dump_arguments(parser: argparse.ArgumentParser) -> None:
    _directory(parser)
    parser.add_argument("--topic", help="only messages of this topic")


def _check_arguments(parser: argparse.ArgumentParser) -> None:
    _directory(parser)
    parser.add_argument(
        "--index-slots", type=int, default=0, metavar="N", help="maxHashSlotNum, if it is not a quarter of maxIndexNum"
    )


def _rebuild_arguments(parser: argparse.ArgumentParser) -> None:
    _directory(parser)
    parser.add_argument("-c", "--config", metavar="FILE", help="the broker's settings, if its file sizes are not kept")
    parser.add_argument("--yes", action="store_true", help="do it; without this only the plan is shown")


VERBS: Final = (
    Verb("dump", "print every message", _dump, _dump_arguments, cluster=False),
    Verb("check", "verify log, queues and index", _check, _check_arguments, cluster=False),
    Verb("stats", "messages, bytes and times of each topic", _stats, _directory, cluster=False),
    Verb("rebuild", "make queues and index anew, from the log", _rebuild, _rebuild_arguments, cluster=False),
)
