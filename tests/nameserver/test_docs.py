"""docs/nameserver.md names every setting, and those that it calls live are."""

import re
from pathlib import Path

from cometmq.config import NameServerConfig
from cometmq.settings import settings_of

TEXT = (Path(__file__).parents[2] / "docs" / "nameserver.md").read_text(encoding="utf-8")


def documented() -> dict[str, str]:
    """Key to what its row says about changing it."""
    found: dict[str, str] = {}
    for row in re.findall(r"^\| (`.+?) \|.*?\| (now|start|no|start, no) \|", TEXT, re.MULTILINE):
        keys = re.findall(r"`([\w.]+)`", row[0])
        lives = row[1].split(", ")
        found |= dict(zip(keys, lives * len(keys) if len(lives) == 1 else lives, strict=False))
    return found


def test_every_setting_is_documented_with_how_it_may_change() -> None:
    assert documented() == {key: rule.live.value for key, (_, rule) in settings_of(NameServerConfig).items()}
