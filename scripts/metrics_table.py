"""Writes the table of families in docs/metrics.md from broker/metrics/families.py.

python -m scripts.metrics_table             write it
python -m scripts.metrics_table --check     exit code 1 if it is not current
"""

import sys
from pathlib import Path
from typing import Final

from cometmq.broker.metrics.families import OWN, ROWS
from cometmq.nameserver.metrics import HELP

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "metrics.md"
BEGIN: Final = "<!-- families: written by scripts/metrics_table.py -->"
END: Final = "<!-- end of families -->"


def main() -> int:
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    wanted = f"{before}{BEGIN}\n\n{table()}\n{END}{after}"
    if "--check" in sys.argv[1:]:
        if text == wanted:
            return 0
        print(f"{PAGE.name} is not current: run python -m scripts.metrics_table", file=sys.stderr)
        return 1
    PAGE.write_text(wanted, encoding="utf-8")
    return 0


def table() -> str:
    lines = ["| family | type | labels | left out by | meaning |", "|---|---|---|---|---|"]
    for row in ROWS:
        suffix = {"counter": "_total", "info": "_info"}.get(row.kind, "")
        labels = ", ".join(f"`{label}`" for label in row.labels)
        group = "" if row.group == OWN else f"`{row.group}`"
        kind = "gauge" if row.kind == "info" else row.kind
        lines.append(f"| `{row.name}{suffix}` | {kind} | {labels} | {group} | {row.help} |")
    lines += ["", "A name server:", "", "| family | meaning |", "|---|---|"]
    lines += [f"| `{name}` | {text} |" for name, text in sorted(HELP.items())]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
