"""Settings that a member of a set does not follow are refused, not ignored."""

import pytest

from cometmq.broker.admin import settings as live
from cometmq.settings import SettingError

MODE = {"enableControllerMode": "true", "controllerStore": "etcd://127.0.0.1:2379"}


def test_a_member_of_a_set_starts_with_its_own_settings() -> None:
    assert live.load(MODE).config.handover_forward_ms == 60_000


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"enableControllerMode": "true"}, "go together"),
        ({"controllerStore": "etcd://127.0.0.1:2379"}, "go together"),
        ({**MODE, "allAckInSyncStateSet": "true"}, "set inSyncReplicas instead"),
        ({**MODE, "enableAutoInSyncReplicas": "true"}, "set inSyncReplicas instead"),
        ({**MODE, "enableSlaveActingMaster": "true"}, "set one of them"),
    ],
)
def test_what_a_set_does_not_follow_is_refused_with_what_to_set(given: dict[str, str], says: str) -> None:
    with pytest.raises(SettingError, match=says):
        live.load(given)
