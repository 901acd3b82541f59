"""Records the first five minutes with CometMQ in a real terminal, and writes them into the README.

    python scripts/record_session.py             run the session, print it
    python scripts/record_session.py --write     and put it between the marks of README.md
    python scripts/record_session.py --check     exit code 1 if anything in it failed

Needs tmux. A server starts, the commands below are typed in a terminal, one after the other, and what it shows after
each is kept as it is.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
README: Final = ROOT / "README.md"
BEGIN: Final = "<!-- session: written by scripts/record_session.py -->"
END: Final = "<!-- end of session -->"
LIMIT_S: Final = 60.0
WIDTH: Final = 120
COMMANDS: Final = (
    "cometmq topic create orders --queues 4",
    "cometmq send orders hello --key 7 --tag created",
    "seq 3 | cometmq send orders --tag bulk",
    "cometmq tail orders --from earliest --no-follow",
    "cometmq message find orders --key 7",
    "cometmq group create billing",
    "cometmq group seek billing orders --to earliest --yes",
    "cometmq group lag billing",
    "cometmq cluster health",
)
WRONG: Final = ("Traceback", "command not found", "cometmq: unknown", "No such file")


class Terminal:
    """A tmux session of its own server, with a plain shell."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        self._tmux = ["tmux", "-S", str(directory / "tmux.sock"), "-f", "/dev/null"]
        settings = {**os.environ, **environment, "PS1": "$ ", "TERM": "xterm"}
        self._call("new-session", "-d", "-s", "first", "-x", str(WIDTH), "-y", "200", "env", "-i",
                   *[f"{key}={value}" for key, value in settings.items()], "sh", env=settings)  # fmt: skip

    def _call(self, *arguments: str, env: dict[str, str] | None = None) -> str:
        ran = subprocess.run([*self._tmux, *arguments], check=True, capture_output=True, text=True, env=env)
        return ran.stdout

    def type(self, command: str) -> str:
        """What the terminal shows after the command, once its prompt is back."""
        self._call("send-keys", "-t", "first", "clear", "Enter")
        self._wait(lambda shown: shown.strip() == "$")
        self._call("send-keys", "-t", "first", command, "Enter")
        shown = self._wait(lambda text: text.rstrip().endswith("\n$"))
        return "\n".join(line.rstrip() for line in shown.strip().splitlines()[:-1])

    def _wait(self, is_done: Callable[[str], bool]) -> str:
        shown = ""
        until_s = time.monotonic() + LIMIT_S
        while time.monotonic() < until_s:
            shown = self._call("capture-pane", "-p", "-t", "first")
            if is_done(shown):
                return shown
            time.sleep(0.1)
        raise SystemExit(f"the terminal did not come back:\n{shown}")

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], check=False, capture_output=True)


def record() -> str:
    if shutil.which("tmux") is None:
        raise SystemExit("recording needs tmux")
    command = Path(sys.executable).parent / "cometmq"
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        server = subprocess.Popen(
            [str(command), "up", "--data", str(directory / "data"), "--namesrv-port", "0", "--broker-port", "0"],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert server.stdout is not None
        ready = server.stdout.readline()
        namesrv = ready.split("namesrv=")[1].split()[0]
        path = f"{command.parent}:{os.environ['PATH']}"
        terminal = Terminal(directory, {"COMETMQ_NAMESRV": namesrv, "PATH": path, "COMETMQ_CONFIG": name})
        try:
            shown = [terminal.type(line) for line in COMMANDS]
        finally:
            terminal.close()
            server.terminate()
            server.wait(30)
            server.stdout.close()
    return "\n".join(shown)


def main() -> int:
    session = record()
    wrong = [mark for mark in WRONG if mark in session]
    print(session)
    if wrong:
        print(f"the session has {wrong}", file=sys.stderr)
        return 1
    if "--write" in sys.argv[1:]:
        text = README.read_text(encoding="utf-8")
        before, _, rest = text.partition(BEGIN)
        _, _, after = rest.partition(END)
        README.write_text(f"{before}{BEGIN}\n```console\n{session}\n```\n{END}{after}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
