"""The figures of the source's shape are counted right."""

import asyncio

from scripts import shape


def test_the_largest_cycle_is_found_and_lines_are_not_one() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": {"f"}, "f": {"e"}}
    assert shape.largest_cycle(graph) == ["a", "b", "c"]
    assert len(shape.largest_cycle({"a": {"b"}, "b": set()})) == 1


def test_imports_for_types_count_and_others_packages_do_not() -> None:
    files = shape.modules()
    found = shape.imports(files["cometmq.broker.server"], set(files))
    assert "cometmq.store.store" in found
    assert "asyncio" not in found
    assert "cometmq.broker.produce.context" in shape.imports(files["cometmq.broker.produce.send"], set(files))


def test_a_send_is_followed_from_the_client_into_the_store() -> None:
    found = asyncio.run(shape.visits())
    assert found.keys() - {"Spark batch"} == {"send", "send and push", "transaction"}
    assert all(each["files"] > 20 and each["functions"] > each["files"] for each in found.values())
    assert found["send"]["functions"] < found["transaction"]["functions"]
