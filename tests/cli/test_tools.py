"""Checks what needs no cluster: forms of output, contexts, explanations, the doctor, store stats and rebuild."""

import argparse
import json
import os
import socket
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from cometmq.cli.context import Tls, resolve
from cometmq.cli.doctor import masked
from cometmq.cli.explain import CODES
from cometmq.cli.shared import checkup, output, progress
from cometmq.cli.shared.arguments import duration, joined_moments, size
from cometmq.cli.shared.histogram import Histogram
from cometmq.cli.shared.times import bytes_text, moment_ms, span_text
from cometmq.clock import ManualClock
from cometmq.errors import ConfigError
from cometmq.store.disk import OsDisk
from cometmq.store.log.append import AppendRequest
from cometmq.wire.codes import Response
from tests.cli.conftest import Comet
from tests.support.golden import copy_golden_store
from tests.support.whole_store import open_store

# Output


def test_a_table_aligns_numbers_right_and_cuts_all_but_the_last_column() -> None:
    rows = [{"name": "a", "n": 5, "text": "x" * 100}, {"name": "bbb", "n": 1000, "text": None}]
    lines = output.table(rows, ("name", "n", "text")).splitlines()
    assert lines[0] == "NAME     N  TEXT"
    assert lines[1] == "a        5  " + "x" * 100
    assert lines[2] == "bbb   1000  -"
    assert len(output.table(rows, ("text", "n")).splitlines()[1]) < 80


def test_yaml_nests_and_quotes() -> None:
    value = {"name": "a: b", "list": [{"x": 1, "y": [1, 2]}, {"x": None}], "empty": {}, "yes": True, "7": "n"}
    assert output.yaml(value) == "\n".join(
        [
            'name: "a: b"',
            "list:",
            "  - x: 1",
            "    y:",
            "      - 1",
            "      - 2",
            "  - x: null",
            "empty: {}",
            "yes: true",
            '"7": "n"',
        ]
    )


def test_times_and_sizes_are_read_and_written_as_people_do() -> None:
    assert (duration("250ms"), duration("2m"), duration("1.5h"), duration("7")) == (0.25, 120, 5400, 7)
    assert (size("4k"), size("1g"), size("100")) == (4096, 1 << 30, 100)
    assert moment_ms("-1h", 10_000_000) == 6_400_000
    assert moment_ms("2026-11-15T12:00:00Z", 0) == 1794744000000
    assert moment_ms("1794744000000", 0) == 1794744000000
    assert moment_ms("now", 5) == 5
    with pytest.raises(ConfigError):
        moment_ms("soon", 0)
    assert [span_text(ms) for ms in (850, 12_000, 200_000, 18_600_000, 183_600_000)] == [
        "850 ms",
        "12 s",
        "3 m 20 s",
        "5 h 10 m",
        "2 d 3 h",
    ]
    assert (bytes_text(10), bytes_text(1536), bytes_text(5 << 40)) == ("10 B", "1.5 KiB", "5.0 TiB")
    assert joined_moments(["--from", "-1h", "-n", "5", "--to", "now"]) == ["--from=-1h", "-n", "5", "--to", "now"]


def test_a_histogram_knows_its_quantiles_within_five_percent() -> None:
    times = Histogram()
    for value in range(1, 10_001):
        times.add(value / 100)
    figures = times.figures()
    assert figures["p50_ms"] == pytest.approx(50, rel=0.06)
    assert figures["p99_ms"] == pytest.approx(99, rel=0.06)
    assert figures["max_ms"] == 100
    assert sum(row["count"] for row in times.rows()) == 10_000
    assert Histogram().figures()["p99_ms"] == 0


# Contexts


def options(**given: str | None) -> argparse.Namespace:
    return argparse.Namespace(**{"namesrv": None, "context": None, "access_key": None, "secret_key": None, **given})


