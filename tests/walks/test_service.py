"""The first day of somebody who writes a service: a broker, a topic, a consumer, a failure, a repair, all by the tool.

Real processes in a terminal of 80 and of 160 columns. What a person would read is checked, and that it fits.
"""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.terminal import WAIT_S, terminal

SERVICE = '''
from pydantic import BaseModel

from cometmq import PushConsumer, Reject, StartFrom


class Order(BaseModel):
    number: int
    item: str


app = PushConsumer("billing", start=StartFrom.FIRST)


@app.on("orders")
async def bill(order: Order) -> None:
    if order.item == "unicorn":
        raise Reject(f"no {order.item} in stock")
    print("billed", order.number, flush=True)
'''


@contextlib.contextmanager
def up(folder: Path) -> Iterator[str]:
    """`cometmq up` on free ports; the address of its name server."""
    command = [sys.executable, "-m", "cometmq.cli.main", "up", "--data", str(folder / "data"), "--no-console"]
    command += ["--namesrv-port", "0", "--broker-port", "0", "--log-level", "error"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            ready = dict(word.split("=") for word in process.stdout.readline().split()[1:])
            yield ready["namesrv"]
        finally:
            process.terminate()
            process.wait(WAIT_S)


@pytest.mark.parametrize("columns", [80, 160])
def test_a_service_is_written_fails_and_is_repaired(tmp_path: Path, columns: int) -> None:
    (tmp_path / "shop.py").write_text(SERVICE)
    with up(tmp_path) as namesrv:

        def said(*words: str, code: int = 0) -> str:
            with terminal(columns, *words, cwd=tmp_path, COMETMQ_NAMESRV=namesrv) as shown:
                assert shown.end() == code, shown.plain
                if code == 0 and "dlq" not in words:  # the last column of bodies may be long
                    assert max(map(len, shown.plain.splitlines()), default=0) <= columns, shown.plain
                return shown.plain

        assert "did you mean topic?" in said("topics", code=2)
        assert "no name server knows topic orders: create it first" in said("send", "orders", "{}", code=6)
        assert "created orders" in said("topic", "create", "orders", "--queues", "2")
        with terminal(columns, "run", "shop:app", cwd=tmp_path, COMETMQ_NAMESRV=namesrv) as service:
            service.read_until("run group=billing")
            assert "SEND_OK" in said("send", "orders", '{"number": 1, "item": "book"}', "--key", "1")
            service.read_until("billed 1")
            said("send", "orders", '{"number": 2, "item": "unicorn"}', "--key", "2")
            service.read_until("bury message group=billing")
            service.press(b"\x03")
            assert service.end() == 0
        letters = said("dlq", "list", "billing")
        assert "Reject: no" in letters
        (tmp_path / "shop.py").write_text(SERVICE.replace('"unicorn"', '"dragon"'))
        assert "nothing was sent: add --yes" in said("dlq", "replay", "billing")
        assert "sent 1 of 1 again" in said("dlq", "replay", "billing", "--yes")
        with terminal(columns, "run", "shop:app", cwd=tmp_path, COMETMQ_NAMESRV=namesrv) as service:
            service.read_until("billed 2")
            service.press(b"\x03")
            assert service.end() == 0
        assert "0 behind" in said("group", "lag", "billing")
        assert "topics" in said("cluster", "health")
