"""What each promise costs: the same load against a broker in each mode of flush and replication.

    python -m benchmarks.modes [MESSAGES]

Servers are processes of their own on one machine and one disk; one sender sends messages of 1 KiB, each after the
answer to the one before (`cometmq bench send --senders 1`), so that what is measured is the time that an ack takes, the
best of three runs. A replica on the same disk is the worst case for SYNC_MASTER: both write to it.
Prints the rows of the table in docs/promises.md.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.compat.harness import remoting
from tests.compat.harness.processes import wait_until

GET_HA_STATUS = 907
MESSAGES = 1000
ROUNDS = 3
MODES = (
    ("ASYNC_FLUSH", "ASYNC_MASTER"),
    ("SYNC_FLUSH", "ASYNC_MASTER"),
    ("ASYNC_FLUSH", "SYNC_MASTER"),
    ("SYNC_FLUSH", "SYNC_MASTER"),
)


@contextmanager
def server(log: Path, *arguments: str) -> Iterator[str]:
    """A server process; gives its `ready` line."""
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "cometmq.cli.main", *arguments], stdout=subprocess.PIPE, stderr=errors, text=True
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("ready"):
            raise SystemExit(f"{arguments[0]} did not start: {log.read_text()[-500:]}")
        yield line
    finally:
        process.terminate()
        process.wait(30)
        if process.stdout is not None:
            process.stdout.close()


def broker_arguments(directory: Path, namesrv: str, flush: str, role: str, broker_id: int) -> list[str]:
    settings = {
        "storePathRootDir": directory / f"broker-{broker_id}",
        "listenPort": 0,
        "haListenPort": 0,
        "brokerId": broker_id,
        "brokerRole": role,
        "flushDiskType": flush,
        "mappedFileSizeCommitLog": 64 << 20,
    }
    sets = [f"--set={key}={value}" for key, value in settings.items()]
    return ["broker", "-n", namesrv, "--log-level", "warning", *sets]


def measure(flush: str, role: str, messages: int, rounds: int) -> tuple[float, float]:
    """Median and 99th percentile of the time of one send, in ms."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("COMETMQ_BENCH_DIR")) as name, ExitStack() as stack:
        directory = Path(name)
        names = stack.enter_context(server(directory / "namesrv.log", "nameserver", "--listen", "127.0.0.1:0",
                                           "--set", f"kvConfigPath={directory / 'kv.json'}"))  # fmt: skip
        namesrv = names.split("namesrv=")[1].split()[0]
        master = stack.enter_context(
            server(directory / "master.log", *broker_arguments(directory, namesrv, flush, role, 0))
        )
        if role == "SYNC_MASTER":
            arguments = broker_arguments(directory, namesrv, flush, "SLAVE", 1)
            stack.enter_context(server(directory / "slave.log", *arguments))
            await_replica(master.split("broker=")[1].split()[0])
        found = [load(namesrv, messages) for _ in range(rounds)]
        return min(one["p50_ms"] for one in found), min(one["p99_ms"] for one in found)


def measure_set(messages: int, rounds: int) -> tuple[float, float]:
    """A set of three that elects its master, with an etcd: an ack has two copies on disk."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("COMETMQ_BENCH_DIR")) as name, ExitStack() as stack:
        directory = Path(name)
        ports = ("--namesrv-port", "0", "--broker-port", "0", "--grpc-port", "0")
        ready = stack.enter_context(
            server(directory / "up.log", "up", "--set-of", "3", "--data", str(directory / "data"), *ports)
        )
        namesrv = ready.split("namesrv=")[1].split()[0]
        master = ready.split("brokers=")[1].split()[0].split(",")
        wait_until(lambda: any(has_two_replicas(each) for each in master), "three copies in sync", 60)
        found = [load(namesrv, messages) for _ in range(rounds)]
        return min(one["p50_ms"] for one in found), min(one["p99_ms"] for one in found)


def has_two_replicas(broker: str) -> bool:
    links = remoting.call(broker, GET_HA_STATUS).json()["haConnectionInfo"]
    return len([link for link in links if link["inSync"]]) == 2


def await_replica(master: str) -> None:
    """Until it is counted as a copy: before that, SYNC_MASTER answers SLAVE_NOT_AVAILABLE at once."""

    def follows() -> bool:
        links = remoting.call(master, GET_HA_STATUS).json()["haConnectionInfo"]
        return any(link["inSync"] and link["slaveAckOffset"] >= 0 for link in links)

    wait_until(follows, f"the replica of {master}", 60)


def load(namesrv: str, messages: int) -> dict[str, float]:
    ran = subprocess.run(
        [sys.executable, "-m", "cometmq.cli.main", "bench", "send", "--namesrv", namesrv, "-n", str(messages),
         "--senders", "1", "-o", "json", "--timeout", "20s"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if ran.returncode:
        raise SystemExit(ran.stderr)
    found: dict[str, float] = json.loads(ran.stdout)
    if found["unconfirmed"]:
        raise SystemExit(f"{found['unconfirmed']} messages were not confirmed: the replica does not follow")
    return found


def rows(messages: int, rounds: int = ROUNDS) -> Iterator[str]:
    """The lines of the table, mode by mode."""
    for flush, role in MODES:
        median_ms, slow_ms = measure(flush, role, messages, rounds)
        yield f"| {flush} | {role} | {median_ms:.2f} | {slow_ms:.2f} |"
    median_ms, slow_ms = measure_set(messages, rounds)
    yield f"| a set of three | elected | {median_ms:.2f} | {slow_ms:.2f} |"


def main() -> int:
    messages = int(sys.argv[1]) if len(sys.argv) > 1 else MESSAGES
    print("| flush | role | p50, ms | p99, ms |\n|---|---|---|---|")
    for row in rows(messages):
        print(row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
