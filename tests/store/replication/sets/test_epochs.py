"""Epoch tables: the file as RocketMQ writes it, and where two logs part."""

import random

import pytest

from cometmq.store.fake_disk import FakeDisk
from cometmq.store.replication.sets import epochs
from cometmq.store.replication.sets.epochs import EpochTable, adopted, agreed_end
from cometmq.store.replication.sets.promises import SetMemory


def test_the_file_is_what_rocketmq_writes() -> None:
    assert epochs.encode(EpochTable([(1, 0)])) == b"1\n1725254278\n1-0\n"
    assert epochs.decode(b"1\n1725254278\n1-0\n").entries == [(1, 0)]
    assert epochs.decode(b"1\n0\n1-0\n").entries == [(1, 0)], "0 means that nobody summed"


@pytest.mark.parametrize(
    "data",
    [
        b"", b"1\n", b"1\n1725254279\n1-0\n", b"2\n0\n1-0\n", b"1\n0\nx-0\n", b"2\n0\n2-0\n1-5\n", b"2\n0\n1-5\n2-5\n",
        b"\xff",
    ],
)  # fmt: skip
def test_a_damaged_file_is_not_taken(data: bytes) -> None:
    with pytest.raises(ValueError):
        epochs.decode(data)


def test_an_epoch_without_a_message_is_recorded_in_place_of_the_one_before() -> None:
    table = EpochTable([(1, 0), (2, 100)])
    assert table.append(3, 100)
    assert table.entries == [(1, 0), (3, 100)]
    assert not table.append(3, 100)
    for epoch, start in ((3, 101), (2, 200), (4, 99)):
        with pytest.raises(ValueError, match="cannot follow"):
            table.append(epoch, start)


def test_each_offset_has_its_epoch() -> None:
    table = EpochTable([(1, 0), (3, 4096), (4, 8192)])
    assert table.at(0) == (1, 0, 4096)
    assert table.at(4096)[:2] == (3, 4096)
    assert table.at(9000)[:2] == (4, 8192)
    assert EpochTable([(4, 8192)]).at(0) == (0, 0, 0)


@pytest.mark.parametrize(
    ("own", "own_end", "other", "other_end", "agreed"),
    [
        ([(1, 0)], 80, [(1, 0), (2, 100)], 200, 80),
        ([(1, 0)], 150, [(1, 0), (2, 100)], 200, 100),
        ([(1, 0), (2, 100)], 150, [(1, 0), (3, 100)], 120, 100),
        ([(1, 0), (2, 100)], 150, [(1, 0), (2, 100), (3, 130)], 130, 130),
        ([(1, 0), (3, 100), (4, 130)], 150, [(1, 0), (3, 100), (5, 140)], 160, 130),
        ([(1, 0)], 50, [(2, 0)], 10, 0),
        ([(3, 900)], 1000, [(5, 1000)], 1200, -1),
        # A table that knows more than its log, after a crash.
        ([(1, 0), (2, 100)], 60, [(1, 0), (2, 100)], 200, 60),
    ],
)
def test_two_logs_are_one_up_to_here(
    own: list[tuple[int, int]], own_end: int, other: list[tuple[int, int]], other_end: int, agreed: int
) -> None:
    assert agreed_end(EpochTable(own), own_end, EpochTable(other), other_end) == agreed


def test_the_agreed_end_is_where_histories_of_elections_really_part() -> None:
    """Logs are made of bytes that name their epoch; the tables must find what comparing all bytes finds, or less."""
    chance = random.Random(5)
    for _ in range(2_000):
        logs: list[list[int]] = [[], [], []]
        tables = [EpochTable(), EpochTable(), EpochTable()]
        for epoch in range(1, chance.randint(2, 7)):
            master = chance.randrange(3)
            tables[master].append(epoch, len(logs[master]))
            logs[master] += [epoch] * chance.randint(0, 4)
            for replica in range(3):
                if replica != master and chance.random() < 0.6:
                    agreed = agreed_end(tables[replica], len(logs[replica]), tables[master], len(logs[master]))
                    common = _common(logs[replica], logs[master])
                    assert 0 <= agreed <= common
                    tables[replica] = adopted(tables[replica], tables[master], agreed)
                    upto = chance.randint(agreed, len(logs[master]))
                    logs[replica] = logs[master][:upto]
                    tables[replica].cut(upto)
                    for each, start in tables[master].entries:
                        if each > tables[replica].last and start <= upto:
                            tables[replica].append(each, start)


def _common(one: list[int], other: list[int]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (left, right) in pairs if left != right), min(len(one), len(other)))


def test_promises_are_on_disk_when_they_are_given() -> None:
    disk = FakeDisk(lazy_names=True)
    memory = SetMemory("/set", disk)
    memory.become(2, "check")
    memory.lead(3, 4096)
    memory.seal(3)
    for seed in range(20):
        found = SetMemory("/set", disk.crash(seed))
        assert (found.kept.id, found.joined, found.sealed, found.kept.led) == (2, 3, 3, 3)
        assert found.table.entries == [(3, 4096)]


def test_a_table_that_knows_more_than_the_log_is_cut_at_the_start() -> None:
    disk = FakeDisk()
    memory = SetMemory("/set", disk)
    memory.save_table(EpochTable([(1, 0), (2, 100), (3, 200)]))
    memory.recovered(150)
    assert SetMemory("/set", disk).table.entries == [(1, 0), (2, 100)]
