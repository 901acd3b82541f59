"""Names with and without their namespace."""

import pytest

from cometmq.client.cluster.namespaces import strip, wrap


@pytest.mark.parametrize(
    ("name", "wrapped"),
    [
        ("orders", "ns%orders"),
        ("ns%orders", "ns%orders"),
        ("%RETRY%billing", "%RETRY%ns%billing"),
        ("%DLQ%billing", "%DLQ%ns%billing"),
        ("%RETRY%ns%billing", "%RETRY%ns%billing"),
        ("TBW102", "TBW102"),
        ("rmq_sys_x", "rmq_sys_x"),
        ("CID_RMQ_SYS_x", "CID_RMQ_SYS_x"),
    ],
)
def test_wrapping_and_stripping(name: str, wrapped: str) -> None:
    assert wrap("ns", name) == wrapped
    assert strip("ns", wrapped) == name.replace("ns%", "")
    assert wrap(None, name) == name
    assert strip(None, wrapped) == wrapped
