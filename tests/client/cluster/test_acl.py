"""Signatures and namespace marks on requests."""

import pytest

from cometmq.auth.signature import key_of, signed_values
from cometmq.wire.codes import Request
from tests.support.clusters import scripted_cluster


async def test_every_request_is_signed_last() -> None:
    async with (
        scripted_cluster("a") as cluster,
        cluster.client(access_key="ak", secret_key="sk", namespace_v2="mine") as client,
        client.producer("pg", topics=("T",)) as producer,
    ):
        await producer.send("T", b"x")
        await producer.send_oneway("T", b"x")
        await producer.stop()
        codes = {command.code for command in cluster["a"].asked}
        assert codes == {Request.HEART_BEAT, Request.SEND_MESSAGE_V2, Request.UNREGISTER_CLIENT}
        for command in cluster["a"].asked:
            ext = dict(command.ext)
            assert (ext["ns"], ext["nsd"]) == ("mine", "true")
            assert ext["Signature"] == key_of("sk").sign(signed_values(ext, command.version), command.body)


@pytest.mark.parametrize("binary", [False, True])
async def test_signed_headers_travel_in_both_forms(binary: bool) -> None:
    async with (
        scripted_cluster("a") as cluster,
        cluster.client(access_key="ak", secret_key="sk", binary_headers=binary) as client,
        client.producer("pg") as producer,
    ):
        await producer.send("T", b"x", keys=["ü"])
        (command,) = [it for it in cluster["a"].asked if it.code == Request.SEND_MESSAGE_V2]
        assert command.form == int(binary)
        assert command.ext["Signature"] == key_of("sk").sign(signed_values(command.ext, command.version), command.body)
