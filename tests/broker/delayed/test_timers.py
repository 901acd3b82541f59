"""Timer messages: what is taken, when it arrives, what takes it back, and what restarts and crashes leave of it."""

import random
from pathlib import Path
from typing import Any

import pytest

from cometmq.broker.delayed.timers import TURN_MESSAGES_MAX
from cometmq.broker.tables.pending_timers import PendingTimers
from cometmq.names import TIMER_TOPIC
from cometmq.store.disk import DiskFull, OsDisk
from cometmq.store.fake_disk import FakeDisk
from cometmq.store.log.append import AppendRequest
from cometmq.store.results import PutResult, PutStatus
from cometmq.store.timers.wheel import WHEEL_SLOTS
from cometmq.wire.record import properties
from tests.support.golden import StoreName, copy_golden_store, golden_store
from tests.support.parts import GOLDEN_SIZES
from tests.support.timing import START_MS, TOPIC, Bench, SteppingClock, props
from tests.support.whole_store import read_queue

ROUND_MS = 100
STEP_MS = 1000
GOLDEN_TIMERS: dict[str, Any] = {**GOLDEN_SIZES, "timer_log_file_bytes": 102_400, "slots": WHEEL_SLOTS}
# When the messages of the golden stores were taken in.
GOLDEN_MS: dict[StoreName, int] = {"clean": 1_794_725_598_210, "crash": 1_794_725_657_760}


# When they arrive


@pytest.mark.parametrize("offset_ms", [0, 1, 370, 999])
@pytest.mark.parametrize("delay_ms", [1, 999, 1000, 1001, 1500, 2000, 5123, 60_000, 61_001])
def test_a_message_is_never_early_and_at_most_a_step_late(offset_ms: int, delay_ms: int) -> None:
    bench = Bench()
    bench.clock.step_ms = offset_ms
    due_ms = offset_ms + delay_ms
    bench.keep(b"x", delay_ms)
    ((at_ms, body),) = bench.run(delay_ms / 1000 + 3)
    assert body == b"x"
    assert due_ms <= at_ms <= due_ms + STEP_MS + ROUND_MS


@pytest.mark.parametrize(
    ("given_ms", "precision_ms"), [(10, 100), (100, 100), (199, 100), (499, 200), (500, 500), (2000, 1000)]
)
def test_the_precision_is_a_setting(given_ms: int, precision_ms: int) -> None:
    bench = Bench(timer_precision_ms=given_ms)
    assert bench.files.precision_ms == precision_ms
    chance = random.Random(precision_ms)
    delays = [chance.randrange(1, 3000) for _ in range(50)]
    for number, delay_ms in enumerate(delays):
        bench.keep(b"%d" % number, delay_ms)
    arrived = bench.run(6, round_s=bench.timers.round_ms / 1000)
    assert sorted(int(body) for _, body in arrived) == list(range(50))
    for at_ms, body in arrived:
        due_ms = delays[int(body)]
        assert due_ms <= at_ms <= due_ms + precision_ms + bench.timers.round_ms


