"""Requests are placed by how long they took, without a look at the clock for each."""

from typing import Final

import pytest

from cometmq.net.latency_rows import latency_rows
from cometmq.net.meter import CODES_MAX, PLACED_MAX, Meter
from cometmq.wire.codes import Request
from cometmq.wire.command import FLAG_ONEWAY

SEND: Final = Request.SEND_MESSAGE_V2


def rows(meter: Meter) -> dict[tuple[str, str, str, str], tuple[tuple[int, ...], float]]:
    found = {}
    for labels, _, counts, total in latency_rows([meter]):
        key = (labels["request_code"], labels["response_code"], labels["is_long_polling"], labels["result"])
        found[key] = (counts, total)
    return found


def test_a_quick_read_puts_its_requests_into_the_first_bucket_and_a_slow_one_by_its_time() -> None:
    meter = Meter()
    meter.codes += [SEND] * 3
    meter.codes += [SEND] * 2
    meter.settle(3, 0.0055)
    assert rows(meter) == {("send_message_v2", "success", "false", "success"): ((3, 0, 2, 0, 0, 0, 0, 0, 0, 0), 10.0)}


def test_many_codes_are_folded_and_none_is_lost() -> None:
    meter = Meter()
    meter.codes += [SEND] * (CODES_MAX + 1)
    meter.settle(0, 0.0001)
    assert not meter.codes
    assert rows(meter)["send_message_v2", "success", "false", "success"][0][0] == CODES_MAX + 1


def test_kept_and_one_way_requests_and_refusals_have_rows_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cometmq.net.meter.monotonic", lambda: 10.0)
    meter = Meter()
    meter.note(Request.PULL_MESSAGE, 19, 0, 9.5, 9.999)
    meter.note(SEND, 0, 0, 9.995, 9.999)
    meter.note(Request.UPDATE_CONSUMER_OFFSET, 0, FLAG_ONEWAY, 0, 9.9999)
    meter.note(999_999, 3, 0, 0, 9.9999)
    found = rows(meter)
    assert found["pull_message", "pull_not_found", "true", "success"] == ((0, 0, 0, 0, 0, 0, 1, 0, 0, 0), 500.0)
    assert ("send_message_v2", "success", "false", "success") in found, "a send that waits for the disk polls nothing"
    assert ("update_consumer_offset", "success", "false", "oneway") in found
    assert ("999999", "request_code_not_supported", "false", "success") in found


def test_codes_that_do_not_exist_cannot_fill_the_memory() -> None:
    meter = Meter()
    for code in range(100_000, 100_000 + 2 * PLACED_MAX):
        meter.place(code, 3, 0, 0, 1)
    assert len(meter.placed) == PLACED_MAX + 1
    assert rows(meter)["other", "other", "false", "success"][0][0] == PLACED_MAX
