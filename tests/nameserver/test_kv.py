"""The key-value table: its file, and that an answer is a promise."""

import asyncio
import threading
from pathlib import Path

import pytest

from cometmq import state_file
from cometmq.errors import RequestError, StoreError
from cometmq.nameserver import kv
from cometmq.nameserver.kv import KeyValues
from tests.support.aio import run


def opened(path: Path, bytes_max: int = 1 << 20) -> KeyValues:
    values = KeyValues(path, bytes_max)
    values.load()
    return values


def test_a_put_value_is_there_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "namesrv" / "kvConfig.json"
    run(opened(path).put("ORDER_TOPIC_CONFIG", "A", "broker-a:4"))
    again = opened(path)
    assert again.get("ORDER_TOPIC_CONFIG", "A") == "broker-a:4"
    assert again.get("ORDER_TOPIC_CONFIG", "B") is None
    assert again.namespace("never used") is None


def test_the_file_has_the_shape_that_rocketmq_writes_and_reads(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    run(opened(path).put("ns", "键", 'a"b'))
    assert path.read_bytes() == '{"configTable":{"ns":{"键":"a\\"b"}}}'.encode()
    path.write_bytes(b'{"configTable":{"ORDER_TOPIC_CONFIG":{"A":"broker-a:4","gone":null},"n":{}}}')
    values = opened(path)
    assert list(values.entries()) == [("ORDER_TOPIC_CONFIG", "A", "broker-a:4")]
    assert values.namespace("n") == {}


def test_a_put_without_value_makes_the_namespace_only(tmp_path: Path) -> None:
    values = opened(tmp_path / "kvConfig.json")
    run(values.put("ns", "k", "v"))
    run(values.put("ns", "k", None))
    assert values.get("ns", "k") is None
    assert values.namespace("ns") == {}


def test_deleting_removes_one_key_and_an_absent_key_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    values = opened(path)

    async def main() -> None:
        await values.put("ns", "a", "1")
        await values.put("ns", "b", "2")
        await values.delete("ns", "a")
        await values.delete("ns", "a")
        await values.delete("other", "a")

    run(main())
    assert list(opened(path).entries()) == [("ns", "b", "2")]


def test_changes_at_the_same_time_all_survive(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"

    async def main() -> None:
        values = opened(path)
        await asyncio.gather(*(values.put("ns", f"k{i}", "v") for i in range(50)))

    run(main())
    assert len(list(opened(path).entries())) == 50


def test_a_failed_save_is_told_and_changes_nothing(tmp_path: Path) -> None:
    occupied = tmp_path / "not a directory"
    occupied.touch()
    values = KeyValues(occupied / "kvConfig.json", 1 << 20)
    with pytest.raises(RequestError, match=r"nothing was changed: cannot save kvConfig\.json") as refused:
        run(values.put("ns", "k", "v"))
    assert refused.value.code == 1
    assert values.get("ns", "k") is None


def test_a_caller_that_goes_away_leaves_file_and_table_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kvConfig.json"
    values = opened(path)
    saving, go_on = threading.Event(), threading.Event()
    save = state_file.save

    def wait_and_save(path: Path, content: bytes) -> None:
        saving.set()
        go_on.wait()
        save(path, content)

    async def main() -> None:
        monkeypatch.setattr(state_file, "save", wait_and_save)
        leaving = asyncio.ensure_future(values.put("ns", "first", "v"))
        await asyncio.to_thread(saving.wait)
        leaving.cancel()
        staying = asyncio.ensure_future(values.put("ns", "second", "v"))
        go_on.set()
        await staying
        assert leaving.cancelled()

    run(main())
    assert list(values.entries()) == list(opened(path).entries()) == [("ns", "first", "v"), ("ns", "second", "v")]


def test_readers_see_a_change_only_when_it_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = opened(tmp_path / "kvConfig.json")
    seen_while_saving: list[str | None] = []
    save = state_file.save

    def look_and_save(path: Path, content: bytes) -> None:
        seen_while_saving.append(values.get("ns", "k"))
        save(path, content)

    monkeypatch.setattr(state_file, "save", look_and_save)
    run(values.put("ns", "k", "v"))
    assert seen_while_saving == [None]
    assert values.get("ns", "k") == "v"


def test_the_table_has_a_limit_that_the_refusal_names(tmp_path: Path) -> None:
    values = opened(tmp_path / "kvConfig.json", bytes_max=100)
    with pytest.raises(RequestError, match=r"at most 100 are allowed.*kvConfigBytesMax"):
        run(values.put("ns", "k", "v" * 100))
    assert values.get("ns", "k") is None


@pytest.mark.parametrize("damage", [b"{", b"[]", b'{"configTable":5}', b'{"configTable":{"a":{"b":{}}}}', b"\xff"])
def test_a_damaged_file_falls_back_and_without_a_good_copy_nothing_starts(damage: bytes, tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_bytes(damage)
    with pytest.raises(StoreError, match=r"no good copy of .*kvConfig\.json"):
        opened(path)
    (tmp_path / "kvConfig.json.bak").write_bytes(kv.encode({"ns": {"k": "v"}}))
    assert opened(path).get("ns", "k") == "v"


@pytest.mark.parametrize(
    ("namespace", "key", "value", "word"),
    [
        ("n" * 256, "k", "v", "namespace"),
        ("n", "k\nERROR forged", "v", "key"),
        ("n", "k" * 256, "v", "key"),
        ("n", "k", "v" * 65_537, "65536"),
        ("new", "k", "v", "kvConfigEntriesMax"),
    ],
)
async def test_what_may_not_be_kept_is_refused(tmp_path: Path, namespace: str, key: str, value: str, word: str) -> None:
    values = KeyValues(tmp_path / "kvConfig.json", 1 << 20, entries_max=3)
    values.load()

    await values.put("n", "a", "1")
    if word == "kvConfigEntriesMax":
        await values.put("n", "b", "2")
    with pytest.raises(RequestError, match=word):
        await values.put(namespace, key, value)
    await values.put("n", "a", "changed")
    assert values.get("n", "a") == "changed"
