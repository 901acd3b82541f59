"""What handlers say, and that nonsense does not keep a message from coming again."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cometmq import Message, Retry
from cometmq.errors import ConfigError
from tests.support.clusters import real_cluster
from tests.support.consuming import quick, send
from tests.support.net import until


@pytest.mark.parametrize("after", ["soon", -1, timedelta(seconds=-1), float("nan")])
def test_a_retry_is_asked_for_in_seconds(after: Any) -> None:
    with pytest.raises(ConfigError, match="seconds"):
        Retry(after)
    assert Retry(timedelta(minutes=1)).after == 60
    assert Retry().after is None


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_handler_that_asks_for_nonsense_has_failed(tmp_path: Path, ordered: bool) -> None:
    async with (
        real_cluster(tmp_path, "T", messageDelayLevel=" ".join(["1s"] * 18)) as cluster,
        cluster.client(route_refresh=0.1) as client,
    ):
        app = quick(client)
        counts: list[int] = []

        @app.on("T", ordered=ordered)
        async def handle(message: Message[bytes]) -> None:
            counts.append(message.delivery_count)
            if len(counts) == 1:
                raise Retry(after=-1)

        async with app:
            await send(client, "T", 1)
            await until(lambda: counts == [1, 2])
