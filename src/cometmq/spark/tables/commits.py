"""What one commit adds to a table, and what it notes there: decided from values, nothing is read or written here.

    cometmq.topic             orders
    cometmq.QUERY.batch       7                                    the last batch of a query that is in the table
    cometmq.QUERY.offsets     {"@v":1,"orders":{"broker-a":{"0":120}}}     the end of its rows in each queue

The properties are set in the same commit that adds the files, so a table never says more than it has. A batch is added
when its number is above the one noted, and only where it continues the rows of each queue: what overlaps them would be
there twice, what leaves a gap would be missing for good.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from cometmq.errors import StoreError
from cometmq.spark.lake.archive import LakeFile, Manifest
from cometmq.spark.live.offsets import Positions, Queue, from_json, to_json

PREFIX: Final = "cometmq."
TOPIC: Final = "cometmq.topic"
_BATCH: Final = ".batch"
_OFFSETS: Final = ".offsets"
# The footer of each is read for its entry.
FILES_MAX: Final = 1000


@dataclass(frozen=True)
class Addition:
    """Files for a table and the properties that say so; `batches` are those that are in it afterwards."""

    files: tuple[LakeFile, ...]
    properties: dict[str, str]
    batches: tuple[tuple[str, int], ...]


def done_batches(properties: Mapping[str, str]) -> dict[str, int]:
    """The last batch of each query that is in the table."""
    return {
        name[len(PREFIX) : -len(_BATCH)]: int(value)
        for name, value in properties.items()
        if name.startswith(PREFIX) and name.endswith(_BATCH)
    }


def committed(properties: Mapping[str, str]) -> Positions:
    """Where the rows of each queue end in the table."""
    found: Positions = {}
    for name, value in properties.items():
        if name.startswith(PREFIX) and name.endswith(_OFFSETS):
            for queue, offset in from_json(value, f"property {name}").items():
                found[queue] = max(offset, found.get(queue, 0))
    return found


def addition(
    topic: str, properties: Mapping[str, str], manifests: Iterable[Manifest], *, gaps: bool = False
) -> Addition | None:
    """What of these manifests a table lacks, in order, or None. `gaps`: lost messages were allowed to be left out."""
    done = done_batches(properties)
    reached = committed(properties)
    noted: dict[str, str] = {}
    files: list[LakeFile] = []
    batches: list[tuple[str, int]] = []
    for manifest in sorted(manifests, key=lambda one: (one.query, one.batch)):
        new = [file for file in manifest.files if file.topic == topic]
        if not new or manifest.batch <= done.get(manifest.query, -1):
            continue
        if files and len(files) + len(new) > FILES_MAX:
            break
        reached |= _ends(new, reached, manifest, gaps)
        files += new
        batches.append((manifest.query, manifest.batch))
        noted[f"{PREFIX}{manifest.query}{_BATCH}"] = str(manifest.batch)
        noted[f"{PREFIX}{manifest.query}{_OFFSETS}"] = to_json(reached)
    return Addition(tuple(files), noted, tuple(batches)) if files else None


def _ends(files: list[LakeFile], reached: Positions, manifest: Manifest, gaps: bool) -> Positions:
    found: Positions = {}
    firsts: Positions = {}
    for file in files:
        queue = Queue(file.topic, file.broker, file.queue)
        firsts[queue] = min(file.first, firsts.get(queue, file.first))
        found[queue] = max(file.last, found.get(queue, 0))
    for queue, first in firsts.items():
        end = reached.get(queue, first)
        if first == end or (first > end and gaps):
            continue
        what = "rows would be there twice" if first < end else "rows would be missing"
        raise StoreError(
            f"batch {manifest.batch} of query {manifest.query} begins at {first} of {queue}, the table ends at {end}: "
            f"{what}. Another run has written the table, or it was set back: stop all runs, delete `checkpoint` and "
            f"`manifest/{manifest.query}` of the warehouse, and run again; it begins where the table ends"
        )
    return found


def covered(manifest: Manifest, properties: Mapping[str, Mapping[str, str]]) -> bool:
    """Whether all tables of a manifest have it; `properties` by topic. A topic that has no table asks for nothing."""
    topics = {file.topic for file in manifest.files} & properties.keys()
    return all(done_batches(properties[topic]).get(manifest.query, -1) >= manifest.batch for topic in topics)
