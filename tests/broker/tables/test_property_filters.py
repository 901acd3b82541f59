"""Property filters of groups: how they come, die, are forgotten, and what their file has."""

import json
from typing import Any

import pytest

from cometmq.broker import sql
from cometmq.broker.tables import property_filters
from cometmq.broker.tables.property_filters import PropertyFilters
from cometmq.errors import WireError
from cometmq.wire.bodies import SubscriptionData
from cometmq.wire.record.bloom import bit_positions, murmur3_low
from tests.broker.assembly import Assembly

DAY_S = 24 * 3600

# Written by a RocketMQ 5.5.0 broker: a group that had subscribed to two topics, then to one, and is connected.
JAVA_FILE = """{
	"filterDataByTopic":{
		"T1":{
			"groupFilterData":{
				"g1":{
					"bloomFilterData":{
						"bitNum":112,
						"bitPos":[57,20,98]
					},
					"bornTime":1794741197114,
					"clientVersion":13,
					"consumerGroup":"g1",
					"dead":false,
					"deadTime":0,
					"expression":"a > 7",
					"expressionType":"SQL92",
					"topic":"T1"
				}
			},
			"topic":"T1"
		},
		"T2":{
			"groupFilterData":{
				"g1":{
					"bloomFilterData":{
						"bitNum":112,
						"bitPos":[30,51,10]
					},
					"bornTime":1794741197046,
					"clientVersion":10,
					"consumerGroup":"g1",
					"dead":true,
					"deadTime":1794741197051,
					"expression":"b = 'x'",
					"expressionType":"SQL92",
					"topic":"T2"
				}
			},
			"topic":"T2"
		}
	}
}"""


def wanting(topic: str, expression: str | None, version: int = 1, kind: str = "SQL92") -> SubscriptionData:
    return SubscriptionData(topic=topic, sub_string=expression, sub_version=version, expression_type=kind)


class Table:
    """A table of filters with its broker."""

    def __init__(self) -> None:
        self.broker = Assembly(property_filter_enabled=True)
        self.clock = self.broker.clock
        self.filters: PropertyFilters = self.broker.property_filters

    def register(self, *wanted: SubscriptionData, group: str = "g") -> None:
        self.filters.register(group, wanted)

    def expression(self, topic: str = "T", group: str = "g") -> str | None:
        found = self.filters.find(group, topic)
        return None if found is None or found.compiled is None else found.compiled.text

    def version(self) -> int:
        found = self.filters.find("g", "T")
        assert found is not None
        return found.version

    def is_dead(self, topic: str = "T", group: str = "g") -> bool:
        found = self.filters.find(group, topic)
        assert found is not None
        return found.dead_ms != 0

    def content(self) -> dict[str, Any]:
        read: dict[str, Any] = json.loads(self.filters.snapshot()())
        return read


def test_a_heartbeat_brings_filters_for_its_topics_by_properties_only() -> None:
    table = Table()
    table.register(wanting("T", "a > 5"), wanting("U", "A || B", kind="TAG"), wanting("V", ""), wanting("W", None))
    assert table.expression("T") == "a > 5"
    assert [table.expression(topic) for topic in "UVW"] == [None, None, None]
    assert table.expression("T", group="other") is None
    assert not table.is_dead()


def test_a_newer_text_takes_the_place_of_an_older() -> None:
    table = Table()
    table.register(wanting("T", "a > 5", 1))
    table.register(wanting("T", "a > 6", 2))
    assert (table.expression(), table.version()) == ("a > 6", 2)
    table.register(wanting("T", "a > 7", 1))
    assert (table.expression(), table.version()) == ("a > 6", 2), "an older version is ignored"
    table.register(wanting("T", "a > 8", 2))
    assert table.expression() == "a > 6", "and so is another text of the same version"
    table.register(wanting("T", "a > 6", 3))
    assert (table.expression(), table.version()) == ("a > 6", 3)


def test_a_newer_text_that_cannot_be_compiled_leaves_no_filter() -> None:
    table = Table()
    table.register(wanting("T", "a > 5", 1))
    table.register(wanting("T", "a >", 2))
    assert table.expression() is None
    table.register(wanting("T", "a > 5", 3))
    assert table.expression() == "a > 5"


def test_a_filter_dies_with_its_subscription_and_with_its_group_and_comes_back() -> None:
    table = Table()
    table.register(wanting("T", "a > 5"), wanting("U", "b > 5"))
    table.register(wanting("T", "a > 5"))
    assert (table.is_dead("T"), table.is_dead("U")) == (False, True)
    table.register(wanting("T", "a > 5"), wanting("U", "b > 5"))
    assert not table.is_dead("U"), "the same version revives it"
    table.filters.retire("other")
    assert not table.is_dead("T")
    table.filters.retire("g")
    assert table.is_dead("T")
    assert table.is_dead("U")
    table.register(wanting("T", "a > 5", 2))
    assert (table.is_dead("T"), table.version()) == (False, 2), "and so does a newer one with the same text"


def test_a_dead_filter_is_forgotten_after_a_day() -> None:
    table = Table()
    table.register(wanting("T", "a > 5"))
    table.register(wanting("T", "a > 5"), group="staying")
    table.clock.advance(10)
    table.filters.retire("g")
    table.clock.advance(DAY_S - 1)
    table.filters.forget()
    assert table.expression() == "a > 5"
    table.clock.advance(1)
    table.filters.forget()
    assert table.expression() is None
    assert table.expression(group="staying") == "a > 5"


