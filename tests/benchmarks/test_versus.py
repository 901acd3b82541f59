"""Figures of runs add up, and become ratios, a table, a section of the README and a chart."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import socket
import subprocess
import sys
import threading
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.versus import paced, report
from benchmarks.versus.driving import failures, latencies
from benchmarks.versus.loads import GOALS, LOADS, MAIN
from benchmarks.versus.results import Record, Results, load_file, ratio, save_file
from benchmarks.versus.sides import ask
from benchmarks.versus_java import by_settings, parse


def record(make: str, per_s: float, cpu_us: float, number: int = 0, run: str = "a", load: str = "send64") -> Record:
    return Record(
        run, number, load, make, per_s, cpu_us, 33.0, 9, True, 100.0, 20.0 if make == "comet" else 800.0, 1.0, 0
    )


THREE = [
    record("java", 10_000, 50.0, 0), record("comet", 20_000, 20.0, 0),
    record("java", 12_000, 40.0, 1), record("comet", 18_000, 20.0, 1),
    record("java", 11_000, 44.0, 2), record("comet", 33_000, 22.0, 2),
]  # fmt: skip


def test_a_ratio_is_of_medians_and_its_spread_of_pairs() -> None:
    found = ratio(Results(records=THREE), "send64", "comet", "per_s")
    assert found.value == pytest.approx(20_000 / 11_000)
    assert found.low == pytest.approx(1.5)
    assert found.high == pytest.approx(3.0)


def test_the_cost_of_access_control_is_ours_with_it_by_ours_without() -> None:
    closed = [record("comet", 15_000, 25.0, load="auth64"), record("java", 9_000, 70.0, load="auth64")]
    results = Results(records=[*THREE, *closed])
    assert report.access_cost(results) == pytest.approx(25.0 / 20.0)
    assert "access control: 1.25 times our CPU of a send, goal 1.25: holds" in report.table(results)
    assert report.access_cost(Results(records=THREE)) is None


def test_a_file_keeps_what_earlier_runs_found(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "bench.json"
    first = load_file(path)
    first.add(THREE[:2])
    first.limits.append({"echo_per_s": 1.0})
    save_file(path, first)
    second = load_file(path)
    second.add([record("java", 9_000, 60.0, run="b"), record("comet", 9_000, 60.0, run="b")])
    save_file(path, second)
    third = load_file(path)
    assert len(third.records) == 4
    assert third.limits == [{"echo_per_s": 1.0}]
    assert third.machine == first.machine != ""


def test_a_round_that_is_measured_again_replaces_the_old_one() -> None:
    results = Results(records=list(THREE))
    results.add([record("comet", 1.0, 1.0, 1)])
    assert [each.per_s for each in results.of("send64", "comet")] == [20_000, 1.0, 33_000]


def test_the_table_says_which_goals_hold() -> None:
    table = report.table(Results(records=THREE))
    assert "1.82" in table
    assert "MISSED" in table.splitlines()[1]
    cheap = [record("java", 10_000, 50.0), record("comet", 20_000, 10.0)]
    assert "holds" in report.table(Results(records=cheap)).splitlines()[1]
    dear = [record("java", 10_000, 50.0), record("comet", 20_000, 30.0)]
    assert "MISSED" in report.table(Results(records=dear)).splitlines()[1]


def test_a_make_without_a_pair_is_not_in_the_table() -> None:
    assert report.rows(Results(records=[record("comet", 1.0, 1.0)])) == []


def test_the_section_replaces_what_is_between_the_marks(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    report.write_section(readme, report.section(Results("2 cores", THREE), "docs/bench.svg"))
    text = readme.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "old" not in text
    row = "| 20.0 us, 44.0 us | **0.45**, 0.40-0.50 | 20,000, 11,000 | **1.82**, 1.50-3.00 | 33.0 us, 33.0 us |"
    assert f"| send, 64 threads, 1 KiB {row}" in text


def test_a_readme_without_marks_is_left_alone(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("nothing\n")
    with pytest.raises(SystemExit, match="lacks the marks"):
        report.write_section(readme, "x")
    assert readme.read_text() == "nothing\n"


def test_the_readme_has_the_marks() -> None:
    text = (Path(__file__).parents[2] / "README.md").read_text()
    assert report.BEGIN in text
    assert report.END in text


def test_the_chart_is_a_picture_with_a_bar_for_each_path() -> None:
    root = ElementTree.fromstring(report.chart(Results(records=THREE)))
    bars = [rect for rect in root.iter("{http://www.w3.org/2000/svg}rect") if rect.get("x")]
    assert len(bars) == 1
    assert "0.45 of the CPU, at 1.82 times the rate" in "".join(root.itertext())


def test_a_row_that_never_settled_says_so() -> None:
    restless = [*THREE[:-1], dataclasses.replace(THREE[-1], settled=False, windows=24)]
    assert "not settled: comet round 3 after 24 windows" in report.table(Results(records=restless))
    assert "never agreed within 5 % in some round: send, 64 threads, 1 KiB" in report.section(
        Results("2 cores", restless), "docs/bench.svg"
    )


def test_paths_that_need_the_same_settings_share_their_brokers() -> None:
    assert by_settings(["send64", "sync64", "batch", "count2", "slave64"]) == [
        ["send64", "batch"], ["sync64"], ["count2"], ["slave64"],
    ]  # fmt: skip


def test_every_goal_is_of_a_path_that_a_plain_run_measures() -> None:
    assert {load for load, _ in GOALS} <= set(MAIN) <= set(LOADS)
    assert all(make in LOADS[load].makes for load, make in GOALS)


def test_paths_are_selected_by_name() -> None:
    assert parse(["--only", "batch,live"]).only == ["batch", "live"]
    assert parse([]).only == list(MAIN)
    assert parse(["--all"]).only == list(LOADS)
    with pytest.raises(SystemExit):
        parse(["--only", "nothing"])


def test_failures_are_read_from_what_programs_say(tmp_path: Path) -> None:
    said = tmp_path / "out"
    said.write_text("Send TPS: 5 | Send Failed: 2 | Response Failed: 3\nConsume TPS: 9 | Consume Fail: 1\n")
    assert failures(said) == 3


def test_percentiles_are_the_smallest_values_that_reach_their_part() -> None:
    hundred = [float(value) for value in range(1, 101)]
    assert paced.share(hundred, 0.5) == 50
    assert paced.share(hundred, 0.99) == 99
    assert paced.share(hundred, 1.0) == 100
    assert paced.share([], 0.5) == 0


def test_the_paced_driver_times_answers_of_a_real_socket(tmp_path: Path) -> None:
    """A peer that answers at once, with the number of the request, as a broker does."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_accept, args=(server,), daemon=True).start()
        command = [sys.executable, "-m", "benchmarks.versus.paced", f"127.0.0.1:{server.getsockname()[1]}", "T"]
        driver = subprocess.Popen([*command, "200", "64"], stdout=subprocess.PIPE, text=True, cwd=_ROOT)
        try:
            assert driver.stdout is not None
            said = tmp_path / "paced.out"
            said.write_text(driver.stdout.readline())
        finally:
            driver.kill()
            driver.wait()
            assert driver.stdout is not None
            driver.stdout.close()
    seen = json.loads(said.read_text())
    assert seen["sent"] > 0
    assert seen["failed"] == 0
    median_us, high_us = latencies(said, 1)
    assert 0 < median_us <= high_us


