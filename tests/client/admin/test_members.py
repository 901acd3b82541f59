"""Members of a cluster that do not answer."""

from pathlib import Path

import pytest

from tests.client.admin.test_users import administrator, pair


@pytest.mark.mission("AC-18")
async def test_a_replica_that_is_stopped_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with pair(tmp_path) as (namesrv, _, replica), administrator(namesrv) as admin:
        await replica.server.stop(0)  # without a word to the name server
        made = await admin.create_user("bob", "bob-secret")
        assert made.brokers == ("broker-a",)
        assert (await admin.describe_access("bob")).entries == ()
        assert "leave out slave=broker-a slave 1" in caplog.text
