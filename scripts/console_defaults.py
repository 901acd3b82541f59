"""Writes what a broker has if nobody sets anything, for the console's settings page: static/broker-defaults.json.

    python scripts/console_defaults.py            write it
    python scripts/console_defaults.py --check    exit 1 if it is out of date

The console knows the client only, so it cannot ask the broker's own classes. Paths, names and addresses are left out.
"""

import json
import sys
from pathlib import Path

from cometmq.broker.config import BrokerConfig
from cometmq.settings import settings_of
from cometmq.store.options import StoreOptions

FILE = Path(__file__).resolve().parent.parent / "src" / "cometmq" / "console" / "static" / "broker-defaults.json"
OF_THE_PLACE = ("path", "dir", "addr", "ip", "name", "host")


def text() -> str:
    found: dict[str, str] = {}
    for kind in (BrokerConfig, StoreOptions):
        for key, (attribute, _) in settings_of(kind).items():
            value = getattr(kind(), attribute)
            if isinstance(value, bool | int | float | str) and not key.lower().endswith(OF_THE_PLACE):
                found[key] = str(value).lower() if isinstance(value, bool) else str(value)
    return json.dumps(dict(sorted(found.items())), indent=0) + "\n"


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(FILE.read_text(encoding="utf-8") != text())
    FILE.write_text(text(), encoding="utf-8")
