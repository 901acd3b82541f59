"""Our broker beside RocketMQ's, on RocketMQ's own benchmark programs, on the same machine, in turns.

    make bench                                            the paths with goals, three rounds, and the limits
    python -m benchmarks.versus_java --only send64,sync64 --rounds 1 --seconds 10 --json build/bench.json
    python -m benchmarks.versus_java --all                every path: threads, sizes, a slave, our client, two brokers
    python -m benchmarks.versus_java --report build/bench.json          table, README and docs/bench.svg from a file

Each measurement starts a fresh name server and broker of one make on a fresh directory and drives it with the stock
Java program (`org.apache.rocketmq.example.benchmark`), or with one of ours where RocketMQ has none: the same for both.
The makes alternate, so that both see the same machine. Messages are counted at the broker after the program has warmed
up; processor time is the broker's own over the same seconds, divided by those messages.

    throughput    ours / RocketMQ's, medians over rounds; more than 1 is faster
    cpu           processor time per message, ours / RocketMQ's; less than 1 is cheaper

`--json` adds to what the file has, so a long run can be made in pieces. Files: `versus/loads.py` has the paths and
goals, `sides.py` the brokers, `driving.py` one measurement, `limits.py` what the machine can do, `report.py` the words.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from benchmarks.versus import limits, report
from benchmarks.versus.driving import measure
from benchmarks.versus.loads import LOADS, MAIN
from benchmarks.versus.results import Results, load_file, save_file
from benchmarks.versus.sides import OVERLAY, ROOT

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
    for number in range(options.rounds):
        for name in options.only:
            one_round(results, name, options, run, number)
    print(report.table(results))
    return 0


def one_round(results: Results, name: str, options: argparse.Namespace, run: str, number: int) -> None:
    for make in LOADS[name].makes:
        if make == "comet-interpreted" and not options.interpreted:
            continue
        record = measure(make, name, options.seconds, run, number)
        results.add([record])
        save_file(options.json, results)
        print(f"  {name:13} {make:18} {record.per_s:9.0f}/s {record.cpu_us:7.1f} us {record.private_mib:6.0f} MiB "
              f"ready {record.ready_s:.2f} s, {record.failed} failed"
              + (f", p50 {record.p50_us:.0f} us, p99 {record.p99_us:.0f} us" if record.p50_us else ""),
              file=sys.stderr, flush=True)  # fmt: skip


def publish(results: Results) -> None:
    print(report.table(results))
    (ROOT / PICTURE).write_text(report.chart(results), encoding="utf-8")
    report.write_section(ROOT / "README.md", report.section(results, PICTURE))


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=_names, default=list(MAIN), metavar="PATH,...", help=f"of {', '.join(LOADS)}")
    parser.add_argument("--all", action="store_const", const=list(LOADS), dest="only", help="every path")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each measurement counts")
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
