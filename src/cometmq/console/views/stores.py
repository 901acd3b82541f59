"""What pipelines and archives leave in directories: `--pipelines DIR` and `--lake DIR` name them.

    pipelines   every *.json that a pipeline wrote as its report (name, state, batch, rows a second, lag, error)
    archives    ROOT/data/topic=T/day=2026-01-31/*.parquet, with the gap to the live topic

There is no table of the lake yet, so archives only.
"""

import json
import re
import time
from pathlib import Path
from typing import Any, Final

from cometmq.console.context import Context
from cometmq.errors import CometError

FILES_MAX: Final = 20_000
REPORTS_MAX: Final = 500
REPORT_BYTES_MAX: Final = 1 << 20
DAY: Final = re.compile(r"(?:day|date|dt)=([0-9-]{8,10})")


def pipelines(directory: Path | None) -> dict[str, Any]:
    """Blocks: call it in a thread."""
    if directory is None:
        return {"rows": [], "unknown": "the console was not told where pipelines report: --pipelines DIRECTORY"}
    if not directory.is_dir():
        return {"rows": [], "unknown": f"{directory} is no directory"}
    rows: list[dict[str, Any]] = []
    for file in sorted(directory.rglob("*.json"))[:REPORTS_MAX]:
        try:
            if file.stat().st_size > REPORT_BYTES_MAX:
                continue
            content = json.loads(file.read_bytes())
            changed_ms = int(file.stat().st_mtime * 1000)
        except (OSError, ValueError):
            continue
        if isinstance(content, dict):
            rows.append(_report(file, content, changed_ms))
    return {"rows": rows, "unknown": None}


def _report(file: Path, content: dict[str, Any], changed_ms: int) -> dict[str, Any]:
    known = ("name", "state", "batch", "rows_per_s", "lag", "error", "checkpoint", "ui")
    row = {key: content.get(key) for key in known}
    row["name"] = row["name"] or file.stem
    if row["state"] is None:
        row["state"] = "running" if time.time() * 1000 - changed_ms < 120_000 else "silent"
    row["changed_ms"] = changed_ms
    row["figures"] = {
        key: value for key, value in content.items() if key not in known and isinstance(value, str | int | float | bool)
    }
    return row


def archives(directory: Path | None) -> dict[str, Any]:
    """Blocks: call it in a thread."""
    if directory is None:
        return {"rows": [], "unknown": "the console was not told where archives are: --lake DIRECTORY"}
    if not directory.is_dir():
        return {"rows": [], "unknown": f"{directory} is no directory"}
    found: dict[tuple[str, str], dict[str, Any]] = {}
    count = 0
    for file in directory.rglob("*.parquet"):
        count += 1
        if count > FILES_MAX:
            break
        parts = file.relative_to(directory).parts
        topic = next((part.split("=", 1)[1] for part in parts if part.startswith("topic=")), parts[0])
        root = "/".join(parts[: parts.index("data")]) if "data" in parts else ""
        archive = root or directory.name
        row = found.setdefault(
            (topic, archive),
            {"archive": archive, "topic": topic, "days": set(), "files": 0, "bytes": 0, "changed_ms": 0},
        )
        day = DAY.search("/".join(parts))
        if day is not None:
            row["days"].add(day[1])
        status = file.stat()
        row["files"] += 1
        row["bytes"] += status.st_size
        row["changed_ms"] = max(row["changed_ms"], int(status.st_mtime * 1000))
    rows = []
    for row in found.values():
        days = sorted(row.pop("days"))
        rows.append(
            row | {"days": len(days), "first_day": days[0] if days else None, "last_day": days[-1] if days else None}
        )
    unknown = None if count <= FILES_MAX else f"more than {FILES_MAX} files: the figures are of the first"
    return {"rows": sorted(rows, key=lambda it: it["topic"]), "unknown": unknown}


async def with_gaps(context: Context, found: dict[str, Any]) -> dict[str, Any]:
    """How much newer the live topic is than the archive's last file."""
    for row in found["rows"]:
        try:
            stats = await context.admin.topic_stats(row["topic"])
        except CometError:
            row["gap_ms"] = None
            continue
        newest_ms = max((it.updated_ms for it in stats.values()), default=0)
        row["gap_ms"] = max(0, newest_ms - row["changed_ms"])
    return found
