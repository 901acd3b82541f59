"""`cometmq broker --count`: brokers of one settings file share nothing."""

from pathlib import Path

from cometmq.broker.admin import settings
from cometmq.cli.broker import own_settings


def test_each_broker_has_its_own_log_and_ports(tmp_path: Path) -> None:
    texts = {
        "brokerName": "b",
        "listenPort": "10911",
        "haListenPort": "10912",
        "storePathRootDir": str(tmp_path / "store"),
        "storePathCommitLog": f"{tmp_path}/one,{tmp_path}/two",
    }
    first, second = (own_settings(settings.load(texts), number) for number in range(2))
    assert second == {
        "brokerName": "b-1",
        "listenPort": "10921",
        "haListenPort": "10922",
        "storePathRootDir": f"{tmp_path}/store/b-1",
        "storePathCommitLog": f"{tmp_path}/one/b-1,{tmp_path}/two/b-1",
        "grpcServerPort": "-1",
        "brokerConfigPath": "",
    }
    assert not {first[key] for key in first if key not in ("brokerConfigPath", "grpcServerPort")} & set(second.values())


def test_what_the_file_does_not_set_follows_from_the_directory(tmp_path: Path) -> None:
    own = own_settings(settings.load({"brokerName": "b", "storePathRootDir": str(tmp_path)}), 0)
    assert "storePathCommitLog" not in own
    assert "haListenPort" not in own