def test_contexts_are_added_used_listed_and_removed(lonely: Comet, tmp_path: Path) -> None:
    lonely.good("context", "add", "first", "--namesrv", "ns1:9876")
    lonely.good("context", "add", "prod", "--namesrv", "ns2:9876;ns3:9876", "--access-key", "ak", "--secret-key", "sk")
    listed = lonely.good("context", "list", "-o", "json")
    assert listed.json == [
        {"name": "first", "namesrv": "ns1:9876", "current": True, "keys": False, "tls": False},
        {"name": "prod", "namesrv": "ns2:9876;ns3:9876", "current": False, "keys": True, "tls": False},
    ]
    assert "sk" not in listed.out
    lonely.good("context", "use", "prod")
    file = tmp_path / "config" / "contexts.json"
    assert file.stat().st_mode & 0o077 == 0, "a context has keys: nobody else may read it"
    assert json.loads(file.read_text())["current"] == "prod"
    lonely.good("context", "remove", "prod")
    assert lonely("context", "use", "prod").code == 6
    wrong = lonely("context", "add", "x", "--namesrv", "nowhere")
    assert (wrong.code, wrong.err.count("\n")) == (2, 1)
    file.write_text("{")
    broken = lonely("context", "list")
    assert (broken.code, broken.err.count("\n")) == (3, 1)
    assert str(file) in broken.err


