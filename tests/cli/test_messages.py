"""Checks commands that send, show, find, move and replay messages."""

import asyncio
import base64
import gzip
import json
import re
from pathlib import Path

import pytest

from cometmq.client.client import Client
from cometmq.testing import SyncCluster
from tests.cli.conftest import Comet


def topic(comet: Comet, name: str, queues: int = 1) -> str:
    comet.good("topic", "create", name, "--queues", str(queues), "--broker", "broker-a")
    return name


def bodies(comet: Comet, name: str, *arguments: str) -> list[str]:
    ran = comet.good("tail", name, "--from", "earliest", "--no-follow", "-o", "json", *arguments)
    return [one["body"] for one in ran.lines]


def test_what_is_sent_comes_back_with_all_that_was_said_about_it(comet: Comet) -> None:
    name = topic(comet, "TopicSent")
    (receipt,) = comet.good(
        "send", name, "hello", "--key", "7", "--key", "8", "--tag", "created", "-p", "region=eu", "-o", "json"
    ).lines
    assert set(receipt) == {"id", "topic", "broker", "queue", "offset", "offset_id", "status"}
    assert (receipt["status"], receipt["broker"], receipt["offset"]) == ("SEND_OK", "broker-a", 0)
    (found,) = comet.good("tail", name, "--from", "earliest", "-n", "1", "-o", "json").lines
    assert (found["body"], found["tag"], found["keys"]) == ("hello", "created", ["7", "8"])
    assert found["properties"] == {"region": "eu"}
    assert (found["id"], found["offset_id"]) == (receipt["id"], receipt["offset_id"])
    got = comet.good("message", "get", receipt["id"], "--topic", name, "-o", "json").json
    assert got == comet.good("message", "get", receipt["offset_id"], "-o", "json").json
    assert got == comet.good("message", "get", receipt["id"], "-o", "json").json, "without the topic"
    assert got["body"] == "hello"
    (by_key,) = comet.good("message", "find", name, "--key", "8", "-o", "json").json
    assert by_key["id"] == receipt["id"]
    (by_time,) = comet.good("message", "find", name, "--from", "-1h", "--to", "now", "-o", "json").json
    assert by_time["id"] == receipt["id"]


def test_lines_of_a_pipe_are_messages(comet: Comet) -> None:
    name = topic(comet, "TopicPiped")
    ran = comet.good("send", name, stdin=b"one\ntwo\nthree\n")
    assert ran.out.count("SEND_OK") == 3
    assert "sent 3 messages" in ran.err
    assert bodies(comet, name) == ["one", "two", "three"]


def test_objects_of_a_pipe_are_messages_with_their_own_tags_and_keys(comet: Comet) -> None:
    name = topic(comet, "TopicObjects")
    lines = [
        {"body": "plain", "tag": "a", "keys": ["k1"], "properties": {"n": "1"}},
        {"body": {"id": 7}},
        {"body_base64": base64.b64encode(b"\xff\x00").decode()},
    ]
    comet.good("send", name, "--jsonl", "--tag", "b", stdin="\n".join(map(json.dumps, lines)).encode())
    found = comet.good("tail", name, "--from", "earliest", "--no-follow", "-o", "json").lines
    assert [(one["tag"], one["keys"]) for one in found] == [("a", ["k1"]), ("b", []), ("b", [])]
    assert found[1]["body"] == '{"id": 7}'
    assert base64.b64decode(found[2]["body_base64"]) == b"\xff\x00"
    assert found[0]["properties"] == {"n": "1"}
    wrong = comet("send", name, "--jsonl", stdin=b'{"tag": "x"}\n')
    assert (wrong.code, wrong.err.count("\n")) == (2, 1)
    assert comet("send", name, "--jsonl", stdin=b"not json\n").code == 2


def test_an_ordering_key_keeps_messages_in_one_queue_in_order(comet: Comet) -> None:
    name = topic(comet, "TopicOrdered", queues=4)
    sent = comet.good("send", name, "--ordering-key", "customer-1", "-o", "json", stdin=b"1\n2\n3\n4\n5\n").lines
    assert len({one["queue"] for one in sent}) == 1
    assert [one["offset"] for one in sent] == [0, 1, 2, 3, 4]


def test_a_transaction_is_seen_only_when_committed(comet: Comet) -> None:
    name = topic(comet, "TopicTransacted")
    comet.good("send", name, "yes", "--transaction", "commit")
    comet.good("send", name, "no", "--transaction", "rollback")
    (found,) = comet.good("tail", name, "--from", "earliest", "--follow", "-n", "1", "-o", "json").lines
    assert found["body"] == "yes"
    assert bodies(comet, name) == ["yes"]


