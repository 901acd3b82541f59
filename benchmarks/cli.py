"""How long the command line takes: the whole process, from exec to exit, as a person waits for it.

    python benchmarks/cli.py [ROUNDS]

| command | limit |
|---|---|
| `cometmq --help` | 150 ms |
| `cometmq topic list` against a running cluster | 400 ms |

Prints best, median and worst of each, and the processor time of the best, which other programs on the machine hardly
change; exit code 1 if a median is over its limit.
"""

import os
import resource
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
        print(f"{'command':<24} {'best':>8} {'median':>8} {'worst':>8} {'cpu':>8} {'limit':>8}   ms, {rounds} rounds")
        for arguments, limit_ms in LIMITS_MS.items():
            runs = sorted(measure([command, *arguments], environment) for _ in range(rounds))
            best, median, worst = runs[0][0], runs[len(runs) // 2][0], runs[-1][0]
            cpu = min(run[1] for run in runs)
            missed |= median > limit_ms
            print(f"{' '.join(arguments):<24} {best:8.1f} {median:8.1f} {worst:8.1f} {cpu:8.1f} {limit_ms:8.0f}")
    return 1 if missed else 0


def measure(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Time and processor time of one run, in ms."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    subprocess.run(command, env=environment, check=True, capture_output=True)
    took = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return took * 1000, (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


if __name__ == "__main__":
    sys.exit(main())
