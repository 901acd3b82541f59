"""How long the command line takes: the whole process, from exec to exit, as a person waits for it.

    python benchmarks/cli.py [ROUNDS]

| command | limit |
|---|---|
| `cometmq --help` | 150 ms |
| `cometmq topic list` against a running cluster | 400 ms |

Prints best, median and worst of each; exit code 1 if a median is over its limit.
"""

import os
import subprocess
import sys
import time

from cometmq.testing import SyncCluster

ROUNDS = 15
LIMITS_MS = {("--help",): 150.0, ("topic", "list"): 400.0, ("topic", "--help"): 150.0, ("version",): 150.0}


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    command = os.path.join(os.path.dirname(sys.executable), "cometmq")
    missed = False
    with SyncCluster(topics=["orders", "payments"]) as cluster:
        environment = {**os.environ, "COMETMQ_NAMESRV": cluster.namesrv}
        print(f"{'command':<24} {'best':>8} {'median':>8} {'worst':>8} {'limit':>8}   ms, {rounds} rounds")
        for arguments, limit_ms in LIMITS_MS.items():
            times = sorted(measure([command, *arguments], environment) for _ in range(rounds))
            median = times[len(times) // 2]
            missed |= median > limit_ms
            print(f"{' '.join(arguments):<24} {times[0]:8.1f} {median:8.1f} {times[-1]:8.1f} {limit_ms:8.0f}")
    return 1 if missed else 0


def measure(command: list[str], environment: dict[str, str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, env=environment, check=True, capture_output=True)
    return (time.perf_counter() - began) * 1000


if __name__ == "__main__":
    sys.exit(main())
