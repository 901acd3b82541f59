"""Consumer offsets: commits, resets, administration, and the file that a thread writes from live tables."""

import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from cometmq.broker.config import BrokerConfig
from cometmq.broker.tables import saving
from cometmq.broker.tables.offsets import Offsets
from cometmq.clock import ManualClock
from cometmq.errors import StoreError
from cometmq.wire.bodies import ConsumerOffsetTable, DataVersion
from cometmq.wire.fastjson.dialect import dumps_pretty, loads
from tests.support.golden import StoreName, golden_store

NOW_MS = 1_700_000_000_000


def new_offsets(version_step: int = 500) -> tuple[Offsets, ManualClock]:
    clock = ManualClock(NOW_MS)
    config = replace(BrokerConfig(), offset_version_step=version_step)
    return Offsets(lambda: config, clock), clock


def offsets_of(*commits: tuple[str, str, int, int]) -> Offsets:
    offsets, _ = new_offsets()
    for group, topic, queue_id, offset in commits:
        offsets.commit(group, topic, queue_id, offset, "client")
    return offsets


def test_the_last_commit_counts_even_if_it_goes_back() -> None:
    offsets = offsets_of(("g", "T", 0, 10), ("g", "T", 0, 7))

    assert offsets.query("g", "T", 0) == 7


def test_what_was_never_committed_is_minus_one() -> None:
    offsets = offsets_of(("g", "T", 0, 10))

    assert offsets.query("g", "T", 1) == -1
    assert offsets.query("h", "T", 0) == -1
    assert offsets.query("g", "U", 0) == -1


def test_the_version_goes_up_with_every_five_hundredth_commit() -> None:
    offsets, clock = new_offsets()
    for number in range(499):
        offsets.commit("g", "T", 0, number, "client")
    assert offsets.data_version == DataVersion(timestamp=NOW_MS)

    clock.advance(3)
    offsets.commit("g", "T", 0, 499, "client")
    assert offsets.data_version == DataVersion(counter=1, timestamp=NOW_MS + 3000)

    for number in range(500):
        offsets.commit("g", "T", 0, number, "client")
    assert offsets.data_version.counter == 2


def test_commits_of_an_idle_consumer_are_no_change() -> None:
    offsets = offsets_of(("g", "T", 0, 10))
    offsets.pull_commit("g", "T", 0, 10)
    changes = offsets.changes

    offsets.commit("g", "T", 0, 10, "client")
    offsets.pull_commit("g", "T", 0, 10)
    assert offsets.changes == changes

    offsets.commit("g", "T", 0, 11, "client")
    offsets.pull_commit("g", "T", 0, 12)
    assert offsets.changes == changes + 2


def test_pull_offsets_are_their_own_and_fall_back_to_commits() -> None:
    offsets = offsets_of(("g", "T", 0, 10))
    assert offsets.query_pull("g", "T", 0) == 10

    offsets.pull_commit("g", "T", 0, 42)
    assert offsets.query_pull("g", "T", 0) == 42
    assert offsets.query("g", "T", 0) == 10
    assert offsets.query_pull("g", "T", 1) == -1


def test_a_reset_is_taken_once_and_stays_as_the_offset() -> None:
    offsets = offsets_of(("g", "T", 0, 10))
    offsets.assign_reset("g", "T", 0, 3)
    assert offsets.has_reset("g", "T", 0)
    assert not offsets.has_reset("g", "T", 1)
    assert not offsets.has_reset("h", "T", 0)
    assert offsets.query("g", "T", 0) == 3

    # A commit that slips by must not hide the reset.
    offsets.commit("g", "T", 0, 11, "client")
    assert offsets.query("g", "T", 0) == 3

    assert offsets.take_reset("g", "T", 1) is None
    assert offsets.take_reset("g", "T", 0) == 3
    assert offsets.take_reset("g", "T", 0) is None
    assert not offsets.has_reset("g", "T", 0)


def test_resets_of_several_queues_are_independent() -> None:
    offsets, _ = new_offsets()
    offsets.assign_reset("g", "T", 0, 3)
    offsets.assign_reset("g", "T", 1, 4)
    offsets.assign_reset("h", "T", 0, 5)

    assert offsets.take_reset("g", "T", 0) == 3
    assert offsets.take_reset("g", "T", 1) == 4
    assert offsets.take_reset("h", "T", 0) == 5


def test_topics_and_groups_are_found_from_either_side() -> None:
    offsets = offsets_of(("g", "T", 0, 1), ("g", "U", 0, 1), ("h", "T", 0, 1))

    assert offsets.topics_of_group("g") == ["T", "U"]
    assert offsets.groups_of_topic("T") == ["g", "h"]
    assert offsets.groups_of_topic("V") == []
    assert offsets.groups() == ["g", "h"]
    assert offsets.of_group("g", "T") == {0: 1}