def test_a_delayed_message_is_not_there_yet(comet: Comet) -> None:
    name = topic(comet, "TopicDelayed")
    comet.good("send", name, "later", "--delay-level", "18")
    assert bodies(comet, name) == []
    both = comet("send", name, "later", "--delay", "1s", "--delay-level", "3")
    assert (both.code, both.err.count("\n")) == (2, 1)


def test_tail_filters_formats_and_decodes(comet: Comet) -> None:
    name = topic(comet, "TopicTailed")
    comet.good("send", name, "small", "--tag", "a", "-p", "amount=5", "--key", "k")
    comet.good("send", name, "large", "--tag", "b", "-p", "amount=50")
    assert bodies(comet, name, "--filter", "amount > 10") == ["large"]
    assert bodies(comet, name, "--tag", "a || c") == ["small"]
    assert bodies(comet, name, "--decode", "hex") == [b"small".hex(), b"large".hex()]
    text = comet.good("tail", name, "--from", "-1", "--no-follow", "-f", r"%d|%q|%o|%g|%P{amount}|%v\n").out
    assert re.fullmatch(r"20[^|]*\|0\|1\|b\|50\|large\n", text)
    assert comet.good("tail", name, "--from", "0", "-n", "1", "-f", "%k").out == "k"
    assert comet("tail", name, "-n", "1", "-f", "%Q").code == 2
    assert comet("tail", name, "--filter", "amount >", "--no-follow").code != 0
    assert "small" in comet.good("tail", name, "--no-follow").out


def test_tail_unpacks_what_an_application_compressed(comet: Comet, tmp_path: Path) -> None:
    name = topic(comet, "TopicPacked")
    packed = tmp_path / "body.gz"
    packed.write_bytes(gzip.compress(b"inside"))
    comet.good("send", name, "--file", packed)
    assert bodies(comet, name, "--unpack") == ["inside"]
    (raw,) = comet.good("tail", name, "--from", "earliest", "--no-follow", "-o", "json").lines
    assert "body_base64" in raw


def test_tail_follows_until_it_has_enough(comet: Comet) -> None:
    name = topic(comet, "TopicFollowedTail")
    comet.good("send", name, "1", "2", "3")
    found = comet.good("tail", name, "--from", "earliest", "--follow", "-n", "3", "-o", "json").lines
    assert [one["body"] for one in found] == ["1", "2", "3"]


def test_an_export_can_be_imported(comet: Comet, tmp_path: Path) -> None:
    first, second = topic(comet, "TopicExported", 2), topic(comet, "TopicImported", 2)
    comet.good("send", first, "a", "b", "--tag", "t", "--key", "k", "-p", "x=1")
    file = tmp_path / "messages.jsonl"
    assert "exported 2" in comet.good("export", first, "--file", file).err
    assert len(file.read_text().splitlines()) == 2
    assert "imported 2" in comet.good("import", second, "--file", file, "--rate", "1000").err
    found = comet.good("tail", second, "--from", "earliest", "--no-follow", "-o", "json").lines
    assert sorted(one["body"] for one in found) == ["a", "b"]
    assert [(one["tag"], one["keys"], one["properties"]) for one in found] == [("t", ["k"], {"x": "1"})] * 2
    assert comet.good("export", first).lines[0]["topic"] == first
    assert comet("import", second, "--file", tmp_path / "none.jsonl").code == 3
    nowhere = comet("import", "TopicThatIsNotThere", "--file", file)
    assert (nowhere.code, nowhere.err.count("\n")) == (6, 1)
    assert comet("import", second, stdin=b"{}\n").code == 2


def test_parquet_goes_both_ways_or_says_what_is_missing(comet: Comet, tmp_path: Path) -> None:
    name = topic(comet, "TopicParquet")
    comet.good("send", name, "a", "--tag", "t", "-p", "x=1")
    file = tmp_path / "messages.parquet"
    try:
        import pyarrow  # type: ignore[import-not-found, unused-ignore] # noqa: F401
    except ImportError:
        ran = comet("export", name, "--file", file)
        assert (ran.code, ran.err.count("\n")) == (3, 1)
        assert "pip install" in ran.err
        return
    comet.good("export", name, "--file", file)
    comet.good("import", name, "--file", file)
    found = comet.good("tail", name, "--from", "earliest", "--no-follow", "-o", "json").lines
    assert [(one["body"], one["tag"], one["properties"]) for one in found] == [("a", "t", {"x": "1"})] * 2


