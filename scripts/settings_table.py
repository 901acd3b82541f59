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

from cometmq import settings_table
from cometmq.broker.config import BrokerConfig
from cometmq.config import NameServerConfig, SeenConfig, ServerConfig, TlsConfig
from cometmq.proxy.config import ProxyConfig
from cometmq.settings import Live, settings_of
from cometmq.settings_table import Rows, State
from cometmq.store.options import StoreOptions
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


WITHOUT_EFFECT: Final = """## RocketMQ's other keys

The tables above and these have every key of RocketMQ 5.5.0's configuration classes. A key that asks for something that
a server would be trusted with and does not do is **refused**: the server does not start, and names the line of the file
and what to do. One that is **not built** has a line of the log at WARNING, and one **without meaning** at INFO: it
tunes a part of the Java program that is not needed here. `cometmq doctor -c FILE` shows all three before a start.
RocketMQ's default asks for nothing, except for what RocketMQ has switched on and this build does not have:
`enableCompaction`, `enableBroadcastOffsetStore`, `enableLiteEventMode`, `estimateAccumulation` and
`enableScheduleMessageStats`.

A running server changes none of them: `config set` and `mqadmin updateBrokerConfig` answer with an error that says why,
where RocketMQ answers that it was done.

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
    parts.append(WITHOUT_EFFECT + others("a broker", settings_table.BROKER))
    parts.append(others("a name server", settings_table.NAME_SERVER))
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


def others(server: str, rows: Rows) -> str:
    """Tables of what `server` does not do, by state; within one the rows of one reason stand together."""
    parts = []
    for state, heading in (
        (State.REFUSED, f"Refused by {server}"),
        (State.NOT_BUILT, f"Not built in {server}"),
        (State.WITHOUT_MEANING, f"Without meaning for {server}"),
    ):
        lines = [f"### {heading}", "", "| key | RocketMQ's default | why |", "|---|---|---|"]
        for row in sorted((row for row in rows.values() if row.state is state), key=lambda row: (row.why, row.key)):
            why = row.says() if state is State.REFUSED else row.why
            lines.append(f"| `{row.key}` | {row.default or '(none)'} | {why} |")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    sys.exit(main())
