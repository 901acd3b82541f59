"""Arguments of a type that they cannot have are said by name, in every way of sending."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cometmq.errors import ConfigError
from tests.support.clusters import real_cluster

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"delay": "10s"}, "delay is '10s', a str: give seconds, or a timedelta"),
    ({"tag": ["a", "b"]}, "tag is .*, a list: give one text"),
    ({"tag": 3}, "tag is 3, a int"),
    ({"deliver_at": 5}, "deliver_at is 5, a int: give a datetime"),
    ({"keys": 3}, "keys is 3, a int: give a text, or a list of texts"),
    ({"properties": ["a"]}, "properties is .*: give a dict of texts"),
    ({"delay_level": "3"}, "delay_level is '3', a str: give a whole number"),
    ({"ordering_key": ["a"]}, "ordering_key is .*, a list: give a text or a whole number"),
]


@pytest.mark.parametrize(("given", "said"), WRONG, ids=[next(iter(given)) for given, _ in WRONG])
async def test_an_argument_of_a_wrong_type_is_named(tmp_path: Path, given: dict[str, Any], said: str) -> None:
    async with real_cluster(tmp_path, "T") as cluster, cluster.client() as client, client.producer("pg") as producer:
        with pytest.raises(ConfigError, match=said):
            await producer.send("T", b"x", **given)
        with pytest.raises(ConfigError, match=said):
            producer.send_soon("T", b"x", **given)
        with pytest.raises(ConfigError, match=said):
            await producer.send_many("T", [b"x"], **given)
        with pytest.raises(ConfigError, match=said):
            producer.send_oneway("T", b"x", **given)


@pytest.mark.mission("DU-05")
async def test_every_right_type_is_taken(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, "T") as cluster, cluster.client() as client, client.producer("pg") as producer:
        right: list[dict[str, Any]] = [
            {"delay": 1}, {"delay": 1.5}, {"delay": timedelta(seconds=1)}, {"deliver_at": datetime.now(UTC)},
            {"keys": "k"}, {"keys": ("a", "b")}, {"keys": iter(["a"])}, {"tag": "t"}, {"ordering_key": 7},
        ]  # fmt: skip
        for given in right:
            assert (await producer.send("T", b"x", **given)).is_confirmed


async def test_a_number_of_queues_that_is_none_is_refused(tmp_path: Path) -> None:
    wrong: Any
    async with real_cluster(tmp_path) as cluster, cluster.client() as client, client.admin() as admin:
        for wrong in ("4", 0, True, 2.5):
            with pytest.raises(ConfigError, match="queues is"):
                await admin.create_topic("T", queues=wrong)
