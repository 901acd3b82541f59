"""Tables and the chart: what a person reads of `results.py`.

`table()` is for the terminal, with the goals; `section()` is what stands in the README between two marks; `chart()` is
the picture beside it: one bar a path, our processor time per message as a share of RocketMQ's, with the line at 1 that
is RocketMQ's. Processor time comes first: the load program takes half of the machine, so rates say less.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Final

from benchmarks.versus.loads import (
    ACCESS_CPU_MAX,
    GOALS,
    LATENCY_MAX,
    LOADS,
    MAIN,
    MEMORY_MAX,
    READY_TIMES_SOONER,
    Goal,
)
from benchmarks.versus.results import JAVA, Ratio, Results, median, ratio

BEGIN: Final = "<!-- figures: written by python -m benchmarks.versus_java --report -->"
END: Final = "<!-- figures end -->"
BUILDS: Final = {"comet": "", "comet-interpreted": ", interpreted", "comet-2": ""}
PACED: Final = "latency"
BAR_AT, BAR_WIDTH, ROW, HEAD = 250, 400, 34, 56
INK, PAPER, OURS, LINE = "#24292f", "#ffffff", "#2f6fab", "#b04a2f"


def title(load: str, make: str) -> str:
    return (LOADS[load].says if load in LOADS else load) + BUILDS.get(make, f", {make}")


def rows(results: Results) -> list[tuple[str, str]]:
    """Paths in the order of loads.py, ours by make, of which there are figures of both sides."""
    ordered = sorted(results.loads(), key=lambda load: list(LOADS).index(load) if load in LOADS else len(LOADS))
    return [(load, make) for load in ordered for make in results.makes(load)]


# For the terminal


def table(results: Results) -> str:
    lines = [f"{'path':45} {'cpu us':>13} {'ratio':>6} {'spread':>11} {'goal':>5}   {'ours/s':>9} {'theirs/s':>9} "
             f"{'ratio':>6} {'spread':>11} {'goal':>5}   {'load us':>13}"]  # fmt: skip
    for load, make in rows(results):
        rate, cpu = ratio(results, load, make, "per_s"), ratio(results, load, make, "cpu_us")
        goal = GOALS.get((load, make))
        ours, theirs = results.of(load, make), results.of(load, JAVA)
        lines.append(
            f"{title(load, make):45} {median(ours, 'cpu_us'):6.1f} {median(theirs, 'cpu_us'):6.1f} {cpu.value:6.2f} "
            f"{_spread(cpu):>11} {goal.cpu if goal else '':>5}   {median(ours, 'per_s'):9.0f} "
            f"{median(theirs, 'per_s'):9.0f} {rate.value:6.2f} {_spread(rate):>11} {goal.per_s if goal else '':>5}   "
            f"{median(ours, 'load_us'):6.1f} {median(theirs, 'load_us'):6.1f} {_verdict(goal, rate, cpu)}"
        )
        lines += [f"  not settled: {each.make} round {each.number + 1} after {each.windows} windows"
                  for each in (*ours, *theirs) if not each.settled]  # fmt: skip
    return "\n".join([*lines, *_other_lines(results), *(_limit_line(limits) for limits in results.limits[-1:])])


def _spread(of: Ratio) -> str:
    return f"{of.low:.2f}-{of.high:.2f}"


def _verdict(goal: Goal | None, rate: Ratio, cpu: Ratio) -> str:
    if goal is None:
        return ""
    return "holds" if rate.value >= goal.per_s and cpu.value <= goal.cpu else "MISSED"


def _other_lines(results: Results) -> list[str]:
    """Latency, memory and start-up."""
    lines = []
    if "comet" in results.makes(PACED):
        ours, theirs = results.of(PACED, "comet"), results.of(PACED, JAVA)
        for name in ("p50_us", "p99_us"):
            found, goal = ratio(results, PACED, "comet", name), LATENCY_MAX[name]
            lines.append(
                f"latency {name[:3]}: {median(ours, name):.0f} us against {median(theirs, name):.0f} us, "
                f"ratio {found.value:.2f} ({_spread(found)}), goal {goal:g}: "
                f"{'holds' if found.value <= goal else 'MISSED'}"
            )
    main = [load for load, make in rows(results) if make == "comet"]
    if main:
        load = main[0]
        memory, resident = ratio(results, load, "comet", "private_mib"), ratio(results, load, "comet", "resident_mib")
        ready = ratio(results, load, "comet", "ready_s")
        lines.append(f"private memory under {load}: ratio {memory.value:.3f}, goal {MEMORY_MAX:g}: "
                     f"{'holds' if memory.value <= MEMORY_MAX else 'MISSED'}; resident, with pages of the log: "
                     f"ratio {resident.value:.2f}")  # fmt: skip
        sooner = 1 / ready.value
        lines.append(f"ready {sooner:.1f} times sooner ({_spread(ready)}), goal {READY_TIMES_SOONER:g}: "
                     f"{'holds' if sooner >= READY_TIMES_SOONER else 'MISSED'}")  # fmt: skip
    cost = access_cost(results)
    if cost is not None:
        lines.append(f"access control: {cost:.2f} times our CPU of a send, goal {ACCESS_CPU_MAX:g}: "
                     f"{'holds' if cost <= ACCESS_CPU_MAX else 'MISSED'}")  # fmt: skip
    return lines


def access_cost(results: Results) -> float | None:
    """Processor time of our broker for a send with access control, by that without; None if both were not measured."""
    closed, usual = results.of("auth64", "comet"), results.of("send64", "comet")
    return median(closed, "cpu_us") / median(usual, "cpu_us") if closed and usual else None


def _limit_line(limits: dict[str, float]) -> str:
    return (
        f"limits: echo of the same frames {limits['echo_per_s']:,.0f}/s at {limits['echo_us']:.1f} us, memcpy "
        f"{limits['memcpy_gib_s']:.1f} GiB/s, fdatasync {limits['fdatasync_per_s']:,.0f}/s, loopback "
        f"{limits['loopback_mib_s']:,.0f} MiB/s"
    )


# For the README


def section(results: Results, picture: str) -> str:
    rounds = max((len(results.of(load, JAVA)) for load in results.loads()), default=0)
    lines = [
        f"![throughput beside RocketMQ's]({picture})",
        "",
        "| path | CPU per message: CometMQ, RocketMQ | ratio, spread | messages/s: CometMQ, RocketMQ | ratio, spread "
        "| CPU of the load program |",
        "|---|---|---|---|---|---|",
    ]
    for load, make in rows(results):
        if load == PACED:
            continue
        ours, theirs = results.of(load, make), results.of(load, JAVA)
        rate, cpu = ratio(results, load, make, "per_s"), ratio(results, load, make, "cpu_us")
        lines.append(
            f"| {title(load, make)} | {median(ours, 'cpu_us'):.1f} us, {median(theirs, 'cpu_us'):.1f} us | "
            f"**{cpu.value:.2f}**, {_spread(cpu)} | {median(ours, 'per_s'):,.0f}, {median(theirs, 'per_s'):,.0f} | "
            f"**{rate.value:.2f}**, {_spread(rate)} | {median(ours, 'load_us'):.1f} us, "
            f"{median(theirs, 'load_us'):.1f} us |"
        )
    lines += ["", *_prose(results, rounds)]
    return "\n".join(lines)


def _prose(results: Results, rounds: int) -> list[str]:
    said = []
    if "comet" in results.makes(PACED):
        ours, theirs = results.of(PACED, "comet"), results.of(PACED, JAVA)
        said.append(
            f"At 2,000 sends a second half are answered within {median(ours, 'p50_us'):.0f} us (RocketMQ "
            f"{median(theirs, 'p50_us'):.0f} us), 99 of 100 within {median(ours, 'p99_us'):.0f} us (RocketMQ "
            f"{median(theirs, 'p99_us'):.0f} us)."
        )
    main = [load for load, make in rows(results) if make == "comet"]
    if main:
        ours, theirs = results.of(main[0], "comet"), results.of(main[0], JAVA)
        said.append(
            f"Private memory under load: {median(ours, 'private_mib'):.0f} MiB against "
            f"{median(theirs, 'private_mib'):.0f} MiB. From a fresh start, name server and broker serve after "
            f"{median(ours, 'ready_s'):.1f} s, RocketMQ's after {median(theirs, 'ready_s'):.1f} s."
        )
    cost = access_cost(results)
    if cost is not None:
        said.append(f"Access control makes a send cost {cost:.2f} times its CPU without.")
    if results.limits:
        said.append(f"The machine: {results.machine}; {_limit_line(results.limits[-1])}.")
    said.append(f"Rounds: {rounds}, the makes in turn, medians of the warm windows.")
    unsettled = [each for each in results.records if not each.settled]
    if unsettled:
        by_load: dict[str, list[str]] = {}
        for each in unsettled:
            by_load.setdefault(title(each.load, "comet"), []).append("RocketMQ" if each.make == JAVA else each.make)
        names = "; ".join(f"{load} ({', '.join(dict.fromkeys(makes))})" for load, makes in by_load.items())
        said.append(f"Rows whose windows never agreed within 5 % in some round: {names}.")
    return said


def write_section(readme: Path, text: str) -> None:
    whole = readme.read_text(encoding="utf-8")
    before, found, rest = whole.partition(BEGIN)
    _, found_end, after = rest.partition(END)
    if not (found and found_end):
        raise SystemExit(f"{readme} lacks the marks {BEGIN} and {END}")
    readme.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")


# The picture


def chart(results: Results) -> str:
    bars = [
        (title(load, make), ratio(results, load, make, "cpu_us"), ratio(results, load, make, "per_s").value)
        for load, make in rows(results)
        if load in MAIN and load != PACED
    ]
    most = max([1.25, *(cpu.high for _, cpu, _ in bars)])
    per_unit = BAR_WIDTH / most
    height = HEAD + ROW * len(bars) + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="900" height="{height}" viewBox="0 0 900 {height}" '
        f'font-family="sans-serif" font-size="13" fill="{INK}">',
        f'<rect width="900" height="{height}" fill="{PAPER}"/>',
        '<text x="16" y="26" font-size="16" font-weight="bold">'
        "Processor time per message beside RocketMQ 5.5.0, both warm</text>",
    ]
    for number, (name, cpu, rate) in enumerate(bars):
        top = HEAD + ROW * number
        end = BAR_AT + cpu.value * per_unit
        low, high = BAR_AT + cpu.low * per_unit, BAR_AT + cpu.high * per_unit
        label = f"{cpu.value:.2f} of the CPU, at {rate:.2f} times the rate"
        parts += [
            f'<text x="{BAR_AT - 10}" y="{top + 16}" text-anchor="end">{escape(name)}</text>',
            f'<rect x="{BAR_AT}" y="{top + 2}" width="{cpu.value * per_unit:.1f}" height="20" fill="{OURS}"/>',
            f'<path d="M{low:.1f} {top + 12}H{high:.1f}" stroke="{INK}" stroke-width="2"/>',
            f'<text x="{max(end, high) + 8:.1f}" y="{top + 16}" font-size="12">{label}</text>',
        ]
    at = BAR_AT + per_unit
    parts += [
        f'<path d="M{at:.1f} {HEAD - 8}V{height - 20}" stroke="{LINE}" stroke-width="2" stroke-dasharray="4 3"/>',
        f'<text x="{at:.1f}" y="{height - 6}" text-anchor="middle" font-size="12" fill="{LINE}">RocketMQ = 1</text>',
        "</svg>",
    ]
    return "\n".join(parts) + "\n"
