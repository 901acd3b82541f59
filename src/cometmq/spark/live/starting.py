"""Which queues a query reads, and from where to where.

    subscribe | subscribePattern | assign          exactly one
    startingTimestamp  >  startingOffsetsByTimestamp  >  startingOffsets        the first that is given counts

`startingOffsets` is earliest, latest, group (the position of `consumerGroup`) or a JSON of offsets; for batches
`endingOffsets` and its kin likewise. A stream must begin where it began when its first batch fails and it is started
again, and Spark keeps no note of that for a Python source. So "latest" and "group" are settled once and pinned, as
offsets of the group `__spark_init_GROUP`, or in the file `initialOffsetStore`.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from cometmq.errors import BrokerError, ConfigError, NoRoute
from cometmq.spark.live.offsets import EARLIEST, GROUP, LATEST, Positions, Queue, from_dict, from_json, to_json
from cometmq.spark.live.remote import Remote
from cometmq.spark.live.topics import keeps_books, matching
from cometmq.spark.options import Options

logger = logging.getLogger(__name__)

TOPIC_OPTIONS: Final[dict[str, str | None]] = {"subscribe": None, "subscribePattern": None, "assign": None}
START_OPTIONS: Final[dict[str, str | None]] = {
    "startingOffsets": None,
    "startingTimestamp": None,
    "startingOffsetsByTimestamp": None,
    "startingOffsetsByTimestampStrategy": "error",
    "consumerGroup": None,
    "initialOffsetStore": None,
}
END_OPTIONS: Final[dict[str, str | None]] = {
    "endingOffsets": None,
    "endingTimestamp": None,
    "endingOffsetsByTimestamp": None,
}
PIN_PREFIX: Final = "__spark_init_"
_WORDS: Final = {"earliest": EARLIEST, "latest": LATEST, "group": GROUP}


def queues_of(options: Options, cluster: Remote) -> list[Queue]:
    """ConfigError unless one of the three says which; NoRoute names a topic that is not there."""
    given = [name for name in TOPIC_OPTIONS if options.get(name)]
    if len(given) != 1:
        stated = " and ".join(given) or "none"
        raise ConfigError(f"give exactly one of subscribe, subscribePattern and assign, not {stated}")
    if given[0] == "subscribe":
        return cluster.queues(_there(options.names("subscribe"), cluster))
    if given[0] == "subscribePattern":
        return cluster.queues(filter(matching(options.text("subscribePattern")), cluster.topics()))
    return _assigned(options, cluster)


def is_wanted(options: Options, queue: Queue) -> bool:
    """Whether the query reads this queue, be it there or not."""
    if options.get("subscribe"):
        return queue.topic in options.names("subscribe")
    if options.get("subscribePattern"):
        return matching(options.text("subscribePattern"))(queue.topic)
    return queue.number in map(int, options.json("assign").get(queue.topic, {}).get(queue.broker, ()))


def _there(topics: list[str], cluster: Remote) -> list[str]:
    try:
        cluster.queues(topics)
    except (NoRoute, BrokerError) as error:
        known = ", ".join(topic for topic in cluster.topics() if not keeps_books(topic)) or "none"
        raise NoRoute(f"{error}; the cluster has these topics: {known}") from None
    return topics


def _assigned(options: Options, cluster: Remote) -> list[Queue]:
    tree = options.json("assign")
    try:
        wanted = {
            Queue(topic, broker, int(number))
            for topic, brokers in tree.items()
            for broker, numbers in brokers.items()
            for number in numbers
        }
    except (AttributeError, TypeError, ValueError):
        raise ConfigError('option assign must be {"topic":{"broker":[0,1]}}') from None
    missing = wanted - set(cluster.queues(sorted({queue.topic for queue in wanted})))
    if missing:
        raise ConfigError(f"option assign names what is not there: {', '.join(map(str, sorted(missing)))}")
    return sorted(wanted)


def starting(options: Options, cluster: Remote, queues: list[Queue], *, streaming: bool) -> Positions:
    default = "latest" if streaming else "earliest"
    if not streaming and (options.get("startingOffsets") or "").strip().lower() == "latest":
        raise ConfigError("startingOffsets=latest reads nothing in a batch: use earliest, group, a time or offsets")
    return _resolve(options, cluster, queues, "starting", default)


def ending(options: Options, cluster: Remote, queues: list[Queue]) -> Positions:
    if (options.get("endingOffsets") or "").strip().lower() == "earliest":
        raise ConfigError("endingOffsets=earliest reads nothing")
    return _resolve(options, cluster, queues, "ending", "latest")


def _resolve(options: Options, cluster: Remote, queues: list[Queue], side: str, default: str) -> Positions:
    if options.get(f"{side}Timestamp"):
        time_ms = options.number(f"{side}Timestamp")
        return _at_times(options, cluster, dict.fromkeys(queues, time_ms), side)
    if options.get(f"{side}OffsetsByTimestamp"):
        name = f"{side}OffsetsByTimestamp"
        return _at_times(options, cluster, _complete(from_dict(options.json(name), name), queues, side), side)
    text = (options.get(f"{side}Offsets") or default).strip()
    if text.lower() in _WORDS:
        marks = dict.fromkeys(queues, _WORDS[text.lower()])
    elif text.startswith("{"):
        marks = _complete(from_json(text, f"{side}Offsets"), queues, side)
    else:
        raise ConfigError(f"option {side}Offsets={text} is none of earliest, latest, group and no JSON")
    return _marked(options, cluster, marks)


def _complete(stated: Positions, queues: list[Queue], side: str) -> Positions:
    missing, strange = set(queues) - set(stated), set(stated) - set(queues)
    if missing or strange:
        raise ConfigError(
            f"option {side}Offsets must name every queue that is read and no other; "
            f"missing: {', '.join(map(str, sorted(missing))) or 'none'}; not read: "
            f"{', '.join(map(str, sorted(strange))) or 'none'}"
        )
    return stated


def _marked(options: Options, cluster: Remote, marks: Positions) -> Positions:
    bounds = cluster.bounds(marks)
    at_group = [queue for queue, mark in marks.items() if mark == GROUP]
    stands = cluster.committed(_group(options), at_group) if at_group else {}
    found = {}
    for queue, mark in marks.items():
        if mark == LATEST:
            found[queue] = bounds[queue].last
        elif mark == EARLIEST:
            found[queue] = bounds[queue].first
        elif mark == GROUP:
            found[queue] = stands.get(queue, bounds[queue].first)
        elif mark < 0:
            raise ConfigError(f"{queue}: offset {mark} is none; -1 is the latest, -2 the earliest, -3 the group's")
        else:
            found[queue] = mark
    return found


def _group(options: Options) -> str:
    return options.text("consumerGroup", "the group whose position is asked for")


def _at_times(options: Options, cluster: Remote, times: Positions, side: str) -> Positions:
    bounds = cluster.bounds(times)
    found: Positions = {}
    for time_ms in set(times.values()):
        found |= cluster.at_time([queue for queue, time in times.items() if time == time_ms], time_ms)
    if side == "ending":
        return found
    strategy = options.choice("startingOffsetsByTimestampStrategy", ("error", "latest", "earliest"))
    for queue, (first, last) in bounds.items():
        if last > first and found[queue] >= last:  # nothing so young is there
            if strategy == "error":
                raise ConfigError(
                    f"{queue} has no message of {times[queue]} ms or later: give another time, or "
                    "startingOffsetsByTimestampStrategy=latest or earliest"
                )
            found[queue] = last if strategy == "latest" else first
    return found


class Pin:
    """Keeps the first offsets of a stream until its own checkpoint does."""

    def __init__(self, options: Options, cluster: Remote) -> None:
        group, store = options.get("consumerGroup"), options.get("initialOffsetStore")
        self._cluster = cluster
        self._group = f"{PIN_PREFIX}{group}" if group and store in (None, "group") else None
        self._file = Path(store) if store and store != "group" else None
        if store == "group" and not group:
            raise ConfigError("initialOffsetStore=group needs consumerGroup")

    def read(self, queues: list[Queue]) -> Positions | None:
        if self._file is not None:
            return from_json(self._file.read_text(), str(self._file)) if self._file.exists() else None
        if self._group is not None:
            found = self._cluster.committed(self._group, queues)
            return found if len(found) == len(queues) else None
        return None

    def write(self, positions: Positions) -> None:
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            fresh = self._file.with_suffix(".new")
            fresh.write_text(to_json(positions))
            fresh.replace(self._file)
        elif self._group is not None:
            self._cluster.commit(self._group, positions)
        else:
            logger.warning(
                "no pin for the first offsets: a first batch that fails may skip messages when the query is started "
                "again; set consumerGroup or initialOffsetStore"
            )
