"""A disk that is really full, under a real server: what the tool says to who sends, and to who reads."""

from pathlib import Path

from cometmq.cli.shared import failures
from tests.support.small_disk import run_on_small_disk

FILL = """
import os, subprocess, sys, time
root = sys.argv[1]
tool = [sys.executable, "-m", "cometmq.cli.main"]
settings = {
    "mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 6000, "maxHashSlotNum": 100, "maxIndexNum": 400,
    "mappedFileSizeTimerLog": 1 << 20, "timerWheelEnable": "false", "cleanResourceInterval": 200,
    "brokerFastFailureEnable": "false",
}
up = [*tool, "up", "--data", root + "/data", "--namesrv-port", "0", "--broker-port", "0"]
server = subprocess.Popen([*up, *(f"--set={key}={text}" for key, text in settings.items())], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True)
namesrv = server.stdout.readline().split("namesrv=")[1].split()[0]

def comet(*arguments):
    command = [*tool, *arguments, "--namesrv", namesrv, "--timeout", "20s"]
    return subprocess.run(command, capture_output=True, text=True)

comet("topic", "create", "T", "--queues", "1")
assert comet("send", "T", "before").returncode == 0
with open(root + "/filler", "wb", buffering=0) as filler:
    try:
        while True:
            filler.write(bytes(4096))
    except OSError:
        pass
until = time.monotonic() + 60
while (refused := comet("send", "T", "x")).returncode == 0 and time.monotonic() < until:
    pass
read = comet("tail", "T", "--from", "earliest", "-n", "1", "-f", "%v")
os.unlink(root + "/filler")
while (after := comet("send", "T", "after")).returncode != 0 and time.monotonic() < until:
    pass
server.terminate()
server.wait(60)
print(refused.returncode, read.stdout, after.returncode)
print(refused.stderr, end="")
"""


def test_a_disk_that_is_full_is_one_line_for_who_sends_and_nothing_for_who_reads(tmp_path: Path) -> None:
    outcome, *lines = run_on_small_disk(tmp_path, "16m", "-c", FILL).splitlines()
    assert outcome == f"{failures.EXIT_DISK} before 0"
    assert len(lines) == 1, lines
    assert "disk" in lines[0]
    assert "cometmq cluster health" in lines[0]
