"""Our broker beside RocketMQ's, both warm, on RocketMQ's own benchmark programs, on the same machine, in turns.

    make bench                                            the paths with goals, three rounds, and the limits
    python -m benchmarks.versus_java --only send64,sync64 --rounds 1 --seconds 10 --json build/bench.json
    python -m benchmarks.versus_java --all                every path: threads, sizes, a slave, our client, two brokers
    python -m benchmarks.versus_java --report build/bench.json          table, README and docs/bench.svg from a file

One name server and one broker of each make run for all rounds of all paths that need no other settings, on their
defaults. The makes take turns; while one is measured, the other waits. The load is the stock Java program
(`org.apache.rocketmq.example.benchmark`), for gRPC the stock Go client, or one of ours where RocketMQ has none: the
same for both. A measurement ends when the broker has handled a million messages and three windows in a row agree
within 5 %, which warms the load program too; those three windows are what counts. Brokers, load and this program are in
one scheduling group, which is checked. Messages are counted at the broker.

    cpu           the broker's processor time per message, ours / RocketMQ's; less than 1 is cheaper
    throughput    ours / RocketMQ's, medians over rounds; more than 1 is faster. The load program shares the machine:
                  its own processor time per message stands beside it
    fresh start   time from the start of the first process until name server and broker serve

`--json` adds to what the file has, so a long run can be made in pieces. Files: `versus/loads.py` has the paths and
goals, `sides.py` the brokers, `driving.py` one measurement, `limits.py` what the machine can do, `report.py` the words.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from benchmarks.versus import limits, report
from benchmarks.versus.driving import measure
from benchmarks.versus.loads import LOADS, MAIN
from benchmarks.versus.results import Record, Results, load_file, save_file
from benchmarks.versus.sides import OVERLAY, ROOT, Side, side

PICTURE = "docs/bench.svg"


def main() -> int:
    options = parse(sys.argv[1:])
    if options.report is not None:
        publish(load_file(options.report))
        return 0
    if not (OVERLAY / ".ready").exists():
        raise SystemExit("there is no compiled build: run make bench, or make build/compiled/.ready")
    results = load_file(options.json)
    run = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    if options.limits:
        results.limits.append(limits.measure())
        save_file(options.json, results)
    for names in by_settings(options.only):
        measure_together(names, results, options, run)
    print(report.table(results))
    return 0


def by_settings(names: list[str]) -> list[list[str]]:
    """Paths that the same brokers can serve, one process of a make for all of them."""
    groups: dict[tuple[object, ...], list[str]] = {}
    for name in names:
        load = LOADS[name]
        two = "comet-2" in load.makes
        groups.setdefault((load.settings, load.slave, load.grpc, two), []).append(name)
    return list(groups.values())


def measure_together(names: list[str], results: Results, options: argparse.Namespace, run: str) -> None:
    with tempfile.TemporaryDirectory(prefix="versus-") as place, ExitStack() as stack:
        sides: dict[str, Side] = {}
        for name in names:
            load = LOADS[name]
            for number in range(options.rounds):
                for make in load.makes:
                    if make == "comet-interpreted" and not options.interpreted:
                        continue
                    home = Path(place) / make
                    if make not in sides:
                        home.mkdir()
                        sides[make] = stack.enter_context(side(make, home, dict(load.settings), load.slave, load.grpc))
                    record = measure(sides[make], name, options.seconds, run, number, home)
                    results.add([record])
                    save_file(options.json, results)
                    print(line(record), file=sys.stderr, flush=True)


def line(record: Record) -> str:
    return (
        f"  {record.load:13} {record.make:18} {record.cpu_us:7.1f} us {record.per_s:9.0f}/s  load "
        f"{record.load_us:6.1f} us  {record.private_mib:6.0f} MiB  ready {record.ready_s:.2f} s  "
        f"{record.windows} windows{'' if record.settled else ', NOT SETTLED'}, {record.failed} failed"
        + (f", p50 {record.p50_us:.0f} us, p99 {record.p99_us:.0f} us" if record.p50_us else "")
    )


def publish(results: Results) -> None:
    print(report.table(results))
    (ROOT / PICTURE).write_text(report.chart(results), encoding="utf-8")
    report.write_section(ROOT / "README.md", report.section(results, PICTURE))


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=_names, default=list(MAIN), metavar="PATH,...", help=f"of {', '.join(LOADS)}")
    parser.add_argument("--all", action="store_const", const=list(LOADS), dest="only", help="every path")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long a window is")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "bench.json", metavar="FILE", help="adds to it")
    parser.add_argument("--report", type=Path, metavar="FILE", help="measure nothing; write README and chart from FILE")
    parser.add_argument("--no-interpreted", action="store_false", dest="interpreted", help="the compiled build only")
    parser.add_argument(
        "--no-limits", action="store_false", dest="limits", help="leave out echo, memcpy, disk, network"
    )
    return parser.parse_args(arguments)


def _names(text: str) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in LOADS]
    if unknown:
        raise argparse.ArgumentTypeError(f"there is no {', '.join(unknown)}; there are {', '.join(LOADS)}")
    return names


if __name__ == "__main__":
    sys.exit(main())