def test_a_broker_that_refuses_is_asked_again() -> None:
    """A busy one refuses without a body: that is no figure, and no JSON."""
    codes = [2, 1, 0]
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_accept, args=(server, codes), daemon=True).start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert ask(address, 28).code == 0
        assert codes == []
        codes += [2] * 1_000
        with pytest.raises(SystemExit, match=r"refused request 28 for 0\.2 s: 2"):
            ask(address, 28, timeout_s=0.2)


_ROOT = Path(__file__).parents[2]


def _accept(server: socket.socket, codes: list[int] | None = None) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        threading.Thread(target=_answer, args=(connection, codes), daemon=True).start()


def _answer(connection: socket.socket, codes: list[int] | None) -> None:
    """`codes` are those of the next answers; all others have code 0."""
    received = b""
    with connection, contextlib.suppress(ConnectionError):
        while data := connection.recv(1 << 16):
            received += data
            while len(received) > 8 and len(received) >= (end := 4 + int.from_bytes(received[:4], "big")):
                header = json.loads(received[8 : 8 + int.from_bytes(received[5:8], "big")])
                text = json.dumps({"code": codes.pop(0) if codes else 0, "opaque": header["opaque"]}).encode()
                connection.sendall((4 + len(text)).to_bytes(4, "big") + len(text).to_bytes(4, "big") + text)
                received = received[end:]