def test_how_long_a_dead_filter_is_kept_can_be_set() -> None:
    table = Table()
    table.broker.set(filter_kept_ms=5_000)
    table.register(wanting("T", "a > 5"))
    table.filters.retire("g")
    table.clock.advance(5)
    table.filters.forget()
    assert table.expression() is None


def test_nothing_is_compiled_while_property_filters_are_off() -> None:
    table = Table()
    table.broker.set(property_filter_enabled=False)
    table.register(wanting("T", "off > 5"))
    assert table.expression() is None
    assert "off > 5" not in sql._compiled


def test_every_change_is_counted_and_nothing_else() -> None:
    table = Table()
    counts = [table.filters.changes]

    def changed() -> bool:
        counts.append(table.filters.changes)
        return counts[-1] != counts[-2]

    table.register(wanting("T", "a > 5"))
    assert changed()
    table.register(wanting("T", "a > 5"))
    assert not changed()
    table.register(wanting("T", "a > 5", 2))
    assert changed()
    table.register(wanting("T", "a >", 3))
    assert changed()
    table.register(wanting("T", "a > 5", 4))
    table.filters.retire("g")
    assert changed()
    table.filters.retire("g")
    table.filters.forget()
    assert not changed()
    table.clock.advance(DAY_S)
    table.filters.forget()
    assert changed()


def test_the_number_of_filters_is_bounded_and_the_dead_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(property_filters, "FILTERS_MAX", 3)
    table = Table()
    for group in ("one", "two", "three"):
        table.register(wanting("T", "a > 5"), group=group)
    table.register(wanting("T", "a > 5"), group="four")
    assert table.expression(group="four") is None
    table.filters.retire("two")
    table.clock.advance(1)
    table.filters.retire("one")
    table.register(wanting("T", "a > 5"), group="four")
    assert table.expression(group="four") == "a > 5"
    assert table.expression(group="two") is None, "it died first"
    assert table.expression(group="one") == "a > 5"
    table.register(wanting("T", "a > 6", 2), group="three")
    assert table.expression(group="three") == "a > 6", "a new text of a known filter needs no room"
    assert table.expression(group="one") == "a > 5"


# The file


def test_the_file_is_written_as_java_writes_it() -> None:
    table = Table()
    table.filters.restore(JAVA_FILE.encode())
    for known in list(table.filters._all()):
        known.dead_ms = 0 if known.topic == "T1" else 1794741197051
    # But for lists of numbers, which Java puts on one line.
    assert "".join(table.filters.snapshot()().decode().split()) == "".join(JAVA_FILE.split())
    assert Table().filters.snapshot()() == b'{\n\t"filterDataByTopic":{}\n}'


def test_what_is_read_counts_as_dead_until_a_heartbeat_comes() -> None:
    table = Table()
    table.clock.advance(1794741200 - table.clock.now_ms() // 1000)
    now_ms = table.clock.now_ms()
    table.filters.restore(JAVA_FILE.encode())
    data = table.content()["filterDataByTopic"]
    assert data["T1"]["groupFilterData"]["g1"]["deadTime"] == 1794741197114, "born less than 30 s ago"
    assert data["T2"]["groupFilterData"]["g1"]["deadTime"] == 1794741197051, "as it was"
    table.clock.advance(3600)
    table.filters.restore(JAVA_FILE.encode())
    data = table.content()["filterDataByTopic"]
    assert data["T1"]["groupFilterData"]["g1"]["deadTime"] == now_ms + 3_570_000
    table.register(wanting("T1", "a > 7", 13), group="g1")
    assert not table.is_dead("T1", "g1")
    assert table.expression("T1", "g1") == "a > 7"


def test_what_cannot_be_compiled_or_understood_is_not_found() -> None:
    table = Table()
    content = JAVA_FILE.replace("a > 7", "a >").replace('"b = \'x\'",\n\t\t\t\t\t"expressionType":"SQL92"', (
        '"b = \'x\'",\n\t\t\t\t\t"expressionType":"XPATH"'
    ))  # fmt: skip
    table.filters.restore(content.encode())
    assert table.expression("T1", "g1") is None
    assert table.expression("T2", "g1") is None
    assert table.content() == {"filterDataByTopic": {}}
    with pytest.raises(WireError):
        table.filters.restore(b"[]")


def test_a_changing_table_does_not_disturb_a_write() -> None:
    table = Table()
    table.register(wanting("T", "a > 5"))
    encode = table.filters.snapshot()
    table.register(wanting("T", "a > 5"), wanting("U", "a > 6"))
    table.filters.retire("g")
    data = json.loads(encode())["filterDataByTopic"]
    assert list(data) == ["T"]
    assert data["T"]["groupFilterData"]["g"]["dead"] is False


def test_bits_are_those_of_java() -> None:
    assert bit_positions("g1", "T1") == [57, 20, 98]
    assert bit_positions("g1", "T2") == [30, 51, 10]
    # The reference value of the hash for this sentence.
    assert murmur3_low(b"The quick brown fox jumps over the lazy dog") == 0xE34BBC7BBC071B6C
    assert murmur3_low(b"") == 0