def test_keys_may_come_from_files_at_every_place(
    lonely: Comet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = {"COMETMQ_CONFIG": str(tmp_path / "config")}
    secret = tmp_path / "secret"
    secret.write_text("marker-1\n")
    monkeypatch.chdir(tmp_path)
    keys = ("--access-key", "ak", "--secret-key", "@secret", "--tls-ca", "ca.pem")
    lonely.good("context", "add", "one", "--namesrv", "one:1", *keys)
    monkeypatch.chdir("/")
    assert resolve(options(), home).tls == Tls(ca=str(tmp_path / "ca.pem"))
    assert "marker" not in (tmp_path / "config" / "contexts.json").read_text()
    assert resolve(options(), home).secret_key == "marker-1"
    secret.write_text("marker-2\n")
    named = options(access_key="ak", secret_key=f"@{secret}")
    assert resolve(named, {}).secret_key == "marker-2"
    assert resolve(options(), {**home, "COMETMQ_SECRET_KEY": f"@{secret}"}).secret_key == "marker-2"
    assert "marker" not in repr(resolve(named, {}))
    secret.unlink()
    with pytest.raises(ConfigError, match="--secret-key: cannot read"):
        resolve(named, {})


def test_a_context_takes_the_keys_of_mqadmin(lonely: Comet, tmp_path: Path) -> None:
    tools = tmp_path / "tools.yml"
    tools.write_text("accessKey: rocketmq2\nsecretKey: 12345678\n")
    lonely.good("context", "add", "old", "--namesrv", "one:1", "--from-tools-yml", tools)
    found = resolve(options(), {"COMETMQ_CONFIG": str(tmp_path / "config")})
    assert (found.access_key, found.secret_key) == ("rocketmq2", "12345678")
    for text, cause in (("accessKey: a\n", "has no accessKey and secretKey"), ("a: [", "is not YAML")):
        tools.write_text(text)
        wrong = lonely("context", "add", "old", "--namesrv", "one:1", "--from-tools-yml", tools)
        assert (wrong.code, wrong.err.count("\n")) == (2, 1)
        assert cause in wrong.err
    both = lonely("context", "add", "x", "--namesrv", "one:1", "--from-tools-yml", tools, "--access-key", "a")
    assert both.code == 2
    missing = lonely("context", "add", "x", "--namesrv", "one:1", "--from-tools-yml", tmp_path / "none")
    assert "cannot read" in missing.err


def test_a_file_of_contexts_that_others_can_read_is_closed_to_them(lonely: Comet, tmp_path: Path) -> None:
    lonely.good("context", "add", "one", "--namesrv", "one:1")
    file = tmp_path / "config" / "contexts.json"
    file.chmod(0o644)
    lonely.good("context", "list")
    assert file.stat().st_mode & 0o077 == 0


def test_a_flag_is_stronger_than_the_environment_and_that_than_a_context(lonely: Comet, tmp_path: Path) -> None:
    home = {"COMETMQ_CONFIG": str(tmp_path / "config")}
    assert resolve(options(), home).namesrv == "127.0.0.1:9876"
    lonely.good("context", "add", "one", "--namesrv", "one:1", "--access-key", "ak", "--secret-key", "sk", "--use")
    lonely.good("context", "add", "two", "--namesrv", "two:2")
    target = resolve(options(), home)
    assert (target.namesrv, target.access_key, target.secret_key) == ("one:1", "ak", "sk")
    assert resolve(options(), home | {"COMETMQ_CONTEXT": "two"}).namesrv == "two:2"
    assert resolve(options(), home | {"NAMESRV_ADDR": "env:3"}).namesrv == "env:3"
    assert resolve(options(), home | {"NAMESRV_ADDR": "env:3", "COMETMQ_NAMESRV": "own:4"}).namesrv == "own:4"
    flagged = resolve(options(namesrv="flag:5"), home | {"COMETMQ_NAMESRV": "own:4"})
    assert (flagged.namesrv, flagged.access_key) == ("flag:5", None)
    assert resolve(options(context="two"), home | {"COMETMQ_NAMESRV": "own:4"}).namesrv == "two:2"
    with pytest.raises(ConfigError):
        resolve(options(access_key="ak"), {"COMETMQ_CONFIG": str(tmp_path / "none")})


# Explain


def test_every_code_of_the_protocol_is_explained(lonely: Comet) -> None:
    numbers = {name: value for name, value in vars(Response).items() if isinstance(value, int)}
    assert {code: CODES[code][0] for code in numbers.values()} == {code: name for name, code in numbers.items()}
    told = lonely.good("explain", "14", "-o", "json").json
    assert (told["code"], told["name"]) == (14, "SERVICE_NOT_AVAILABLE")
    assert lonely.good("explain", "topic-not-exist", "-o", "json").json["code"] == 17
    assert len(lonely.good("explain", "-o", "json").json) == len(CODES)
    assert lonely("explain", "4711").code == 6


# Doctor


def test_the_doctor_looks_at_everything_and_says_what_is_wrong(lonely: Comet, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("listenPort=0\nflushDiskType=SYNC_FLUSH\nflushDiskTipe=SYNC_FLUSH\naclSecretKey=hunter2\n")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ran = lonely("doctor", "--data", tmp_path, "-c", conf, "--ports", str(port), "-o", "json",
                     "--bundle", tmp_path / "report.tar.gz")  # fmt: skip
    findings = {one["check"]: one for one in ran.json}
    assert findings[f"port {port}"]["state"] == "warn"
    assert "flushDiskTipe" in findings["settings"]["found"]
    for check in ("build", "open files", "data directory", "disk space", "file system", "flush"):
        assert check in findings
    assert all(one["fix"] for one in ran.json if one["state"] != "ok")
    with tarfile.open(tmp_path / "report.tar.gz") as bundle:
        texts = {entry.name: bundle.extractfile(entry) for entry in bundle}
        whole = b"".join(file.read() for file in texts.values() if file is not None)
    assert "cometmq-doctor/findings.json" in texts
    assert b"hunter2" not in whole
    assert masked({"tls.server.keyPassword": "x"}) == {"tls.server.keyPassword": "***"}
    assert masked({"listenPort": "1"}) == {"listenPort": "1"}


def test_the_doctor_fails_where_a_broker_would(lonely: Comet, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("flushDiskType=SOMETIMES\n")
    ran = lonely("doctor", "--data", tmp_path, "-c", conf, "-o", "json", "--ports", "0")
    assert ran.code == 1
    assert next(one for one in ran.json if one["check"] == "settings")["state"] == "fail"
    assert lonely("doctor", "-c", tmp_path / "none.conf").code == 3
    conf.write_text("listenPort=ninety\n")
    assert lonely("doctor", "--data", tmp_path, "-c", conf).code == 1
    assert lonely("doctor", "--ports", "x").code == 2


@pytest.mark.parametrize(
    ("texts", "state", "found"),
    [
        ({"listenPort": "0"}, "ok", "this machine only"),
        ({"bindAddress": "0.0.0.0"}, "warn", "whoever reaches 0.0.0.0 may do anything"),
        ({"authenticationEnabled": "true"}, "warn", "every user may do everything"),
        ({"authenticationEnabled": "true", "authorizationEnabled": "true"}, "warn", "can be read and sent again"),
        (
            {"authenticationEnabled": "true", "authorizationEnabled": "true", "tls.server.mode": "enforcing"},
            "ok",
            "signed, permitted and encrypted",
        ),
    ],
)
def test_the_doctor_says_who_may_talk_to_the_broker(texts: dict[str, str], state: str, found: str) -> None:
    (finding,) = checkup.access(texts)
    assert (finding.state, found in finding.found) == (state, True)
    assert bool(finding.fix) == (state != "ok")


# Store


SIZES: dict[str, Any] = {"segment_bytes": 16_384, "queue_file_bytes": 400, "index_slots": 100, "index_entries": 400}


def fill(root: Path) -> None:
    clock = ManualClock()
    store = open_store(OsDisk(), clock, root=str(root), **SIZES)
    for number in range(200):
        clock.advance(1)
        store.put(AppendRequest(f"Topic{number % 3}", number % 2, b"%d" % number, f"KEYS\x01k{number}\x02"))
    store.close()


def test_a_bar_is_drawn_for_a_person_and_for_nobody_else(
    lonely: Comet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = copy_golden_store("clean", tmp_path / "store")
    assert lonely.good("store", "check", root).err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    watched = lonely.good("store", "check", root)
    assert "records" in watched.err
    assert watched.err.endswith(progress.ERASE)
    assert watched.out.endswith("all is well\n")
    assert progress.bar(0.25).startswith("[##########....")
    assert progress.bar(7.0).endswith("100%")


def test_stats_count_messages_by_topic(lonely: Comet, tmp_path: Path) -> None:
    fill(tmp_path)
    found = lonely.good("store", "stats", tmp_path, "-o", "json").json
    assert {row["topic"]: row["messages"] for row in found} == {"Topic0": 67, "Topic1": 67, "Topic2": 66}
    assert all(row["bytes"] > row["body_bytes"] > 0 and row["queues"] == 2 for row in found)
    assert lonely("store", "stats", tmp_path / "none").code == 3


def test_rebuild_makes_queues_and_index_from_the_log_alone(lonely: Comet, tmp_path: Path) -> None:
    fill(tmp_path)
    sample = next((tmp_path / "consumequeue" / "Topic0" / "0").iterdir())
    sample.write_bytes(os.urandom(400))
    assert lonely("store", "check", tmp_path).code == 1
    plan = lonely.good("store", "rebuild", tmp_path)
    assert "nothing was changed" in plan.err
    assert lonely("store", "check", tmp_path).code == 1
    done = lonely.good("store", "rebuild", tmp_path, "--yes", "-o", "json").json
    assert (done["records"], done["units"], done["index_entries"], done["problems"]) == (200, 200, 200, 0)
    assert lonely.good("store", "check", tmp_path).out.endswith("all is well\n")
    assert (Path(done["replaced"]) / "consumequeue" / "Topic0").is_dir()
    assert sample.stat().st_size == 400, "files keep their size"


def test_rebuild_leaves_a_store_alone_that_a_broker_uses(lonely: Comet, tmp_path: Path) -> None:
    store = open_store(OsDisk(), root=str(tmp_path), **SIZES)
    ran = lonely("store", "rebuild", tmp_path, "--yes")
    store.close()
    assert ran.code == 3
    assert (tmp_path / "consumequeue").exists() or not list(tmp_path.glob("replaced-*"))


def test_rebuilt_queues_of_a_java_store_are_byte_for_byte_its_own(lonely: Comet, tmp_path: Path) -> None:
    root = copy_golden_store("clean", tmp_path / "store")
    done = lonely.good("store", "rebuild", root, "--yes", "-o", "json").json
    assert done["problems"] == 0
    before = Path(done["replaced"]) / "consumequeue"
    files = [file.relative_to(before) for file in before.rglob("*") if file.is_file()]
    assert len(files) > 10
    for file in files:
        assert (root / "consumequeue" / file).read_bytes() == (before / file).read_bytes(), file
