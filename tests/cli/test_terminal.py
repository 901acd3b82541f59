"""What a terminal gets that a pipe does not: colours, tables that fit, pictures drawn over each other."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from cometmq.cli.shared import output
from cometmq.testing import SyncCluster
from tests.support.terminal import WAIT_S, terminal


@pytest.fixture(scope="module")
def small() -> Iterator[SyncCluster]:
    with SyncCluster(topics=["a-topic-with-a-name-that-is-longer-than-most-names-of-topics-are"]) as cluster:
        yield cluster


@pytest.mark.parametrize("columns", [80, 160])
def test_a_table_fits_the_terminal_and_states_have_colours(small: SyncCluster, columns: int) -> None:
    with terminal(columns, "cluster", "health", "--namesrv", small.namesrv) as shown:
        text = shown.read_until("topics")
        assert shown.process.wait(WAIT_S) == 0
    assert "\x1b[32mok" in text
    plain = text.replace("\x1b[32m", "").replace("\x1b[1m", "").replace("\x1b[0m", "")
    assert max(map(len, plain.splitlines())) <= columns


@pytest.mark.mission("DU-10")
def test_no_color_means_none(small: SyncCluster) -> None:
    with terminal(80, "cluster", "health", "--namesrv", small.namesrv, NO_COLOR="1") as shown:
        assert "\x1b[" not in shown.read_until("topics")


def test_a_pipe_gets_plain_and_whole_text(small: SyncCluster) -> None:
    command = [sys.executable, "-m", "cometmq.cli.main", "topic", "list", "--namesrv", small.namesrv, "-o", "wide"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "a-topic-with-a-name-that-is-longer-than-most-names-of-topics" in text
    assert "\x1b[" not in text


@pytest.mark.mission("DU-10")
def test_watch_draws_again_until_it_is_stopped(small: SyncCluster) -> None:
    with terminal(100, "cluster", "health", "--watch", "50ms", "--namesrv", small.namesrv) as shown:
        shown.read_until("\x1b[H\x1b[2J", 3)
        shown.press(b"\x03")
        assert shown.process.wait(WAIT_S) == 0


def test_watch_goes_on_while_a_server_is_away(small: SyncCluster) -> None:
    watching = ("cluster", "list", "--watch", "50ms")
    with SyncCluster() as lost, terminal(100, *watching, "--namesrv", lost.namesrv) as shown:
        shown.read_until("broker-a")
        lost.stop_nameserver()
        shown.read_until("cometmq cluster list: ")
        lost.start_nameserver()
        shown.text = ""
        shown.read_until("broker-a")


@pytest.mark.parametrize(("widths", "width"), [([10, 60, 5], 40), ([100], 20), ([5, 5], 80), ([8, 8, 8], 10)])
def test_the_widest_columns_give_way(widths: list[int], width: int) -> None:
    fitted = output.narrowed(widths, width)
    assert all(new <= old for new, old in zip(fitted, widths, strict=True))
    assert sum(fitted) + 2 * (len(fitted) - 1) <= width or set(fitted) <= set(range(output.COLUMN_MIN + 1))
