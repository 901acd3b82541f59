"""Whether a hot path of the broker became dearer: fails when one costs over 15 % more than was recorded.

    make gate                                the compiled build and the interpreted one, about a minute in all
    python -m benchmarks.gate [PATH ...]     the build that PYTHONPATH selects
    python -m benchmarks.gate --record       write down what it costs now

Wall time says little on a machine that does other things, and instructions cannot be counted in every virtual machine.
So the measure is processor time, of the paths of `paths.py` and of a calibration loop that does what they do: calls,
dictionaries, small allocations, packing, copying 1 KiB, a checksum. A path's figure is how many passes of that loop one
message costs: each round by the loop right before and right after it, so that what slows the processor slows both, and
of all rounds the median. With ten other programs on two cores, figures of three runs differed by 4 to 12 %; the
cheapest round of a path by the cheapest of the loop, as it was before, differed by 8 to 20 %. A faster processor
changes both alike; a new Python version, compiler or kernel may not.

`gate.json` has the ratios, by build. Record anew after a change that is meant to cost or save, on a machine with
nothing else to do, twice; commit the file with the change, and say in its message what moved and why. Never record anew
only because the gate fails. A ratio that became 15 % cheaper is told too: unrecorded, the gain can be lost again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import struct
import sys
import time
import zlib
from pathlib import Path
from typing import Final

from benchmarks.paths import COUNTS, PATHS, is_compiled, scene
from cometmq.net.loop import run

RECORDED: Final = Path(__file__).with_name("gate.json")
DEARER_MAX: Final = 1.15
CALIBRATION_PASSES: Final = 4_000
ROUNDS: Final = 21

_HEAD: Final = struct.Struct(">iqii16s")
_BODY: Final = bytes(range(256)) * 4


def calibrate(passes: int = CALIBRATION_PASSES) -> float:
    """CPU seconds of one pass."""
    target = memoryview(bytearray(1 << 20))
    began_s = time.process_time()
    at = 0
    for number in range(passes):
        fields = {"topic": "T", "queue": str(number & 15), "id": f"{number:016X}"}
        text = "\x02".join(fields.values())
        _HEAD.pack_into(target, at, number, number, len(text), int(fields["queue"]), text.encode()[:16])
        target[at + 40 : at + 1064] = _BODY
        zlib.crc32(_BODY)
        at = (at + 1064) & 0x7FFFF
    return (time.process_time() - began_s) / passes


def judge(costs: dict[str, float], recorded: dict[str, float]) -> tuple[list[str], bool]:
    """A line for each path, and whether none is too dear."""
    lines, good = [], True
    for name, cost in costs.items():
        before = recorded.get(name)
        if before is None:
            lines.append(f"{name:12} {cost:7.2f}   is not recorded: run with --record")
            good = False
            continue
        change = cost / before
        verdict = "DEARER" if change > DEARER_MAX else "cheaper: record it" if change < 1 / DEARER_MAX else ""
        good &= change <= DEARER_MAX
        lines.append(f"{name:12} {cost:7.2f}   recorded {before:7.2f}   {change - 1:+6.1%}   {verdict}".rstrip())
    return lines, good


async def measure(names: list[str], rounds: int, share: float = 1.0) -> dict[str, float]:
    """Calibration passes that one message of each path costs."""
    passes = max(1000, int(CALIBRATION_PASSES * share))
    ratios: dict[str, list[float]] = {name: [] for name in names}
    async with scene() as on:
        for name in names:
            await PATHS[name](on, max(64, int(COUNTS[name] * share / 8)))
        for _ in range(rounds):
            for name in names:
                count = max(64, int(COUNTS[name] * share / 2))
                before_s = calibrate(passes)
                message_s = await PATHS[name](on, count) / count
                ratios[name].append(2 * message_s / (before_s + calibrate(passes)))
                await asyncio.sleep(0)
    return {name: round(statistics.median(found), 3) for name, found in ratios.items()}


def record(path: Path, build: str, costs: dict[str, float]) -> None:
    """Only the figures that were measured change."""
    content: dict[str, dict[str, float]] = json.loads(path.read_text()) if path.exists() else {}
    content[build] = {**content.get(build, {}), **costs}
    path.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", default=list(PATHS), metavar="PATH", help=", ".join(PATHS))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    unknown = [name for name in options.paths if name not in PATHS]
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(PATHS)}")
    build = "compiled" if is_compiled() else "interpreted"
    costs: dict[str, float] = run(measure(options.paths, options.rounds))
    if options.record:
        record(RECORDED, build, costs)
    recorded = json.loads(RECORDED.read_text()).get(build, {}) if RECORDED.exists() else {}
    lines, good = judge(costs, recorded)
    print(f"{build}: passes of the calibration loop per message")
    print("\n".join(lines))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