def test_random_times_arrive_in_order_of_their_slots() -> None:
    bench = Bench()
    chance = random.Random(5)
    due: dict[bytes, int] = {}
    for number in range(300):
        delay_ms = chance.randrange(1, 20_000)
        due[b"%d" % number] = bench.clock.now_ms() - START_MS + delay_ms
        bench.keep(b"%d" % number, delay_ms)
        bench.run(chance.choice((0, 0, 0.1)))
    bench.run(25)
    assert len(bench.arrived) == 300
    for at_ms, body in bench.arrived:
        assert due[body] <= at_ms <= due[body] + STEP_MS + ROUND_MS
    slots = [(due[body] - 1) // 1000 for _, body in bench.arrived]
    assert slots == sorted(slots)


@pytest.mark.parametrize(
    ("given", "due_ms"),
    [
        ({"TIMER_DELAY_SEC": 3, "TIMER_DELAY_MS": 9000, "TIMER_DELIVER_MS": START_MS + 8000}, 3000),
        ({"TIMER_DELAY_MS": 4000, "TIMER_DELIVER_MS": START_MS + 8000}, 4000),
        ({"TIMER_DELIVER_MS": START_MS + 5000}, 5000),
        ({"TIMER_DELIVER_MS": f"+{START_MS + 5000}"}, 5000),
    ],
)
def test_seconds_come_before_milliseconds_and_these_before_a_time(given: dict[str, Any], due_ms: int) -> None:
    bench = Bench()
    assert bench.put(b"x", **given).status == PutStatus.OK
    ((at_ms, _),) = bench.run(10)
    assert due_ms <= at_ms <= due_ms + ROUND_MS


@pytest.mark.parametrize("given", [{"TIMER_DELAY_SEC": -5}, {"TIMER_DELAY_MS": 0}, {"TIMER_DELIVER_MS": START_MS}])
def test_a_time_that_is_over_is_no_timer(given: dict[str, Any]) -> None:
    bench = Bench()
    assert bench.put(b"x", **given).status == PutStatus.OK
    assert bench.bodies() == [b"x"]
    assert not bench.kept()


def test_messages_that_wait_in_the_queue_longer_than_their_time_go_straight_on() -> None:
    bench = Bench()
    bench.keep(b"late", 1500)
    bench.clock.advance(60)
    bench.turns()
    bench.run(0.1)
    assert bench.bodies() == [b"late"], "the slot of the old write time"
    bench.timers.turn()
    bench.keep(b"later", 1500)
    bench.clock.advance(60)
    bench.timers._follow_clock()
    bench.turns()
    assert bench.bodies() == [b"late", b"later"]
    assert props(bench.delivered()[1])["TIMER_ENQUEUE_MS"] == str(2**63 - 1)
    assert bench.files.log.end == 52, "without a unit"


# What is taken


@pytest.mark.parametrize("name", ["TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"])
@pytest.mark.parametrize("text", ["soon", "1.5", "1e3", " 1", "٣", "9" * 19])
def test_what_is_no_number_is_refused(name: str, text: str) -> None:
    bench = Bench()
    given: dict[str, Any] = {name: text}
    result = bench.put(b"x", **given)
    assert result.status == PutStatus.WHEEL_TIMER_MESSAGE_ILLEGAL
    assert result.remark == f"{name}={text} is not a whole number"
    assert not bench.kept()


def test_a_delay_above_the_limit_is_refused() -> None:
    bench = Bench()
    assert bench.put(b"x", TIMER_DELAY_SEC=259_200).status == PutStatus.OK
    result = bench.put(b"x", TIMER_DELAY_MS=259_200_001)
    assert result.status == PutStatus.WHEEL_TIMER_MESSAGE_ILLEGAL
    assert "timerMaxDelaySec=259200" in result.remark
    assert bench.put(b"x", TIMER_DELAY_SEC=10**17).status == PutStatus.WHEEL_TIMER_MESSAGE_ILLEGAL


def test_a_message_that_takes_back_what_is_due_already_is_refused() -> None:
    bench = Bench()
    result = bench.put(b"0", TIMER_DELIVER_MS=START_MS, TIMER_DEL_UNIQKEY="key")
    assert result.status == PutStatus.WHEEL_TIMER_MESSAGE_ILLEGAL


def test_halves_are_not_delayed_and_committed_messages_are() -> None:
    bench = Bench()
    for sys_flag in (4, 12):
        assert bench.put(b"x", sys_flag=sys_flag, TIMER_DELAY_SEC=5).status == PutStatus.OK
    assert not bench.kept()
    for sys_flag in (0, 8):
        assert bench.put(b"x", sys_flag=sys_flag, TIMER_DELAY_SEC=5).status == PutStatus.OK
    assert len(bench.kept()) == 2


def test_a_delivered_message_that_is_sent_again_is_no_timer() -> None:
    bench = Bench()
    assert bench.put(b"x", TIMER_DELAY_SEC=5, TIMER_OUT_MS=START_MS).status == PutStatus.OK
    assert bench.bodies() == [b"x"]


def test_properties_must_leave_room_for_those_of_the_delivery() -> None:
    bench = Bench(timer_roll_slots=4)
    fits = 32_700
    while (result := bench.put(b"x", TIMER_DELAY_SEC=9, KEYS="k" * fits)).status != PutStatus.OK:
        assert result.status == PutStatus.PROPERTIES_SIZE_EXCEEDED
        fits -= 1
    bench.run(15)
    assert bench.bodies() == [b"x"]
    assert props(bench.delivered()[0])["TIMER_ROLL_TIMES"] == "1"


def test_a_crowded_slot_refuses_some_and_a_full_one_all() -> None:
    bench = Bench(timer_slot_count_max=50)
    results = []
    for _ in range(2000):
        results.append(bench.put(b"x", TIMER_DELIVER_MS=START_MS + 10_500).status)
        bench.turns()
    taken = results.count(PutStatus.OK)
    assert results[:51] == [PutStatus.OK] * 51
    assert results.count(PutStatus.WHEEL_TIMER_FLOW_CONTROL) == 2000 - taken
    assert 70 <= taken <= 100, "refuses more and more"
    assert bench.put(b"x", TIMER_DELIVER_MS=START_MS + 20_500).status == PutStatus.OK, "another slot has room"


def test_records_that_are_no_timer_messages_are_skipped() -> None:
    bench = Bench()
    for text in (
        "",
        "TIMER_OUT_MS\x01x\x02REAL_TOPIC\x01TopicA\x02REAL_QID\x010\x02",
        f"TIMER_OUT_MS\x01{START_MS + 1000}\x02REAL_QID\x010\x02",
        f"TIMER_OUT_MS\x01{START_MS + 1000}\x02REAL_TOPIC\x01TopicA\x02REAL_QID\x01-1\x02",
        f"TIMER_OUT_MS\x01{START_MS + 1000}\x02REAL_TOPIC\x01../TopicA\x02REAL_QID\x010\x02",
        f"TIMER_OUT_MS\x01{START_MS + 1000}\x02REAL_TOPIC\x01RMQ_SYS_TRANS_OP_HALF_TOPIC\x02REAL_QID\x010\x02",
        f"TIMER_OUT_MS\x01{START_MS + 1000}\x02REAL_TOPIC\x01{TIMER_TOPIC}\x02REAL_QID\x010\x02",
    ):
        assert bench.store.put(AppendRequest(TIMER_TOPIC, 0, b"bad", text)).status == PutStatus.OK
    bench.keep(b"good", 2000)
    bench.run(4)
    assert bench.bodies() == [b"good"]
    assert bench.stats == [(TOPIC, 0)]


# The records


@pytest.mark.parametrize("name", ["clean", "crash"])
def test_the_golden_messages_taken_in_again_give_the_golden_files_byte_for_byte(
    name: StoreName, tmp_path: Path
) -> None:
    root = copy_golden_store(name, tmp_path / "store")
    golden = golden_store(name)
    (root / "timerwheel").unlink()
    (root / "timerlog/00000000000000000000").unlink()
    (root / "config/timercheck").unlink()
    bench = Bench(OsDisk(), SteppingClock(GOLDEN_MS[name]), root=str(root), **GOLDEN_TIMERS)
    counts = PendingTimers()
    bench.timers.counts = counts
    bench.turns()
    bench.save()
    assert (root / "timerlog/00000000000000000000").read_bytes() == (
        golden / "timerlog/00000000000000000000"
    ).read_bytes()
    assert (root / "timerwheel").read_bytes() == (golden / "timerwheel").read_bytes()
    assert bench.files.check.saved[1:4] == (312, 6, 6)

    topic = f"GoldenTimer{'A' if name == 'clean' else 'B'}"
    java = {message.body: message for queue in range(4) for message in read_queue(bench.store, topic, queue)}
    ends = [bench.store.queue_bounds(topic, queue)[1] for queue in range(4)]
    for _ in range(60):
        bench.clock.advance(0.1)
        bench.turns()
    own = [message for queue in range(4) for message in read_queue(bench.store, topic, queue, ends[queue])]
    assert len(own) == len(java) == 6
    for message in own:
        theirs = java[message.body]
        assert (message.queue_id, message.flag, message.sys_flag) == (theirs.queue_id, theirs.flag, theirs.sys_flag)
        assert (message.born_timestamp_ms, message.born_host) == (theirs.born_timestamp_ms, theirs.born_host)
        assert (message.reconsume_times, message.prepared_transaction_offset) == (0, 0)
        ours, expected = props(message), props(theirs)
        assert int(ours.pop("TIMER_DEQUEUE_MS")) // 1000 == int(expected.pop("TIMER_DEQUEUE_MS")) // 1000
        assert ours == expected
    # As Java's file has it: six came, six went.
    saved = counts.table[topic]
    assert (saved.count, counts.version.counter) == (0, 12)
    bench.close()


@pytest.mark.parametrize("name", ["clean", "crash"])
def test_a_golden_store_goes_on_where_java_stopped(name: StoreName, tmp_path: Path) -> None:
    root = copy_golden_store(name, tmp_path / "store")
    bench = Bench(OsDisk(), SteppingClock(GOLDEN_MS[name] + 3_600_000), root=str(root), **GOLDEN_TIMERS)
    before = (root / "timerlog/00000000000000000000").read_bytes()
    assert (bench.files.queue_offset, bench.files.log.end, bench.files.pending) == (6, 312, 0)
    bench.run(3)
    assert bench.stats == [], "all six were delivered by Java"
    bench.keep(b"one more", 2000)
    bench.run(4)
    assert bench.bodies() == [b"one more"]
    bench.close()
    after = (root / "timerlog/00000000000000000000").read_bytes()
    assert after[:312] == before[:312]
    assert after[312:316] == b"\0\0\0\x34"


def test_timers_that_wait_in_a_golden_store_are_delivered(tmp_path: Path) -> None:
    """As if Java had died right after it took them in."""
    root = copy_golden_store("crash", tmp_path / "store")
    check = root / "config/timercheck"
    check.write_bytes((1_794_725_658_000).to_bytes(8, "big") + check.read_bytes()[8:])
    bench = Bench(OsDisk(), SteppingClock(GOLDEN_MS["crash"]), root=str(root), **GOLDEN_TIMERS)
    assert bench.files.pending == 6
    bench.run(6)
    assert len(bench.stats) == 6
    bench.close()


def test_a_kept_message_has_its_slot_and_where_it_is_for() -> None:
    bench = Bench()
    bench.put(b"x", topic="TopicB", TIMER_DELIVER_MS=START_MS + 2500, KEYS="k", REAL_TOPIC="old", REAL_QID=7)
    (message,) = bench.kept()
    assert props(message) == {
        "TIMER_DELIVER_MS": str(START_MS + 2500),
        "KEYS": "k",
        "TIMER_OUT_MS": str(START_MS + 2000),
        "REAL_TOPIC": "TopicB",
        "REAL_QID": "0",
    }


# Many at once


def test_thousands_that_are_due_at_one_moment_come_in_turns_oldest_first() -> None:
    bench = Bench(segment_bytes=1 << 21, timer_log_file_bytes=1 << 16)
    for number in range(3000):
        bench.keep(b"%d" % number, 5000)
    bench.turns()
    bench.run(4.9)
    assert bench.bodies() == []
    bench.clock.advance(0.2)
    turns = 0
    while True:
        before = len(bench.stats)
        more = bench.timers.turn()
        assert len(bench.stats) - before <= TURN_MESSAGES_MAX
        turns += 1
        if not more:
            break
    assert turns >= 3000 / TURN_MESSAGES_MAX
    assert bench.bodies() == [b"%d" % number for number in range(3000)]
    assert bench.files.pending == 0


def test_a_stop_finishes_the_slot_that_is_under_way() -> None:
    bench = Bench(segment_bytes=1 << 21)
    for number in range(1000):
        bench.keep(b"%d" % number, 2000)
    bench.turns()
    bench.clock.advance(2.1)
    assert bench.timers.turn()
    assert 0 < len(bench.stats) < 1000
    again = bench.restarted()
    again.run(3)
    assert again.bodies() == [b"%d" % number for number in range(1000)], "each of them once"


# Taking back


@pytest.mark.parametrize("form", ["{key}", "TopicA+{key}"])
def test_a_message_is_taken_back(form: str) -> None:
    bench = Bench()
    for number in range(5):
        bench.keep(b"%d" % number, 5000, UNIQ_KEY=f"key{number}")
    bench.turns()
    assert bench.files.pending == 5
    bench.run(2)
    out_ms = int(props(bench.kept()[0])["TIMER_OUT_MS"])
    bench.put(b"0", TIMER_DELIVER_MS=out_ms + 1, TIMER_DEL_UNIQKEY=form.format(key="key3"), UNIQ_KEY="key3")
    bench.turns()
    assert bench.files.pending == 4
    assert bench.timers.counts.table[TOPIC].count == 4
    bench.run(6)
    assert bench.bodies() == [b"0", b"1", b"2", b"4"], "and the message that took it back does not arrive"
    assert bench.timers.counts.table[TOPIC].count == 0
    assert bench.files.pending == 0


def test_only_a_message_of_the_same_slot_and_topic_is_taken_back() -> None:
    bench = Bench()
    bench.keep(b"a", 5000, UNIQ_KEY="key")
    out_ms = int(props(bench.kept()[0])["TIMER_OUT_MS"])
    bench.put(b"0", TIMER_DELIVER_MS=out_ms + 1001, TIMER_DEL_UNIQKEY="key")
    bench.put(b"0", TIMER_DELIVER_MS=out_ms + 1, TIMER_DEL_UNIQKEY="TopicB+key")
    bench.put(b"0", TIMER_DELIVER_MS=out_ms + 1, TIMER_DEL_UNIQKEY="other")
    bench.run(8)
    assert bench.bodies() == [b"a"]


def test_a_message_can_be_taken_back_until_its_slot_is_due() -> None:
    bench = Bench()
    bench.keep(b"a", 2000, UNIQ_KEY="key")
    bench.run(1.9)
    bench.clock.advance(0.099)
    bench.put(b"0", TIMER_DELIVER_MS=int(props(bench.kept()[0])["TIMER_OUT_MS"]) + 1000, TIMER_DEL_UNIQKEY="key")
    bench.run(4)
    assert bench.bodies() == []


def test_what_comes_too_late_to_take_back_is_dropped() -> None:
    bench = Bench(timer_intake_stopped=True)
    bench.keep(b"0", 1500, TIMER_DEL_UNIQKEY="key")
    bench.run(5)
    bench.store.options.timer_intake_stopped = False
    bench.run(2)
    assert bench.bodies() == []
    assert bench.timers.queue_behind == 0


# Rolling


@pytest.mark.parametrize("window", [2, 3, 10, 60])
def test_what_is_beyond_the_window_rolls_and_is_on_time(window: int) -> None:
    bench = Bench(timer_roll_slots=window)
    delays = [1500, window * 1000 - 1, window * 1000, window * 1000 + 1, 61_234, 130_000]
    for number, delay_ms in enumerate(delays):
        bench.keep(b"%d" % number, delay_ms)
    arrived = {int(body): at_ms for at_ms, body in bench.run(135)}
    assert len(bench.arrived) == len(delays)
    for number, delay_ms in enumerate(delays):
        assert delay_ms <= arrived[number] <= delay_ms + STEP_MS + ROUND_MS
    (longest,) = [message for message in bench.delivered() if message.body == b"5"]
    assert int(props(longest)["TIMER_ROLL_TIMES"]) >= 130 // (window + 1) - 1
    assert bench.timers.counts.table[TOPIC].count == 0
    assert bench.files.pending == 0


def test_a_roll_is_half_the_window_when_little_would_be_left_of_it() -> None:
    bench = Bench(timer_roll_slots=60)
    for delay_s in (59, 60, 61, 79, 81, 100, 130):
        bench.keep(b"x", delay_s * 1000 + 500)
    bench.turns()
    units, _ = bench.files.log.read_units(0, 1 << 30, 100)
    assert [(unit.kind, unit.delay_ms // 1000) for unit in units] == [
        (1, 59), (3, 30), (3, 30), (3, 30), (3, 60), (3, 60), (3, 60),
    ]  # fmt: skip


@pytest.mark.parametrize("slots", [0, 1, 10_000])
def test_a_window_that_the_wheel_does_not_have_is_as_long_as_the_wheel_allows(slots: int) -> None:
    bench = Bench(timer_roll_slots=slots)
    bench.keep(b"x", 1_939_000)
    bench.keep(b"x", 2_700_000)
    bench.turns()
    units, _ = bench.files.log.read_units(0, 1 << 30, 100)
    assert [(unit.kind, unit.delay_ms) for unit in units] == [(1, 1_938_000), (3, 1_940_000)]


def test_a_message_that_rolls_is_taken_back() -> None:
    bench = Bench(timer_roll_slots=10)
    bench.keep(b"a", 45_000, UNIQ_KEY="a")
    bench.keep(b"b", 45_000, UNIQ_KEY="b")
    bench.run(12)
    bench.put(b"0", TIMER_DELIVER_MS=int(props(bench.kept()[0])["TIMER_OUT_MS"]) + 1, TIMER_DEL_UNIQKEY="a")
    bench.run(40)
    assert bench.bodies() == [b"b"]
    assert bench.timers.counts.table[TOPIC].count == 0
    assert bench.files.pending == 0


# Restarts


def test_a_restart_at_any_moment_loses_and_repeats_nothing() -> None:
    bench = Bench(timer_roll_slots=7)
    chance = random.Random(3)
    due: dict[bytes, int] = {}
    arrived: list[tuple[int, bytes]] = []
    for number in range(120):
        delay_ms = chance.randrange(1, 30_000)
        body = b"%d" % number
        due[body] = bench.clock.now_ms() - START_MS + delay_ms
        bench.keep(body, delay_ms)
        arrived += bench.run(chance.choice((0, 0.1, 0.5)))
        if number % 10 == 5:
            pending = bench.files.pending
            bench.turns()
            pending = bench.files.pending
            bench = bench.restarted()
            assert bench.files.pending == pending
    arrived += bench.run(35)
    assert sorted(body for _, body in arrived) == sorted(due)
    for at_ms, body in arrived:
        assert due[body] <= at_ms <= due[body] + STEP_MS + ROUND_MS


def test_what_was_due_while_the_broker_was_down_comes_at_once_even_after_a_lap() -> None:
    """Java gives up what was due more than seven days ago."""
    bench = Bench()
    for number in range(20):
        bench.keep(b"%d" % number, 1000 + number * 90_000)
    bench.turns()
    bench.close()
    bench.clock.advance(5 * 4000)
    again = bench.reopened()
    again.keep(b"new", 1500)
    again.run(3)
    assert again.bodies() == [b"%d" % number for number in range(20)] + [b"new"]


def test_a_place_on_the_wheel_is_not_taken_before_it_is_free() -> None:
    bench = Bench(timer_delivery_stopped=True)
    bench.keep(b"old", 5500)
    bench.run(6)
    bench.clock.advance(4000 - 12)
    bench.turns()
    bench.keep(b"new", 11_500 - 100)
    old, new = (int(props(message)["TIMER_OUT_MS"]) for message in bench.kept())
    assert new - old == 4000 * 1000
    bench.run(1)
    assert bench.timers.queue_behind == 1, "waits until the old one is gone"
    bench.store.options.timer_delivery_stopped = False
    bench.run(1)
    assert (bench.bodies(), bench.timers.queue_behind) == ([b"old"], 0)
    bench.run(13)
    assert bench.bodies() == [b"old", b"new"]


@pytest.mark.parametrize(("before_ms", "after_ms"), [(100, 1000), (1000, 100)])
@pytest.mark.parametrize("is_killed", [False, True])
def test_another_precision_loses_no_message(before_ms: int, after_ms: int, is_killed: bool) -> None:
    bench = Bench(timer_precision_ms=before_ms)
    for number in range(60):
        bench.keep(b"%d" % number, 1000 + number * 130)
    bench.run(4)
    bench.save()
    there = bench.bodies()
    assert 10 < len(there) < 50
    disk = bench.fake.kill() if is_killed else bench.disk
    if not is_killed:
        bench.close()
    again = Bench(disk, bench.clock, timer_precision_ms=after_ms)
    again.run(8)
    assert sorted(again.bodies()) == sorted(b"%d" % number for number in range(60)), "each of them once"
    third = again.reopened(again.fake.kill())
    third.run(1)
    assert len(third.bodies()) == 60


@pytest.mark.parametrize("lost", ["timerwheel", "timerlog/00000000000000000000", "config/timercheck"])
def test_a_lost_file_loses_no_message(lost: str) -> None:
    bench = Bench(timer_log_file_bytes=1 << 16)
    for number in range(50):
        bench.keep(b"%d" % number, 1000 + number * 1000)
    bench.run(20)
    bench.close()
    bench.disk.remove(f"/store/{lost}")
    again = bench.reopened()
    again.run(40)
    assert set(again.bodies()) == {b"%d" % number for number in range(50)}
    if "timercheck" not in lost:
        assert len(again.bodies()) == 50, "what is known to be delivered is not delivered again"


# Crashes


def crash_run(seed: int, kill: bool) -> None:
    """Timers of all kinds; crash images at random moments, also inside disk operations; each is run to its end."""
    chance = random.Random(seed)
    clock = SteppingClock(START_MS)
    disk = FakeDisk(now_ms=clock.now_ms, lazy_names=True)
    bench = Bench(disk, clock, slots=600, timer_roll_slots=6, timer_log_file_bytes=400)
    due: dict[bytes, int] = {}
    offsets: dict[bytes, int] = {}
    images: list[tuple[FakeDisk, int, int]] = []

    def image(operation: str = "", path: str = "") -> None:
        if chance.random() < (0.02 if operation else 0.1) and len(images) < 6:
            taken = disk.kill() if kill else disk.crash(chance.randrange(1 << 30))
            safe = bench.store.log.max_offset if kill else bench.store.log.flushed_offset
            images.append((taken, clock.now_ms(), safe))

    disk.on_call = image
    for number in range(60):
        body = b"%d" % number
        delay_ms = chance.randrange(1, 15_000)
        due[body] = clock.now_ms() - START_MS + delay_ms
        offsets[body] = bench.keep(body, delay_ms).end_offset
        bench.run(chance.choice((0, 0.1, 0.3, 1.1)))
        if chance.random() < 0.3:
            bench.store.flush_now()
        image()
    disk.on_call = lambda _operation, _path: None
    for taken, now_ms, safe in images:
        later = SteppingClock(now_ms)
        again = Bench(taken, later, slots=600, timer_roll_slots=6, timer_log_file_bytes=400)
        before = again.bodies()
        arrived = again.run(20)
        bodies = before + [body for _, body in arrived]
        missing = {body for body, end in offsets.items() if end <= safe} - set(bodies)
        assert not missing, f"seed={seed} kill={kill} lost {missing}"
        for at_ms, body in arrived:
            assert at_ms >= due[body], f"seed={seed} kill={kill} early {body!r}"
        # A message that rolled may have been put on the wheel again right before the crash, and again after it.
        new = again.delivered()[len(before) :]
        once = [message.body for message in new if "TIMER_ROLL_TIMES" not in props(message)]
        assert len(once) == len(set(once)), f"seed={seed} kill={kill} twice"
        again.close()


@pytest.mark.parametrize("seed", range(25))
def test_a_power_cut_loses_no_timer_whose_message_is_on_disk(seed: int) -> None:
    crash_run(seed, kill=False)


@pytest.mark.parametrize("seed", range(15))
def test_a_kill_loses_no_timer(seed: int) -> None:
    crash_run(seed, kill=True)


def test_a_crash_repeats_at_most_what_was_delivered_since_the_last_save() -> None:
    bench = Bench()
    for number in range(10):
        bench.keep(b"%d" % number, 1000 + number * 1000)
    bench.run(5.5)
    assert len(bench.bodies()) == 5
    bench.save()
    bench.run(0.4)
    again = bench.reopened(bench.fake.kill())
    again.run(8)
    assert again.bodies() == [b"%d" % number for number in range(10)]
    third = again.reopened(again.fake.kill())
    third.run(1)
    assert len(third.bodies()) == 10


# Disks


def test_log_wheel_and_progress_go_to_disk_in_this_order_after_the_commit_log() -> None:
    bench = Bench()
    bench.keep(b"x", 5000)
    bench.turns()
    synced: list[str] = []
    bench.fake.on_call = lambda operation, path: synced.append(path) if operation == "sync" else None
    bench.timers.save()
    assert synced == [], "the commit log is not on disk yet"
    bench.store.flush_now()
    bench.timers.turn()
    assert [path.removeprefix("/store/").split("/")[0] for path in synced] == [
        "commitlog",
        "timerlog",
        "timerwheel",
        "config",
    ]


def test_an_idle_wheel_is_saved_every_ten_seconds() -> None:
    bench = Bench()
    bench.run(1)
    syncs = bench.fake.calls["sync"]
    bench.run(60)
    assert bench.fake.calls["sync"] - syncs == 6


def test_the_data_version_moves_with_progress() -> None:
    bench = Bench()
    bench.keep(b"x", 1000)
    bench.run(3)
    first = bench.files.check.saved
    bench.keep(b"x", 1000)
    bench.run(3)
    second = bench.files.check.saved
    assert second.counter > first.counter
    assert second.timestamp_ms > first.timestamp_ms


def test_a_full_disk_keeps_timers_in_memory_and_they_arrive() -> None:
    bench = Bench(timer_log_file_bytes=1 << 16)
    bench.keep(b"x", 3000)
    bench.turns()
    for nth in (1, 2, 3):
        bench.fake.fail("pwrite", nth, DiskFull("no room"))
        bench.timers.save()
        bench.store.flush_now()
    bench.run(5)
    assert bench.bodies() == [b"x"]
    assert bench.store.failure is None
    assert bench.files.check.saved.queue_offset == 1


@pytest.mark.parametrize("nth", [2, 3, 4])
def test_a_failed_sync_is_final(nth: int) -> None:
    bench = Bench()
    bench.keep(b"x", 3000)
    bench.turns()
    bench.fake.fail("sync", nth)
    bench.save()
    assert bench.store.failure is not None
    assert bench.put(b"x").status == PutStatus.SERVICE_NOT_AVAILABLE


def test_what_the_store_refuses_is_tried_again_and_nothing_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    for number in range(3):
        bench.keep(b"%d" % number, 2000)
    bench.turns()
    put = bench.store.put
    refusals = iter([PutStatus.OS_PAGE_CACHE_BUSY] * 5)

    def refuse(request: AppendRequest) -> PutResult:
        status = next(refusals, None)
        return put(request) if status is None else PutResult(status)

    monkeypatch.setattr(bench.timers, "_put_elsewhere", refuse)
    arrived = bench.run(4)
    assert [body for _, body in arrived] == [b"0", b"1", b"2"]
    assert 2000 + 5 * ROUND_MS <= arrived[0][0] <= 2000 + 7 * ROUND_MS


def test_an_error_pauses_the_delivery_and_not_the_intake(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    bench.keep(b"x", 2000)
    bench.turns()
    put = bench.store.put
    errors = iter([OSError("once")])

    def fail(request: AppendRequest) -> PutResult:
        error = next(errors, None)
        if error is not None and request.topic == TOPIC:
            raise error
        return put(request)

    monkeypatch.setattr(bench.timers, "_put_elsewhere", fail)
    bench.run(3)
    bench.keep(b"y", 1000)
    bench.run(2)
    assert (bench.bodies(), bench.timers.queue_behind) == ([], 0)
    bench.run(10)
    assert bench.bodies() == [b"x", b"y"], "each of them once"


def test_messages_on_disk_only_are_read_in_a_thread_first() -> None:
    bench = Bench()
    for number in range(3):
        bench.keep(b"%d" % number, 3000)
    bench.run(1)
    again = bench.restarted()
    paths = {segment.file.path for segment in again.store.segments.segments}
    again.fake.cold_paths |= paths
    again.run(1)
    assert again.loads == []
    again.clock.advance(1.5)
    assert not again.timers.turn()
    assert [path for path, _, _ in again.loads] == sorted(paths)[:1] * 3
    assert again.wakes == 1
    assert again.bodies() == []
    again.turns()
    assert again.bodies() == [b"0", b"1", b"2"], "asked once, whatever the kernel says then"


def test_files_of_the_timer_log_expire_with_the_commit_log() -> None:
    bench = Bench(segment_bytes=1 << 14, timer_log_file_bytes=600, file_reserved_hours=0, delete_when="00;01;02")
    for number in range(200):
        bench.keep(b"%d" % number * 20, 1500)
        bench.run(0.1)
    bench.run(3)
    files = len(bench.files.log.files.starts)
    bench.store.retention.delete_by_hand()
    bench.clock.advance(1)
    assert bench.store.retention.run_now() > 0
    bench.timers.expire()
    assert len(bench.files.log.files.starts) < files
    again = bench.restarted()
    again.keep(b"x", 1000)
    assert [body for _, body in again.run(3)] == [b"x"]


# Clocks


def test_a_clock_that_is_set_back_makes_nothing_early_and_nothing_twice() -> None:
    bench = Bench()
    bench.keep(b"before", 1000)
    bench.keep(b"pending", 100_000)
    bench.run(5)
    bench.clock.step_ms -= 60_000
    bench.keep(b"after", 10_000)
    assert bench.run(9.9) == []
    ((at_ms, body),) = bench.run(2)
    assert (body, at_ms) == (b"after", -45_000)
    assert bench.run(125) == [], "and what was delivered before is not delivered again"
    assert [body for _, body in bench.run(30)] == [b"pending"]


def test_a_clock_that_was_set_back_while_the_broker_was_down() -> None:
    bench = Bench()
    bench.keep(b"before", 1000)
    bench.run(5)
    bench.close()
    bench.clock.step_ms -= 3_600_000
    again = bench.reopened()
    again.keep(b"after", 10_000)
    assert again.run(9.9) == []
    assert [body for _, body in again.run(1.2)] == [b"after"]


def test_a_clock_that_jumps_ahead_delivers_what_is_due() -> None:
    bench = Bench()
    bench.keep(b"x", 1_000_000)
    bench.run(2)
    bench.clock.step_ms += 1_000_000
    assert [body for _, body in bench.run(0.2)] == [b"x"]


# Switches and figures


def test_intake_and_delivery_can_be_stopped() -> None:
    bench = Bench(timer_delivery_stopped=True)
    bench.keep(b"x", 1000)
    bench.run(5)
    assert (bench.bodies(), bench.timers.queue_behind) == ([], 0)
    assert bench.timers.read_behind_ms >= 5000
    bench.store.options.timer_delivery_stopped = False
    bench.store.options.timer_intake_stopped = True
    bench.keep(b"y", 1000)
    bench.run(5)
    assert (bench.bodies(), bench.timers.queue_behind) == ([b"x"], 1)


def test_figures() -> None:
    bench = Bench()
    for number in range(30):
        bench.keep(b"%d" % number, 4000)
    assert bench.timers.queue_behind == 30
    bench.run(3.5)
    assert (bench.timers.queue_behind, bench.timers.pending) == (0, 30)
    assert 7 <= bench.timers.taken_in.value() <= 10, "per second"
    bench.run(3.6)
    assert bench.timers.pending == 0
    assert 7 <= bench.timers.delivering.value() <= 10
    assert 0 <= bench.timers.read_behind_ms < 1100


def test_counts_are_set_right_once_a_day() -> None:
    hour = "05"
    bench = Bench(timer_recount_hours=";".join(f"{number:02}" for number in range(24)))
    for number in range(40):
        bench.keep(b"%d" % number, 5000 + number * 1000)
        bench.put(b"x", topic="TopicB", TIMER_DELAY_SEC=30)
    bench.run(10)
    counts = bench.timers.counts
    right = {topic: entry.count for topic, entry in counts.table.items()}
    counts.add(TOPIC, 7, START_MS)
    counts.add("TopicB", -9, START_MS)
    counts.add("Gone", 3, START_MS)
    bench.timers.recount()
    bench.timers.turn()
    bench.keep(b"y", 9000)
    bench.turns()
    assert {topic: entry.count for topic, entry in counts.table.items()} == {
        **right,
        TOPIC: right[TOPIC] + 1,
        "Gone": 0,
    }
    bench.store.options.timer_recount_hours = hour if bench.clock.now_ms() // 3_600_000 % 24 != 5 else "06"
    counts.add("Gone", 3, START_MS)
    bench.store.options.timer_recount = False
    bench.timers.recount()
    bench.turns()
    assert counts.table["Gone"].count == 3


def test_counts_are_kept_in_javas_form() -> None:
    content = (golden_store("clean") / "config/timermetrics").read_bytes()
    counts = PendingTimers()
    counts.restore(content)
    assert counts.table["GoldenTimerA"].count == 0
    assert counts.snapshot()() == content
    counts.keep_only({"Other"})
    assert counts.table == {}


def test_properties_of_the_delivered_message_are_readable() -> None:
    bench = Bench(timer_roll_slots=3)
    bench.keep(b"x", 8000, KEYS="k")
    bench.run(10)
    found = props(bench.delivered()[0])
    assert found["TIMER_ROLL_TIMES"].isdigit()
    text = bench.delivered()[0].properties.decode()
    assert all(text.count(f"{name}\x01") == 1 for name in found), "no property twice"
    assert properties.decode_text(text) == found