def test_a_message_is_sent_again_only_with_yes(comet: Comet) -> None:
    name = topic(comet, "TopicResent")
    (receipt,) = comet.good("send", name, "again", "--key", "k", "-o", "json").lines
    plan = comet.good("message", "resend", receipt["offset_id"])
    assert plan.out == ""
    done = comet.good("message", "resend", receipt["offset_id"], "--yes", "-o", "json").json
    assert (done["id"], done["topic"]) == (receipt["id"], name)
    assert done["new_id"] != receipt["id"]
    assert bodies(comet, name) == ["again", "again"]


def test_a_trace_says_who_sent_a_message(comet: Comet, cluster: SyncCluster) -> None:
    name = topic(comet, "TopicTraced")

    async def send() -> str:
        async with Client(cluster.namesrv) as client, client.producer("tracing-pg", trace=True) as producer:
            return (await producer.send(name, b"traced")).id

    message_id = asyncio.run(send())
    (record,) = comet.good("message", "trace", message_id, "-o", "json").json
    assert (record["what"], record["group"], record["topic"], record["success"]) == ("Pub", "tracing-pg", name, True)


def test_messages_that_are_not_there_are_one_line(comet: Comet) -> None:
    name = topic(comet, "TopicEmpty")
    for arguments in (
        ("message", "get", "7F0000010000000000000000DEADBEEF", "--topic", name),
        ("message", "find", name, "--key", "nobody"),
        ("message", "trace", "7F0000010000000000000000DEADBEEF"),
        ("send", "TopicThatIsNotThere", "x"),
        ("tail", "TopicThatIsNotThere", "--no-follow"),
    ):
        ran = comet(*arguments)
        assert (ran.code, ran.out, ran.err.count("\n")) == (6, "", 1), arguments
    short = comet("message", "get", "short")
    assert short.code == 6
    assert "topics has the id short" in short.err
    stranger = comet("message", "get", "0A000001000000500000000000000000")
    assert (stranger.code, stranger.err.count("\n")) == (6, 1)
    assert "topics has the id 0A000001000000500000000000000000: it was deleted, or never there" in stranger.err
    assert "no message found" in comet.good("tail", name, "--no-follow").err


def test_dead_letters_are_listed_and_replayed_with_what_they_carried(comet: Comet, cluster: SyncCluster) -> None:
    name = topic(comet, "TopicDied")
    comet.good("group", "create", "GroupDied")
    comet.good("topic", "create", "%DLQ%GroupDied", "--queues", "1", "--broker", "broker-a")
    for number in range(3):
        comet.good("send", "%DLQ%GroupDied", f"dead {number}", "--tag", "t", "--key", f"k{number}", "-p", "x=1")
    assert {"group": "GroupDied", "messages": 3} in comet.good("dlq", "list", "-o", "json").json
    letters = comet.good("dlq", "list", "GroupDied", "-o", "json").json
    assert [one["body"] for one in letters] == ["dead 0", "dead 1", "dead 2"]
    plan = comet.good("dlq", "replay", "GroupDied", "--to", name, "-o", "json")
    assert plan.json == [{"to": name, "messages": 3}]
    assert bodies(comet, name) == []
    one = letters[1]["id"]
    replay = ("dlq", "replay", "GroupDied", "--rate", "50", "--yes", "-o", "json")
    done = comet.good(*replay, "--to", name, "--id", one).json
    assert [(row["id"], row["topic"], row["error"]) for row in done] == [(one, name, None)]
    (found,) = comet.good("tail", name, "--from", "earliest", "--no-follow", "-o", "json").lines
    assert (found["body"], found["tag"], found["keys"]) == ("dead 1", "t", ["k1"])
    assert found["properties"] == {"x": "1", "CMQ_DLQ": "GroupDied/broker-a/0/1"}
    failed = comet(*replay, "--to", "TopicThatIsNotThere")
    assert failed.code == 1
    assert all("TopicThatIsNotThere" in row["error"] for row in failed.json)


@pytest.mark.parametrize("form", ["table", "wide", "yaml"])
def test_messages_have_every_form_of_output(form: str, comet: Comet) -> None:
    name = topic(comet, f"TopicForm{form}")
    ran = comet.good("send", name, "body-text", "--key", "k", "-o", form)
    assert ran.out
    assert "body-text" in comet.good("tail", name, "--from", "earliest", "--no-follow", "-o", form).out
    assert "body-text" in comet.good("message", "find", name, "--key", "k", "-o", form).out
