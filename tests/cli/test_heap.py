"""Memory that comes and goes stays with the server."""

import os
import platform
import subprocess
import sys

import pytest

COUNT = """
import resource, sys
from cometmq.cli.shared import serving

if sys.argv[1] == "kept":
    serving.keep_heap()

def take_and_free():
    frames = [bytes(32 << 10) for _ in range(40)]
    del frames

take_and_free()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50):
    take_and_free()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="NOT TESTED: another C library than glibc")
def test_a_server_does_not_fetch_the_memory_of_each_batch_anew() -> None:
    assert 10 * faults("kept") < faults("as it is")


def faults(heap: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", COUNT, heap], capture_output=True, text=True, timeout=60, check=True, env=os.environ
    )
    return int(done.stdout)
