"""Writes docs/settings.md: every setting of broker, store, name server and proxy, from the classes that define them.

    python -m scripts.settings_table             write it
    python -m scripts.settings_table --check     exit code 1 if it is not current

What a setting does is in `settings_effects`; groups are the comments that begin one.
"""

import inspect
import re
import sys
from pathlib import Path
from typing import Any, Final

from cometmq.broker.config import BROKER_INERT, BrokerConfig
from cometmq.config import NAME_SERVER_INERT, NameServerConfig, SeenConfig, ServerConfig, TlsConfig
from cometmq.proxy.config import ProxyConfig
from cometmq.settings import Live, settings_of
from cometmq.store.options import EXPLAINED_KEYS, StoreOptions
from scripts.settings_effects import EFFECTS

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "settings.md"
UNITS: Final = {"ms": "ms", "s": "s", "bytes": "bytes", "percent": "%", "hours": "hours"}
CHANGES: Final = {Live.NOW: "at once", Live.START: "after a restart", Live.NEVER: "in the file only"}
KINDS: Final[tuple[tuple[str, type[Any]], ...]] = (
    ("Every server and a proxy", TlsConfig),
    ("What every server and a proxy show of themselves", SeenConfig),
    ("Every server", ServerConfig),
    ("Broker", BrokerConfig),
    ("Store", StoreOptions),
    ("Name server", NameServerConfig),
    ("Proxy", ProxyConfig),
)
HEAD: Final = """# Settings

Written by `scripts/settings_table.py` from the source; do not edit. [operate.md](operate.md) says which of them matter.

A broker reads RocketMQ's `broker.conf`: `cometmq broker -c broker.conf --set key=value`. `cometmq broker -p` prints
every setting with its value, `cometmq config get` asks a running one, `cometmq config set` changes what may change
while it runs: *at once*, or kept and used *after a restart*. What names files, ports and roles is changed *in the file
only*.
"""


def main() -> int:
    text = page()
    if "--check" in sys.argv[1:]:
        if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text:
            return 0
        print(f"{PAGE.name} is not current: run python -m scripts.settings_table", file=sys.stderr)
        return 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


def page() -> str:
    parts = [HEAD]
    for title, kind in KINDS:
        parts.append(f"## {title}\n\n" + table(kind))
    parts.append("## Keys without effect\n\n" + inert())
    return "\n".join(parts)


def table(kind: type[Any]) -> str:
    source = inspect.getsource(kind)
    home = str(Path.home())
    lines: list[str] = []
    group = ""
    comment = ""
    defaults = kind()
    by_attribute = {name: (key, rule) for key, (name, rule) in settings_of(kind).items()}
    head = "| key | default | changes | what it is |\n|---|---|---|---|"
    for line in source.splitlines():
        remark = re.fullmatch(r"    # (.*)", line)
        field = re.match(r"    (\w+): .*= setting\(", line)
        if remark is not None:
            comment = f"{comment} {remark[1]}".strip()
        elif not line.strip():
            comment = ""
        elif field is not None and field[1] in by_attribute:
            key, rule = by_attribute[field[1]]
            if comment and is_group(comment) and comment != group:
                group, comment = comment, ""
                lines += ["", f"### {group}", "", head]
            elif not lines:
                lines.append(head)
            default = shown(getattr(defaults, field[1])).replace(home, "~")
            effect = EFFECTS[key]
            unit = unit_of(field[1])
            lines.append(f"| `{key}` | {default}{unit} | {CHANGES[rule.live]} | {effect} |")
            comment = ""
    return "\n".join(lines).strip() + "\n"


def is_group(comment: str) -> bool:
    """A heading is short and no sentence."""
    return len(comment) < 60 and not re.search(r"[.:;]", comment)


def unit_of(attribute: str) -> str:
    unit = next((word for word in attribute.split("_") if word in UNITS), "")
    return f" {UNITS[unit]}" if unit else ""


def shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"`{value}`" if value != "" else "(none)"


def inert() -> str:
    rows = [f"| `{key}` | {default} | {why} |" for key, (default, why) in sorted(EXPLAINED_KEYS.items())]
    known = {key: default for key, default in (BROKER_INERT | NAME_SERVER_INERT).items() if key not in EXPLAINED_KEYS}
    others = ", ".join(f"`{key}`" for key in sorted(known))
    return (
        "RocketMQ's keys that mean nothing here are read, kept, shown and saved; a line of the log says so once.\n\n"
        "| key | RocketMQ's default | why it has no effect |\n|---|---|---|\n" + "\n".join(rows) + "\n\n"
        f"Threads, buffers and features of the Java process: {others}.\n"
    )


if __name__ == "__main__":
    sys.exit(main())