def test_a_clone_goes_its_own_way() -> None:
    offsets = offsets_of(("g", "T", 0, 1), ("g", "T", 1, 2))
    offsets.clone("g", "h", "T")
    offsets.clone("nobody", "h", "T")
    offsets.commit("h", "T", 0, 99, "client")

    assert offsets.of_group("h", "T") == {0: 99, 1: 2}
    assert offsets.of_group("g", "T") == {0: 1, 1: 2}


def test_removing_a_topic_or_a_group_leaves_no_trace_of_it() -> None:
    offsets = offsets_of(("g", "T", 0, 1), ("g", "U", 0, 1), ("h", "T", 0, 1))
    for group, topic in (("g", "T"), ("g", "U"), ("h", "T")):
        offsets.pull_commit(group, topic, 0, 5)
        offsets.assign_reset(group, topic, 0, 1)

    offsets.remove_topic("T")
    assert offsets.topics_of_group("g") == ["U"]
    assert offsets.query_pull("h", "T", 0) == -1
    assert offsets.take_reset("h", "T", 0) is None

    offsets.remove_group("g")
    assert offsets.groups() == []
    assert offsets.take_reset("g", "U", 0) is None
    assert loads(offsets.snapshot()()) == {
        "dataVersion": {"counter": 0, "stateVersion": 0, "timestamp": NOW_MS},
        "offsetTable": {},
        "pullOffsetTable": {},
    }


@pytest.mark.parametrize("name", ["clean", "crash"])
def test_the_golden_file_is_read_and_written_in_javas_shape(name: StoreName) -> None:
    file = golden_store(name) / "config" / "consumerOffset.json"
    offsets, _ = new_offsets()
    assert saving.load(offsets, file)

    java = loads(file.read_bytes())
    assert offsets.query("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC", 0) == (12 if name == "clean" else 9)
    suffix = "A" if name == "clean" else "B"
    assert offsets.query_pull(f"golden_c_{suffix}", f"GoldenNormal{suffix}", 3) == 50

    java.pop("groupTopicMap")  # derived by a getter; nobody reads it
    written = offsets.snapshot()()
    assert loads(written) == java
    assert sorted(written.splitlines()) == sorted(dumps_pretty(java).splitlines())


def test_the_file_and_the_wire_form_say_the_same() -> None:
    offsets = offsets_of(("g", "T", 1, 7), ("g", "T", 0, 250), ("h", "U", 3, 1))

    assert offsets.encode(DataVersion(timestamp=5)) == (
        b'{"dataVersion":{"counter":0,"stateVersion":0,"timestamp":5},'
        b'"offsetTable":{"T@g":{0:250,1:7},"U@h":{3:1}},"pullOffsetTable":{}}'
    )
    assert loads(offsets.encode(DataVersion(timestamp=5))) == loads(offsets.encode(DataVersion(timestamp=5), "\n"))


def test_names_with_the_separator_survive_the_file() -> None:
    offsets = offsets_of(("g@broadcast", "T", 0, 5))
    again, _ = new_offsets()
    again.restore(offsets.snapshot()())

    assert again.query("g@broadcast", "T", 0) == 5


def test_a_key_without_separator_is_passed_over() -> None:
    offsets, _ = new_offsets()
    offsets.restore(b'{"offsetTable":{"nonsense":{0:1},"T@g":{"0":2}}}')

    assert offsets.query("g", "T", 0) == 2
    assert offsets.topics_of_group("") == []


def test_a_damaged_file_keeps_the_broker_from_starting(tmp_path: Path) -> None:
    file = tmp_path / "consumerOffset.json"
    file.write_bytes(b'{"offsetTable":{"T@g":[1,2]}}')

    with pytest.raises(StoreError, match="no good copy"):
        saving.load(new_offsets()[0], file)


def test_encoding_in_a_thread_while_commits_go_on_gives_only_offsets_that_were_committed() -> None:
    """Offsets grow all the time; a table with an offset that is ahead, or that does not parse, is wrong."""
    offsets = offsets_of(*((f"g{number % 7}", f"T{number}", 0, 0) for number in range(2_000)))
    faults: list[str] = []

    def encode_some_times() -> None:
        for _ in range(10):
            before = offsets.query("g0", "T0", 0)
            try:
                read = ConsumerOffsetTable.decode(offsets.snapshot()())
            except Exception as error:
                faults.append(repr(error))
                return
            after = offsets.query("g0", "T0", 0)
            seen = read.offset_table["T0@g0"][0]
            if not before <= seen <= after:
                faults.append(f"{before} <= {seen} <= {after}")

    encoder = threading.Thread(target=encode_some_times)
    encoder.start()
    number = 0
    while encoder.is_alive():
        # Topics, groups and queues come into being while they are encoded.
        number += 1
        offsets.commit("new", f"New{number}", 0, 1, "client")
        offsets.commit(f"new{number}", "T1999", 0, 1, "client")
        offsets.commit("g0", "T0", number, 1, "client")
        offsets.commit("g0", "T0", 0, number, "client")
        time.sleep(0.0001)

    assert faults == []
