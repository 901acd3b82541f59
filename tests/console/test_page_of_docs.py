"""The commands in docs/console.md do what the page says, as they stand there."""

import asyncio
import re
from pathlib import Path

import pytest

from cometmq.testing import Cluster
from tests.support.browser import console

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "console.md"


@pytest.mark.mission("CO-17")
async def test_every_curl_of_the_page_answers_as_it_stands() -> None:
    blocks = [
        block
        for block in re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
        if "curl" in block
    ]
    assert len(blocks) == 2
    async with Cluster(topics=["orders"]) as cluster, cluster.client() as client, client.admin() as admin:
        await admin.create_group("billing")
        async with client.producer("pg") as producer:
            await producer.send("orders", b"the one", keys=["4711"], tag="created")
        async with console(cluster.namesrv) as address:
            lines = [line for line in blocks[0].splitlines() if line]
            for script in (*lines, blocks[1]):
                local = script.replace("http://127.0.0.1:8099/", address)
                shell = await asyncio.create_subprocess_exec("bash", "-c", local, stdout=asyncio.subprocess.PIPE)
                out, _ = await shell.communicate()
                text = out.decode()
                assert text, script
                assert '"error"' not in text.replace('"error":null', ""), (script, text)
                if "key:4711" in script or "tag:created" in script or "export" in script:
                    assert "the one" in text, script
            assert '"result":"done"' in text
        offsets = await admin.committed_offsets("billing", "orders")
        assert sum(offsets.values()) == 1
